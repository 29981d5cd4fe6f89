//! vLLM's answers that are not streamed: every null is written.

use serde::Serialize;

use crate::chunk::{Choice, Chunk, ToolCall};
use crate::dialect::key::Key;
use crate::dialect::{Envelope, Metrics};
use crate::finish::StopReason;
use crate::request::Endpoint;
use crate::usage::Usage;

use super::chunk::{FrameMetrics, ReasoningTokens, finish_word};
use super::logprobs::{self, ChatLogprobs, PromptToken};
use super::{Profile, generate};
use crate::dialect::logprobs::TextLogprobs;

/// Appends the JSON of a whole answer.
pub(crate) fn encode(
    profile: &Profile,
    envelope: &Envelope,
    answer: &Chunk<'_>,
    out: &mut Vec<u8>,
) {
    if let Some(mode) = envelope.output_mode {
        return generate::encode_whole(profile, mode, envelope, answer, out);
    }
    let usage = answer.usage.map(|usage| WholeUsage::new(profile, usage));
    let null = |key| Key::when(profile.has(key), None);
    let metrics = Key::when(profile.has("metrics"), envelope.metrics.map(From::from));
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
                    .map(|choice| ChatChoice::new(profile, choice))
                    .collect(),
                service_tier: (),
                system_fingerprint: fingerprint,
                usage,
                prompt_logprobs: envelope.prompt_logprobs.as_deref().map(logprobs::prompt),
                prompt_token_ids: envelope.prompt_token_ids.as_deref(),
                prompt_text: Key::when(profile.has("prompt_text"), envelope.prompt_text.as_deref()),
                kv_transfer_params: (),
                ec_transfer_params: null("ec_transfer_params"),
                metrics,
            },
        ),
        Endpoint::Completions | Endpoint::Generate => to_writer(
            out,
            &TextAnswer {
                id: &envelope.id,
                object: "text_completion",
                created: envelope.created,
                model: &envelope.model,
                choices: choices
                    .map(|choice| TextChoice::new(profile, choice))
                    .collect(),
                service_tier: (),
                system_fingerprint: fingerprint,
                usage,
                kv_transfer_params: (),
                ec_transfer_params: null("ec_transfer_params"),
                metrics,
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
    prompt_logprobs: Option<Vec<Option<PromptToken<'a>>>>,
    prompt_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    prompt_text: Key<&'a str>,
    kv_transfer_params: (),
    #[serde(skip_serializing_if = "Key::is_absent")]
    ec_transfer_params: Key<()>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    metrics: Key<WholeMetrics>,
}

#[derive(Serialize)]
struct ChatChoice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    stop_reason: Option<&'a StopReason<'a>>,
    token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    routed_experts: Key<()>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    weight_versions: Key<()>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'a str,
    content: Option<&'a str>,
    refusal: (),
    annotations: (),
    audio: (),
    function_call: (),
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WholeCall<'a>>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    reasoning_content: Key<&'a str>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    reasoning: Key<&'a str>,
}

#[derive(Serialize)]
struct WholeCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: WholeFunction<'a>,
}

#[derive(Serialize)]
struct WholeFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> From<&'a ToolCall<'_>> for WholeCall<'a> {
    fn from(call: &'a ToolCall<'_>) -> Self {
        Self {
            id: call.id.as_deref().unwrap_or_default(),
            kind: "function",
            function: WholeFunction {
                name: call.name.as_deref().unwrap_or_default(),
                arguments: call.arguments.as_deref().unwrap_or_default(),
            },
        }
    }
}

impl<'a> ChatChoice<'a> {
    fn new(profile: &Profile, choice: &'a Choice<'_>) -> Self {
        let delta = &choice.delta;
        let is_old = profile.reasoning_key == "reasoning_content";
        Self {
            index: choice.index,
            message: Message {
                role: delta.role.as_deref().unwrap_or("assistant"),
                content: delta.content.as_deref(),
                refusal: (),
                annotations: (),
                audio: (),
                function_call: (),
                tool_calls: delta.tool_calls.iter().map(From::from).collect(),
                reasoning_content: Key::when(is_old, delta.reasoning.as_deref()),
                reasoning: Key::when(!is_old, delta.reasoning.as_deref()),
            },
            logprobs: choice.logprobs.as_deref().map(ChatLogprobs::new),
            finish_reason: finish_word(choice),
            stop_reason: stop_reason(choice),
            token_ids: choice.token_ids.as_deref(),
            routed_experts: Key::when(profile.has("routed_experts"), None),
            weight_versions: Key::when(profile.has("weight_versions"), None),
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
    #[serde(skip_serializing_if = "Key::is_absent")]
    ec_transfer_params: Key<()>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    metrics: Key<WholeMetrics>,
}

#[derive(Serialize)]
struct TextChoice<'a> {
    index: u32,
    text: &'a str,
    logprobs: Option<TextLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    stop_reason: Option<&'a StopReason<'a>>,
    token_ids: Option<&'a [u32]>,
    prompt_logprobs: Option<Vec<Option<PromptToken<'a>>>>,
    prompt_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    routed_experts: Key<()>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    weight_versions: Key<()>,
}

impl<'a> TextChoice<'a> {
    fn new(profile: &Profile, choice: &'a Choice<'_>) -> Self {
        Self {
            index: choice.index,
            text: choice.delta.content.as_deref().unwrap_or_default(),
            logprobs: choice.logprobs.as_deref().map(logprobs::of_text),
            finish_reason: finish_word(choice),
            stop_reason: stop_reason(choice),
            token_ids: choice.token_ids.as_deref(),
            prompt_logprobs: choice.prompt_logprobs.as_deref().map(logprobs::prompt),
            prompt_token_ids: choice.prompt_token_ids.as_deref(),
            routed_experts: Key::when(profile.has("routed_experts"), None),
            weight_versions: Key::when(profile.has("weight_versions"), None),
        }
    }
}

pub(super) fn stop_reason<'a>(choice: &'a Choice<'_>) -> Option<&'a StopReason<'a>> {
    choice.finish.as_ref()?.stop_reason.as_ref()
}

#[derive(Serialize)]
pub(super) struct WholeUsage {
    prompt_tokens: Option<u64>,
    total_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<WholeCache>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    completion_tokens_details: Key<ReasoningTokens>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names on the wire")]
struct WholeCache {
    cached_tokens: u64,
    #[serde(skip_serializing_if = "Key::is_absent")]
    created_cache_tokens: Key<u64>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    multimodal_tokens: Key<()>,
}

#[derive(Serialize)]
struct WholeMetrics {
    #[serde(flatten)]
    times: FrameMetrics,
    speculative_decoding: (),
}

impl From<Metrics> for WholeMetrics {
    fn from(metrics: Metrics) -> Self {
        Self {
            times: metrics.into(),
            speculative_decoding: (),
        }
    }
}

impl WholeUsage {
    pub(super) fn new(profile: &Profile, usage: Usage) -> Self {
        let reasoning = usage.reasoning_tokens;
        Self {
            prompt_tokens: usage.prompt_tokens,
            total_tokens: usage.total_tokens(),
            completion_tokens: usage.completion_tokens,
            prompt_tokens_details: usage.cache.map(|cache| WholeCache {
                cached_tokens: cache.cached,
                created_cache_tokens: Key::when(profile.has("created_cache_tokens"), cache.created),
                multimodal_tokens: Key::when(profile.has("multimodal_tokens"), None),
            }),
            completion_tokens_details: Key::when(
                profile.has("completion_tokens_details"),
                reasoning.map(|reasoning_tokens| ReasoningTokens { reasoning_tokens }),
            ),
        }
    }
}
