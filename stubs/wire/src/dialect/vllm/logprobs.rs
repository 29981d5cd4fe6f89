//! Logprobs in the forms that vLLM writes: chat, completion, generate, prompt, response.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::chunk::{TokenLogprob, TopLogprob};
use crate::dialect::logprobs::{ChatTop, TextLogprobs, written};

/// The `logprobs` of a chat choice.
#[derive(Serialize)]
pub(super) struct ChatLogprobs<'a> {
    content: Vec<ChatToken<'a>>,
}

#[derive(Serialize)]
struct ChatToken<'a> {
    token: &'a str,
    logprob: f64,
    bytes: &'a [u8],
    top_logprobs: Vec<ChatTop<'a>>,
}

impl<'a> ChatLogprobs<'a> {
    pub(super) fn new(tokens: &'a [TokenLogprob]) -> Self {
        let token = |token: &'a TokenLogprob| ChatToken {
            token: &token.token,
            logprob: token.logprob.map_or(0.0, written),
            bytes: &token.bytes,
            top_logprobs: ChatTop::all(token),
        };
        Self {
            content: tokens.iter().map(token).collect(),
        }
    }
}

/// The `logprobs` of a completion choice.
pub(super) fn of_text(tokens: &[TokenLogprob]) -> TextLogprobs<'_> {
    let offset = |token: &TokenLogprob| i64::try_from(token.text_offset).unwrap_or(i64::MAX);
    TextLogprobs::new(tokens, offset)
}

/// The `logprobs` of a generate choice that names tokens by their ids alone.
#[derive(Serialize)]
pub(super) struct IdLogprobs {
    content: Vec<IdToken>,
}

#[derive(Serialize)]
struct IdToken {
    token_id: u32,
    logprob: f64,
    rank: usize,
    top_logprobs: Vec<IdTop>,
}

#[derive(Serialize)]
struct IdTop {
    token_id: u32,
    logprob: f64,
    rank: usize,
}

impl IdLogprobs {
    pub(super) fn new(tokens: &[TokenLogprob]) -> Self {
        let top = |(index, top): (usize, &TopLogprob)| IdTop {
            token_id: top.id,
            logprob: written(top.logprob),
            rank: index + 1,
        };
        let token = |token: &TokenLogprob| IdToken {
            token_id: token.id,
            logprob: token.logprob.map_or(0.0, written),
            // The scripted engine always samples the likeliest token.
            rank: 1,
            top_logprobs: token.top.iter().enumerate().map(top).collect(),
        };
        Self {
            content: tokens.iter().map(token).collect(),
        }
    }
}

/// One entry of `prompt_logprobs`: the likeliest tokens by id.
pub(super) struct PromptToken<'a>(&'a TokenLogprob);

#[derive(Serialize)]
struct PromptTop<'a> {
    logprob: f64,
    rank: usize,
    decoded_token: &'a str,
}

impl Serialize for PromptToken<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.top.len()))?;
        for (index, top) in self.0.top.iter().enumerate() {
            let entry = PromptTop {
                logprob: written(top.logprob),
                rank: index + 1,
                decoded_token: &top.token,
            };
            map.serialize_entry(&top.id.to_string(), &entry)?;
        }
        map.end()
    }
}

/// The `prompt_logprobs` of a prompt.
pub(super) fn prompt(tokens: &[Option<TokenLogprob>]) -> Vec<Option<PromptToken<'_>>> {
    tokens
        .iter()
        .map(|token| token.as_ref().map(PromptToken))
        .collect()
}
