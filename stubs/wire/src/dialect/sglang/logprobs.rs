//! Logprobs as SGLang's `OpenAI` routes write them.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::chunk::{TokenLogprob, TopLogprob};

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

/// `logprobs` of a completion.
#[derive(Serialize)]
pub(super) struct TextLogprobs<'a> {
    text_offset: Vec<i32>,
    token_logprobs: Vec<Option<f64>>,
    tokens: Vec<&'a str>,
    top_logprobs: Vec<Option<Top<'a>>>,
}

/// The likeliest tokens by their texts.
struct Top<'a>(&'a [TopLogprob]);

impl Serialize for Top<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Of tokens spelt alike the last gives the value and the first the place, as in a dictionary.
        let spelt: Vec<&str> = self.0.iter().map(|top| &*top.token).collect();
        let mut map = serializer.serialize_map(None)?;
        for (at, name) in spelt.iter().enumerate() {
            if !spelt[..at].contains(name) {
                let last = spelt.iter().rposition(|other| other == name).unwrap_or(at);
                map.serialize_entry(name, &f64::from(self.0[last].logprob))?;
            }
        }
        map.end()
    }
}

impl<'a> TextLogprobs<'a> {
    pub(super) fn new(tokens: &'a [TokenLogprob]) -> Self {
        let lists = tokens.iter().any(|token| !token.top.is_empty());
        let top = |token: &'a TokenLogprob| token.logprob.map(|_| Top(&token.top));
        Self {
            text_offset: vec![-1; tokens.len()],
            token_logprobs: tokens
                .iter()
                .map(|token| token.logprob.map(f64::from))
                .collect(),
            tokens: tokens.iter().map(|token| &*token.token).collect(),
            top_logprobs: if lists {
                tokens.iter().map(top).collect()
            } else {
                Vec::new()
            },
        }
    }
}
