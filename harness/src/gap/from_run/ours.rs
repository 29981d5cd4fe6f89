//! Folders of `stubline bench --report-dir`: counts of each sample on every basis, and no texts.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Log;
use crate::gap::attribution::{Attribution, Basis, Cause};
use crate::gap::paired::{Report, Sample};

pub(super) fn report(
    source: String,
    log: &Log,
    accounting: Option<&Value>,
) -> Result<Report, String> {
    let events: BTreeMap<&str, &Value> = log
        .lines
        .iter()
        .filter_map(|line| Some((line["request_id"].as_str()?, line)))
        .collect();
    let accounted = accounting.and_then(|accounting| accounting["samples"].as_array());
    if events.is_empty() && accounted.is_none() {
        return Err("events.jsonl has no event of a known form".into());
    }
    let samples: Vec<Sample> = match accounted {
        Some(samples) => samples.iter().filter_map(of_accounting).collect(),
        None => events.values().filter_map(|line| of_event(line)).collect(),
    };
    let failed = events.values().filter(|line| line["error"].is_string());
    let n_failed = failed.count() as u64;
    let known = samples.len() as u64;
    let mut report = Report::new(source, samples);
    report.n_failed = n_failed;
    report.about.push("a run of stubline bench".into());
    if accounting.is_none() {
        report
            .unseen
            .push("token_accounting.json: counts are those of events.jsonl".into());
    }
    let lost = accounted.map_or(0, |samples| (samples.len() as u64).saturating_sub(known));
    if lost > 0 {
        let line = format!("{lost} samples of token_accounting.json, which have no client's count");
        report.unseen.push(line);
    }
    let line = "the texts, so most causes: `stubline gap --url` has them";
    report.unseen.push(line.into());
    Ok(report)
}

fn of_accounting(sample: &Value) -> Option<Sample> {
    let output = &sample["output"];
    let client = count(&output["retokenized"])?;
    let hidden = count(&output["usage_reasoning"]).unwrap_or(0);
    let hides = count(&output["reasoning"]) == Some(0);
    Some(Sample {
        id: text(&sample["id"]),
        request_id: text(&sample["request_id"]),
        chunks: count(&output["chunks"]).unwrap_or(0),
        attribution: counts(
            count(&output["usage"]),
            client,
            if hides { hidden } else { 0 },
        ),
    })
}

fn of_event(line: &Value) -> Option<Sample> {
    if line["error"].is_string() {
        return None;
    }
    let client = count(&line["output_tokens"])?;
    let chunks = line["chunks"].as_array().map_or(0, Vec::len);
    Some(Sample {
        id: text(&line["id"]),
        request_id: text(&line["request_id"]),
        chunks: chunks as u64,
        attribution: counts(count(&line["output_tokens_server"]), client, 0),
    })
}

/// A count that can be believed, as in `usage`.
fn count(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .filter(|&count| count <= wire::usage::MAX_COUNT)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().into()
}

/// What is known of a difference without its text.
fn counts(server: Option<u64>, client: u64, hidden: u64) -> Attribution {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let difference = signed(server.unwrap_or(0)).saturating_sub(signed(client));
    let (cause, tokens) = match server {
        None => (Cause::MissingUsage, difference),
        // A server may count the thoughts of content too.
        Some(_) => (
            Cause::HiddenReasoning,
            signed(hidden).min(difference.max(0)),
        ),
    };
    let explained = Some((cause, tokens)).filter(|(_, tokens)| *tokens != 0);
    Attribution {
        server,
        client,
        difference,
        explained: explained.into_iter().collect(),
        unexplained: difference.saturating_sub(tokens),
        basis: Basis::Counts,
    }
}
