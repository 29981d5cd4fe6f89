//! Why an answer ended.

use std::borrow::Cow;

/// `finish_reason`
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FinishReason {
    /// `abort`: given up on the server's side.
    Abort,
    /// `error`: the engine failed.
    Error,
    /// `length`: a token limit was reached.
    Length,
    /// A reason that no imitated server gives.
    Other,
    /// `repetition`: repetition was detected.
    Repetition,
    /// `stop`: end token, stop token or stop string.
    Stop,
    /// `tool_calls`
    ToolCalls,
}

impl FinishReason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Error => "error",
            Self::Length => "length",
            Self::Other => "other",
            Self::Repetition => "repetition",
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
        }
    }

    /// The reason that a word on the wire names.
    pub fn read(word: &str) -> Self {
        match word {
            "abort" => Self::Abort,
            "error" => Self::Error,
            "length" => Self::Length,
            "repetition" => Self::Repetition,
            "stop" => Self::Stop,
            "tool_calls" => Self::ToolCalls,
            _ => Self::Other,
        }
    }
}

/// `stop_reason`, or `matched_stop` of SGLang: what exactly stopped an answer.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum StopReason<'a> {
    /// The id of a stop token.
    Token(u32),
    /// A stop string, or a word of the server's.
    Text(Cow<'a, str>),
}

/// The end of a choice.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finish<'a> {
    /// `finish_reason`
    pub reason: FinishReason,
    /// `stop_reason`, null for the first end token and for limits.
    pub stop_reason: Option<StopReason<'a>>,
}

impl<'a> Finish<'a> {
    /// What matched of the text, which ends no answer that was given up.
    pub fn matched(&self) -> Option<&StopReason<'a>> {
        let matched = self.stop_reason.as_ref();
        matched.filter(|_| self.reason != FinishReason::Abort)
    }
}

impl From<FinishReason> for Finish<'_> {
    fn from(reason: FinishReason) -> Self {
        Self {
            reason,
            stop_reason: None,
        }
    }
}
