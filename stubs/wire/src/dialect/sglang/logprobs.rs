//! Logprobs as SGLang's `OpenAI` routes write them.

use serde::Serialize;

use crate::chunk::{TokenLogprob, TopLogprob};
use crate::dialect::logprobs::TextLogprobs;

/// `logprobs` of a chat.
#[derive(Serialize)]
pub(super) struct ChatLogprobs<'a> {
    content: Vec<ChatToken<'a>>,
}

#[derive(Serialize)]
struct ChatToken<'a> {
    token: &'a str,
    bytes: &'a [u8],
    logprob: Option<f64>,
    top_logprobs: Vec<TopToken<'a>>,
}

#[derive(Serialize)]
struct TopToken<'a> {
    token: &'a str,
    bytes: &'a [u8],
    logprob: f64,
}

impl<'a> ChatLogprobs<'a> {
    pub(super) fn new(tokens: &'a [TokenLogprob]) -> Self {
        let top = |top: &'a TopLogprob| TopToken {
            token: &top.token,
            bytes: &top.bytes,
            logprob: top.logprob.into(),
        };
        let content = tokens.iter().map(|token| ChatToken {
            token: &token.token,
            bytes: &token.bytes,
            logprob: token.logprob.map(f64::from),
            top_logprobs: token.top.iter().map(top).collect(),
        });
        Self {
            content: content.collect(),
        }
    }
}

/// `logprobs` of a completion, whose tokens have no places in the text.
pub(super) fn of_text(tokens: &[TokenLogprob]) -> TextLogprobs<'_> {
    TextLogprobs::new(tokens, |_| -1).without_empty_lists(tokens)
}
