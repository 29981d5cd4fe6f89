//! Answers of `/inference/v1/generate`: token ids, and text in one mode alone.

use serde::Serialize;

use crate::chunk::{Choice, Chunk};
use crate::dialect::Envelope;
use crate::finish::StopReason;
use crate::request::OutputMode;

use super::Profile;
use super::chunk::{FrameUsage, finish_word};
use super::logprobs::{self, ChatLogprobs, IdLogprobs, PromptToken};
use super::whole::{WholeUsage, stop_reason};

/// Appends the JSON of one event.
pub(super) fn encode(
    profile: &Profile,
    mode: OutputMode,
    envelope: &Envelope,
    chunk: &Chunk<'_>,
    out: &mut Vec<u8>,
) {
    let request_id = &*envelope.id;
    let Some(choice) = chunk.choices.first() else {
        let frame = UsageFrame {
            request_id,
            usage: chunk
                .usage
                .map(|usage| FrameUsage::new(profile, usage, false)),
            output_mode: mode,
            choices: [],
        };
        return serde_json::to_writer(out, &frame).expect("strings and numbers encode");
    };
    let frame = Frame {
        request_id,
        usage: chunk.usage.map(|usage| WholeUsage::new(profile, usage)),
        prompt_token_ids: choice.prompt_token_ids.as_deref(),
        output_mode: mode,
        choices: [GenerateChoice::new(mode, choice)],
    };
    serde_json::to_writer(out, &frame).expect("strings and numbers encode");
}

/// Appends the JSON of an answer that is not streamed.
pub(super) fn encode_whole(
    profile: &Profile,
    mode: OutputMode,
    envelope: &Envelope,
    answer: &Chunk<'_>,
    out: &mut Vec<u8>,
) {
    let choice = |choice| GenerateChoice::new(mode, choice);
    let answer = Answer {
        request_id: &envelope.id,
        model: &envelope.model,
        created: envelope.created,
        usage: answer.usage.map(|usage| WholeUsage::new(profile, usage)),
        prompt_logprobs: envelope.prompt_logprobs.as_deref().map(logprobs::prompt),
        prompt_token_id_logprobs: (),
        prompt_token_ids: envelope.prompt_token_ids.as_deref(),
        mm_placeholders: (),
        metrics: (),
        kv_transfer_params: (),
        ec_transfer_params: (),
        output_mode: mode,
        choices: answer.choices.iter().map(choice).collect(),
    };
    serde_json::to_writer(out, &answer).expect("strings and numbers encode");
}

#[derive(Serialize)]
struct Frame<'a> {
    request_id: &'a str,
    usage: Option<WholeUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
    output_mode: OutputMode,
    choices: [GenerateChoice<'a>; 1],
}

/// The last frame, whose nulls are left out.
#[derive(Serialize)]
struct UsageFrame<'a> {
    request_id: &'a str,
    usage: Option<FrameUsage>,
    output_mode: OutputMode,
    choices: [(); 0],
}

#[derive(Serialize)]
struct Answer<'a> {
    request_id: &'a str,
    model: &'a str,
    created: u64,
    usage: Option<WholeUsage>,
    prompt_logprobs: Option<Vec<Option<PromptToken<'a>>>>,
    prompt_token_id_logprobs: (),
    prompt_token_ids: Option<&'a [u32]>,
    mm_placeholders: (),
    metrics: (),
    kv_transfer_params: (),
    ec_transfer_params: (),
    output_mode: OutputMode,
    choices: Vec<GenerateChoice<'a>>,
}

#[derive(Serialize)]
struct GenerateChoice<'a> {
    index: u32,
    finish_reason: Option<&'static str>,
    stop_reason: Option<&'a StopReason<'a>>,
    token_ids: Option<&'a [u32]>,
    routed_experts: (),
    sampling_mask: (),
    weight_versions: (),
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    logprobs: Option<Logprobs<'a>>,
}

/// Tokens by their texts, or by their ids.
#[derive(Serialize)]
#[serde(untagged)]
enum Logprobs<'a> {
    Ids(IdLogprobs),
    Texts(ChatLogprobs<'a>),
}

impl<'a> GenerateChoice<'a> {
    fn new(mode: OutputMode, choice: &'a Choice<'_>) -> Self {
        let tokens = choice.logprobs.as_deref();
        let (text, logprobs) = match mode {
            OutputMode::Text => (
                Some(choice.delta.content.as_deref().unwrap_or_default()),
                tokens.map(|tokens| Logprobs::Texts(ChatLogprobs::new(tokens))),
            ),
            OutputMode::Tokens => (
                None,
                tokens.map(|tokens| Logprobs::Ids(IdLogprobs::new(tokens))),
            ),
        };
        Self {
            index: choice.index,
            finish_reason: finish_word(choice),
            stop_reason: stop_reason(choice),
            token_ids: choice.token_ids.as_deref(),
            routed_experts: (),
            sampling_mask: (),
            weight_versions: (),
            text,
            logprobs,
        }
    }
}
