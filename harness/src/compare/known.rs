//! Differences that are understood, each with its reason.

use anyhow::Context as _;
use serde::Deserialize;

use super::ledger::{Row, Verdict};
use super::play::Audit;
use crate::conform::cli::matches;

const KNOWN: &str = include_str!("../../known.toml");
/// Why a listed quantity that agrees is an error.
const STALE: &str = "known.toml lists a difference here, and there is none";

/// The list of differences.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    #[serde(default)]
    verdict: Vec<Entry>,
}

/// Where a difference is known; `*` and `?` stand for anything.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    client: String,
    version: String,
    #[serde(default = "any")]
    server: String,
    scenario: String,
    quantity: String,
    reason: String,
}

fn any() -> String {
    "*".into()
}

impl Known {
    /// That of this program.
    pub(super) fn embedded() -> anyhow::Result<Self> {
        toml::from_str(KNOWN).context("known.toml cannot be read")
    }

    /// Times or rates differ for no known reason, and nothing else does.
    pub(super) fn has_odd_times(&self, audit: &Audit) -> bool {
        let is_listed = |row: &Row| {
            let mut entries = self.verdict.iter().filter(|entry| entry.fits(audit));
            entries.any(|entry| matches(&entry.quantity, &row.quantity.to_string()))
        };
        let differing = audit
            .rows
            .iter()
            .filter(|row| row.verdict == Verdict::Differ);
        let mut odd = differing.filter(|row| !is_listed(row)).peekable();
        odd.peek().is_some() && odd.all(|row| row.quantity.is_timed())
    }

    /// Marks what is known, and what is listed and agrees. An entry for many runs is looked at only if all
    /// of them were made: one difference among them is enough. A time or a rate may agree on a busy machine.
    pub(super) fn apply(&self, audits: &mut [Audit], scenarios: &[&str]) {
        for entry in &self.verdict {
            let is_whole = entry.is_covered(audits, scenarios);
            let mut fitting = Vec::new();
            for audit in &mut *audits {
                let fits = entry.fits(audit);
                let rows = audit.rows.iter_mut().filter(|_| fits);
                fitting
                    .extend(rows.filter(|row| matches(&entry.quantity, &row.quantity.to_string())));
            }
            let is_known = fitting.iter().any(|row| row.verdict != Verdict::Agree);
            for row in fitting {
                if row.verdict == Verdict::Differ && row.reason.is_none() {
                    row.verdict = Verdict::Known;
                    row.reason = Some(entry.reason.clone());
                } else if !is_known && is_whole && !row.quantity.is_timed() {
                    row.verdict = Verdict::Differ;
                    row.reason = Some(STALE.into());
                }
            }
        }
    }
}

impl Entry {
    /// Every run that it is about was made, or is one that its client cannot make.
    fn is_covered(&self, audits: &[Audit], scenarios: &[&str]) -> bool {
        let fitting = scenarios
            .iter()
            .filter(|name| matches(&self.scenario, name));
        let is_made = |audit: &Audit| audit.skipped.is_none() || audit.client_lacks;
        let mut fitting = fitting.map(|name| {
            let mut runs = audits.iter().filter(|audit| audit.scenario == **name);
            runs.any(|audit| self.fits(audit) && is_made(audit))
        });
        fitting.all(|is_covered| is_covered)
    }

    fn fits(&self, audit: &Audit) -> bool {
        matches(&self.client, &audit.client)
            && matches(&self.version, &audit.version)
            && matches(&self.server, &audit.server)
            && matches(&self.scenario, &audit.scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Client;
    use super::super::quantity::{Key, Quantity};
    use super::super::scenario;
    use super::super::value::Value;
    use super::*;

    fn audit(scenario: &str, requests: f64) -> Audit {
        let key = Key::of(Quantity::Requests, None);
        let (truth, client) = (Value::number(8.0), Value::number(requests));
        Audit {
            client: "c".into(),
            version: "1.2".into(),
            server: "s".into(),
            scenario: scenario.into(),
            rows: vec![Row::new(key, truth, client, 0.0)],
            ..Audit::default()
        }
    }

    fn verdicts(scenario: &str, scenarios: &[&str], requests: [f64; 2]) -> Vec<(Verdict, bool)> {
        let text = format!(
            "[[verdict]]\nclient = 'c'\nversion = '1.*'\nscenario = {scenario:?}\n\
             quantity = 'requests'\nreason = 'so it is'"
        );
        let known: Known = toml::from_str(&text).unwrap();
        let mut audits = [audit("one", requests[0]), audit("two", requests[1])];
        known.apply(&mut audits, scenarios);
        let rows = audits.iter().flat_map(|audit| &audit.rows);
        rows.map(|row| (row.verdict, row.reason.is_some()))
            .collect()
    }

    #[test]
    fn a_known_difference_has_its_reason_and_a_listed_agreement_is_none() {
        let (agree, differ) = ((Verdict::Agree, false), (Verdict::Differ, false));
        let (known, stale) = ((Verdict::Known, true), (Verdict::Differ, true));
        let (two, three) = (&["one", "two"][..], &["one", "three", "two"][..]);
        for (scenario, scenarios, requests, expected) in [
            ("one", two, [9.0, 9.0], [known, differ]),
            ("*", two, [9.0, 8.0], [known, agree]),
            ("*", two, [8.0, 8.0], [stale, stale]),
            ("*", three, [8.0, 8.0], [agree, agree]),
            ("one", three, [8.0, 8.0], [stale, agree]),
            ("other", two, [8.0, 9.0], [agree, differ]),
        ] {
            let found = verdicts(scenario, scenarios, requests);
            assert_eq!(found, expected, "{scenario}");
        }
    }

    #[test]
    fn every_entry_is_about_something_and_has_a_reason() {
        let clients = Client::all().unwrap();
        let scenarios = scenario::find(None).unwrap();
        for entry in Known::embedded().unwrap().verdict {
            assert!(entry.reason.len() > 10, "{entry:?}");
            let mut names = scenarios.iter().map(|known| &known.name);
            assert!(
                names.any(|name| matches(&entry.scenario, name)),
                "{entry:?}"
            );
            let read = &clients[&entry.client].quantities;
            let mut read = read
                .iter()
                .map(|reading| Key::of(reading.is, reading.basis));
            let mut keys = read.clone().map(|key| Key { each: true, ..key });
            let is_named = |key: Key| matches(&entry.quantity, &key.to_string());
            let always = [
                Quantity::Run,
                Quantity::Joined,
                Quantity::Concurrency,
                Quantity::IncludeUsage,
            ];
            let mut always = always.map(|quantity| Key::of(quantity, None)).into_iter();
            assert!(
                always.any(is_named) || read.any(is_named) || keys.any(is_named),
                "{entry:?}"
            );
        }
    }
}
