//! The items of a response.

use serde::Serialize;

use crate::chunk::{TokenLogprob, TopLogprob};
use crate::dialect::key::Key;

use super::{Item, ItemKind, Spelling, Status};

/// An item as it is written.
#[derive(Serialize)]
#[serde(untagged)]
pub(in crate::dialect) enum OutputItem<'a> {
    Call {
        arguments: &'a str,
        call_id: &'a str,
        name: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
        id: &'a str,
        #[serde(skip_serializing_if = "Key::is_absent")]
        r#async: Key<()>,
        #[serde(skip_serializing_if = "Key::is_absent")]
        caller: Key<()>,
        #[serde(skip_serializing_if = "Key::is_absent")]
        namespace: Key<()>,
        status: Option<Status>,
    },
    Message {
        id: &'a str,
        content: Vec<Part<'a>>,
        role: &'static str,
        status: Option<Status>,
        #[serde(rename = "type")]
        kind: &'static str,
        phase: Option<&'static str>,
    },
    Reasoning {
        id: &'a str,
        summary: [(); 0],
        #[serde(rename = "type")]
        kind: &'static str,
        content: Option<Vec<Part<'a>>>,
        encrypted_content: (),
        status: Option<Status>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(in crate::dialect) enum Part<'a> {
    Output {
        annotations: [(); 0],
        text: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
        logprobs: Option<Vec<ResponseToken<'a>>>,
    },
    Reasoning {
        text: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
    },
}

impl<'a> OutputItem<'a> {
    pub(in crate::dialect) fn new(spelling: Spelling, item: &'a Item) -> Self {
        let is_new = item.status == Some(Status::InProgress);
        let part = (!is_new).then(|| Part::of(spelling, item, false));
        let status = match item.status {
            Some(Status::Incomplete) if !spelling.tells_incomplete_items => Some(Status::Completed),
            status => status,
        };
        let empty = Key::when(spelling.has_empty_call_keys, None);
        let phase = if item.is_commentary {
            "commentary"
        } else {
            "final_answer"
        };
        match &item.kind {
            ItemKind::Call { call_id, name } => Self::Call {
                arguments: &item.text,
                call_id,
                name,
                kind: "function_call",
                id: &item.id,
                r#async: empty,
                caller: empty,
                namespace: empty,
                status,
            },
            ItemKind::Message => Self::Message {
                id: &item.id,
                content: part.into_iter().collect(),
                role: "assistant",
                status,
                kind: "message",
                phase: spelling.tells_phase.then_some(phase),
            },
            ItemKind::Reasoning => Self::Reasoning {
                id: &item.id,
                summary: [],
                kind: "reasoning",
                content: (part.is_some() || spelling.lists_no_parts)
                    .then(|| part.into_iter().collect()),
                encrypted_content: (),
                status,
            },
        }
    }
}

impl<'a> Part<'a> {
    /// The item's one part; a new one says that it will have logprobs, though others may have none.
    pub(super) fn of(spelling: Spelling, item: &'a Item, is_new: bool) -> Self {
        let text = if is_new { "" } else { &item.text };
        if item.kind == ItemKind::Reasoning {
            return Self::Reasoning {
                text,
                kind: "reasoning_text",
            };
        }
        Self::Output {
            annotations: [],
            text,
            kind: "output_text",
            logprobs: if is_new {
                spelling.promises_logprobs.then(Vec::new)
            } else {
                (!item.logprobs.is_empty()).then(|| ResponseToken::list(&item.logprobs, false))
            },
        }
    }
}

/// A token of an `output_text` part of a response.
#[derive(Serialize)]
pub(in crate::dialect) struct ResponseToken<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'a [u8]>,
    logprob: f64,
    top_logprobs: Vec<ResponseTop<'a>>,
}

#[derive(Serialize)]
struct ResponseTop<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'a [u8]>,
    logprob: f64,
}

impl<'a> ResponseToken<'a> {
    /// The tokens of a part, or of a delta, which lacks their bytes. Bytes are those of the name.
    pub(super) fn list(tokens: &'a [TokenLogprob], is_delta: bool) -> Vec<Self> {
        let bytes = |name: &'a str| (!is_delta).then_some(name.as_bytes());
        let top = |top: &'a TopLogprob| ResponseTop {
            token: &top.token,
            bytes: bytes(&top.token),
            logprob: written(top.logprob),
        };
        let token = |token: &'a TokenLogprob| Self {
            token: &token.token,
            bytes: bytes(&token.token),
            logprob: token.logprob.map_or(0.0, written),
            top_logprobs: token.top.iter().map(top).collect(),
        };
        tokens.iter().map(token).collect()
    }
}

/// The double that a float32 is, not below −9999.
fn written(logprob: f32) -> f64 {
    f64::from(logprob).max(-9999.0)
}
