//! vLLM's answers that are not streamed: every null is written.

use serde::Serialize;

use crate::chunk::{Choice, Chunk};
use crate::dialect::Envelope;
use crate::finish::StopReason;
use crate::request::Endpoint;
use crate::usage::Usage;

use super::Profile;
use super::chunk::{ReasoningTokens, finish_word};

/// Appends the JSON of a whole answer.
pub(crate) fn encode(
    profile: &Profile,
    envelope: &Envelope,
    answer: &Chunk<'_>,
    out: &mut Vec<u8>,
) {
    let weight_versions = profile.has_weight_versions.then_some(());
    let usage = answer.usage.map(WholeUsage::from);
    let fingerprint = envelope.fingerprint.as_deref();
    let choices = answer.choices.iter();
    match envelope.endpoint {
        Endpoint::Chat => to_writer(
            out,
            &ChatAnswer {
                id: &envelope.id,
                object: "chat.completion",
                created: envelope.created,
                model: &envelope.model,
                choices: choices
                    .map(|choice| ChatChoice::new(choice, weight_versions))
                    .collect(),
                service_tier: (),
                system_fingerprint: fingerprint,
                usage,
                prompt_logprobs: (),
                prompt_token_ids: envelope.prompt_token_ids.as_deref(),
                prompt_text: envelope.prompt_text.as_deref(),
                kv_transfer_params: (),
                ec_transfer_params: (),
                metrics: (),
            },
        ),
        Endpoint::Completions => to_writer(
            out,
            &TextAnswer {
                id: &envelope.id,
                object: "text_completion",
                created: envelope.created,
                model: &envelope.model,
                choices: choices
                    .map(|choice| TextChoice::new(choice, weight_versions))
                    .collect(),
                service_tier: (),
                system_fingerprint: fingerprint,
                usage,
                kv_transfer_params: (),
                ec_transfer_params: (),
                metrics: (),
            },
        ),
    }
}

fn to_writer(out: &mut Vec<u8>, answer: &impl Serialize) {
    serde_json::to_writer(out, answer).expect("strings and numbers encode");
}

#[derive(Serialize)]
struct ChatAnswer<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<ChatChoice<'a>>,
    service_tier: (),
    system_fingerprint: Option<&'a str>,
    usage: Option<WholeUsage>,
    prompt_logprobs: (),
    prompt_token_ids: Option<&'a [u32]>,
    prompt_text: Option<&'a str>,
    kv_transfer_params: (),
    ec_transfer_params: (),
    metrics: (),
}

#[derive(Serialize)]
struct ChatChoice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: (),
    finish_reason: Option<&'static str>,
    stop_reason: Option<&'a StopReason<'a>>,
    token_ids: Option<&'a [u32]>,
    routed_experts: (),
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_versions: Option<()>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'a str,
    content: Option<&'a str>,
    refusal: (),
    annotations: (),
    audio: (),
    function_call: (),
    reasoning: Option<&'a str>,
}

impl<'a> ChatChoice<'a> {
    fn new(choice: &'a Choice<'_>, weight_versions: Option<()>) -> Self {
        let delta = &choice.delta;
        Self {
            index: choice.index,
            message: Message {
                role: delta.role.as_deref().unwrap_or("assistant"),
                content: delta.content.as_deref(),
                refusal: (),
                annotations: (),
                audio: (),
                function_call: (),
                reasoning: delta.reasoning.as_deref(),
            },
            logprobs: (),
            finish_reason: finish_word(choice),
            stop_reason: stop_reason(choice),
            token_ids: choice.token_ids.as_deref(),
            routed_experts: (),
            weight_versions,
        }
    }
}

#[derive(Serialize)]
struct TextAnswer<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<TextChoice<'a>>,
    service_tier: (),
    system_fingerprint: Option<&'a str>,
    usage: Option<WholeUsage>,
    kv_transfer_params: (),
    ec_transfer_params: (),
    metrics: (),
}

#[derive(Serialize)]
struct TextChoice<'a> {
    index: u32,
    text: &'a str,
    logprobs: (),
    finish_reason: Option<&'static str>,
    stop_reason: Option<&'a StopReason<'a>>,
    token_ids: Option<&'a [u32]>,
    prompt_logprobs: (),
    prompt_token_ids: (),
    routed_experts: (),
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_versions: Option<()>,
}

impl<'a> TextChoice<'a> {
    fn new(choice: &'a Choice<'_>, weight_versions: Option<()>) -> Self {
        Self {
            index: choice.index,
            text: choice.delta.content.as_deref().unwrap_or_default(),
            logprobs: (),
            finish_reason: finish_word(choice),
            stop_reason: stop_reason(choice),
            token_ids: choice.token_ids.as_deref(),
            prompt_logprobs: (),
            prompt_token_ids: (),
            routed_experts: (),
            weight_versions,
        }
    }
}

fn stop_reason<'a>(choice: &'a Choice<'_>) -> Option<&'a StopReason<'a>> {
    choice.finish.as_ref()?.stop_reason.as_ref()
}

#[derive(Serialize)]
struct WholeUsage {
    prompt_tokens: Option<u64>,
    total_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: (),
    completion_tokens_details: Option<ReasoningTokens>,
}

impl From<Usage> for WholeUsage {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            total_tokens: usage.total_tokens(),
            completion_tokens: usage.completion_tokens,
            prompt_tokens_details: (),
            completion_tokens_details: usage
                .reasoning_tokens
                .map(|reasoning_tokens| ReasoningTokens { reasoning_tokens }),
        }
    }
}
