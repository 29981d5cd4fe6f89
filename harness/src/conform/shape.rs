//! Whether a JSON value is built like a recorded one, whatever its texts, counts, ids and times.

use super::json::Json;
use super::live::Facts;

/// Keys whose strings are part of the format.
const FIXED: [&str; 9] = [
    "object",
    "organization",
    "owned_by",
    "role",
    "service_tier",
    "tool_choice",
    "truncation",
    "type",
    "version",
];
/// Keys whose numbers are part of the format.
const FIXED_NUMBERS: [&str; 2] = ["code", "index"];
/// Keys that are null or not, as the text and its end have it.
const FREE: [&str; 5] = [
    "incomplete_details",
    "matched",
    "matched_stop",
    "stop_reason",
    "stop_sequence",
];
/// Keys that are null or not, as the cache had it.
const NULLABLE: [&str; 1] = ["cached_tokens_details"];
/// Objects whose keys are tokens or token ids.
const BY_TOKEN: [&str; 2] = ["prompt_logprobs", "top_logprobs"];
/// Lists as long as the request says.
const AS_ASKED: [&str; 1] = ["choices"];

/// The first place where `actual` is built differently from `recorded`, in words.
///
/// `facts` has the server's own name for the model that the recording calls by another.
pub(super) fn difference(recorded: &Json, actual: &Json, facts: &Facts) -> Option<String> {
    Place {
        key: "",
        path: "the body",
        facts,
    }
    .difference(recorded, actual)
}

/// The first key of an object that is another than the recorded one.
pub(super) fn keys_difference(recorded: &Json, actual: &Json) -> Option<String> {
    let keys = |json: &Json| -> Vec<String> {
        match json {
            Json::Object(members) => members.iter().map(|(key, _)| key.clone()).collect(),
            _ => Vec::new(),
        }
    };
    let (wanted, found) = (keys(recorded), keys(actual));
    let places = wanted.iter().zip(&found);
    let same = places.take_while(|(one, other)| one == other).count();
    match (wanted.get(same), found.get(same)) {
        (None, None) => None,
        (Some(wanted), None) => Some(format!("key `{wanted}` is missing in the body")),
        (None, Some(found)) => Some(format!("key `{found}` is not in the recording")),
        (Some(wanted), Some(found)) => {
            Some(format!("key `{found}` stands where `{wanted}` is recorded"))
        }
    }
}

/// Where a value stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    key: &'a str,
    path: &'a str,
    facts: &'a Facts,
}

impl Place<'_> {
    fn difference(self, recorded: &Json, actual: &Json) -> Option<String> {
        let path = self.path;
        match (recorded, actual) {
            _ if FREE.contains(&self.key) => None,
            (Json::Null, Json::Object(_)) | (Json::Object(_), Json::Null)
                if NULLABLE.contains(&self.key) =>
            {
                None
            }
            (Json::Object(_), Json::Object(_)) if is_other_end(self.key, recorded, actual) => None,
            (Json::Object(recorded), Json::Object(actual)) => self.object(recorded, actual),
            (Json::Array(recorded), Json::Array(actual)) => self.list(recorded, actual),
            (Json::String(recorded), Json::String(actual)) => self.string(recorded, actual),
            (Json::Integer(recorded), Json::Integer(actual)) => {
                let differs = FIXED_NUMBERS.contains(&self.key) && recorded != actual;
                differs.then(|| format!("{path} is {actual}, recorded is {recorded}"))
            }
            (Json::Bool(recorded), Json::Bool(actual)) => {
                (recorded != actual).then(|| format!("{path} is {actual}, recorded is {recorded}"))
            }
            (Json::Null, Json::Null) | (Json::Float, Json::Float) => None,
            _ => Some(format!(
                "{path} is {}, recorded is {}",
                actual.kind(),
                recorded.kind()
            )),
        }
    }

    fn object(self, recorded: &[(String, Json)], actual: &[(String, Json)]) -> Option<String> {
        if BY_TOKEN.contains(&self.key) {
            let recorded: Vec<Json> = recorded.iter().map(|(_, value)| value.clone()).collect();
            let actual: Vec<Json> = actual.iter().map(|(_, value)| value.clone()).collect();
            return self.list(&recorded, &actual);
        }
        let path = self.path;
        let has =
            |members: &[(String, Json)], key: &str| members.iter().any(|(name, _)| name == key);
        if let Some((key, _)) = recorded.iter().find(|(key, _)| !has(actual, key)) {
            return Some(format!("key `{key}` is missing in {path}"));
        }
        if let Some((key, _)) = actual.iter().find(|(key, _)| !has(recorded, key)) {
            return Some(format!("key `{key}` in {path} is not in the recording"));
        }
        let pairs = || recorded.iter().zip(actual);
        if let Some(((wanted, _), (found, _))) = pairs().find(|((one, _), (other, _))| one != other)
        {
            return Some(format!(
                "in {path} key `{found}` stands where `{wanted}` is recorded"
            ));
        }
        pairs().find_map(|((key, recorded), (_, actual))| {
            let path = match path {
                "the body" => format!("`{key}`"),
                path => format!("`{}.{key}`", path.trim_matches('`')),
            };
            Place {
                key,
                path: &path,
                ..self
            }
            .difference(recorded, actual)
        })
    }

    fn list(self, recorded: &[Json], actual: &[Json]) -> Option<String> {
        let path = self.path;
        if AS_ASKED.contains(&self.key) && recorded.len() != actual.len() {
            let (recorded, actual) = (recorded.len(), actual.len());
            return Some(format!(
                "{path} has {actual} elements, recorded are {recorded}"
            ));
        }
        if recorded.is_empty() && !actual.is_empty() {
            return Some(format!("{path} is not empty, as recorded"));
        }
        actual.iter().enumerate().find_map(|(number, item)| {
            let path = format!("`{}[{number}]`", path.trim_matches('`'));
            let place = Place {
                path: &path,
                ..self
            };
            if AS_ASKED.contains(&self.key) {
                return place.difference(&recorded[number], item);
            }
            // Any recorded element will do; the first tells what is different.
            let told = place.difference(&recorded[0], item)?;
            let fits = |known: &Json| place.difference(known, item).is_none();
            (!recorded.iter().any(fits)).then_some(told)
        })
    }

    /// An id that the request or the server's name gave.
    fn given_id(self, recorded: &str, actual: &str) -> Option<String> {
        let Facts { model, manner, .. } = self.facts;
        let is_given = self.key == "id" && manner.is_model_echoed;
        if !is_given || manner.rules.id_form(recorded).is_some() {
            return None;
        }
        let expected = if recorded == manner.model {
            model
        } else {
            recorded
        };
        let path = self.path;
        (actual != expected).then(|| format!("{path} is {actual:?}, recorded is {expected:?}"))
    }

    fn string(self, recorded: &str, actual: &str) -> Option<String> {
        let path = self.path;
        let differs =
            |recorded: &str| Some(format!("{path} is {actual:?}, recorded is {recorded:?}"));
        let Facts { model, manner, .. } = self.facts;
        if self.key == "model" {
            let is_other = manner.is_model_echoed && recorded != manner.model;
            let expected = if is_other { recorded } else { model };
            return (actual != expected).then(|| differs(expected))?;
        }
        if FIXED.contains(&self.key) && recorded != actual {
            return differs(recorded);
        }
        if let Some((prefix, digits)) = manner.rules.id_form(recorded) {
            let fits = manner.rules.id_form(actual) == Some((prefix, digits));
            let told = || format!("{path} is {actual:?}, not `{prefix}` and {digits} hex digits");
            return (!fits).then(told);
        }
        if self.key == "system_fingerprint" {
            let stem = recorded.rsplit_once('-').map_or(recorded, |(stem, _)| stem);
            return (!actual.starts_with(stem)).then(|| differs(recorded))?;
        }
        if self.key == "finish_reason" {
            let ends = ["stop", "length"];
            let fits = ends.contains(&recorded) && ends.contains(&actual) || recorded == actual;
            return (!fits).then(|| differs(recorded))?;
        }
        self.given_id(recorded, actual)
    }
}

/// A text ended otherwise than the recorded one, at a token or a limit, and says so as it should.
fn is_other_end(key: &str, recorded: &Json, actual: &Json) -> bool {
    let kind = |json: &Json| json.get("type").and_then(Json::text).map(str::to_owned);
    let detail = |json: &Json| match json {
        Json::Object(members) => match &members[..] {
            [(kind, _), (detail, _)] if kind == "type" => Some(detail.clone()),
            _ => None,
        },
        _ => None,
    };
    let is_end = |json: &Json| match (kind(json).as_deref(), detail(json).as_deref()) {
        (Some("stop"), Some("matched")) => true,
        (Some("length"), Some("length")) => json.get("length").and_then(Json::integer).is_some(),
        _ => false,
    };
    key == "finish_reason" && is_end(recorded) && is_end(actual) && kind(recorded) != kind(actual)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(recorded: &str, actual: &str) -> Option<String> {
        let parse = |text| Json::parse(text).unwrap();
        let facts = Facts {
            model: "m".into(),
            ..Facts::default()
        };
        difference(&parse(recorded), &parse(actual), &facts)
    }

    #[test]
    fn texts_counts_ids_and_times_are_free() {
        let id = "chatcmpl-0123456789abcdef";
        for (recorded, actual) in [
            (r#"{"content":"a","n":1}"#, r#"{"content":"b","n":20}"#),
            (
                &*format!("{{\"id\":{id:?}}}"),
                r#"{"id":"chatcmpl-fedcba9876543210"}"#,
            ),
            (r#"{"model":"tiny-chat"}"#, r#"{"model":"m"}"#),
            (r#"{"stop_reason":null}"#, r#"{"stop_reason":7}"#),
            (
                r#"{"finish_reason":"stop"}"#,
                r#"{"finish_reason":"length"}"#,
            ),
            (
                r#"{"top_logprobs":[{"a":-0.5}]}"#,
                r#"{"top_logprobs":[{"b":-1.5,"c":-2.0}]}"#,
            ),
            (r#"{"tokens":[1]}"#, r#"{"tokens":[]}"#),
            (r#"[{"a":[]},{"a":[1]}]"#, r#"[{"a":[1,2]}]"#),
            (
                r#"{"system_fingerprint":"vllm-0.33.0-3b405636"}"#,
                r#"{"system_fingerprint":"vllm-0.33.0-tp2-0"}"#,
            ),
        ] {
            assert_eq!(told(recorded, actual), None, "{recorded}");
        }
    }

    #[test]
    fn what_is_built_differently_is_said_in_words() {
        for (recorded, actual, expected) in [
            (
                r#"{"a":1,"b":2}"#,
                r#"{"a":1}"#,
                "key `b` is missing in the body",
            ),
            (
                r#"{"a":{"b":1}}"#,
                r#"{"a":{"b":1,"c":1}}"#,
                "key `c` in `a` is not in the recording",
            ),
            (
                r#"{"a":1,"b":2}"#,
                r#"{"b":1,"a":2}"#,
                "in the body key `b` stands where `a` is recorded",
            ),
            (
                r#"{"a":[{"b":null}]}"#,
                r#"{"a":[{"b":""}]}"#,
                "`a[0].b` is a string, recorded is null",
            ),
            (
                r#"{"a":1}"#,
                r#"{"a":1.0}"#,
                "`a` is a float, recorded is an integer",
            ),
            (
                r#"{"object":"x"}"#,
                r#"{"object":"y"}"#,
                "`object` is \"y\", recorded is \"x\"",
            ),
            (
                r#"{"model":"x"}"#,
                r#"{"model":"x"}"#,
                "`model` is \"x\", recorded is \"m\"",
            ),
            (
                r#"{"choices":[1,2]}"#,
                r#"{"choices":[1]}"#,
                "`choices` has 1 elements, recorded are 2",
            ),
            (
                r#"{"a":[]}"#,
                r#"{"a":[1]}"#,
                "`a` is not empty, as recorded",
            ),
            (
                r#"{"id":"cmpl-0123456789abcdef"}"#,
                r#"{"id":"0123456789abcdef"}"#,
                "`id` is \"0123456789abcdef\", not `cmpl-` and 16 hex digits",
            ),
        ] {
            assert_eq!(told(recorded, actual).as_deref(), Some(expected));
        }
    }
}
