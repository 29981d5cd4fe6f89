//! Request bodies as axum and serde read them, and what they say of bad ones.

use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::failure::Failure;
use crate::request::Endpoint;

use super::schema::{Chat, Completion, Native};

/// Refuses a body that is not what an endpoint takes.
pub(super) fn check(endpoint: Endpoint, body: &[u8]) -> Result<(), Failure> {
    match endpoint {
        Endpoint::Chat => by_value::<Chat>(body, WRONG),
        Endpoint::Completions => match serde_json::from_slice::<Completion>(body) {
            Ok(_) => Ok(()),
            Err(error) if error.is_data() => refused(WRONG, error),
            Err(error) => refused(UNREADABLE, format_args!("{}{error}", place(body))),
        },
        Endpoint::Generate => by_value::<Native>(body, ""),
    }
}

const UNREADABLE: &str = "Failed to parse the request body as JSON: ";
const WRONG: &str = "Failed to deserialize the JSON body into the target type: ";

/// Reads JSON first and its meaning then, of which it is not told where it is wrong.
fn by_value<T: DeserializeOwned>(body: &[u8], wrong: &str) -> Result<(), Failure> {
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(error) => return refused(UNREADABLE, error),
    };
    match T::deserialize(value) {
        Ok(_) => Ok(()),
        Err(error) => refused(wrong, error),
    }
}

fn refused(what: &str, error: impl fmt::Display) -> Result<(), Failure> {
    Err(Failure::bad_request(format!("{what}{error}"), None))
}

/// The member in whose value a body ends to be JSON.
fn place(body: &[u8]) -> String {
    let mut name = None;
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let members = Members(&mut name);
    if members.deserialize(&mut deserializer).is_ok() {
        return String::new();
    }
    name.map_or_else(String::new, |name| format!("{name}: "))
}

/// Keeps the name of the member whose value is being read.
struct Members<'n>(&'n mut Option<String>);

impl<'de> serde::de::DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key()? {
            *self.0 = Some(name);
            members.next_value::<IgnoredAny>()?;
            *self.0 = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(endpoint: Endpoint, body: &str) -> String {
        match check(endpoint, body.as_bytes()) {
            Err(Failure::Error(error)) => error.message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bodies_are_refused_in_the_words_of_the_recordings() {
        for (endpoint, body, expected) in [
            (
                Endpoint::Chat,
                "",
                "Failed to parse the request body as JSON: EOF while parsing a value at line 1 column 0",
            ),
            (
                Endpoint::Chat,
                r#"{"model":"m"}"#,
                "Failed to deserialize the JSON body into the target type: missing field `messages`",
            ),
            (
                Endpoint::Chat,
                r#"{"model":"m","messages":[],"n":-1}"#,
                "Failed to deserialize the JSON body into the target type: invalid value: integer `-1`, expected u8",
            ),
            (
                Endpoint::Completions,
                r#"{"model": "#,
                "Failed to parse the request body as JSON: model: EOF while parsing a value at line 1 column 10",
            ),
            (
                Endpoint::Completions,
                r#"{"model":"m"}"#,
                "Failed to deserialize the JSON body into the target type: missing field `prompt` at line 1 column 13",
            ),
            (
                Endpoint::Completions,
                r#"{"model":"m","prompt":"p","logprobs":-2}"#,
                "Failed to deserialize the JSON body into the target type: invalid value: integer `-2`, expected u8 at line 1 column 40",
            ),
            (
                Endpoint::Generate,
                "[1,2]",
                "invalid type: sequence, expected struct GenerateRequest",
            ),
            (
                Endpoint::Generate,
                r#"{"text":5}"#,
                "invalid type: integer `5`, expected a value or an array of values for StringOrList",
            ),
        ] {
            assert_eq!(said(endpoint, body), expected, "{body}");
        }
    }
}
