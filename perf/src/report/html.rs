//! The report as one page that needs nothing else.

use std::fmt::Write as _;

use super::text::{duration, interval, micros, number, thousands};
use super::{Line, Report, svg};
use crate::measure::Role;

const STYLE: &str = include_str!("style.css");

/// The page.
pub(crate) fn html(report: &Report) -> String {
    let shown: Vec<&Line> = report
        .rows
        .iter()
        .filter(|line| !matches!(line.role, Role::Again(_)))
        .collect();
    let verdicts = report.verdicts.iter();
    let verdicts: Vec<String> = verdicts
        .map(|verdict| format!("<li>{}</li>\n", escaped(verdict)))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Roofline: {scenario}</title>\n<style>\n{STYLE}</style>\n\
         <h1>Roofline: {scenario}</h1>\n<p>{about}. {setup}.</p>\n\
         <h2>Verdicts</h2>\n<ul>\n{verdicts}</ul>\n\
         <h2>Requests per second</h2>\n<p>Medians of the rounds; whiskers are 95% intervals. Grey bars are \
         bare loops that send the same bytes without reading what was asked.</p>\n{rates}\
         <h2>Where the CPU went</h2>\n<p>Microseconds per request of all threads of a side; the number \
         behind a bar is time on a core, without the wait for one.</p>\n{legend}{spent}\
         <h2>Latency</h2>\n<p>Share of requests that were answered within a time; both axes are \
         logarithmic.</p>\n{latencies}\
         <h2>All rows</h2>\n{table}\n</html>\n",
        scenario = escaped(&report.scenario),
        verdicts = verdicts.concat(),
        about = escaped(&report.about),
        setup = escaped(&report.setup()),
        rates = svg::rates(&shown),
        spent = svg::spent(&shown),
        legend = legend(),
        latencies = latencies(&shown),
        table = table(&report.rows),
    )
}

/// A plot for each load: latencies of different loads have nothing in common.
fn latencies(lines: &[&Line]) -> String {
    let mut loads: Vec<&str> = lines.iter().map(|line| &*line.load).collect();
    loads.dedup();
    let mut known: Vec<&str> = Vec::new();
    loads.retain(|load| {
        let is_new = !known.contains(load);
        known.push(load);
        is_new
    });
    let plot = |load: &&str| {
        let of_load: Vec<&Line> = lines
            .iter()
            .filter(|line| line.load == **load)
            .copied()
            .collect();
        format!("<h3>{}</h3>\n{}", escaped(load), svg::latencies(&of_load))
    };
    loads.iter().map(plot).collect::<Vec<String>>().concat()
}

fn legend() -> String {
    let parts = [
        ("server-user", "server, program"),
        ("server-kernel", "server, kernel"),
        ("server-wait", "server, waiting for a core"),
        ("client-user", "client, program"),
        ("client-kernel", "client, kernel"),
        ("client-wait", "client, waiting for a core"),
    ];
    let entry = |(class, text): (&str, &str)| {
        format!(
            "<span><svg class=\"key\" viewBox=\"0 0 12 12\"><rect class=\"{class}\" width=\"12\" \
             height=\"12\"/></svg> {text}</span>\n"
        )
    };
    format!("<p class=\"legend\">\n{}</p>\n", parts.map(entry).concat())
}

fn table(lines: &[Line]) -> String {
    let header = [
        "",
        "requests/s",
        "95% interval",
        "limit",
        "server CPU",
        "client CPU",
        "× ceiling",
        "95% interval",
        "p50",
        "p99",
        "TTFT p50",
        "events/s",
        "response",
    ];
    let mut table = String::from("<div class=\"wide\"><table>\n<tr>");
    for name in header {
        write!(table, "<th>{name}</th>").expect("a String takes all");
    }
    for line in lines {
        table += "</tr>\n<tr>";
        for cell in cells(line) {
            write!(table, "<td>{}</td>", escaped(&cell)).expect("a String takes all");
        }
    }
    table += "</tr>\n</table></div>";
    table
}

fn cells(line: &Line) -> [String; 13] {
    let at = |curve: &[(f64, f64)], wanted: f64| {
        let point = curve
            .iter()
            .find(|(quantile, _)| (quantile - wanted).abs() < 1e-9);
        point.map_or_else(String::new, |(_, ns)| duration(*ns))
    };
    [
        line.name.clone(),
        number(line.qps, 0),
        interval(line.qps, 0),
        line.limit.map_or("", crate::limit::Limit::name).to_owned(),
        micros(line.server_us),
        micros(line.client_us),
        number(line.to_ceiling, 2),
        interval(line.to_ceiling, 2),
        at(&line.latency_ns, 0.5),
        at(&line.latency_ns, 0.99),
        at(&line.ttft_ns, 0.5),
        line.events_per_second.map_or_else(String::new, thousands),
        format!("{} B", line.response_bytes),
    ]
}

/// Text as HTML has to spell it.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(character),
        }
    }
    escaped
}
