//! Counts of a server that are none: each is left out by itself, and the first is told of.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::record::Record;

/// The first count that is none, and how many samples have such.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed {
    /// The request whose answer has it.
    pub request: u64,
    /// Samples with one.
    pub samples: u64,
    /// The key whose value it is.
    pub name: &'static str,
    /// What stands there instead.
    pub found: &'static str,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} is {}", self.name, self.found)
    }
}

/// Looks through a run's answers.
pub(crate) fn first(records: &[Record]) -> Option<Malformed> {
    let found = records.iter().filter_map(|record| {
        let (name, found) = of_data(record.odd_usage.as_deref()?)?;
        Some(Malformed {
            request: record.request,
            samples: 1,
            name,
            found,
        })
    });
    found.reduce(|first, _| Malformed {
        samples: first.samples + 1,
        ..first
    })
}

const NAMES: [&str; 2] = ["prompt_tokens", "completion_tokens"];

/// The first count of an event's or body's usage that is of another type, or out of range.
fn of_data(data: &[u8]) -> Option<(&'static str, &'static str)> {
    let data: HashMap<&str, &RawValue> = serde_json::from_slice(data).ok()?;
    let usage = data.get("usage").or_else(|| data.get("meta_info"))?;
    let usage: HashMap<&str, &RawValue> = serde_json::from_str(usage.get()).ok()?;
    let found = |name| Some((name, not_a_count(usage.get(name)?.get())?));
    NAMES.into_iter().find_map(found)
}

/// What a value is that is no count; null is no value.
fn not_a_count(json: &str) -> Option<&'static str> {
    let is_count = |count: u64| count <= wire::usage::MAX_COUNT;
    match json.as_bytes().first()? {
        b'n' => None,
        b't' | b'f' => Some("a bool"),
        b'"' => Some("a string"),
        b'[' => Some("an array"),
        b'{' => Some("an object"),
        _ if json.contains(['.', 'e', 'E']) => Some("a float"),
        b'-' => Some("negative"),
        _ if json.parse().is_ok_and(is_count) => None,
        _ => Some("above 2^40"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::completed;

    fn record(request: u64, usage: &str) -> Record {
        Record {
            request,
            odd_usage: Some(
                format!(r#"{{"choices":[],"usage":{usage}}}"#)
                    .into_bytes()
                    .into(),
            ),
            ..completed()
        }
    }

    #[test]
    fn the_first_bad_type_is_named_and_samples_are_counted() {
        for (value, found) in [
            ("1.0", "a float"),
            ("-2e3", "a float"),
            ("true", "a bool"),
            ("\"7\"", "a string"),
            ("-1", "negative"),
            ("1099511627777", "above 2^40"),
            ("9e999", "a float"),
            ("[]", "an array"),
            ("{}", "an object"),
        ] {
            let bad = record(
                4,
                &format!(r#"{{"prompt_tokens":3,"completion_tokens":{value}}}"#),
            );
            let records = [
                record(2, "{\"completion_tokens\":null}"),
                bad,
                record(9, r#"{"prompt_tokens":[]}"#),
            ];
            let malformed = first(&records).unwrap();
            assert_eq!((malformed.request, malformed.samples), (4, 2));
            assert_eq!(
                malformed.to_string(),
                format!("completion_tokens is {found}")
            );
        }
        assert_eq!(first(&[completed(), record(0, "{}"), record(1, "7")]), None);
        let native = Record {
            odd_usage: Some(br#"{"text":"a","meta_info":{"prompt_tokens":"1"}}"#[..].into()),
            ..completed()
        };
        assert_eq!(
            first(&[native]).unwrap().to_string(),
            "prompt_tokens is a string"
        );
    }
}
