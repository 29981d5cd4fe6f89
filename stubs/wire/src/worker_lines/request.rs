//! The lines that a worker reads.

use serde_json::{Map, Value};

use super::parse::parsed;

/// A line, read as far as it takes to tell turns from operations.
#[derive(Clone, Debug)]
pub enum Frame {
    /// A turn.
    Generate(Generate),
    /// Something done to a session.
    Operation(Operation, String),
}

/// What can be done to a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// Its slot is given up.
    Close,
    /// It takes a slot.
    Open,
    /// It forgets its tokens.
    Reset,
}

/// A line that is refused, and the text that says why.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct LineError(String);

impl LineError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// A turn that is asked for; [`Generate::wishes`] reads the rest.
#[derive(Clone, Debug)]
pub struct Generate(Map<String, Value>);

/// What a turn is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wishes {
    /// Most tokens to decode, 0 or less for as many as there is room for.
    pub max_new_tokens: i64,
    /// The prompt, in order.
    pub prompt: Vec<Segment>,
    /// Seed, 0 for none.
    pub seed: i64,
    /// Stop strings.
    pub stop: Vec<String>,
    /// Sampling temperature.
    pub temperature: f64,
    /// Likeliest tokens to sample from, 0 for all.
    pub top_k: i64,
    /// Probability mass to sample from.
    pub top_p: f64,
}

/// A part of a prompt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Segment {
    /// Tokens of an earlier answer.
    Ids(Vec<i64>),
    /// Text to cut into tokens.
    Text(String),
}

impl Frame {
    /// Reads a line without its end.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let members = match parsed(line)? {
            Value::Object(members) => members,
            other => {
                let kind = kind(&other);
                return Err(LineError::new(format!(
                    "[json.exception.type_error.306] cannot use value() with {kind}"
                )));
            }
        };
        let operation = members.get("op").map(text).transpose()?;
        let operation = match operation.as_deref() {
            Some("close") => Operation::Close,
            Some("open") => Operation::Open,
            Some("reset") => Operation::Reset,
            // An unknown operation is a turn, as upstream has it.
            _ => return Ok(Self::Generate(Generate(members))),
        };
        let session_id = members.get("session_id").ok_or_else(|| {
            LineError::new("[json.exception.out_of_range.403] key 'session_id' not found")
        })?;
        match text(session_id)? {
            empty if empty.is_empty() => Err(LineError::new("session_id required for op")),
            session_id => Ok(Self::Operation(operation, session_id)),
        }
    }
}

impl Generate {
    /// The session, empty for none.
    pub fn session_id(&self) -> Result<String, LineError> {
        self.0
            .get("session_id")
            .map_or_else(|| Ok(String::new()), text)
    }

    /// Whether it has a number under which it can be cancelled, right or wrong.
    pub fn is_cancellable(&self) -> bool {
        self.0.contains_key("cancel_request_id")
    }

    /// The number under which the turn can be cancelled.
    pub fn cancel_request_id(&self) -> Result<Option<u64>, LineError> {
        let Some(id) = self.0.get("cancel_request_id") else {
            return Ok(None);
        };
        match id.as_u64() {
            None | Some(0) => Err(LineError::new(
                "cancel_request_id must be a positive uint64",
            )),
            id => Ok(id),
        }
    }

    /// Reads the rest, in the order in which the real worker does.
    pub fn wishes(&self) -> Result<Wishes, LineError> {
        let max_new_tokens = self.integer("max_new_tokens", -1)?;
        let temperature = self.number("temperature", 0.0)?;
        let top_p = self.number("top_p", 1.0)?;
        let top_k = self.integer("top_k", 0)?;
        let seed = self.integer("seed", 0)?;
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(LineError::new("top_p must be finite and in (0, 1]"));
        }
        if i32::try_from(top_k).is_err() || top_k < 0 {
            return Err(LineError::new("top_k must fit in a nonnegative int32"));
        }
        if seed < 0 {
            return Err(LineError::new("seed must be nonnegative"));
        }
        let stop = self.0.get("stop");
        let stop = stop.map_or(Ok(Vec::new()), |stop| {
            list(stop)?.iter().map(text).collect()
        })?;
        Ok(Wishes {
            max_new_tokens,
            prompt: self.prompt()?,
            seed,
            stop,
            temperature,
            top_k,
            top_p,
        })
    }

    fn prompt(&self) -> Result<Vec<Segment>, LineError> {
        let members = &self.0;
        match (members.get("prompt"), members.get("prompt_segments")) {
            (Some(prompt), None) => Ok(vec![Segment::Text(text(prompt)?)]),
            (None, Some(segments)) => segments_of(segments),
            _ => Err(LineError::new(
                "exactly one of prompt / prompt_segments is required",
            )),
        }
    }

    fn integer(&self, key: &str, default: i64) -> Result<i64, LineError> {
        self.0.get(key).map_or(Ok(default), integer)
    }

    fn number(&self, key: &str, default: f64) -> Result<f64, LineError> {
        self.0.get(key).map_or(Ok(default), number)
    }
}

fn segments_of(segments: &Value) -> Result<Vec<Segment>, LineError> {
    let segment = |segment: &Value| match (segment.get("ids"), segment.get("text")) {
        (Some(ids), _) => {
            let ids = elements(ids).into_iter().map(integer);
            Ok(Segment::Ids(ids.collect::<Result<_, _>>()?))
        }
        (None, Some(shown)) => Ok(Segment::Text(text(shown)?)),
        (None, None) => Err(LineError::new("prompt_segment needs `text` or `ids`")),
    };
    elements(segments).into_iter().map(segment).collect()
}

/// What the real worker meets when it goes through a value: a plain one is its own only element.
fn elements(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(elements) => elements.iter().collect(),
        Value::Null => Vec::new(),
        Value::Object(members) => members.values().collect(),
        other => vec![other],
    }
}

fn text(value: &Value) -> Result<String, LineError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(mistyped("string", other)),
    }
}

fn list(value: &Value) -> Result<&[Value], LineError> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(mistyped("array", other)),
    }
}

fn number(value: &Value) -> Result<f64, LineError> {
    match value {
        Value::Bool(flag) => Ok(f64::from(u8::from(*flag))),
        Value::Number(number) => Ok(number.as_f64().unwrap_or(f64::NAN)),
        other => Err(mistyped("number", other)),
    }
}

/// A number cut to an integer.
#[expect(clippy::cast_possible_truncation, reason = "so does the real worker")]
fn integer(value: &Value) -> Result<i64, LineError> {
    match value.as_i64() {
        Some(integer) => Ok(integer),
        None => Ok(number(value)? as i64),
    }
}

fn mistyped(expected: &str, value: &Value) -> LineError {
    let kind = kind(value);
    LineError::new(format!(
        "[json.exception.type_error.302] type must be {expected}, but is {kind}"
    ))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
        Value::Number(_) => "number",
        Value::Object(_) => "object",
        Value::String(_) => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        match Frame::parse(line.as_bytes()) {
            Err(error) => error.to_string(),
            Ok(Frame::Generate(generate)) => {
                let session_id = generate.session_id();
                let wishes = session_id.and_then(|_| generate.wishes());
                wishes.unwrap_err().to_string()
            }
            Ok(Frame::Operation(..)) => panic!("{line} is fine"),
        }
    }

    #[test]
    fn the_first_fault_is_told() {
        for (line, expected) in [
            (
                "true",
                "[json.exception.type_error.306] cannot use value() with boolean",
            ),
            (
                r#"{"op":"close","session_id":null}"#,
                "[json.exception.type_error.302] type must be string, but is null",
            ),
            (
                r#"{"top_p":0,"seed":"x"}"#,
                "[json.exception.type_error.302] type must be number, but is string",
            ),
            (
                r#"{"top_p":1e400}"#,
                "[json.exception.parse_error.101] parse error at line 1, column 14: syntax error while parsing value - unexpected character; expected end of input",
            ),
            (
                r#"{"top_p":0,"top_k":-1}"#,
                "top_p must be finite and in (0, 1]",
            ),
            (
                r#"{"top_k":-1,"seed":-1}"#,
                "top_k must fit in a nonnegative int32",
            ),
            (r#"{"seed":-1,"stop":"x"}"#, "seed must be nonnegative"),
            (
                r#"{"stop":[1],"prompt":1}"#,
                "[json.exception.type_error.302] type must be string, but is number",
            ),
        ] {
            assert_eq!(refused(line), expected, "{line}");
        }
    }

    #[test]
    fn ids_win_over_text() {
        let line = br#"{"prompt_segments":[{"text":"a","ids":[1]},{"text":"b"}]}"#;
        let Ok(Frame::Generate(generate)) = Frame::parse(line) else {
            panic!("it is a turn");
        };
        assert_eq!(
            generate.wishes().unwrap().prompt,
            [Segment::Ids(vec![1]), Segment::Text("b".into())]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic(line: Vec<u8>, json in "[\\[\\]{}\":,a-z0-9.nulltrue ]{0,40}") {
            for line in [&line[..], json.as_bytes()] {
                match Frame::parse(line) {
                    Ok(Frame::Generate(generate)) => {
                        let _ = generate.wishes();
                        let _ = generate.cancel_request_id();
                        let _ = generate.session_id();
                    }
                    Ok(Frame::Operation(_, session_id)) => assert!(!session_id.is_empty()),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
    }
}
