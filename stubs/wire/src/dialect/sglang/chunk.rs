//! SGLang's streamed objects on its `OpenAI` routes. A chat's chunks come from two encoders: the usual one,
//! and that of what passed a tool parser, which orders its keys otherwise and writes every null.

use serde::Serialize;

use crate::chunk::{Choice, Chunk, Extension, ToolCall};
use crate::dialect::Envelope;
use crate::dialect::key::Key;
use crate::failure::ErrorObject;
use crate::finish::{Finish, StopReason};
use crate::json::Json;
use crate::python;
use crate::request::Endpoint;

use super::logprobs::ChatLogprobs;
use super::native::Told;
use super::rust::refusal::{GIVEN_UP, given_up};
use super::usage::FullUsage;
use super::{Front, completion, native, rust};

/// Appends the JSON of one event.
pub(crate) fn encode(
    front: Front,
    envelope: &Envelope,
    chunk: &Chunk<'_>,
    told: &mut Told,
    out: &mut Vec<u8>,
) {
    if envelope.is_typed {
        return rust::encode(envelope, chunk, out);
    }
    if let Some(message) = &chunk.error {
        return error_event(envelope.endpoint, message, out);
    }
    match envelope.endpoint {
        Endpoint::Chat => chat(envelope, chunk, out),
        Endpoint::Completions => completion::encode(envelope, chunk, out),
        Endpoint::Generate => native::encode(front, envelope, chunk, told, out),
    }
}

/// An error in place of the rest of a stream, written with Python's default spacing.
fn error_event(endpoint: Endpoint, message: &str, out: &mut Vec<u8>) {
    let (kind, code) = match message {
        GIVEN_UP if endpoint == Endpoint::Generate => {
            return rust::refusal::encode(Some(endpoint), &given_up(endpoint), out);
        }
        GIVEN_UP => ("499", 499),
        _ => ("SERVICE_UNAVAILABLE", 503),
    };
    let error = Wrapped {
        error: FlatError {
            object: "error",
            message,
            kind,
            param: (),
            code,
        },
    };
    let json = serde_json::to_vec(&error).expect("strings and numbers encode");
    let read = Json::parse(&json).expect("what was just written is JSON");
    out.extend_from_slice(python::dumps(&read).as_bytes());
}

/// What stands under `error`.
#[derive(Serialize)]
pub(super) struct Wrapped<E> {
    pub(super) error: E,
}

/// An error object of the `OpenAI` routes.
#[derive(Serialize)]
pub(super) struct FlatError<'a> {
    pub(super) object: &'static str,
    pub(super) message: &'a str,
    #[serde(rename = "type")]
    pub(super) kind: &'a str,
    pub(super) param: (),
    pub(super) code: u16,
}

impl<'a> From<&'a ErrorObject> for FlatError<'a> {
    fn from(error: &'a ErrorObject) -> Self {
        Self {
            object: "error",
            message: &error.message,
            kind: error.kind,
            param: (),
            code: error.code,
        }
    }
}

#[derive(Serialize)]
struct Frame<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [ChatChoice<'a>],
    #[serde(skip_serializing_if = "Key::is_absent")]
    usage: Key<FullUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sglext: Option<Sglext<'a>>,
}

/// `sglext`
#[derive(Serialize)]
pub(super) struct Sglext<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens_details: Option<CachedDetails>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_ids: Option<&'a [Vec<u32>]>,
}

impl<'a> From<&'a Extension> for Sglext<'a> {
    fn from(extension: &'a Extension) -> Self {
        Self {
            cached_tokens_details: extension.cached_tokens.map(CachedDetails::new),
            input_ids: extension.input_ids.as_deref(),
            output_ids: extension.output_ids.as_deref(),
        }
    }
}

/// `cached_tokens_details`: where the cached tokens were.
#[derive(Serialize)]
pub(super) struct CachedDetails {
    device: u64,
    host: u64,
}

impl CachedDetails {
    pub(super) fn new(cached: u64) -> Self {
        Self {
            device: cached,
            host: 0,
        }
    }
}

#[derive(Serialize)]
struct ChatChoice<'a> {
    index: u32,
    delta: ChatDelta<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    matched_stop: Option<&'a StopReason<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ChatDelta<'a> {
    Parsed(ParsedDelta<'a>),
    Plain(PlainDelta<'a>),
}

/// The usual delta: `reasoning_content` always, the others where they say something.
#[derive(Serialize)]
struct PlainDelta<'a> {
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

/// The delta of what passed a tool parser.
#[derive(Serialize)]
struct ParsedDelta<'a> {
    role: Option<&'a str>,
    content: Option<&'a str>,
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

/// A call, or a part of it.
#[derive(Serialize)]
pub(super) struct Call<'a> {
    id: Option<&'a str>,
    index: u32,
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
            index: call.index,
            kind: "function",
            function: Function {
                name: call.name.as_deref(),
                arguments: call.arguments.as_deref().unwrap_or_default(),
            },
        }
    }
}

fn chat(envelope: &Envelope, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
    let choice = chunk.choices.first();
    let is_parsed = choice.is_some_and(|choice| choice.delta.nulls.tool_parser);
    let is_extension = chunk.extension.is_some();
    let choices = choice.map(chat_choice);
    let frame = Frame {
        id: envelope.id_of(chunk.origin),
        object: "chat.completion.chunk",
        created: envelope.created,
        model: &envelope.model,
        choices: choices.as_slice(),
        usage: Key::when(
            is_parsed || is_extension || chunk.usage.is_some(),
            chunk.usage.map(Into::into),
        ),
        sglext: chunk.extension.as_deref().map(Into::into),
    };
    serde_json::to_writer(out, &frame).expect("strings and numbers encode");
}

fn chat_choice<'a>(choice: &'a Choice<'_>) -> ChatChoice<'a> {
    let delta = &choice.delta;
    let (content, reasoning) = (delta.content.as_deref(), delta.reasoning.as_deref());
    let role = delta.role.as_deref();
    let finish = choice.finish.as_ref();
    ChatChoice {
        index: choice.index,
        delta: if delta.nulls.tool_parser {
            ChatDelta::Parsed(ParsedDelta {
                role,
                content,
                reasoning_content: reasoning,
                tool_calls: delta.tool_calls.iter().map(Call::from).collect(),
            })
        } else {
            ChatDelta::Plain(PlainDelta {
                reasoning_content: reasoning,
                role,
                content,
            })
        },
        logprobs: choice.logprobs.as_deref().map(ChatLogprobs::new),
        finish_reason: finish.map(|finish| finish.reason.as_str()),
        matched_stop: finish.and_then(Finish::matched),
    }
}
