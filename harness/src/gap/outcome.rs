//! A scenario's counts beside those that it expects.

use std::collections::BTreeMap;

use serde::Serialize;

use super::basis::{Basis, Count, Term, list, word};
use super::exchange::Exchange;
use super::ledger::{Account, Ledger};
use super::scenario::Scenario;
use super::seen::{Kind, Seen};

/// What a scenario came to.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) scenario: String,
    pub(super) cause: String,
    pub(super) server: String,
    why: String,
    who: String,
    reference: String,
    /// Tokens of each part of the answer by the client's tokenizer.
    pub(super) content: i64,
    pub(super) reasoning: i64,
    pub(super) tool: i64,
    /// The six bases, and those that the scenario tells of.
    pub(super) bases: BTreeMap<Basis, Count>,
    /// `completion_tokens` as it stands on the wire, where that is no count.
    pub(super) usage_as_sent: Option<String>,
    /// Whether returned ids decode to the text.
    pub(super) ids_decode: Option<bool>,
    /// How the request fails.
    pub(super) failure: Option<String>,
    /// The bases whose difference is explained.
    pub(super) compare: [Basis; 2],
    pub(super) difference: Count,
    pub(super) explained_by: Vec<Term>,
    /// It is as expected.
    pub(super) held: bool,
    /// What is not.
    pub(super) failures: Vec<String>,
}

impl Outcome {
    /// Counts an exchange and holds it against what is expected.
    pub(super) fn new(exchange: &Exchange<'_>) -> anyhow::Result<Self> {
        let Exchange { scenario, seen, .. } = exchange;
        let ledger = Ledger::new(exchange)?;
        let expected = scenario.expect.bases.keys();
        let shown = expected.map(|&basis| {
            let account = ledger.accounts.get(&basis);
            (basis, Count(account.map(|account| account.tokens)))
        });
        let [first, second] = scenario.compare.map(|basis| ledger.accounts.get(&basis));
        let both = first.zip(second);
        let terms = both.map(|(first, second)| terms(first, second));
        let usage = seen.heard.usage.and_then(|usage| usage.completion_tokens);
        let mut outcome = Self {
            scenario: scenario.name.clone(),
            cause: scenario.cause.clone(),
            server: scenario.server.clone(),
            why: scenario.why.clone(),
            who: scenario.who.clone(),
            reference: scenario.reference.clone(),
            content: ledger.content,
            reasoning: ledger.reasoning,
            tool: ledger.tool,
            bases: shown.collect(),
            usage_as_sent: seen.usage_as_sent.clone().filter(|_| usage.is_none()),
            ids_decode: ledger.ids_decode,
            failure: seen.heard.failure.map(|failure| failure.to_string()),
            compare: scenario.compare,
            difference: Count(both.map(|(first, second)| first.tokens - second.tokens)),
            explained_by: terms.unwrap_or_default(),
            held: true,
            failures: seen.disagreements(),
        };
        outcome.hold(scenario);
        outcome.held = outcome.failures.is_empty();
        Ok(outcome)
    }

    /// Notes what is not as expected.
    fn hold(&mut self, scenario: &Scenario) {
        let expect = &scenario.expect;
        let mut failures = Vec::new();
        let mut same = |name: &str, expected: String, found: String| {
            if expected != found {
                failures.push(format!("{name}: expected {expected}, found {found}"));
            }
        };
        for (name, expected, found) in [
            ("content", expect.content, self.content),
            ("reasoning", expect.reasoning, self.reasoning),
            ("tool", expect.tool, self.tool),
        ] {
            same(name, expected.to_string(), found.to_string());
        }
        for (basis, expected) in &expect.bases {
            same(
                &word(basis),
                expected.to_string(),
                self.bases[basis].to_string(),
            );
        }
        let told = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".into());
        same("failure", told(&expect.failure), told(&self.failure));
        same(
            "usage_as_sent",
            told(&expect.usage_as_sent),
            told(&self.usage_as_sent),
        );
        let gate = |gate: Option<bool>| gate.map_or_else(|| "none".into(), |gate| gate.to_string());
        same("ids_decode", gate(expect.ids_decode), gate(self.ids_decode));
        same(
            "difference",
            expect.difference.to_string(),
            self.difference.to_string(),
        );
        let mut expected = expect.explained_by.clone();
        expected.sort_by_key(|term| term.what);
        same("explained_by", list(&expected), list(&self.explained_by));
        self.failures.extend(failures);
    }
}

impl Seen {
    /// Where the load loop reads the same bytes otherwise.
    fn disagreements(&self) -> Vec<String> {
        let mut found = Vec::new();
        let choices = || self.choices.values();
        let texts = self.events.iter().filter(|event| event.kind == Kind::Text);
        let contents: usize = choices().map(|choice| choice.content.len()).sum();
        let reasonings: usize = choices().map(|choice| choice.reasoning.len()).sum();
        for (name, here, there) in [
            ("content", contents, self.heard.content.len()),
            ("reasoning", reasonings, self.heard.reasoning.len()),
            ("chunks", texts.count(), self.heard.texts.len()),
        ] {
            if here != there {
                found.push(format!(
                    "{name}: {here} bytes or chunks here, {there} in `bench`"
                ));
            }
        }
        found
    }
}

fn terms(first: &Account, second: &Account) -> Vec<Term> {
    let terms = first.less(second).into_iter();
    terms.map(|(what, tokens)| Term { what, tokens }).collect()
}
