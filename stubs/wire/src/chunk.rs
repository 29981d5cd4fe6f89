//! What one event of a stream says, or a whole answer, whatever the dialect's spelling.

mod gist;
mod native;
mod shapes;

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::finish::{Finish, FinishReason, StopReason};
use crate::usage::Usage;

pub use gist::{Gist, Reader};
pub use native::{Samples, Settled};

/// The object of one streamed event, or of an answer that is not streamed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk<'a> {
    /// The choices that it carries text for; empty in a usage chunk.
    pub choices: Vec<Choice<'a>>,
    /// An error in place of an answer: its message.
    pub error: Option<Cow<'a, str>>,
    /// `usage`
    pub usage: Option<Usage>,
    /// The choice whose id it has, where each has its own; not read back.
    pub origin: u32,
    /// Ids and cache of the whole answer, where a server tells them apart from its choices; not read back.
    pub extension: Option<Box<Extension>>,
}

/// `sglext`: what SGLang tells of a chat beside `OpenAI`'s keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extension {
    /// Prompt tokens that the cache had, where it had any and the request asks.
    pub cached_tokens: Option<u64>,
    /// `input_ids`
    pub input_ids: Option<Vec<u32>>,
    /// `output_ids` of each choice.
    pub output_ids: Option<Vec<Vec<u32>>>,
}

/// A choice's part of a chunk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice<'a> {
    /// What was said.
    pub delta: Delta<'a>,
    /// The text is the prompt's, said again before the answer.
    pub is_echo: bool,
    /// The end of the choice, in its last chunk.
    pub finish: Option<Finish<'a>>,
    /// `index`
    pub index: u32,
    /// `logprobs`, where the request asked for them; not read back.
    pub logprobs: Option<Vec<TokenLogprob>>,
    /// `prompt_logprobs` of a completion; not read back.
    pub prompt_logprobs: Option<Vec<Option<TokenLogprob>>>,
    /// `prompt_token_ids` of a completion; not read back.
    pub prompt_token_ids: Option<Vec<u32>>,
    /// `token_ids`, where the request asked for them.
    pub token_ids: Option<Vec<u32>>,
    /// How far this choice has come, where the server tells of each by itself; not read back.
    pub progress: Option<Progress>,
}

/// How far a choice has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// It is the choice's first chunk.
    pub is_first: bool,
    /// Seconds since the request came.
    pub seconds: f64,
    /// Its own counts so far.
    pub usage: Usage,
}

impl Choice<'_> {
    /// Bytes of its content and reasoning.
    pub fn text_bytes(&self) -> usize {
        let bytes = |text: &Option<Cow<'_, str>>| text.as_ref().map_or(0, |text| text.len());
        bytes(&self.delta.content) + bytes(&self.delta.reasoning)
    }
}

/// A token with its probability and those of the likeliest.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Tokens that the request names, with their probabilities.
    pub asked: Vec<TopLogprob>,
    /// Bytes of its text.
    pub bytes: Vec<u8>,
    /// Its id.
    pub id: u32,
    /// Natural logarithm of its probability; none for the first token of a prompt.
    pub logprob: Option<f32>,
    /// Characters of text before it.
    pub text_offset: usize,
    /// How it is named.
    pub token: String,
    /// The likeliest tokens, the sampled one included.
    pub top: Vec<TopLogprob>,
}

/// One of the likeliest tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct TopLogprob {
    /// Bytes of its name.
    pub bytes: Vec<u8>,
    /// Its id.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// How it is named.
    pub token: String,
}

/// Text that a chunk adds, or the whole of it. `None` is an absent or null key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta<'a> {
    /// `content`, or `text` of a completion.
    pub content: Option<Cow<'a, str>>,
    /// `reasoning` or `reasoning_content`.
    pub reasoning: Option<Cow<'a, str>>,
    /// `role`
    pub role: Option<Cow<'a, str>>,
    /// `tool_calls`
    pub tool_calls: Vec<ToolCall<'a>>,
    /// Keys that are written as null; not read back.
    pub nulls: Nulls,
}

/// Keys of a delta that are there although they say nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "a key each")]
pub struct Nulls {
    /// `function.name` of tool calls.
    pub call_name: bool,
    /// `content`
    pub content: bool,
    /// `reasoning`
    pub reasoning: bool,
    /// The text passed a tool parser, whose chunks some servers spell otherwise.
    pub tool_parser: bool,
}

/// A tool call, or the part of it that a chunk adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall<'a> {
    /// `function.arguments`
    pub arguments: Option<Cow<'a, str>>,
    /// `id`
    pub id: Option<Cow<'a, str>>,
    /// `index`
    pub index: u32,
    /// `function.name`
    pub name: Option<Cow<'a, str>>,
}

impl Delta<'_> {
    /// It carries text, reasoning or a tool call: what a time to first token counts from.
    pub fn says_something(&self) -> bool {
        let full = |text: &Option<Cow<'_, str>>| text.as_ref().is_some_and(|text| !text.is_empty());
        full(&self.content) || full(&self.reasoning) || !self.tool_calls.is_empty()
    }
}

/// An event or body that is not a chunk.
#[derive(Debug, thiserror::Error)]
#[error("not a chunk: {0}")]
pub struct DecodeError(#[from] serde_json::Error);

impl<'a> Chunk<'a> {
    /// Reads an `OpenAI` chunk or whole answer of any dialect, keeping what clients look at.
    pub fn decode(json: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(RawChunk::read(json)?.into_chunk())
    }
}

#[derive(serde::Deserialize)]
struct RawChunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<RawChoice<'a>>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

impl<'a> RawChunk<'a> {
    fn read(json: &'a [u8]) -> Result<Self, DecodeError> {
        if !json.trim_ascii_start().starts_with(b"{") {
            return Err(DecodeError(serde::de::Error::custom("not an object")));
        }
        Ok(serde_json::from_slice(json)?)
    }

    fn into_chunk(self) -> Chunk<'a> {
        let error = self.error.and_then(error_message);
        let choices = self.choices.unwrap_or_default().into_iter();
        Chunk {
            choices: choices.map(RawChoice::into_choice).collect(),
            error,
            usage: self.usage.and_then(Usage::read),
            ..Chunk::default()
        }
    }
}

/// What an error object says, or the value in its place; none where that is null.
fn error_message(error: &RawValue) -> Option<Cow<'_, str>> {
    let message = serde_json::from_str(error.get());
    let message = message.map_or_else(|_| error.get().into(), |RawError { message }| message.0);
    (error.get() != "null").then_some(message)
}

#[derive(serde::Deserialize)]
struct RawError<'a> {
    #[serde(borrow)]
    message: Text<'a>,
}

#[derive(serde::Deserialize)]
struct RawChoice<'a> {
    #[serde(borrow, default)]
    delta: Option<RawDelta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
    #[serde(default)]
    index: Option<u32>,
    #[serde(borrow, default)]
    matched_stop: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<RawDelta<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(default)]
    token_ids: Option<Vec<u32>>,
}

#[derive(Default, serde::Deserialize)]
struct RawDelta<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default)]
    role: Option<Text<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<RawToolCall<'a>>>,
}

#[derive(serde::Deserialize)]
struct RawToolCall<'a> {
    #[serde(borrow, default)]
    function: Option<RawFunction<'a>>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(default)]
    index: Option<u32>,
}

#[derive(Default, serde::Deserialize)]
struct RawFunction<'a> {
    #[serde(borrow, default)]
    arguments: Option<Text<'a>>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
}

/// Borrows inside an `Option`, where `Cow` by itself would copy.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> RawChoice<'a> {
    fn into_choice(self) -> Choice<'a> {
        let delta = self.delta.or(self.message).unwrap_or_default();
        let stop_reason = self.stop_reason.or(self.matched_stop).and_then(|reason| {
            let text = reason.get();
            match text.parse() {
                Ok(token) => Some(StopReason::Token(token)),
                Err(_) => serde_json::from_str(text).ok().map(StopReason::Text),
            }
        });
        let finish = self.finish_reason.map(|Text(word)| Finish {
            reason: FinishReason::read(&word),
            stop_reason,
        });
        let tool_calls = delta.tool_calls.unwrap_or_default().into_iter();
        Choice {
            delta: Delta {
                content: text(delta.content.or(self.text)),
                reasoning: text(delta.reasoning.or(delta.reasoning_content)),
                role: text(delta.role),
                tool_calls: tool_calls.map(RawToolCall::into_call).collect(),
                nulls: Nulls::default(),
            },
            finish,
            index: self.index.unwrap_or(0),
            token_ids: self.token_ids,
            ..Choice::default()
        }
    }
}

impl<'a> RawToolCall<'a> {
    fn into_call(self) -> ToolCall<'a> {
        let function = self.function.unwrap_or_default();
        ToolCall {
            arguments: text(function.arguments),
            id: text(self.id),
            index: self.index.unwrap_or(0),
            name: text(function.name),
        }
    }
}

fn text(field: Option<Text<'_>>) -> Option<Cow<'_, str>> {
    field.map(|Text(text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_of_each_shape_is_read() {
        let chunk = Chunk::decode(br#"{"choices":[{"index":1,"delta":{"reasoning_content":"r\n"},"finish_reason":"stop","stop_reason":7}],"usage":{"prompt_tokens":1}}"#).unwrap();
        let choice = &chunk.choices[0];
        assert_eq!(choice.index, 1);
        assert_eq!(choice.delta.reasoning.as_deref(), Some("r\n"));
        assert_eq!(
            choice.finish,
            Some(Finish {
                reason: FinishReason::Stop,
                stop_reason: Some(StopReason::Token(7))
            })
        );
        assert_eq!(chunk.usage.unwrap().prompt_tokens, Some(1));

        let whole = Chunk::decode(
            br#"{"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{}]}}]}"#,
        )
        .unwrap();
        assert!(whole.choices[0].delta.says_something());

        let text = Chunk::decode(
            br#"{"choices":[{"text":"t","stop_reason":"END","finish_reason":"stop"}]}"#,
        )
        .unwrap();
        assert_eq!(text.choices[0].delta.content.as_deref(), Some("t"));

        let error = Chunk::decode(br#"{"error": {"message": "no", "code": 500}}"#).unwrap();
        assert_eq!(error.error.as_deref(), Some("no"));
        let error = Chunk::decode(br#"{"error":"plain"}"#).unwrap();
        assert_eq!(error.error.as_deref(), Some("\"plain\""));
    }

    #[test]
    fn malformed_usage_does_not_spoil_a_chunk() {
        for usage in ["null", "5", "[]", "{\"completion_tokens\":\"x\"}"] {
            let text = format!(r#"{{"choices":[{{"delta":{{"content":"a"}}}}],"usage":{usage}}}"#);
            let chunk = Chunk::decode(text.as_bytes()).unwrap();
            assert!(chunk.choices[0].delta.says_something(), "{usage}");
        }
    }
}
