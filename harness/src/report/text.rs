//! `report.txt`: the summary for people.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::summary::{OtherBasis, Summary};
use crate::bench::{Stability, TokenCountSource};
use crate::stats::{Distribution, float};

/// A summary as lines of at most 100 columns, without colour.
pub fn text(summary: &Summary) -> String {
    let mut out = String::new();
    for line in head(summary) {
        let _ = writeln!(out, "{line}");
    }
    let table = table(summary).trim_fmt();
    let _ = writeln!(out, "\n{table}\n\n{NOTES}");
    if summary.ids.is_some() {
        let _ = writeln!(out, "{RETURNED}");
    }
    if summary.send_late.is_some() {
        let _ = writeln!(out, "{LATE}");
    }
    for line in tail(summary) {
        let _ = writeln!(out, "{line}");
    }
    out
}

const NOTES: &str = "\
latency  intended send time to the end of the answer; ttft to its first chunk with text
tpot     (end − first chunk) / (output tokens − 1); itl gaps between chunks with text
usage    token counts as the server reports them; client: by the client's own tokenizer";

const RETURNED: &str =
    "ids      token ids that were sent or returned, the one that stopped the answer among them";

const LATE: &str =
    "send_late  intended send time to the write: what the client itself adds to latency and ttft";

fn head(summary: &Summary) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} of {} samples completed, {} failed, in {}",
            summary.n_samples_completed,
            summary.n_samples_issued,
            summary.n_samples_failed,
            time(float(summary.duration_ns)),
        ),
        format!("{} requests/s", number(summary.qps)),
    ];
    let (client, server) = (CLIENT, USAGE);
    let primary = match summary.token_count_source {
        TokenCountSource::Client => client,
        TokenCountSource::Server => server,
    };
    if let Some(tps) = summary.tps {
        let _ = write!(lines[1], ", {} output tokens/s ({primary})", number(tps));
    }
    if let Some(tps) = summary.tps_server.filter(|_| primary == client) {
        let _ = write!(lines[1], ", {} ({server})", number(tps));
    }
    if summary.interrupted {
        lines.push("the run was interrupted".into());
    }
    lines.extend(summary.stability.map(stability));
    let kinds = summary.errors.iter();
    let kinds: Vec<String> = kinds
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    if !kinds.is_empty() {
        lines.push(format!("failures: {}", kinds.join(", ")));
    }
    lines
}

fn stability(stability: Stability) -> String {
    let known = stability.half_width.map_or_else(
        || "no interval".into(),
        |half_width| format!("±{:.2}% (95%)", half_width * 100.0),
    );
    let state = if stability.is_stable {
        "stable"
    } else {
        "not stable"
    };
    format!(
        "throughput {state}: {known} from {} windows of 500 ms",
        stability.windows
    )
}

const CLIENT: &str = "client";
const USAGE: &str = "usage";
const IDS: &str = "ids";

fn table(summary: &Summary) -> Table {
    let (primary, other) = match summary.token_count_source {
        TokenCountSource::Client => (CLIENT, USAGE),
        TokenCountSource::Server => (USAGE, CLIENT),
    };
    let (OtherBasis::Client {
        input,
        output,
        tpot,
    }
    | OtherBasis::Server {
        input,
        output,
        tpot,
    }) = &summary.other;
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["", "mean", "min", "p50", "p90", "p99", "p99.9", "max"]);
    for (name, block) in [
        ("latency", &summary.latency),
        ("ttft", &summary.ttft),
        (&*format!("tpot ({primary})"), &summary.tpot),
        (&*format!("tpot ({other})"), tpot),
        ("itl", &summary.itl),
        ("send_late", &summary.send_late),
    ] {
        // A closed loop has no time to be late for.
        if name == "send_late" && block.is_none() {
            continue;
        }
        table.add_row(row(name, block.as_ref(), time));
    }
    let (primary_input, primary_output) = (
        &summary.input_sequence_lengths,
        &summary.output_sequence_lengths,
    );
    let mut lengths = vec![
        (format!("input tokens ({primary})"), primary_input),
        (format!("input tokens ({other})"), input),
        (format!("output tokens ({primary})"), primary_output),
        (format!("output tokens ({other})"), output),
    ];
    if let Some(ids) = &summary.ids {
        if ids.input.is_some() {
            lengths.insert(2, (format!("input tokens ({IDS})"), &ids.input));
        }
        lengths.push((format!("output tokens ({IDS})"), &ids.output));
    }
    for (name, block) in lengths {
        table.add_row(row(&name, block.as_ref(), number));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(name: &str, block: Option<&Distribution>, format: fn(f64) -> String) -> Vec<Cell> {
    let partial = block.is_some_and(|block| block.partial);
    let mark = if partial { " *" } else { "" };
    let mut cells = vec![Cell::new(format!("{name}{mark}"))];
    match block {
        None => cells.extend(std::iter::repeat_n(Cell::new("–"), 7)),
        Some(block) => {
            let ranked = [
                block.min, block.p50, block.p90, block.p99, block.p999, block.max,
            ];
            cells.push(Cell::new(format(block.mean)));
            cells.extend(ranked.map(|value| Cell::new(format(float(value)))));
        }
    }
    cells
}

fn tail(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(paired) = summary.osl_paired {
        let ratio = paired.ratio.map(|ratio| format!(", ratio {ratio:.4}"));
        lines.push(format!(
            "output tokens, client − usage: mean {:+.3} over {} samples{}",
            paired.mean_diff,
            paired.n,
            ratio.unwrap_or_default()
        ));
    }
    if summary.n_samples_missing_usage > 0 {
        lines.push(format!(
            "* {} completed samples lack usable usage, {} of them with an empty answer",
            summary.n_samples_missing_usage, summary.n_samples_missing_usage_empty_output
        ));
    }
    if summary.exit_code() == 4 && summary.n_samples_missing_usage == 0 {
        lines.push("* some completed samples lack a count of their prompt".into());
    }
    if summary.n_samples_resent > 0 {
        lines.push(format!(
            "{} samples were sent again: the server had closed an idle connection, or dropped a request",
            summary.n_samples_resent
        ));
    }
    for (what, client, server) in [
        (
            "CPU time per request",
            summary.client_cpu_ns_per_request,
            summary.server_cpu_ns_per_request,
        ),
        (
            "wait for a core per request",
            summary.client_wait_ns_per_request,
            summary.server_wait_ns_per_request,
        ),
    ] {
        let sides = [(client, "client"), (server, "server")];
        let sides: Vec<String> = sides
            .iter()
            .filter_map(|(cpu, name)| Some(format!("{} on the {name}", time((*cpu)?))))
            .collect();
        if !sides.is_empty() {
            lines.push(format!("{what}: {}", sides.join(", ")));
        }
    }
    lines
}

/// Nanoseconds in the unit that suits them.
fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        ..1e3 => format!("{nanoseconds:.0} ns"),
        1e3..1e6 => format!("{} µs", number(nanoseconds / 1e3)),
        1e6..1e9 => format!("{} ms", number(nanoseconds / 1e6)),
        _ => format!("{} s", number(nanoseconds / 1e9)),
    }
}

/// Three digits or more, none behind the point where there is nothing.
fn number(value: f64) -> String {
    match value {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        ..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
