//! Outcomes for people and for programs.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;

use super::basis::{Basis, list, word};
use super::outcome::Outcome;
use super::scenario::Scenario;
use crate::cli::Format;

/// Columns of a line.
const WIDTH: u16 = 158;

#[derive(Serialize)]
struct Report<'a> {
    n_scenarios: usize,
    n_failed: usize,
    scenarios: &'a [Outcome],
}

/// One JSON document.
pub(super) fn json(outcomes: &[Outcome]) -> String {
    let report = Report {
        n_scenarios: outcomes.len(),
        n_failed: failed(outcomes).count(),
        scenarios: outcomes,
    };
    let mut text = serde_json::to_string_pretty(&report).expect("counts and texts are JSON");
    text.push('\n');
    text
}

/// A table with a line for each, and a line for each expectation that does not hold.
pub(super) fn text(outcomes: &[Outcome]) -> String {
    let mut table = table();
    table.set_header([
        "cause",
        "server",
        "con-\ntent",
        "reas-\noning",
        "tool",
        "usage",
        "retok-\nenized",
        "per\nchunk",
        "chunks",
        "token\nids",
        "script-\ned",
        "differ-\nence",
        "explained by",
    ]);
    for outcome in outcomes {
        table.add_row(row(outcome));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    for column in table.column_iter_mut().skip(2).take(10) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let widths = [32, 8, 6, 7, 6, 7, 8, 7, 8, 7, 8, 8];
    for (column, width) in table.column_iter_mut().zip(widths) {
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
    }
    let mut text = format!("{}\n\n{NOTES}\n\n{}", table.trim_fmt(), failures(outcomes));
    if failed(outcomes).next().is_none() {
        let count = outcomes.len();
        let of_all = if count == 1 { "it is" } else { "all are" };
        writeln!(text, "scenarios: {count}, {of_all} as expected").expect("a String takes all");
    }
    text
}

/// What is not as expected, a line each.
fn failures(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in failed(outcomes) {
        for failure in &outcome.failures {
            let Outcome {
                scenario, cause, ..
            } = outcome;
            writeln!(text, "FAILED {scenario} ({cause}): {failure}").expect("a String takes all");
        }
    }
    text
}

const NOTES: &str = "\
content, reasoning, tool  tokens of what arrived, by the client's tokenizer; tool: names and arguments of calls
usage                     completion_tokens of the server, as far as that is a count
retokenized, per chunk    the whole texts through the tokenizer, and each chunk by itself; chunks: those that say something
token ids, scripted       ids that the server returned; tokens that the model said
difference                retokenized - usage, unless other bases are named";

/// Names, causes and references.
pub(super) fn names(scenarios: &[Scenario], format: Format) -> String {
    if format == Format::Json {
        let known: Vec<Known<'_>> = scenarios.iter().map(Known::of).collect();
        let text = serde_json::to_string_pretty(&known).expect("texts are JSON");
        return format!("{text}\n");
    }
    let mut table = table();
    table.set_header(["scenario", "server", "cause", "reference"]);
    for scenario in scenarios {
        table.add_row([
            &scenario.name,
            &scenario.server,
            &scenario.cause,
            &scenario.reference,
        ]);
    }
    format!("{}\n", table.trim_fmt())
}

/// What is known of a scenario before it is played.
#[derive(Serialize)]
struct Known<'a> {
    scenario: &'a str,
    cause: &'a str,
    server: &'a str,
    why: &'a str,
    who: &'a str,
    reference: &'a str,
}

impl<'a> Known<'a> {
    fn of(scenario: &'a Scenario) -> Self {
        Self {
            scenario: &scenario.name,
            cause: &scenario.cause,
            server: &scenario.server,
            why: &scenario.why,
            who: &scenario.who,
            reference: &scenario.reference,
        }
    }
}

fn table() -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    table
}

fn failed(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> {
    outcomes.iter().filter(|outcome| !outcome.held)
}

fn row(outcome: &Outcome) -> [String; 13] {
    let basis = |basis| match outcome.bases.get(&basis).and_then(|count| count.0) {
        Some(tokens) => tokens.to_string(),
        None => "-".to_owned(),
    };
    let mut explained = list(&outcome.explained_by);
    if outcome.difference.0.is_none() {
        "no count to compare with".clone_into(&mut explained);
    }
    let [first, second] = outcome.compare;
    if outcome.compare != [Basis::Retokenized, Basis::Usage] {
        let side = |side| match outcome.bases.get(&side).and_then(|count| count.0) {
            Some(tokens) if !Basis::ALWAYS.contains(&side) => {
                format!("{} {tokens}", word(side).replace('_', " "))
            }
            _ => word(side).replace('_', " "),
        };
        explained = format!("{} - {}: {explained}", side(first), side(second));
    }
    if let Some(sent) = &outcome.usage_as_sent {
        explained = format!("{explained}; sent as {sent}");
    }
    if let Some(gate) = outcome.ids_decode {
        let gate = if gate {
            "decode to"
        } else {
            "are not those of"
        };
        explained = format!("{explained}; ids {gate} the text");
    }
    if let Some(failure) = &outcome.failure {
        explained = format!("{explained}; sample fails: {failure}");
    }
    let mark = if outcome.held { "" } else { "FAILED " };
    [
        format!("{mark}{}", outcome.cause),
        outcome.server.clone(),
        outcome.content.to_string(),
        outcome.reasoning.to_string(),
        outcome.tool.to_string(),
        basis(Basis::Usage),
        basis(Basis::Retokenized),
        basis(Basis::PerChunk),
        basis(Basis::Chunks),
        basis(Basis::TokenIds),
        basis(Basis::Scripted),
        match outcome.difference.0 {
            None => "-".to_owned(),
            Some(0) => "0".to_owned(),
            Some(tokens) => format!("{tokens:+}"),
        },
        explained,
    ]
}
