//! The lines that a worker writes.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::float;

#[derive(Serialize)]
struct FirstLine {
    max_named_sessions: u64,
    max_sessions: u64,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    supports_cancel: Option<bool>,
}

/// The first line; one of `max_sessions` slots is kept for requests without a session.
pub fn ready(max_sessions: u64, supports_cancel: bool) -> String {
    json(&FirstLine {
        max_named_sessions: max_sessions.saturating_sub(1),
        max_sessions,
        ready: true,
        supports_cancel: supports_cancel.then_some(true),
    })
}

#[derive(Serialize)]
struct Token<'t> {
    token: &'t str,
}

/// Text of an answer; what is no UTF-8 is replaced.
pub fn token(text: &[u8]) -> String {
    json(&Token {
        token: &String::from_utf8_lossy(text),
    })
}

#[derive(Serialize)]
struct Failed<'e> {
    error: &'e str,
}

/// A request that failed.
pub fn failed(error: &str) -> String {
    json(&Failed { error })
}

/// Why a session is not admitted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// All slots are taken.
    CapacityExhausted,
    /// There are no slots for named sessions.
    UnsupportedSession,
}

#[derive(Serialize)]
struct CannotOpen<'s> {
    code: &'static str,
    error: &'static str,
    session_id: &'s str,
}

impl Refusal {
    /// The line that says so.
    pub fn line(self, session_id: &str) -> String {
        let code = match self {
            Self::CapacityExhausted => "capacity_exhausted",
            Self::UnsupportedSession => "unsupported_session",
        };
        json(&CannotOpen {
            code,
            error: "cannot open session",
            session_id,
        })
    }
}

/// An operation on a session was done; `done` is its past participle.
pub fn acknowledged(done: &'static str, session_id: &str) -> String {
    let members = BTreeMap::from([(done, Value::Bool(true)), ("session_id", session_id.into())]);
    json(&members)
}

#[derive(Serialize)]
struct ResetFailed<'s> {
    error: &'static str,
    session_id: &'s str,
}

/// A session could not be reset when that was asked for.
pub fn reset_failed(session_id: &str) -> String {
    json(&ResetFailed {
        error: "session reset failed",
        session_id,
    })
}

/// The end of a turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// It was ended by a cancellation.
    pub cancelled: bool,
    /// Decoded tokens; the end token is none, those behind a stop string are.
    pub completion_tokens: u64,
    /// Milliseconds of decoding.
    pub decode_ms: f64,
    /// `stop` or `length`.
    pub finish_reason: &'static str,
    /// Ids of the decoded tokens, where they may be used again.
    pub generated_token_ids: Option<Vec<i64>>,
    /// Milliseconds of prefill.
    pub prefill_ms: f64,
    /// Prompt tokens that were computed.
    pub prefilled_prompt_tokens: u64,
    /// Prompt tokens that the session still had.
    pub reused_prompt_tokens: u64,
    /// What became of the session's earlier tokens.
    pub session_reset_reason: &'static str,
    /// Milliseconds of the turn.
    pub total_ms: f64,
}

/// What a script makes of the end of a turn.
#[derive(Clone, Debug, Default)]
pub struct DoneChanges {
    /// The only keys that are left, if some are to go.
    pub only: Option<Vec<String>>,
    /// Members that are added or replaced.
    pub set: BTreeMap<String, Value>,
}

impl Done {
    /// Prompt tokens that were computed, per second. Reused ones cost nothing and are not counted.
    pub fn prefill_tok_s(&self) -> f64 {
        rate(self.prefilled_prompt_tokens, self.prefill_ms)
    }

    /// Decoded tokens per second.
    pub fn decode_tok_s(&self) -> f64 {
        rate(self.completion_tokens, self.decode_ms)
    }

    /// The line, as a script wants it.
    pub fn line(&self, changes: &DoneChanges) -> String {
        let mut members = BTreeMap::from([
            ("completion_tokens", self.completion_tokens.to_string()),
            ("decode_ms", float(self.decode_ms)),
            ("decode_tok_s", float(self.decode_tok_s())),
            ("done", "true".into()),
            ("finish_reason", json(self.finish_reason)),
            ("prefill_ms", float(self.prefill_ms)),
            ("prefill_tok_s", float(self.prefill_tok_s())),
            (
                "prefilled_prompt_tokens",
                self.prefilled_prompt_tokens.to_string(),
            ),
            (
                "prompt_tokens",
                (self.reused_prompt_tokens + self.prefilled_prompt_tokens).to_string(),
            ),
            (
                "reused_prompt_tokens",
                self.reused_prompt_tokens.to_string(),
            ),
            ("session_reset_reason", json(self.session_reset_reason)),
            ("total_ms", float(self.total_ms)),
        ]);
        if self.cancelled {
            members.insert("cancelled", "true".into());
        }
        if let Some(ids) = &self.generated_token_ids {
            members.insert("generated_token_ids", json(ids));
        }
        if let Some(only) = &changes.only {
            members.retain(|key, _| only.iter().any(|kept| kept == key));
        }
        for (key, value) in &changes.set {
            members.insert(key, shown(value));
        }
        let members = members
            .iter()
            .map(|(key, value)| format!("{}:{value}", json(*key)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

/// `count` per second, 0.0 if it took no time.
#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^53"
)]
fn rate(count: u64, milliseconds: f64) -> f64 {
    if milliseconds > 0.0 {
        count as f64 * 1000.0 / milliseconds
    } else {
        0.0
    }
}

/// A scripted value; doubles have the form of all others.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => float(number.as_f64().expect("it is a double")),
        _ => json(value),
    }
}

fn json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("it has no keys but texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_as_recorded() {
        let done = Done {
            completion_tokens: 1,
            decode_ms: 1.15589,
            finish_reason: "length",
            generated_token_ids: Some(vec![100_001]),
            prefill_ms: 0.301_523,
            prefilled_prompt_tokens: 2,
            session_reset_reason: "new",
            total_ms: 1.460_188,
            ..Done::default()
        };
        assert_eq!(
            done.line(&DoneChanges::default()),
            r#"{"completion_tokens":1,"decode_ms":1.15589,"decode_tok_s":865.134225575098,"done":true,"finish_reason":"length","generated_token_ids":[100001],"prefill_ms":0.301523,"prefill_tok_s":6632.993171333531,"prefilled_prompt_tokens":2,"prompt_tokens":2,"reused_prompt_tokens":0,"session_reset_reason":"new","total_ms":1.460188}"#
        );
    }

    #[test]
    fn scripts_take_members_away_and_replace_others() {
        let changes = DoneChanges {
            only: Some(vec!["done".into()]),
            set: BTreeMap::from([
                ("a b".into(), Value::Null),
                ("total_ms".into(), 1e12.into()),
            ]),
        };
        assert_eq!(
            Done::default().line(&changes),
            r#"{"a b":null,"done":true,"total_ms":1000000000000.0}"#
        );
    }

    #[test]
    fn nothing_in_no_time_is_no_rate() {
        let done = Done {
            prefilled_prompt_tokens: 7,
            ..Done::default()
        };
        assert!(done.prefill_tok_s().abs() < f64::EPSILON);
    }
}
