//! Ledgers as tables, as JSON and as `JUnit` XML.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;

use super::ledger::{Row, Verdict};
use super::play::Audit;
use super::quantity::{Key, Quantity};
use super::value::Value;
use crate::conform::report::escaped;

/// Columns of a line.
const WIDTH: u16 = 158;
/// Most letters of a text in a ledger.
const WORDS: usize = 26;
const TAKES_ALL: &str = "a String takes all";

/// How many verdicts of each kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counts {
    agree: usize,
    differ: usize,
    known: usize,
    played: usize,
    skipped: usize,
}

impl Counts {
    fn of(audits: &[Audit]) -> Self {
        let rows = || audits.iter().flat_map(|audit| &audit.rows);
        let verdicts = |verdict| rows().filter(|row| row.verdict == verdict).count();
        let skipped = audits
            .iter()
            .filter(|audit| audit.skipped.is_some())
            .count();
        Self {
            agree: verdicts(Verdict::Agree),
            differ: verdicts(Verdict::Differ),
            known: verdicts(Verdict::Known),
            played: audits.len() - skipped,
            skipped,
        }
    }
}

/// One JSON document; times are nanoseconds.
pub(super) fn json(audits: &[Audit]) -> String {
    #[derive(Serialize)]
    struct Report<'a> {
        #[serde(flatten)]
        counts: Counts,
        audits: &'a [Audit],
    }
    let report = Report {
        counts: Counts::of(audits),
        audits,
    };
    serde_json::to_string_pretty(&report).expect("numbers and texts are JSON") + "\n"
}

/// A ledger for each client and server, and what they come to.
pub(super) fn text(audits: &[Audit]) -> String {
    let mut text = String::new();
    let pairs =
        audits.chunk_by(|one, other| (&one.client, &one.server) == (&other.client, &other.server));
    for pair in pairs {
        let Audit {
            client,
            version,
            server,
            ..
        } = &pair[0];
        let version = if version.is_empty() {
            ""
        } else {
            &format!(" {version}")
        };
        writeln!(text, "{client}{version} against {server}\n").expect(TAKES_ALL);
        let played = pair.iter().filter(|audit| audit.skipped.is_none());
        if pair.iter().any(|audit| audit.skipped.is_none()) {
            writeln!(text, "{}\n", ledger(played).trim_fmt()).expect(TAKES_ALL);
        }
        notes(&mut text, pair);
    }
    let counts = Counts::of(audits);
    writeln!(
        text,
        "times in ms; ± is what this run could time: the stub's pacing error, wake-ups as late as the latest one that was seen, \
         and the digits of the report\n{} runs: {} agree, {} differ, {} known",
        counts.played, counts.agree, counts.differ, counts.known
    )
    .expect(TAKES_ALL);
    text
}

fn ledger<'a>(audits: impl Iterator<Item = &'a Audit>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    table.set_header([
        "scenario",
        "quantity",
        "truth",
        "client",
        "difference",
        "±",
        "verdict",
    ]);
    for audit in audits {
        for (at, row) in audit.rows.iter().enumerate() {
            let scenario = if at == 0 { &*audit.scenario } else { "" };
            table.add_row(cells(scenario, row));
        }
    }
    for column in table.column_iter_mut().skip(2).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (column, width) in table.column_iter_mut().zip([16, 26, 22, 26, 12, 10]) {
        column.set_padding((0, 1));
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
    }
    table
}

fn cells(scenario: &str, row: &Row) -> [String; 7] {
    let number = |value| shown(row.quantity, value);
    let side = |value: &Value| match value {
        Value::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Value::None => "none".to_owned(),
        Value::Number { value, .. } => number(*value),
        Value::Text(text) if text.len() > WORDS => "see below".to_owned(),
        Value::Text(text) => text.clone(),
    };
    let difference = match row.difference {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(difference) if difference > 0.0 => format!("+{}", number(difference)),
        Some(difference) => number(difference),
    };
    [
        scenario.to_owned(),
        row.quantity.to_string(),
        side(&row.truth),
        side(&row.client),
        difference,
        number(row.tolerance),
        word(row.verdict).to_owned(),
    ]
}

/// A number as people read it.
fn shown(key: Key, value: f64) -> String {
    let value = if key.quantity.is_time() {
        value / 1e6
    } else {
        value
    };
    let is_exact = value.fract() == 0.0 && !key.quantity.is_time();
    match key.quantity {
        _ if is_exact => format!("{value:.0}"),
        _ if value.abs() < 1e-6 => "0".to_owned(),
        Quantity::Qps => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agree => "agree",
        Verdict::Differ => "DIFFER",
        Verdict::Known => "known",
    }
}

/// What was not played or not judged, and why.
fn notes(text: &mut String, audits: &[Audit]) {
    let mut skips: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut reasons: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let mut untold: BTreeMap<Key, Vec<&str>> = BTreeMap::new();
    for audit in audits {
        for key in &audit.untold {
            untold.entry(*key).or_default().push(&audit.scenario);
        }
        let (scenario, skipped) = (&audit.scenario, audit.skipped.as_ref());
        if let Some(reason) = skipped {
            skips.entry(reason).or_default().push(scenario);
        } else if let Some(reason) = &audit.unjudged {
            writeln!(text, "{scenario}: {reason}").expect(TAKES_ALL);
        }
        if audit.rows.iter().any(|row| row.verdict == Verdict::Differ) {
            writeln!(text, "DIFFER {scenario}: right is: {}", audit.right).expect(TAKES_ALL);
        }
        for row in &audit.rows {
            if let Value::Text(said) = &row.client
                && said.len() > WORDS
            {
                writeln!(text, "{scenario}: {said}").expect(TAKES_ALL);
            }
            if let Some(reason) = &row.reason {
                let rows = reasons.entry((word(row.verdict), reason)).or_default();
                rows.push(format!("{scenario} {}", row.quantity));
            }
        }
    }
    for ((verdict, reason), rows) in reasons {
        writeln!(text, "{verdict}: {reason}: {}", rows.join(", ")).expect(TAKES_ALL);
    }
    for (key, scenarios) in untold {
        let scenarios = scenarios.join(", ");
        writeln!(text, "not told by the server: {key}: {scenarios}").expect(TAKES_ALL);
    }
    for (reason, scenarios) in skips {
        writeln!(text, "not played: {reason}: {}", scenarios.join(", ")).expect(TAKES_ALL);
    }
    text.push('\n');
}

/// A test suite for each client and server, a case for each quantity of a scenario.
pub(super) fn junit(audits: &[Audit]) -> String {
    let counts = Counts::of(audits);
    let tests = counts.agree + counts.differ + counts.known + counts.skipped;
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    writeln!(
        xml,
        "<testsuite name=\"compare\" tests=\"{tests}\" failures=\"{}\" skipped=\"{}\">",
        counts.differ,
        counts.known + counts.skipped
    )
    .expect(TAKES_ALL);
    for audit in audits {
        let class = format!("{}.{}.{}", audit.client, audit.server, audit.scenario);
        let class = escaped(&class);
        if let Some(reason) = &audit.skipped {
            let reason = escaped(reason);
            writeln!(
                xml,
                "  <testcase classname=\"{class}\" name=\"run\"><skipped message=\"{reason}\"/></testcase>"
            )
            .expect(TAKES_ALL);
        }
        for row in &audit.rows {
            let [_, name, truth, mut client, ..] = cells("", row).map(|cell| escaped(&cell));
            if let Value::Text(said) = &row.client {
                client = escaped(said);
            }
            let reason = escaped(row.reason.as_deref().unwrap_or_default());
            let inner = match row.verdict {
                Verdict::Agree => String::new(),
                Verdict::Differ => {
                    format!("<failure message=\"truth {truth}, client {client} {reason}\"/>")
                }
                Verdict::Known => format!("<skipped message=\"known: {reason}\"/>"),
            };
            writeln!(
                xml,
                "  <testcase classname=\"{class}\" name=\"{name}\">{inner}</testcase>"
            )
            .expect(TAKES_ALL);
        }
    }
    xml + "</testsuite>\n"
}
