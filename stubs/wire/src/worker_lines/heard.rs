//! The lines that a server reads, as the real one takes them.

use crate::json::{Json, JsonError, Object};
use crate::python::{self, Number};

use super::Operation;

/// What a worker says in a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// The turn is over.
    Done(Box<Stats>),
    /// The turn failed, and the worker is ready for the next.
    Error {
        /// Why.
        text: String,
        /// `code`
        code: Option<String>,
    },
    /// Text of the answer.
    Token(Token),
}

/// Text of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Token {
    /// A value that is no text, by the name of its type in Python.
    Other(&'static str),
    /// A text in which some characters, U+FFFD here, are halves of a pair; the code of the first.
    Surrogates(String, u16),
    /// A text.
    Text(String),
}

/// What a worker tells of a turn that is over. A number that is none stands as `None`; one that is left out
/// is 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Ids of the whole prompt, what was reused included.
    pub prompt_tokens: Option<i128>,
    /// Those that the session had.
    pub reused_prompt_tokens: Option<i128>,
    /// The others.
    pub prefilled_prompt_tokens: Option<i128>,
    /// Tokens that were decoded, the one that ends the answer not counted.
    pub completion_tokens: Option<i128>,
    /// `stop` or `length`, or what else the worker says.
    pub finish_reason: Option<String>,
    /// Why a session did or did not go on.
    pub session_reset_reason: Option<String>,
    /// Milliseconds of prefill.
    pub prefill_ms: Option<f64>,
    /// Prefilled tokens, never reused ones, over [`Self::prefill_ms`]; 0 if that is 0.
    pub prefill_tok_s: Option<f64>,
    /// Milliseconds of decoding.
    pub decode_ms: Option<f64>,
    /// Completion tokens over [`Self::decode_ms`]; 0 if that is 0.
    pub decode_tok_s: Option<f64>,
    /// Milliseconds of the turn in the worker.
    pub total_ms: Option<f64>,
    /// Milliseconds of a vision encoder, where the worker has one.
    pub vision_encoder_ms: Option<f64>,
    /// Ids of the answer, where the worker tells them.
    pub generated_token_ids: Vec<i64>,
    /// A cancellation ended the turn.
    pub cancelled: bool,
}

/// A line that no server can use, in the real one's words.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeardError {
    /// It is not UTF-8.
    #[error(
        "'utf-8' codec can't decode byte 0x{byte:02x} in position {position}: invalid start byte"
    )]
    NotUtf8 {
        /// The first byte that is wrong.
        byte: u8,
        /// Where it stands.
        position: usize,
    },
    /// It is something else than a worker says.
    #[error("{0}")]
    Unexpected(String),
}

impl Heard {
    /// Reads a line of a turn, its end included or not.
    pub fn parse(line: &[u8]) -> Result<Self, HeardError> {
        let text = utf8(line)?;
        let members = object(text)?;
        if let Some(token) = members.get("token") {
            return Ok(Self::Token(Token::of(token, text)));
        }
        if members.get("done").is_some_and(python::truthy) {
            return Ok(Self::Done(Box::new(Stats::of(&members))));
        }
        refused(&members).ok_or_else(|| unexpected(members))
    }

    /// Reads the answer to an operation: done, or refused by an error.
    pub fn parse_operation(line: &[u8], operation: Operation) -> Result<Option<Self>, HeardError> {
        let members = object(utf8(line)?)?;
        if members.get(operation.done()).is_some_and(python::truthy) {
            return Ok(None);
        }
        let refused = refused(&members);
        refused.map(Some).ok_or_else(|| unexpected(members))
    }
}

/// The first line of a worker: whether it takes cancellations, and sessions that can have a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ready {
    /// `max_named_sessions`
    pub max_named_sessions: i128,
    /// `supports_cancel`
    pub supports_cancel: bool,
}

impl Ready {
    /// Reads it.
    pub fn parse(line: &[u8]) -> Result<Self, HeardError> {
        let members = object(utf8(line)?)?;
        if !members.get("ready").is_some_and(python::truthy) {
            let told = python::display(&Json::Object(members));
            return Err(HeardError::Unexpected(format!(
                "worker did not report ready: {told}"
            )));
        }
        let named = members.get("max_named_sessions");
        let max_named_sessions = match named {
            None => Some(0),
            Some(Json::String(text)) => text.trim().parse().ok(),
            Some(value) => count(Some(value)),
        };
        let max_named_sessions = max_named_sessions.ok_or_else(|| {
            let told = named.map(python::display).unwrap_or_default();
            HeardError::Unexpected(format!("max_named_sessions is no number: {told}"))
        })?;
        Ok(Self {
            max_named_sessions,
            supports_cancel: members.get("supports_cancel") == Some(&Json::Bool(true)),
        })
    }
}

fn utf8(line: &[u8]) -> Result<&str, HeardError> {
    std::str::from_utf8(line).map_err(|error| {
        let position = error.valid_up_to();
        HeardError::NotUtf8 {
            byte: line[position],
            position,
        }
    })
}

fn object(text: &str) -> Result<Object<'_>, HeardError> {
    match Json::parse(text.as_bytes()) {
        Ok(Json::Object(members)) => Ok(members),
        Ok(other) => Err(HeardError::Unexpected(format!(
            "invalid worker message: expected object, got {}",
            match &other {
                Json::String(text) => python::repr(text),
                other => python::display(other),
            }
        ))),
        Err(JsonError::NotUtf8 | JsonError::Syntax { .. } | JsonError::TooLarge) => {
            let shown = python::repr(text.trim_end());
            Err(HeardError::Unexpected(format!(
                "invalid worker JSON: {shown}"
            )))
        }
    }
}

fn refused(members: &Object<'_>) -> Option<Heard> {
    let text = python::display(members.get("error")?);
    let code = members.get("code").and_then(Json::as_str);
    let code = code.map(ToOwned::to_owned);
    Some(Heard::Error { text, code })
}

fn unexpected(members: Object<'_>) -> HeardError {
    let told = python::display(&Json::Object(members));
    HeardError::Unexpected(format!("unexpected worker response: {told}"))
}

impl Token {
    fn of(value: &Json<'_>, line: &str) -> Self {
        match value {
            Json::Array(_) => Self::Other("list"),
            Json::Bool(_) => Self::Other("bool"),
            Json::Null => Self::Other("NoneType"),
            Json::Number(text) => match python::number(text) {
                Number::Float(_) => Self::Other("float"),
                Number::Int(_) => Self::Other("int"),
            },
            Json::Object(_) => Self::Other("dict"),
            Json::String(text) => Self::Text(text.clone().into_owned()),
            Json::Surrogates(text) => Self::Surrogates(text.clone(), first_surrogate(line)),
        }
    }
}

/// The code of the first half of a pair that stands alone, of which there is one.
fn first_surrogate(line: &str) -> u16 {
    let escapes = line.match_indices("\\u");
    let unit = |at: usize| u16::from_str_radix(line.get(at + 2..at + 6)?, 16).ok();
    let mut paired = None;
    for (at, _) in escapes {
        match unit(at) {
            Some(code @ 0xd800..0xdc00) if matches!(unit(at + 6), Some(0xdc00..0xe000)) => {
                paired = Some((at + 6, code));
            }
            Some(code @ 0xd800..0xe000) if paired.is_none_or(|(second, _)| second != at) => {
                return code;
            }
            _ => {}
        }
    }
    0xd800
}

impl Stats {
    fn of(members: &Object<'_>) -> Self {
        let counted = |name| count(members.get(name));
        let measured = |name| match members.get(name) {
            None => Some(0.0),
            Some(value) => measure(value),
        };
        let told = |name| match members.get(name) {
            None | Some(Json::Null) => None,
            Some(value) => Some(python::display(value)),
        };
        let ids = match members.get("generated_token_ids") {
            Some(Json::Array(ids)) => &ids[..],
            _ => &[],
        };
        let id = |id| count(Some(id)).and_then(|id| i64::try_from(id).ok());
        // A list with a part that is no id is none that can be told again.
        let ids: Option<Vec<i64>> = ids.iter().map(id).collect();
        // What is shown alone need not be whole.
        let shown = |name| counted(name).or_else(|| cut(members.get(name)?));
        Self {
            prompt_tokens: counted("prompt_tokens"),
            reused_prompt_tokens: shown("reused_prompt_tokens"),
            prefilled_prompt_tokens: shown("prefilled_prompt_tokens"),
            completion_tokens: counted("completion_tokens"),
            finish_reason: told("finish_reason"),
            session_reset_reason: told("session_reset_reason"),
            prefill_ms: measured("prefill_ms"),
            prefill_tok_s: measured("prefill_tok_s"),
            decode_ms: measured("decode_ms"),
            decode_tok_s: measured("decode_tok_s"),
            total_ms: measured("total_ms"),
            vision_encoder_ms: members.get("vision_encoder_ms").and_then(measure),
            generated_token_ids: ids.unwrap_or_default(),
            cancelled: members.get("cancelled").is_some_and(python::truthy),
        }
    }
}

fn count(value: Option<&Json<'_>>) -> Option<i128> {
    match value {
        None => Some(0),
        Some(Json::Bool(flag)) => Some(i128::from(*flag)),
        Some(Json::Number(text)) => match python::number(text) {
            #[expect(clippy::cast_possible_truncation, reason = "whole, so none is lost")]
            Number::Float(number) if number.fract() == 0.0 => Some(number as i128),
            Number::Float(_) => None,
            Number::Int(number) => Some(number),
        },
        Some(_) => None,
    }
}

/// The whole part of a number, as Python's `%d` shows it.
#[expect(clippy::cast_possible_truncation, reason = "it is what is asked for")]
fn cut(value: &Json<'_>) -> Option<i128> {
    measure(value)
        .filter(|number| number.is_finite())
        .map(|number| number as i128)
}

#[expect(clippy::cast_precision_loss, reason = "as Python rounds")]
fn measure(value: &Json<'_>) -> Option<f64> {
    match value {
        Json::Number(text) => Some(match python::number(text) {
            Number::Float(number) => number,
            Number::Int(number) => number as f64,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &[u8]) -> String {
        Heard::parse(line).unwrap_err().to_string()
    }

    #[test]
    fn what_no_worker_says_is_told_in_pythons_words() {
        for (line, expected) in [
            (
                &b"not json at all\n"[..],
                "invalid worker JSON: 'not json at all'",
            ),
            (b"\n", "invalid worker JSON: ''"),
            (b"[1]\n", "invalid worker message: expected object, got [1]"),
            (b"\"a\"", "invalid worker message: expected object, got 'a'"),
            (
                b"{\"progress\":\"loading\"}",
                "unexpected worker response: {'progress': 'loading'}",
            ),
            (
                b"{\"token\":\"\xff\"}",
                "'utf-8' codec can't decode byte 0xff in position 10: invalid start byte",
            ),
        ] {
            assert_eq!(refusal(line), expected);
        }
    }

    #[test]
    fn a_token_wins_over_an_end() {
        let heard = Heard::parse(br#"{"token":"x","done":true}"#);
        assert_eq!(heard, Ok(Heard::Token(Token::Text("x".into()))));
        for (line, name) in [
            (r#"{"token":5}"#, "int"),
            (r#"{"token":null}"#, "NoneType"),
            (r#"{"token":[]}"#, "list"),
        ] {
            let heard = Heard::parse(line.as_bytes());
            assert_eq!(heard, Ok(Heard::Token(Token::Other(name))));
        }
        let heard = Heard::parse(br#"{"token":"\ud83d\ude00\uDC01"}"#);
        let expected = Token::Surrogates("😀\u{fffd}".into(), 0xdc01);
        assert_eq!(heard, Ok(Heard::Token(expected)));
    }

    #[test]
    fn numbers_that_are_none_are_not_made_up() {
        let line = br#"{"done":1,"completion_tokens":"8","prefill_ms":null,"decode_ms":3,"prompt_tokens":2.0}"#;
        let Ok(Heard::Done(stats)) = Heard::parse(line) else {
            panic!("it is an end");
        };
        assert_eq!(stats.completion_tokens, None);
        assert_eq!(stats.prefill_ms, None);
        assert_eq!(stats.decode_ms, Some(3.0));
        assert_eq!(stats.prompt_tokens, Some(2));
        assert_eq!(stats.total_ms, Some(0.0));
        assert_eq!(stats.session_reset_reason, None);
    }

    #[test]
    fn operations_are_acknowledged_or_refused() {
        let open = |line: &str| Heard::parse_operation(line.as_bytes(), Operation::Open);
        assert_eq!(open(r#"{"opened":true,"session_id":"a"}"#), Ok(None));
        let refused = Heard::Error {
            text: "cannot open session".into(),
            code: Some("capacity_exhausted".into()),
        };
        let line =
            r#"{"code":"capacity_exhausted","error":"cannot open session","session_id":"a"}"#;
        assert_eq!(open(line), Ok(Some(refused)));
        assert!(open(r#"{"closed":true}"#).is_err());
    }

    #[test]
    fn first_lines_are_taken_or_refused() {
        let ready = Ready::parse(br#"{"max_named_sessions":2.9,"ready":1,"supports_cancel":1}"#);
        assert!(ready.is_err(), "{ready:?}");
        let line = br#"{"max_named_sessions":"2","ready":true,"supports_cancel":true}"#;
        let expected = Ready {
            max_named_sessions: 2,
            supports_cancel: true,
        };
        assert_eq!(Ready::parse(line), Ok(expected));
        let refused = Ready::parse(br#"{"ready":false}"#).unwrap_err().to_string();
        assert_eq!(refused, "worker did not report ready: {'ready': False}");
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic(line: Vec<u8>, json in "[\\[\\]{}\":,a-z0-9.nulltrue \\\\]{0,40}") {
            for line in [&line[..], json.as_bytes()] {
                let _ = Heard::parse(line);
                let _ = Ready::parse(line);
                let _ = Heard::parse_operation(line, Operation::Reset);
            }
        }
    }
}
