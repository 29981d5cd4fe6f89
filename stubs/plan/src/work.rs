//! What an engine does for one choice, as its counters see it.

use std::time::Duration;

use wire::finish::FinishReason;

use crate::generate::Said;
use crate::script::CutKind;

/// The work for one choice, as it is decided before anything is sent.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Tokens of the prompt that the prefix cache had, where there is one.
    pub cached_tokens: Option<u64>,
    /// Choices of the prompt that this is one of, which stand together: `n`.
    pub choices: usize,
    /// How it ends; nothing if the engine fails without a word.
    pub finish: Option<FinishReason>,
    /// When its first token is due, from the request's arrival.
    pub first_due: Duration,
    /// When its last token is due, from the request's arrival.
    pub last_due: Duration,
    /// Most tokens of the answer, if there is a limit.
    pub max_tokens: Option<u64>,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Engine steps.
    pub steps: u64,
    /// Tokens of the answer.
    pub tokens: u64,
}

/// How the engine ends a choice, whatever a parser makes of that.
pub(crate) fn finish(said: &Said) -> Option<FinishReason> {
    match said.fault {
        None => Some(said.finish.reason),
        Some(CutKind::Error) => Some(FinishReason::Error),
        Some(_) => None,
    }
}
