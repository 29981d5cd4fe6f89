//! Completions, streamed and whole, which are written alike.

use serde::Serialize;

use crate::chunk::{Choice, Chunk};
use crate::dialect::Envelope;
use crate::dialect::sglang::logprobs::TypedTextLogprobs;
use crate::finish::StopReason;

use super::usage::TypedUsage;

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a str,
    choices: Vec<TextChoice<'a>>,
    created: u64,
    model: &'a str,
    usage: Option<TypedUsage>,
    object: &'static str,
}

#[derive(Serialize)]
struct TextChoice<'a> {
    text: &'a str,
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<TypedTextLogprobs<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'static str>,
    matched_stop: Option<&'a StopReason<'a>>,
}

impl<'a> From<&'a Choice<'_>> for TextChoice<'a> {
    fn from(choice: &'a Choice<'_>) -> Self {
        let finish = choice.finish.as_ref();
        Self {
            text: choice.delta.content.as_deref().unwrap_or_default(),
            index: choice.index,
            logprobs: choice.logprobs.as_deref().map(TypedTextLogprobs::new),
            finish_reason: finish.map(|finish| finish.reason.as_str()),
            matched_stop: finish.and_then(|finish| finish.stop_reason.as_ref()),
        }
    }
}

/// Appends the JSON of an event or of a whole answer.
pub(super) fn encode(envelope: &Envelope, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
    let answer = Answer {
        id: &envelope.id,
        choices: chunk.choices.iter().map(TextChoice::from).collect(),
        created: envelope.created,
        model: &envelope.model,
        usage: chunk.usage.map(Into::into),
        object: "text_completion",
    };
    serde_json::to_writer(out, &answer).expect("strings and numbers encode");
}
