//! Typed chats, whose keys stand in another order than a usual chat's.

use serde::Serialize;

use crate::chunk::{Choice, Chunk, ToolCall};
use crate::dialect::Envelope;
use crate::dialect::sglang::logprobs::TypedChatLogprobs;

use super::usage::TypedUsage;

#[derive(Serialize)]
struct Answer<'a, C> {
    id: &'a str,
    choices: Vec<C>,
    created: u64,
    model: &'a str,
    object: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<TypedUsage>,
}

impl<'a, C> Answer<'a, C> {
    fn new<'c>(
        envelope: &'a Envelope,
        chunk: &'a Chunk<'c>,
        object: &'static str,
        choice: fn(&'a Choice<'c>) -> C,
    ) -> Self {
        Self {
            id: &envelope.id,
            choices: chunk.choices.iter().map(choice).collect(),
            created: envelope.created,
            model: &envelope.model,
            object,
            usage: chunk.usage.map(Into::into),
        }
    }
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    delta: Delta<'a>,
    finish_reason: Option<&'static str>,
    logprobs: Option<TypedChatLogprobs<'a>>,
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    reasoning_content: Option<&'a str>,
}

/// A call of a stream.
#[derive(Serialize)]
struct CallPart<'a> {
    index: u32,
    #[serde(flatten)]
    call: Call<'a>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Option<&'a str>,
    arguments: &'a str,
}

impl<'a> From<&'a ToolCall<'_>> for Call<'a> {
    fn from(call: &'a ToolCall<'_>) -> Self {
        Self {
            id: call.id.as_deref(),
            kind: "function",
            function: Function {
                name: call.name.as_deref(),
                arguments: call.arguments.as_deref().unwrap_or_default(),
            },
        }
    }
}

#[derive(Serialize)]
struct WholeChoice<'a> {
    index: u32,
    message: Message<'a>,
    finish_reason: Option<&'static str>,
    logprobs: Option<TypedChatLogprobs<'a>>,
}

#[derive(Serialize)]
struct Message<'a> {
    content: Option<&'a str>,
    refusal: (),
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    role: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
}

/// Appends the JSON of an event.
pub(super) fn encode(envelope: &Envelope, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
    let mut frame = Answer::new(envelope, chunk, "chat.completion.chunk", chunk_choice);
    if !chunk.choices.is_empty() {
        // Counts are told at the end alone, whatever is asked for.
        frame.usage = None;
    }
    serde_json::to_writer(out, &frame).expect("strings and numbers encode");
}

/// Appends the JSON of a whole answer.
pub(super) fn encode_whole(envelope: &Envelope, answer: &Chunk<'_>, out: &mut Vec<u8>) {
    let answer = Answer::new(envelope, answer, "chat.completion", whole_choice);
    serde_json::to_writer(out, &answer).expect("strings and numbers encode");
}

fn chunk_choice<'a>(choice: &'a Choice<'_>) -> ChunkChoice<'a> {
    let delta = &choice.delta;
    let part = |call: &'a ToolCall<'_>| CallPart {
        index: call.index,
        call: call.into(),
    };
    ChunkChoice {
        index: choice.index,
        delta: Delta {
            content: delta.content.as_deref(),
            tool_calls: delta.tool_calls.iter().map(part).collect(),
            role: delta.role.as_deref(),
            reasoning_content: delta.reasoning.as_deref(),
        },
        finish_reason: choice.finish.as_ref().map(|finish| finish.reason.as_str()),
        logprobs: choice.logprobs.as_deref().map(TypedChatLogprobs::new),
    }
}

fn whole_choice<'a>(choice: &'a Choice<'_>) -> WholeChoice<'a> {
    let delta = &choice.delta;
    WholeChoice {
        index: choice.index,
        message: Message {
            content: delta.content.as_deref(),
            refusal: (),
            tool_calls: delta.tool_calls.iter().map(Call::from).collect(),
            role: delta.role.as_deref().unwrap_or("assistant"),
            reasoning_content: delta.reasoning.as_deref(),
        },
        finish_reason: choice.finish.as_ref().map(|finish| finish.reason.as_str()),
        logprobs: choice.logprobs.as_deref().map(TypedChatLogprobs::new),
    }
}
