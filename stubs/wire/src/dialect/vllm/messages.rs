//! What `/v1/messages` answers: Anthropic's message, the events of its stream, and its errors.

use serde::Serialize;

use crate::failure::ErrorObject;
use crate::finish::{Finish, FinishReason, StopReason};
use crate::json::Json;
use crate::usage::Usage;

use super::Profile;

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
        /// `signature`
        signature: String,
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
    /// `error`, with its message.
    Error(&'e str),
    /// `message_delta`: how it ends.
    MessageDelta(Ending<'e>, Usage),
    /// `message_start`, with the counts before the answer.
    MessageStart {
        /// `id`
        id: &'e str,
        /// `model`
        model: &'e str,
        /// Tokens of the prompt.
        input_tokens: u64,
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
pub(crate) fn encode(message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), BadArguments> {
    let inputs: Vec<Option<Json<'_>>> = message
        .content
        .iter()
        .map(input)
        .collect::<Result<_, _>>()?;
    let blocks = message.content.iter().zip(&inputs);
    let (stop_reason, stop_sequence) = message.ending.told();
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
        usage: MessageUsage::from(message.usage),
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
pub(crate) fn encode_event(profile: &Profile, event: Event<'_>, out: &mut Vec<u8>) {
    let event = StreamEvent::new(profile, event);
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.kind.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    write(out, &event);
    out.extend_from_slice(b"\n\n");
}

/// Appends the JSON of an error.
pub(crate) fn encode_error(profile: &Profile, error: &ErrorObject, out: &mut Vec<u8>) {
    let kind = match error.code {
        _ if !profile.names_anthropic_errors => error.kind,
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        _ => "api_error",
    };
    let answer = ErrorAnswer {
        kind: "error",
        error: MessageError {
            kind,
            message: &error.message,
        },
    };
    write(out, &answer);
}

/// Appends the count of a prompt's tokens.
pub(crate) fn encode_count(input_tokens: u64, out: &mut Vec<u8>) {
    let answer = Count {
        input_tokens,
        context_management: ContextManagement {
            original_input_tokens: input_tokens,
        },
    };
    write(out, &answer);
}

impl<'a> Ending<'a> {
    /// `stop_reason` and `stop_sequence`. A stop string within a call is told before the call, which is
    /// not to be run; a named call is told although its chat ends with `stop`.
    fn told(self) -> (Option<&'static str>, Option<&'a str>) {
        let Finish {
            reason,
            stop_reason,
        } = self.finish;
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
    stop_reason: (),
    stop_sequence: (),
    usage: MessageUsage,
}

#[derive(Serialize)]
struct MessageUsage {
    input_tokens: u64,
    output_tokens: u64,
}

impl From<Usage> for MessageUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens.unwrap_or(0),
            output_tokens: usage.completion_tokens.unwrap_or(0),
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
                signature: Some(signature),
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
        stop_reason: Option<&'static str>,
        stop_sequence: Option<&'a str>,
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
    context_management: ContextManagement,
}

#[derive(Serialize)]
struct ContextManagement {
    original_input_tokens: u64,
}

impl<'a> StreamEvent<'a> {
    fn new(profile: &Profile, event: Event<'a>) -> Self {
        let of = |kind| Self {
            kind,
            ..Self::default()
        };
        let of_block = |kind, index| Self {
            index: Some(index),
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
            Event::Error(message) => Self {
                error: Some(MessageError {
                    kind: if profile.names_anthropic_errors {
                        "api_error"
                    } else {
                        "internal_error"
                    },
                    message,
                }),
                ..of("error")
            },
            Event::MessageDelta(ending, usage) => {
                let (stop_reason, stop_sequence) = ending.told();
                Self {
                    delta: Some(Delta::Message {
                        stop_reason,
                        stop_sequence,
                    }),
                    usage: Some(usage.into()),
                    ..of("message_delta")
                }
            }
            Event::MessageStart {
                id,
                model,
                input_tokens,
            } => Self {
                message: Some(StartedMessage::new(id, model, input_tokens)),
                ..of("message_start")
            },
            Event::MessageStop => of("message_stop"),
            Event::Signature(index, signature) => {
                of_delta(index, BlockDelta::Signature { signature })
            }
        }
    }
}

impl<'a> StartedMessage<'a> {
    fn new(id: &'a str, model: &'a str, input_tokens: u64) -> Self {
        Self {
            id,
            kind: "message",
            role: "assistant",
            content: [],
            model,
            stop_reason: (),
            stop_sequence: (),
            usage: Usage::new(input_tokens, 0).into(),
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
        encode(&message, &mut out)?;
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
            signature: "s".into(),
        };
        let json = whole(Block {
            kind,
            text: "hm".into(),
        });
        let expected = r#"{"type":"thinking","thinking":"hm","signature":"s"}"#;
        assert!(json.unwrap().contains(expected));
    }
}
