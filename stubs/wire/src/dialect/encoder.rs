//! The events of one stream as bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Dialect, Envelope};
use crate::chunk::{Choice, Chunk, Delta, Nulls};
use crate::json;
use crate::request::Endpoint;
use crate::sse;

/// Encodes the events of one stream, plain text by a template rendered once.
#[derive(Clone, Debug)]
pub struct Encoder {
    dialect: Dialect,
    envelope: Envelope,
    /// By choice index and field.
    templates: BTreeMap<(u32, Field), Template>,
}

/// Where a plain text stands.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Field {
    /// `content`, or `text` of a completion.
    Content,
    /// `reasoning`
    Reasoning,
}

#[derive(Clone, Debug)]
struct Template {
    prefix: Vec<u8>,
    suffix: Vec<u8>,
}

impl Encoder {
    /// An encoder for one answer.
    pub fn new(dialect: Dialect, envelope: Envelope) -> Self {
        Self {
            dialect,
            envelope,
            templates: BTreeMap::new(),
        }
    }

    /// What all chunks share.
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// The dialect that it speaks.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Appends one event, `data: ` and blank line included.
    pub fn event(&mut self, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
        if let Some((index, field, text)) = plain_text(chunk) {
            return self.text(index, field, text, out);
        }
        out.extend_from_slice(b"data: ");
        self.dialect.encode(&self.envelope, chunk, out);
        out.extend_from_slice(b"\n\n");
    }

    /// Appends the event of a chunk that is nothing but one field's text.
    pub fn text(&mut self, index: u32, field: Field, text: &str, out: &mut Vec<u8>) {
        let (dialect, envelope) = (self.dialect, &self.envelope);
        let template = self
            .templates
            .entry((index, field))
            .or_insert_with(|| Template::new(dialect, envelope, index, field));
        out.extend_from_slice(&template.prefix);
        json::escape_into(text, out);
        out.extend_from_slice(&template.suffix);
    }
}

impl Template {
    /// The event of an empty text, cut where the text goes.
    fn new(dialect: Dialect, envelope: &Envelope, index: u32, field: Field) -> Self {
        let empty = Some(Cow::Borrowed(""));
        let (key, delta) = match field {
            Field::Content => {
                let key = match envelope.endpoint {
                    Endpoint::Chat => "content",
                    Endpoint::Completions => "text",
                };
                let content = empty;
                (
                    key,
                    Delta {
                        content,
                        ..Delta::default()
                    },
                )
            }
            Field::Reasoning => {
                let reasoning = empty;
                (
                    dialect.reasoning_key(),
                    Delta {
                        reasoning,
                        ..Delta::default()
                    },
                )
            }
        };
        let chunk = Chunk {
            choices: vec![Choice {
                delta,
                index,
                ..Choice::default()
            }],
            ..Chunk::default()
        };
        let mut json = Vec::new();
        dialect.encode(envelope, &chunk, &mut json);
        let mut event = Vec::new();
        sse::encode(&json, &mut event);
        let key = format!("\"{key}\":\"");
        let key_at = event
            .windows(key.len())
            .position(|window| window == key.as_bytes())
            .expect("a text chunk has its key");
        let suffix = event.split_off(key_at + key.len());
        Self {
            prefix: event,
            suffix,
        }
    }
}

/// Choice index, field and text of a chunk that is nothing but one field's text.
fn plain_text<'c>(chunk: &'c Chunk<'_>) -> Option<(u32, Field, &'c str)> {
    let [choice] = &chunk.choices[..] else {
        return None;
    };
    let delta = &choice.delta;
    let plain = chunk.usage.is_none()
        && chunk.error.is_none()
        && choice.finish.is_none()
        && !choice.is_echo
        && choice.logprobs.is_none()
        && choice.prompt_token_ids.is_none()
        && choice.token_ids.is_none()
        && delta.role.is_none()
        && delta.tool_calls.is_empty()
        && delta.nulls == Nulls::default();
    match (&delta.content, &delta.reasoning) {
        (Some(text), None) if plain => Some((choice.index, Field::Content, text)),
        (None, Some(text)) if plain => Some((choice.index, Field::Reasoning, text)),
        _ => None,
    }
}
