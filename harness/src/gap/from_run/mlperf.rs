//! Runs of `MLPerf`'s endpoints: `events.jsonl` has the texts and no counts, `result_summary.json` what
//! their client counted over all.

use std::collections::BTreeMap;

use serde_json::Value;
use vocab::Tokenizer;
use wire::finish::FinishReason;
use wire::usage::Usage;

use super::Log;
use crate::gap::attribution::{self, Answer, Call, Cause, Choice, Counted, Flavour};
use crate::gap::paired::{Report, Sample, signed_float};

pub(super) fn report(
    source: String,
    log: &Log,
    summary: Option<&Value>,
    how: Option<(&Tokenizer, &Flavour)>,
) -> Report {
    let events = Events::new(log);
    let mut samples = Vec::new();
    let mut sums = Texts::default();
    for (id, state) in &events.samples {
        let (Some(answer), Some((tokenizer, flavour))) = (&state.answer, how) else {
            continue;
        };
        sums.add(answer, tokenizer);
        samples.push(Sample {
            id: (*id).into(),
            request_id: (*id).into(),
            chunks: state.chunks,
            attribution: attribution::attribute(answer, tokenizer, flavour, Counted::All),
        });
    }
    let completed = samples.len() as u64;
    let mut report = Report::new(source, samples);
    report.about.push("a run of MLPerf's endpoints".into());
    report.n_failed = events.failed();
    events.tell(&mut report);
    if how.is_none() {
        let line = "this tokenizer's counts: name one with --tokenizer";
        report.unseen.push(line.into());
    }
    match summary {
        Some(summary) => {
            totals(&mut report, summary, how.map(|_| &sums), completed);
        }
        None => report.unseen.push("result_summary.json".into()),
    }
    report
}

/// What is known of each sample.
#[derive(Debug, Default)]
struct Events<'a> {
    samples: BTreeMap<&'a str, State>,
    /// Samples that were issued outside of performance tracking.
    untracked: u64,
    /// Events of samples that were never issued, or complete twice.
    odd: u64,
}

#[derive(Debug, Default)]
struct State {
    answer: Option<Answer>,
    chunks: u64,
    has_failed: bool,
}

impl<'a> Events<'a> {
    fn new(log: &'a Log) -> Self {
        let kind = |line: &'a Value| line["event_type"].as_str().unwrap_or_default();
        let starts = "session.start_performance_tracking";
        // Logs that lack the event have no warm-up.
        let mut tracks = !log.lines.iter().any(|line| kind(line) == starts);
        let mut events = Self::default();
        let mut untracked = std::collections::BTreeSet::new();
        for line in &log.lines {
            let id = line["sample_uuid"].as_str().unwrap_or_default();
            match kind(line) {
                "session.start_performance_tracking" => tracks = true,
                "session.stop_performance_tracking" => tracks = false,
                "sample.issued" if tracks => {
                    events.samples.entry(id).or_default();
                }
                "sample.issued" => {
                    untracked.insert(id);
                }
                kind if !untracked.contains(id) => events.sample(kind, id, line),
                _ => {}
            }
        }
        events.untracked = untracked.len() as u64;
        events
    }

    fn sample(&mut self, kind: &str, id: &str, line: &Value) {
        let is_of_sample = kind.starts_with("sample.") || kind == "error.generic";
        let Some(state) = self.samples.get_mut(id) else {
            self.odd += u64::from(is_of_sample && !id.is_empty());
            return;
        };
        match kind {
            "error.generic" => state.has_failed = true,
            "sample.recv_first" | "sample.recv_non_first" => state.chunks += 1,
            "sample.complete" if state.answer.is_some() => self.odd += 1,
            "sample.complete" if !state.has_failed => state.answer = answer(line),
            _ => {}
        }
    }

    fn failed(&self) -> u64 {
        let states = self.samples.values();
        states.filter(|state| state.answer.is_none()).count() as u64
    }

    fn tell(&self, report: &mut Report) {
        if self.untracked > 0 {
            let line = format!("{} samples of the warm-up are left out", self.untracked);
            report.about.push(line);
        }
        if self.odd > 0 {
            let line = format!("{} events of samples that are unknown or over", self.odd);
            report.unseen.push(line);
        }
    }
}

/// `["TextModelOutput", output, reasoning, tool_calls]`, each whole or in chunks; later ones may lack.
fn answer(line: &Value) -> Option<Answer> {
    let data = line["data"].as_array()?;
    if data.first().and_then(Value::as_str) != Some("TextModelOutput") {
        return None;
    }
    let field = |index: usize| data.get(index).unwrap_or(&Value::Null);
    let mut calls: BTreeMap<u64, Call> = BTreeMap::new();
    collect_calls(field(3), &mut calls);
    let finish = line["finish_reason"].as_str().map(FinishReason::read);
    let choice = Choice {
        content: joined(field(1)),
        reasoning: joined(field(2)),
        calls: calls.into_values().collect(),
        finish,
        ..Choice::default()
    };
    let usage = std::iter::once(&line["usage"]).chain(data.get(4..).unwrap_or_default());
    let mut usage = usage.filter(|value| value.is_object());
    Some(Answer {
        choices: vec![choice],
        usage: usage.find_map(read_usage),
        chunks: 0,
    })
}

fn read_usage(value: &Value) -> Option<Usage> {
    let raw = serde_json::value::to_raw_value(value).ok()?;
    Usage::read(&raw)
}

/// A text, or its chunks put together.
fn joined(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(chunks) => chunks.iter().map(joined).collect(),
        _ => String::new(),
    }
}

/// Calls, or chunks of lists of their parts.
fn collect_calls(value: &Value, calls: &mut BTreeMap<u64, Call>) {
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        if item.is_array() {
            collect_calls(item, calls);
            continue;
        }
        let call = calls.entry(item["index"].as_u64().unwrap_or(at as u64));
        let call = call.or_default();
        let function = &item["function"];
        call.name
            .push_str(function["name"].as_str().unwrap_or_default());
        let arguments = function["arguments"].as_str();
        call.arguments.push_str(arguments.unwrap_or_default());
    }
}

/// What all texts count as, in the ways that their client may have put them together.
#[derive(Debug, Default)]
struct Texts {
    content: u64,
    reasoning: u64,
    calls: u64,
    joined: u64,
}

impl Texts {
    fn add(&mut self, answer: &Answer, tokenizer: &Tokenizer) {
        let count = |text: &str| tokenizer.vocab.count(text) as u64;
        for choice in &answer.choices {
            self.content += count(&choice.content);
            self.reasoning += count(&choice.reasoning);
            let arguments = choice.calls.iter().map(|call| count(&call.arguments));
            self.calls += arguments.sum::<u64>();
            let texts = [&choice.content, &choice.reasoning];
            let texts = texts.into_iter().filter(|text| !text.is_empty());
            let texts: Vec<&str> = texts.map(String::as_str).collect();
            self.joined += count(&texts.join("\n"));
        }
    }

    /// Which of the ways gives a total.
    fn way(&self, total: u64) -> &'static str {
        let ways = [
            (self.content + self.reasoning, "content and reasoning"),
            (self.content, "content alone: reasoning is in none of it"),
            (self.joined, "content and reasoning joined by a line feed"),
            (
                self.content + self.reasoning + self.calls,
                "content, reasoning and arguments of tool calls",
            ),
        ];
        let found = ways.iter().find(|(count, _)| *count == total);
        found.map_or("none of this tokenizer's sums", |(_, way)| way)
    }
}

/// Most tokens of a run that are believed.
const MAX_TOTAL: u64 = 1 << 60;

/// Holds the run's own totals against this tokenizer's counts.
fn totals(report: &mut Report, summary: &Value, texts: Option<&Texts>, completed: u64) {
    let total = |key: &str| {
        let block = &summary[key];
        let total = block["total"].as_u64().or_else(|| {
            // Blocks without a total have a mean.
            let count = block["count"].as_u64()?;
            let mean = block["mean"].as_f64().or_else(|| block["avg"].as_f64())?;
            whole(mean * crate::stats::float(count))
        });
        total.filter(|total| (1..=MAX_TOTAL).contains(total))
    };
    let source = summary["token_count_source"].as_str();
    let plain = total("output_sequence_lengths");
    let (client, server) = if source == Some("server") {
        (total("output_sequence_lengths_client"), plain)
    } else {
        (plain, total("output_sequence_lengths_server"))
    };
    let known = texts.map(|texts| texts.content + texts.reasoning);
    if let (Some(client), Some(texts)) = (client, texts) {
        let way = texts.way(client);
        let line = format!(
            "their client counts {client} output tokens, this tokenizer {}: theirs are {way}",
            texts.content + texts.reasoning
        );
        report.about.push(line);
    } else if let Some(client) = client {
        let line = format!("their client counts {client} output tokens");
        report.about.push(line);
    }
    let Some(server) = server else {
        let line = "the server's counts: this run has none";
        report.unseen.push(line.into());
        return;
    };
    report
        .about
        .push(format!("the server counts {server} output tokens"));
    let has_own = report
        .samples
        .iter()
        .any(|sample| sample.attribution.server.is_some());
    if let Some(known) = known.filter(|_| completed > 0 && !has_own) {
        by_total(report, i64::try_from(server).unwrap_or(i64::MAX), known);
    }
}

/// Explains the run's total where no sample has a count of the server's.
fn by_total(report: &mut Report, server: i64, client: u64) {
    report
        .explained
        .retain(|sum| sum.cause != Cause::MissingUsage);
    report.total = server.saturating_sub_unsigned(client);
    let explained: i64 = report.explained.iter().map(|sum| sum.tokens).sum();
    let rest = report.total.saturating_sub(explained);
    let share = |tokens: i64| {
        let (tokens, total) = (signed_float(tokens), signed_float(report.total));
        (report.total != 0).then(|| tokens / total)
    };
    for sum in &mut report.explained {
        sum.share = share(sum.tokens);
    }
    report.unexplained.share = share(rest);
    report.unexplained.tokens = rest;
    report.unexplained.absolute = rest.unsigned_abs();
    let line = "each sample's count by the server: causes are inferred and held against the total";
    report.unseen.push(line.into());
}

/// A number of tokens that was computed as a mean.
fn whole(value: f64) -> Option<u64> {
    format!("{value:.0}").parse().ok()
}
