//! A client's report, read as its table tells.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Context as _;
use regex::{Captures, Regex};
use serde_json::Value as Json;

use super::client::{Client, Join, Reading, Samples, Take, Unit};
use super::exchange::sha256;
use super::quantity::{Key, Quantity};
use super::value::Value;
use crate::stats::float;

/// What a client says of its run.
#[derive(Clone, Debug, Default)]
pub(super) struct Reported {
    pub(super) values: Vec<(Key, Value)>,
    /// Its requests, if it reports them.
    pub(super) samples: Option<(Join, Vec<Sample>)>,
}

/// What a client says of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// By which it is found in the truth, if it has such a thing: of a prompt its hash.
    pub(super) key: Option<String>,
    pub(super) failed: bool,
    pub(super) values: Vec<(Key, Value)>,
}

impl Reported {
    /// Reads the report that a client left in a folder.
    ///
    /// # Errors
    /// There is none, or it is no JSON.
    pub(super) fn read(client: &Client, dir: &Path) -> anyhow::Result<Self> {
        let documents = documents(&dir.join(&client.report))?;
        let report = documents.last().context("the report is empty")?;
        // What is a sum is to be the mean of as many as the client says.
        let number = |quantity| {
            let reading = client
                .quantities
                .iter()
                .find(|reading| reading.is == quantity);
            reading.and_then(|reading| sum(report, reading))
        };
        let completed =
            number(Quantity::Requests).unwrap_or(0.0) - number(Quantity::Failures).unwrap_or(0.0);
        let read = |reading: &Reading| {
            let key = Key::of(reading.is, reading.basis);
            (key, value(report, reading, completed))
        };
        let samples = match &client.samples {
            Some(table) => Some((table.by, read_samples(table, dir)?)),
            None => None,
        };
        Ok(Self {
            values: client.quantities.iter().map(read).collect(),
            samples,
        })
    }
}

fn read_samples(table: &Samples, dir: &Path) -> anyhow::Result<Vec<Sample>> {
    let documents = documents(&dir.join(&table.file))?;
    let items = documents
        .iter()
        .flat_map(|document| found(document, &table.list));
    let sample = |item: &Json| {
        let at = found(item, &table.at).into_iter().next();
        let key = match (table.by, at.unwrap_or(&Json::Null)) {
            (Join::Prompt, Json::String(text)) => Some(sha256(&prompt(text))),
            (Join::Prompt, body) => last_message(body).map(|text| sha256(&text)),
            (_, Json::String(id)) => Some(id.clone()),
            _ => None,
        };
        let failed = table.failed.as_ref();
        let read = |reading: &Reading| {
            let key = Key {
                each: true,
                ..Key::of(reading.is, reading.basis)
            };
            (key, value(item, reading, 1.0))
        };
        Sample {
            key,
            failed: failed.is_some_and(|at| found(item, at).into_iter().any(is_filled)),
            values: table.quantities.iter().map(read).collect(),
        }
    };
    Ok(items.map(sample).collect())
}

/// A document, or one a line.
fn documents(path: &Path) -> anyhow::Result<Vec<Json>> {
    let name = path.file_name().unwrap_or_default().display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("no report {name}"))?;
    let text = finite(&text)?;
    let parsed = serde_json::Deserializer::from_str(&text).into_iter();
    let parsed: Result<Vec<Json>, _> = parsed.collect();
    parsed.with_context(|| format!("{name} is no JSON"))
}

/// The same with `null` for what Python writes where a number is none, such as an unlimited rate.
fn finite(text: &str) -> anyhow::Result<Cow<'_, str>> {
    let words = Regex::new(r#""(?:[^"\\]|\\.)*"|-?Infinity|NaN"#)?;
    Ok(
        words.replace_all(text, |word: &Captures<'_>| match &word[0] {
            text if text.starts_with('"') => text.to_owned(),
            _ => "null".to_owned(),
        }),
    )
}

/// What a pointer finds; `*` is every item of a list or an object.
fn found<'a>(document: &'a Json, pointer: &str) -> Vec<&'a Json> {
    let mut found = vec![document];
    for step in pointer.split('/').skip(1) {
        found = found
            .into_iter()
            .flat_map(|value| children(value, step))
            .collect();
    }
    found
}

fn children<'a>(value: &'a Json, step: &str) -> Vec<&'a Json> {
    match (value, step) {
        (Json::Array(items), "*") => items.iter().collect(),
        (Json::Object(members), "*") => members.values().collect(),
        (Json::Array(items), _) => {
            let at: Option<usize> = step.parse().ok();
            at.and_then(|at| items.get(at)).into_iter().collect()
        }
        _ => value.get(step).into_iter().collect(),
    }
}

fn is_filled(value: &Json) -> bool {
    match value {
        Json::Array(items) => !items.is_empty(),
        Json::Bool(flag) => *flag,
        Json::Null => false,
        Json::Number(number) => number.as_f64() != Some(0.0),
        Json::Object(members) => !members.is_empty(),
        Json::String(text) => !text.is_empty(),
    }
}

/// The numbers that a reading finds, added up in the report's own unit.
fn sum(report: &Json, reading: &Reading) -> Option<f64> {
    let all = || reading.at.iter().flat_map(|at| found(report, at));
    if reading.take == Take::All {
        return Some(float(all().count() as u64));
    }
    if reading.take == Take::Filled {
        return Some(float(all().filter(|value| is_filled(value)).count() as u64));
    }
    let numbers: Vec<f64> = all().filter_map(Json::as_f64).collect();
    if numbers.is_empty() {
        return reading.absent;
    }
    Some(numbers.iter().sum())
}

fn value(report: &Json, reading: &Reading, completed: f64) -> Value {
    let flags = || reading.at.iter().flat_map(|at| found(report, at));
    if let Some(flag) = flags()
        .find_map(Json::as_bool)
        .filter(|_| reading.take == Take::Sum)
    {
        return Value::Flag(flag);
    }
    let Some(number) = sum(report, reading) else {
        return Value::None;
    };
    let scale = match reading.unit {
        Unit::Ms => 1e6,
        Unit::Plain => 1.0,
        Unit::S => 1e9,
        Unit::Total if completed > 0.0 => 1.0 / completed,
        Unit::Total => return Value::None,
    };
    Value::Number {
        value: number * scale,
        resolution: reading.decimals.map_or(0.0, half_of_last) * scale,
    }
}

/// Half a unit of the last of so many decimals.
fn half_of_last(decimals: i32) -> f64 {
    0.5 * 10_f64.powi(-decimals)
}

/// A text, or the last message of the request body that it is.
fn prompt(text: &str) -> String {
    let body: Option<Json> = serde_json::from_str(text).ok();
    body.and_then(|body| last_message(&body))
        .unwrap_or_else(|| text.to_owned())
}

/// The last message's text in a request body, however deep it lies and whether in parts or whole.
fn last_message(body: &Json) -> Option<String> {
    match body {
        Json::Array(items) => items.iter().rev().find_map(last_message),
        Json::Object(members) => {
            let messages = members.get("messages").and_then(Json::as_array);
            let content = messages.and_then(|messages| messages.last()?.get("content"));
            match content {
                Some(Json::String(text)) => Some(text.clone()),
                Some(Json::Array(parts)) => {
                    let texts = parts.iter().filter_map(|part| part["text"].as_str());
                    Some(texts.collect())
                }
                _ => members.values().find_map(last_message),
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reading(text: &str) -> Reading {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_reading_finds_scales_and_adds() {
        let report = json!({"a": 2, "b": [{"c": 1.5}, {"c": 2}], "e": ["", "x", null], "f": false, "z": null});
        for (text, expected) in [
            ("is = 'requests'\nat = ['/a']", Value::number(2.0)),
            (
                "is = 'requests'\nat = ['/a', '/b/1/c', '/none']",
                Value::number(4.0),
            ),
            (
                "is = 'requests'\nat = ['/b/1/c']\nunit = 'ms'",
                Value::number(2e6),
            ),
            (
                "is = 'osl'\nat = ['/a']\nunit = 'total'",
                Value::number(0.5),
            ),
            (
                "is = 'failures'\nat = ['/e/*']\ntake = 'filled'",
                Value::number(1.0),
            ),
            (
                "is = 'requests'\nat = ['/e/*']\ntake = 'all'",
                Value::number(3.0),
            ),
            ("is = 'failures'\nat = ['/z']", Value::None),
            (
                "is = 'failures'\nat = ['/none']\nabsent = 0",
                Value::number(0.0),
            ),
            ("is = 'include_usage'\nat = ['/f']", Value::Flag(false)),
            (
                "is = 'ttft'\nat = ['/b/*/c']\nunit = 's'\ndecimals = 1",
                Value::Number {
                    value: 3.5e9,
                    resolution: 0.05e9,
                },
            ),
        ] {
            assert_eq!(value(&report, &reading(text), 4.0), expected, "{text}");
        }
    }

    #[test]
    fn numbers_that_are_none_are_null() {
        let text = r#"{"a": NaN, "b": [-Infinity,Infinity], "c \"NaN": "NaN\\", "d": NaN}"#;
        let expected = r#"{"a": null, "b": [null,null], "c \"NaN": "NaN\\", "d": null}"#;
        assert_eq!(finite(text).unwrap(), expected);
    }

    #[test]
    fn a_prompt_is_found_in_a_text_or_a_body() {
        let whole = json!({"model": "m", "messages": [{"role": "user", "content": "a"}]});
        let parts = json!({"body": {"messages": [{"content": [{"type": "text", "text": "a"}]}]}});
        for text in ["a".to_owned(), whole.to_string(), parts.to_string()] {
            assert_eq!(prompt(&text), "a");
        }
        assert_eq!(last_message(&json!([1, whole])), Some("a".into()));
        assert_eq!(last_message(&json!({"x": 1})), None);
    }
}
