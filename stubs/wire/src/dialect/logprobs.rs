//! What all servers write alike of logprobs: those of a completion, the likeliest tokens of a chat.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::chunk::{TokenLogprob, TopLogprob};

/// One of the likeliest tokens of a chat.
#[derive(serde::Serialize)]
pub(super) struct ChatTop<'a> {
    token: &'a str,
    logprob: f64,
    bytes: &'a [u8],
}

impl<'a> ChatTop<'a> {
    /// The likeliest at a token's place.
    pub(super) fn all(token: &'a TokenLogprob) -> Vec<Self> {
        let top = token.top.iter().map(|top| Self {
            token: &top.token,
            logprob: written(top.logprob),
            bytes: &top.bytes,
        });
        top.collect()
    }
}

/// The `logprobs` of a completion choice.
#[derive(serde::Serialize)]
pub(super) struct TextLogprobs<'a> {
    pub(super) text_offset: Vec<i64>,
    pub(super) token_logprobs: Vec<Option<f64>>,
    pub(super) tokens: Vec<&'a str>,
    pub(super) top_logprobs: Vec<Option<TopByToken<'a>>>,
}

/// The likeliest tokens by their texts.
pub(super) struct TopByToken<'a>(&'a [TopLogprob]);

impl Serialize for TopByToken<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_same = |one: &TopLogprob, other: &TopLogprob| one.token == other.token;
        let mut map = serializer.serialize_map(None)?;
        for (at, top) in self.0.iter().enumerate() {
            // Of tokens spelt alike the first gives the place and the last the value, as in a dictionary.
            let is_first = !self.0[..at].iter().any(|before| is_same(before, top));
            let last = self.0.iter().rfind(|other| is_same(other, top));
            if let Some(last) = last.filter(|_| is_first) {
                map.serialize_entry(&top.token, &written(last.logprob))?;
            }
        }
        map.end()
    }
}

impl<'a> TextLogprobs<'a> {
    /// With offsets of the tokens in the text, as `offset` tells them.
    pub(super) fn new(tokens: &'a [TokenLogprob], offset: fn(&TokenLogprob) -> i64) -> Self {
        let known = |token: &'a TokenLogprob| token.logprob.map(|_| TopByToken(&token.top));
        let logprobs = tokens.iter().map(|token| token.logprob.map(written));
        Self {
            text_offset: tokens.iter().map(offset).collect(),
            token_logprobs: logprobs.collect(),
            tokens: tokens.iter().map(|token| &*token.token).collect(),
            top_logprobs: tokens.iter().map(known).collect(),
        }
    }

    /// Without the lists of the likeliest, if none was asked for.
    pub(super) fn without_empty_lists(mut self, tokens: &[TokenLogprob]) -> Self {
        if tokens.iter().all(|token| token.top.is_empty()) {
            self.top_logprobs.clear();
        }
        self
    }
}

/// The double that a float32 is, not below −9999.
pub(super) fn written(logprob: f32) -> f64 {
    f64::from(logprob).max(-9999.0)
}
