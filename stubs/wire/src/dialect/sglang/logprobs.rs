//! Logprobs as SGLang's `OpenAI` routes write them.

use serde::Serialize;

use crate::chunk::{TokenLogprob, TopLogprob};
use crate::dialect::logprobs::{ChatTop, TextLogprobs, TopByToken};

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

/// `logprobs` of a chat that is typed.
#[derive(Serialize)]
pub(super) struct TypedChatLogprobs<'a> {
    content: Vec<TypedToken<'a>>,
    refusal: (),
}

#[derive(Serialize)]
struct TypedToken<'a> {
    token: &'a str,
    logprob: Option<f64>,
    token_id: u32,
    bytes: &'a [u8],
    top_logprobs: Vec<ChatTop<'a>>,
}

impl<'a> TypedChatLogprobs<'a> {
    pub(super) fn new(tokens: &'a [TokenLogprob]) -> Self {
        let content = tokens.iter().map(|token| TypedToken {
            token: &token.token,
            logprob: token.logprob.map(f64::from),
            token_id: token.id,
            bytes: &token.bytes,
            top_logprobs: ChatTop::all(token),
        });
        Self {
            content: content.collect(),
            refusal: (),
        }
    }
}

/// `logprobs` of a completion, whose tokens have no places in the text.
pub(super) fn of_text(tokens: &[TokenLogprob]) -> TextLogprobs<'_> {
    TextLogprobs::new(tokens, |_| -1).without_empty_lists(tokens)
}

/// The same in the order of what is typed.
#[derive(Serialize)]
pub(super) struct TypedTextLogprobs<'a> {
    tokens: Vec<&'a str>,
    token_logprobs: Vec<Option<f64>>,
    top_logprobs: Vec<Option<TopByToken<'a>>>,
    text_offset: Vec<i64>,
}

impl<'a> TypedTextLogprobs<'a> {
    pub(super) fn new(tokens: &'a [TokenLogprob]) -> Self {
        let TextLogprobs {
            text_offset,
            token_logprobs,
            tokens,
            top_logprobs,
        } = of_text(tokens);
        Self {
            tokens,
            token_logprobs,
            top_logprobs,
            text_offset,
        }
    }
}
