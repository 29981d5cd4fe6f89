//! SGLang's answers that are not streamed.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::chunk::{Choice, Chunk};
use crate::dialect::Envelope;
use crate::finish::{Finish, FinishReason, StopReason};
use crate::request::Endpoint;

use super::chunk::{Call, Sglext};
use super::completion::TextChoice;
use super::logprobs::ChatLogprobs;
use super::native::{self, WeightVersion};
use super::usage::FullUsage;
use super::{Front, rust};

/// Appends the JSON of a whole answer.
pub(crate) fn encode(front: Front, envelope: &Envelope, answer: &Chunk<'_>, out: &mut Vec<u8>) {
    if envelope.is_typed {
        return rust::encode_whole(envelope, answer, out);
    }
    let usage = answer.usage.map(Into::into);
    let metadata = Metadata::new(answer);
    let (id, created, model) = (&*envelope.id, envelope.created, &*envelope.model);
    let choices = answer.choices.iter();
    let written = match envelope.endpoint {
        Endpoint::Chat => serde_json::to_writer(
            out,
            &Answer {
                id,
                object: "chat.completion",
                created,
                model,
                choices: choices
                    .map(|choice| ChatChoice::new(envelope, choice))
                    .collect(),
                usage,
                metadata,
                sglext: answer.extension.as_deref().map(Sglext::from),
            },
        ),
        Endpoint::Completions => serde_json::to_writer(
            out,
            &Answer {
                id,
                object: "text_completion",
                created,
                model,
                choices: choices.map(TextChoice::from).collect(),
                usage,
                metadata,
                sglext: None,
            },
        ),
        Endpoint::Generate => return native::encode_whole(front, envelope, answer, out),
    };
    written.expect("strings and numbers encode");
}

#[derive(Serialize)]
struct Answer<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<C>,
    usage: Option<FullUsage>,
    metadata: Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    sglext: Option<Sglext<'a>>,
}

/// `metadata`
#[derive(Serialize)]
struct Metadata {
    weight_version: &'static str,
    weight_versions: [WeightVersion; 1],
}

impl Metadata {
    fn new(answer: &Chunk<'_>) -> Self {
        let first = answer.choices.first().and_then(|choice| choice.progress);
        // A choice that is alone has all tokens.
        let usage = first.map(|progress| progress.usage).or(answer.usage);
        let tokens = usage.and_then(|usage| usage.completion_tokens);
        Self {
            weight_version: WeightVersion::NAME,
            weight_versions: [WeightVersion::up_to(tokens.unwrap_or(0))],
        }
    }
}

#[derive(Serialize)]
struct ChatChoice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    matched_stop: Option<&'a StopReason<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta_info: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'a str,
    content: &'a str,
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

impl<'a> ChatChoice<'a> {
    fn new(envelope: &'a Envelope, choice: &'a Choice<'_>) -> Self {
        let delta = &choice.delta;
        let finish = choice.finish.as_ref();
        let has_called = finish.is_some_and(|finish| finish.reason == FinishReason::ToolCalls);
        Self {
            index: choice.index,
            message: Message {
                role: delta.role.as_deref().unwrap_or("assistant"),
                content: delta.content.as_deref().unwrap_or_default(),
                reasoning_content: delta.reasoning.as_deref(),
                tool_calls: delta.tool_calls.iter().map(Call::from).collect(),
            },
            logprobs: choice.logprobs.as_deref().map(ChatLogprobs::new),
            finish_reason: finish.map(|finish| finish.reason.as_str()),
            matched_stop: finish.filter(|_| !has_called).and_then(Finish::matched),
            prompt_token_ids: choice.prompt_token_ids.as_deref(),
            response_token_ids: choice.token_ids.as_deref(),
            meta_info: envelope
                .meta
                .as_deref()
                .map(|meta| native::meta_info(envelope.id_of(choice.index), meta, choice)),
        }
    }
}
