//! The report as text.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::{Line, Median, Report};
use crate::measure::Role;
use crate::verdict::{Comparison, Quantity, Question};

/// What is printed: two tables, and below them the verdicts.
pub(crate) fn text(report: &Report) -> String {
    let mut text = format!("roofline: {}\n{}\n\n", report.about, report.setup());
    let rates: Vec<[String; 8]> = report.rows.iter().map(rates).collect();
    let header = [
        "",
        "requests/s",
        "95% interval",
        "server CPU",
        "client CPU",
        "x ceiling",
        "95% interval",
        "limit",
    ];
    text += &table(header, &rates);
    text += "\n\n";
    let header = [
        "",
        "latency p50",
        "p99",
        "TTFT p50",
        "p99",
        "events/s",
        "per server CPU s",
    ];
    let is_shown = |line: &&Line| line.role == Role::Subject;
    text += &table(
        header,
        &report
            .rows
            .iter()
            .filter(is_shown)
            .map(times)
            .collect::<Vec<_>>(),
    );
    text += "\n\n";
    for verdict in &report.verdicts {
        writeln!(text, "- {verdict}").expect("a String takes all");
    }
    text
}

/// The first columns, and the verdicts that fit below them.
pub fn brief(report: &Report) -> String {
    let first = |line: &Line| {
        let [name, qps, interval, server, client, ..] = rates(line);
        [name, qps, interval, server, client]
    };
    let header = ["", "requests/s", "95% interval", "server CPU", "client CPU"];
    let mut text = table(header, &report.rows.iter().map(first).collect::<Vec<_>>());
    let notes = "medians of interleaved rounds, server and client sharing this machine; CPU time of all \
                 threads of a side, per request";
    write!(text, "\n{notes}\n\n").expect("a String takes all");
    let is_shown = |known: &&Comparison| {
        known.question == Question::Usage || known.quantity == Quantity::RequestsPerSecond
    };
    for comparison in report.comparisons.iter().filter(is_shown) {
        writeln!(text, "- {}", comparison.sentence()).expect("a String takes all");
    }
    text
}

fn rates(line: &Line) -> [String; 8] {
    let failed = match line.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let limit = line.limit.map_or("", crate::limit::Limit::name);
    [
        line.name.clone(),
        number(line.qps, 0),
        interval(line.qps, 0),
        micros(line.server_us),
        micros(line.client_us),
        number(line.to_ceiling, 2),
        interval(line.to_ceiling, 2),
        format!("{limit}{failed}"),
    ]
}

fn times(line: &Line) -> [String; 7] {
    let at = |curve: &[(f64, f64)], wanted: f64| {
        let point = curve
            .iter()
            .find(|(quantile, _)| (quantile - wanted).abs() < 1e-9);
        point.map_or_else(|| "-".into(), |(_, ns)| duration(*ns))
    };
    let per_second = |value: Option<f64>| value.map_or_else(|| "-".into(), thousands);
    [
        line.name.clone(),
        at(&line.latency_ns, 0.5),
        at(&line.latency_ns, 0.99),
        at(&line.ttft_ns, 0.5),
        at(&line.ttft_ns, 0.99),
        per_second(line.events_per_second),
        per_second(line.requests_per_server_cpu_second),
    ]
}

/// Columns that say nothing are left out.
fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let says = |column: &usize| {
        let mut cells = rows.iter().map(|row| &row[*column]);
        *column == 0 || cells.any(|cell| cell != "-")
    };
    let columns: Vec<usize> = (0..N).filter(says).collect();
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(columns.iter().map(|column| header[*column]));
    for row in rows {
        table.add_row(columns.iter().map(|column| &row[*column]));
    }
    for (column, of) in table.column_iter_mut().zip(&columns) {
        let is_text = *of == 0 || header[*of] == "limit";
        column.set_cell_alignment(if is_text {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        });
    }
    table.trim_fmt()
}

pub(super) fn number(estimate: Option<Median>, digits: usize) -> String {
    estimate.map_or_else(
        || "-".into(),
        |estimate| with_digits(estimate.estimate, digits),
    )
}

pub(super) fn interval(estimate: Option<Median>, digits: usize) -> String {
    let ends = estimate.and_then(|estimate| estimate.low.zip(estimate.high));
    ends.map_or_else(
        || "-".into(),
        |(low, high)| {
            format!(
                "{} to {}",
                with_digits(low, digits),
                with_digits(high, digits)
            )
        },
    )
}

pub(super) fn micros(estimate: Option<Median>) -> String {
    estimate.map_or_else(
        || "-".into(),
        |estimate| format!("{:.1} µs", estimate.estimate),
    )
}

fn with_digits(value: f64, digits: usize) -> String {
    match digits {
        0 => thousands(value),
        _ => format!("{value:.digits$}"),
    }
}

/// A whole number with commas.
pub(super) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds in a unit that suits them, with three significant digits.
pub(super) fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        _ if ns < 1e3 => (ns, "ns"),
        _ if ns < 1e6 => (ns / 1e3, "µs"),
        _ if ns < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let digits = match value {
        _ if value < 10.0 => 2,
        _ if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(
            ["7", "999", "1,000", "51,234", "1,234,567"],
            [7.0, 999.0, 999.6, 51_234.4, 1_234_567.0]
                .map(thousands)
                .each_ref()
                .map(String::as_str)
        );
        assert_eq!(
            [900.0, 12_340.0, 1_234_000.0, 2e9].map(duration),
            ["900 ns", "12.3 µs", "1.23 ms", "2.00 s"]
        );
    }
}
