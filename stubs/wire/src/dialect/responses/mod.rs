//! What `/v1/responses` answers, whichever server does: items and the events of a stream. The response
//! object around them is each server's own.

mod events;
mod items;

use serde::Serialize;

use crate::chunk::TokenLogprob;
use crate::request::Sampling;
use crate::usage::Usage;

use super::responses_request::Echoed;

pub(super) use events::{encode_event, encode_progress};
pub(super) use items::OutputItem;

/// How a server spells responses.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a habit each")]
pub(super) struct Spelling {
    /// Calls have keys that nothing ever fills.
    pub(super) has_empty_call_keys: bool,
    /// What a limit cut says so in its last event.
    pub(super) tells_incomplete: bool,
    /// What a limit cut says so in its items.
    pub(super) tells_incomplete_items: bool,
    /// New reasoning lists its parts, of which there are none.
    pub(super) lists_no_parts: bool,
    /// A finished call's name stands among the other keys, not last.
    pub(super) name_inside: bool,
    /// A message says whether calls follow.
    pub(super) tells_phase: bool,
    /// A new message has an empty list of logprobs.
    pub(super) promises_logprobs: bool,
    /// Events of a response as a whole begin with their type.
    pub(super) type_first: bool,
}

/// What stays the same in all objects of one response.
#[derive(Clone, Debug)]
pub struct Outline<'a> {
    /// `created_at`, in seconds.
    pub created_at: u64,
    /// What the request says and the answer repeats.
    pub echoed: &'a Echoed<'a>,
    /// `id`
    pub id: String,
    /// Tokens that the answer may have, if there is a limit.
    pub max_output_tokens: Option<u64>,
    /// `model`
    pub model: &'a str,
    /// The request's sampling.
    pub sampling: &'a Sampling<'a>,
}

/// How far a response has come.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// `output`
    pub output: &'a [Item],
    /// `status`
    pub status: Status,
    /// `usage`, at the end.
    pub usage: Option<Usage>,
    /// What went wrong, if it failed.
    pub error: Option<&'a str>,
}

/// How far a response or one of its items has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is there.
    Completed,
    /// It was given up.
    Failed,
    /// A limit cut it.
    Incomplete,
    /// More is to come.
    InProgress,
}

/// An item of a response's output.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// `id`
    pub id: String,
    /// A message that calls follow, where that is told.
    pub is_commentary: bool,
    /// What it is.
    pub kind: ItemKind,
    /// Those of a message's tokens, if they are asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// `status`; null for reasoning that was not streamed.
    pub status: Option<Status>,
    /// The text, or the arguments of a call.
    pub text: String,
}

/// What an item is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ItemKind {
    /// `function_call`
    Call {
        /// `call_id`
        call_id: String,
        /// `name`
        name: String,
    },
    /// `message`
    Message,
    /// `reasoning`
    Reasoning,
}

impl ItemKind {
    /// What its id begins with.
    pub(super) fn prefix(&self) -> &'static str {
        match self {
            Self::Call { .. } => "fc",
            Self::Message => "msg",
            Self::Reasoning => "rs",
        }
    }

    /// Its text stands in a content part.
    pub fn has_parts(&self) -> bool {
        !matches!(self, Self::Call { .. })
    }
}

/// An event of a streamed response as a whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// `response.created`
    Created,
    /// `response.completed`, `response.incomplete` or `response.failed`
    Ended,
    /// `response.in_progress`
    InProgress,
}

/// An event of an item of a streamed response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'e> {
    /// The next piece of its text, with the logprobs that belong to a message's.
    Delta(&'e str, &'e [TokenLogprob]),
    /// `response.output_item.added`
    ItemAdded,
    /// `response.output_item.done`
    ItemDone,
    /// `response.content_part.added`
    PartAdded,
    /// `response.content_part.done`
    PartDone,
    /// Its text is there.
    TextDone,
}

/// Where an event stands in its stream.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// `output_index`: the item's number.
    pub output_index: usize,
    /// `sequence_number`: the event's own.
    pub sequence_number: u64,
}
