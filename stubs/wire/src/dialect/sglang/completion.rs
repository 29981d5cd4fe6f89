//! SGLang's streamed completions.

use serde::Serialize;

use crate::chunk::{Choice, Chunk};
use crate::dialect::Envelope;
use crate::dialect::logprobs::TextLogprobs;
use crate::finish::{Finish, StopReason};

use super::logprobs;
use super::usage::{FullUsage, ShortUsage};

#[derive(Serialize)]
struct Frame<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [TextChoice<'a>],
    usage: FrameUsage,
}

#[derive(Serialize)]
#[serde(untagged)]
enum FrameUsage {
    Running(Option<FullUsage>),
    Final(ShortUsage),
}

/// A choice, in a stream or whole.
#[derive(Serialize)]
pub(super) struct TextChoice<'a> {
    index: u32,
    text: &'a str,
    logprobs: Option<TextLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    matched_stop: Option<&'a StopReason<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
}

impl<'a> From<&'a Choice<'_>> for TextChoice<'a> {
    fn from(choice: &'a Choice<'_>) -> Self {
        let finish = choice.finish.as_ref();
        Self {
            index: choice.index,
            text: choice.delta.content.as_deref().unwrap_or_default(),
            logprobs: choice.logprobs.as_deref().map(logprobs::of_text),
            finish_reason: finish.map(|finish| finish.reason.as_str()),
            matched_stop: finish.and_then(Finish::matched),
            token_ids: choice.token_ids.as_deref(),
            prompt_token_ids: choice.prompt_token_ids.as_deref(),
        }
    }
}

/// Appends the JSON of one event.
pub(super) fn encode(envelope: &Envelope, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
    let choice = chunk.choices.first();
    let usage = match (choice, chunk.usage) {
        (None, Some(usage)) => FrameUsage::Final(usage.into()),
        (_, usage) => FrameUsage::Running(usage.map(Into::into)),
    };
    let choices = choice.map(TextChoice::from);
    let frame = Frame {
        id: envelope.id_of(chunk.origin),
        object: "text_completion",
        created: envelope.created,
        model: &envelope.model,
        choices: choices.as_slice(),
        usage,
    };
    serde_json::to_writer(out, &frame).expect("strings and numbers encode");
}
