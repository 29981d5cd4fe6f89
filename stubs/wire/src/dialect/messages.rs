//! What `/v1/messages` answers: Anthropic's message, the events of its stream, and its errors.

use serde::Serialize;

use crate::dialect::key::Key;
use crate::failure::ErrorObject;
use crate::finish::{Finish, FinishReason, StopReason};
use crate::json::Json;
use crate::usage::Usage;

/// How a server spells messages.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a habit each")]
pub(super) struct Spelling {
    /// Whose types errors have.
    pub(super) errors: Errors,
    /// Arguments of a whole message's call that are no JSON are left out, the message being sent.
    pub(super) forgives_arguments: bool,
    /// `index` stands in front of what it numbers, not behind.
    pub(super) index_first: bool,
    /// A stop string ends a message by a reason of its own, and an answer may have none.
    pub(super) knows_stop_strings: bool,
    /// Reasons that there are none of are null in a stream, and its end repeats the prompt's tokens.
    pub(super) streams_all: bool,
    /// Counts tell what the cache had, and a prompt's count tells nothing else.
    pub(super) tells_cache: bool,
}

/// Whose types errors have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Errors {
    /// Anthropic's.
    Anthropic,
    /// The server's own.
    Own,
    /// Anthropic's, but the server's own where the request was good and generating refused it; what went
    /// wrong inside is not told.
    OwnOfGenerating,
}

/// A block of a message's content.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Block {
    /// What it is.
    pub kind: BlockKind,
    /// The text, or the arguments of a call.
    pub text: String,
}

/// What a block is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BlockKind {
    /// `text`
    Text,
    /// `thinking`
    Thinking {
        /// `signature`, if thoughts are signed.
        signature: Option<String>,
    },
    /// `tool_use`
    ToolUse {
        /// `id`
        id: String,
        /// `name`
        name: String,
    },
}

/// A whole message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// `content`
    pub content: &'a [Block],
    /// Why it ends.
    pub ending: Ending<'a>,
    /// `id`
    pub id: &'a str,
    /// `model`
    pub model: &'a str,
    /// `usage`
    pub usage: Usage,
}

/// How a message ends.
#[derive(Clone, Copy, Debug)]
pub struct Ending<'a> {
    /// Its calls of tools.
    pub calls: Calls,
    /// How the chat's answer ends.
    pub finish: &'a Finish<'a>,
}

/// What a message has of calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Calls {
    /// The arguments of the last one are JSON.
    Complete,
    /// The arguments of the last one are no JSON.
    Cut,
    /// There are none.
    None,
}

impl Calls {
    /// Of a message whose last call has these arguments.
    pub fn of(arguments: Option<&str>) -> Self {
        match arguments.map(|text| Json::parse(text.as_bytes())) {
            Some(Ok(_)) => Self::Complete,
            Some(Err(_)) => Self::Cut,
            None => Self::None,
        }
    }
}

/// An event of a streamed message.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// The next piece of the text of the block with that index.
    BlockDelta(usize, &'e BlockKind, &'e str),
    /// `content_block_start`
    BlockStart(usize, &'e BlockKind),
    /// `content_block_stop`
    BlockStop(usize),
    /// `error`
    Error {
        /// What it says.
        message: &'e str,
        /// The HTTP status that it would have.
        status: u16,
    },
    /// `message_delta`: how it ends.
    MessageDelta(Ending<'e>, Usage),
    /// `message_start`, with the counts before the answer.
    MessageStart {
        /// `id`
        id: &'e str,
        /// `model`
        model: &'e str,
        /// Counts of the prompt.
        usage: Usage,
    },
    /// `message_stop`
    MessageStop,
    /// The signature that ends a thinking block.
    Signature(usize, &'e str),
}

/// A whole message that does not encode: a call's arguments are no JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the arguments of a tool call are not JSON")]
pub struct BadArguments;

/// Appends the JSON of a whole message.
pub(super) fn encode(
    spelling: Spelling,
    message: &Message<'_>,
    out: &mut Vec<u8>,
) -> Result<(), BadArguments> {
    let read = |block| match input(block) {
        Err(BadArguments) if spelling.forgives_arguments => Ok(None),
        read => read,
    };
    let inputs: Vec<Option<Json<'_>>> =
        message.content.iter().map(read).collect::<Result<_, _>>()?;
    let blocks = message.content.iter().zip(&inputs);
    let (stop_reason, stop_sequence) = message.ending.told(spelling);
    let answer = WholeMessage {
        id: message.id,
        kind: "message",
        role: "assistant",
        content: blocks
            .map(|(block, input)| ContentBlock::whole(block, input.as_ref()))
            .collect(),
        model: message.model,
        stop_reason,
        stop_sequence,
        usage: MessageUsage::new(spelling, message.usage),
    };
    write(out, &answer);
    Ok(())
}

/// A call's arguments as JSON.
fn input(block: &Block) -> Result<Option<Json<'_>>, BadArguments> {
    match block.kind {
        BlockKind::ToolUse { .. } => Json::parse(block.text.as_bytes())
            .map(Some)
            .map_err(|_| BadArguments),
        _ => Ok(None),
    }
}

/// Appends one event of a stream, its name included.
pub(super) fn encode_event(spelling: Spelling, event: Event<'_>, out: &mut Vec<u8>) {
    let event = StreamEvent::new(spelling, event);
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.kind.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    write(out, &event);
    out.extend_from_slice(b"\n\n");
}

/// Appends the JSON of an error; `generating` refused the request, which was good.
pub(super) fn encode_error(
    spelling: Spelling,
    error: &ErrorObject,
    generating: bool,
    out: &mut Vec<u8>,
) {
    let is_own = match spelling.errors {
        Errors::Anthropic => false,
        Errors::Own => true,
        Errors::OwnOfGenerating => generating && error.code < 500,
    };
    let is_hidden = spelling.errors == Errors::OwnOfGenerating && error.code >= 500;
    let answer = ErrorAnswer {
        kind: "error",
        error: MessageError {
            kind: if is_own {
                error.kind
            } else {
                error_type(error.code)
            },
            message: if is_hidden {
                "Internal server error"
            } else {
                &error.message
            },
        },
    };
    write(out, &answer);
}

/// The JSON of a refusal of a request that is none.
pub(super) fn refusal(message: &str) -> String {
    let error = MessageError {
        kind: "invalid_request_error",
        message,
    };
    let kind = "error";
    serde_json::to_string(&ErrorAnswer { kind, error }).expect("strings encode")
}

/// Anthropic's type of an error by its HTTP status.
fn error_type(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        _ => "api_error",
    }
}

/// Appends the count of a prompt's tokens.
pub(super) fn encode_count(spelling: Spelling, input_tokens: u64, out: &mut Vec<u8>) {
    let answer = Count {
        input_tokens,
        context_management: (!spelling.tells_cache).then_some(ContextManagement {
            original_input_tokens: input_tokens,
        }),
    };
    write(out, &answer);
}

impl<'a> Ending<'a> {
    /// `stop_reason` and `stop_sequence`. A stop string within a call is told before the call, which is
    /// not to be run; a named call is told although its chat ends with `stop`.
    fn told(self, spelling: Spelling) -> (Option<&'static str>, Option<&'a str>) {
        let Finish {
            reason,
            stop_reason,
        } = self.finish;
        if !spelling.knows_stop_strings {
            let told = match reason {
                FinishReason::Length => "max_tokens",
                FinishReason::ToolCalls => "tool_use",
                _ => "end_turn",
            };
            return (Some(told), None);
        }
        match (reason, self.calls, stop_reason) {
            (FinishReason::Length, ..) => (Some("max_tokens"), None),
            (FinishReason::Stop | FinishReason::ToolCalls, Calls::Complete, _) => {
                (Some("tool_use"), None)
            }
            (FinishReason::Stop | FinishReason::ToolCalls, _, Some(StopReason::Text(text))) => {
                (Some("stop_sequence"), Some(text))
            }
            (FinishReason::Stop, Calls::None, _) => (Some("end_turn"), None),
            (FinishReason::Stop | FinishReason::ToolCalls, ..) => (Some("tool_use"), None),
            _ => (None, None),
        }
    }
}

fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("strings and numbers encode");
}

#[derive(Serialize)]
struct WholeMessage<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    content: Vec<ContentBlock<'a>>,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_sequence: Option<&'a str>,
    usage: MessageUsage,
}

/// The message that a stream starts with, which has its nulls.
#[derive(Serialize)]
struct StartedMessage<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    content: [(); 0],
    model: &'a str,
    #[serde(skip_serializing_if = "Key::is_absent")]
    stop_reason: Key<()>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    stop_sequence: Key<()>,
    usage: MessageUsage,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the wire")]
struct MessageUsage {
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens: Option<u64>,
    output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read_input_tokens: Option<u64>,
}

impl MessageUsage {
    fn new(spelling: Spelling, usage: Usage) -> Self {
        let prompt = usage.prompt_tokens.unwrap_or(0);
        let cached = usage.cache.map_or(0, |cache| cache.cached.min(prompt));
        let cached = if spelling.tells_cache { cached } else { 0 };
        Self {
            input_tokens: Some(prompt - cached),
            output_tokens: usage.completion_tokens.unwrap_or(0),
            cache_read_input_tokens: Some(cached).filter(|cached| *cached > 0),
        }
    }

    /// At the end of a stream.
    fn at_end(spelling: Spelling, usage: Usage) -> Self {
        if spelling.streams_all {
            return Self::new(spelling, usage);
        }
        Self {
            input_tokens: None,
            output_tokens: usage.completion_tokens.unwrap_or(0),
            cache_read_input_tokens: None,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentBlock<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        thinking: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<&'a str>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Input<'a>,
    },
}

/// The arguments of a call, which a stream starts without.
#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Empty {},
    Whole(&'a Json<'a>),
}

impl<'a> ContentBlock<'a> {
    /// A block without its text.
    fn started(kind: &'a BlockKind) -> Self {
        match kind {
            BlockKind::Text => Self::Text { text: "" },
            BlockKind::Thinking { .. } => Self::Thinking {
                thinking: "",
                signature: None,
            },
            BlockKind::ToolUse { id, name } => Self::ToolUse {
                id,
                name,
                input: Input::Empty {},
            },
        }
    }

    fn whole(block: &'a Block, input: Option<&'a Json<'a>>) -> Self {
        match &block.kind {
            BlockKind::Text => Self::Text { text: &block.text },
            BlockKind::Thinking { signature } => Self::Thinking {
                thinking: &block.text,
                signature: signature.as_deref(),
            },
            BlockKind::ToolUse { id, name } => Self::ToolUse {
                id,
                name,
                input: input.map_or(Input::Empty {}, Input::Whole),
            },
        }
    }
}

#[derive(Default, Serialize)]
struct StreamEvent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<StartedMessage<'a>>,
    #[serde(rename = "index", skip_serializing_if = "Option::is_none")]
    first_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_block: Option<ContentBlock<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<MessageError<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<MessageUsage>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Delta<'a> {
    Block(BlockDelta<'a>),
    Message {
        #[serde(skip_serializing_if = "Key::is_absent")]
        stop_reason: Key<&'static str>,
        #[serde(skip_serializing_if = "Key::is_absent")]
        stop_sequence: Key<&'a str>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum BlockDelta<'a> {
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: &'a str },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'a str },
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: &'a str },
}

#[derive(Serialize)]
struct MessageError<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
}

#[derive(Serialize)]
struct ErrorAnswer<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    error: MessageError<'a>,
}

#[derive(Serialize)]
struct Count {
    input_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_management: Option<ContextManagement>,
}

#[derive(Serialize)]
struct ContextManagement {
    original_input_tokens: u64,
}

impl<'a> StreamEvent<'a> {
    fn new(spelling: Spelling, event: Event<'a>) -> Self {
        let of = |kind| Self {
            kind,
            ..Self::default()
        };
        let of_block = |kind, index| Self {
            first_index: Some(index).filter(|_| spelling.index_first),
            index: Some(index).filter(|_| !spelling.index_first),
            ..of(kind)
        };
        let of_delta = |index, delta| Self {
            delta: Some(Delta::Block(delta)),
            ..of_block("content_block_delta", index)
        };
        match event {
            Event::BlockDelta(index, kind, text) => of_delta(index, BlockDelta::of(kind, text)),
            Event::BlockStart(index, kind) => Self {
                content_block: Some(ContentBlock::started(kind)),
                ..of_block("content_block_start", index)
            },
            Event::BlockStop(index) => of_block("content_block_stop", index),
            Event::Error { status, message } => Self {
                error: Some(MessageError {
                    kind: match spelling.errors {
                        Errors::Own => "internal_error",
                        _ => error_type(status),
                    },
                    message,
                }),
                ..of("error")
            },
            Event::MessageDelta(ending, usage) => {
                let (stop_reason, stop_sequence) = ending.told(spelling);
                Self {
                    delta: Some(Delta::Message {
                        stop_reason: spelling.streamed(stop_reason),
                        stop_sequence: spelling.streamed(stop_sequence),
                    }),
                    usage: Some(MessageUsage::at_end(spelling, usage)),
                    ..of("message_delta")
                }
            }
            Event::MessageStart { id, model, usage } => Self {
                message: Some(StartedMessage::new(spelling, id, model, usage)),
                ..of("message_start")
            },
            Event::MessageStop => of("message_stop"),
            Event::Signature(index, signature) => {
                of_delta(index, BlockDelta::Signature { signature })
            }
        }
    }
}

impl Spelling {
    /// A key of a stream that may have no value.
    fn streamed<T>(self, value: Option<T>) -> Key<T> {
        Key::when(self.streams_all || value.is_some(), value)
    }
}

impl<'a> StartedMessage<'a> {
    fn new(spelling: Spelling, id: &'a str, model: &'a str, usage: Usage) -> Self {
        let usage = Usage {
            completion_tokens: Some(0),
            ..usage
        };
        Self {
            id,
            kind: "message",
            role: "assistant",
            content: [],
            model,
            stop_reason: spelling.streamed(None),
            stop_sequence: spelling.streamed(None),
            usage: MessageUsage::new(spelling, usage),
        }
    }
}

impl<'a> BlockDelta<'a> {
    fn of(kind: &BlockKind, text: &'a str) -> Self {
        match kind {
            BlockKind::Text => Self::Text { text },
            BlockKind::Thinking { .. } => Self::Thinking { thinking: text },
            BlockKind::ToolUse { .. } => Self::InputJson { partial_json: text },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPELLING: Spelling = Spelling {
        errors: Errors::Anthropic,
        forgives_arguments: false,
        index_first: false,
        knows_stop_strings: true,
        streams_all: true,
        tells_cache: false,
    };

    fn whole(block: Block) -> Result<String, BadArguments> {
        let message = Message {
            content: &[block],
            ending: Ending {
                calls: Calls::None,
                finish: &FinishReason::Stop.into(),
            },
            id: "i",
            model: "m",
            usage: Usage::new(1, 2),
        };
        let mut out = Vec::new();
        encode(SPELLING, &message, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn arguments_are_read_and_written_again() {
        let block = |text: &str| Block {
            kind: BlockKind::ToolUse {
                id: "t".into(),
                name: "f".into(),
            },
            text: text.into(),
        };
        let json = whole(block(r#"{"b": 1, "a": "x"}"#)).unwrap();
        assert!(json.contains(r#""input":{"b":1,"a":"x"}}"#), "{json}");
        assert_eq!(whole(block("{")), Err(BadArguments));
    }

    #[test]
    fn a_whole_thought_is_signed() {
        let kind = BlockKind::Thinking {
            signature: Some("s".into()),
        };
        let json = whole(Block {
            kind,
            text: "hm".into(),
        });
        let expected = r#"{"type":"thinking","thinking":"hm","signature":"s"}"#;
        assert!(json.unwrap().contains(expected));
    }
}
