//! vLLM's answers that are not streamed: every null is written.

use serde::Serialize;

use crate::chunk::{Choice, Chunk, ToolCall};
use crate::dialect::{Envelope, Metrics};
use crate::finish::StopReason;
use crate::request::Endpoint;
use crate::usage::Usage;

use super::chunk::{ReasoningTokens, finish_word};
use super::logprobs::{self, ChatLogprobs, PromptToken, TextLogprobs};
use super::{Profile, generate};

/// Appends the JSON of a whole answer.
pub(crate) fn encode(
    profile: &Profile,
    envelope: &Envelope,
    answer: &Chunk<'_>,
    out: &mut Vec<u8>,
) {
    if let Some(mode) = envelope.output_mode {
        return generate::encode_whole(mode, envelope, answer, out);
    }
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
                prompt_logprobs: envelope.prompt_logprobs.as_deref().map(logprobs::prompt),
                prompt_token_ids: envelope.prompt_token_ids.as_deref(),
                prompt_text: envelope.prompt_text.as_deref(),
                kv_transfer_params: (),
                ec_transfer_params: (),
                metrics: envelope.metrics.map(From::from),
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
                metrics: envelope.metrics.map(From::from),
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
    prompt_text: Option<&'a str>,
    kv_transfer_params: (),
    ec_transfer_params: (),
    metrics: Option<WholeMetrics>,
}

#[derive(Serialize)]
struct ChatChoice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WholeCall<'a>>,
    reasoning: Option<&'a str>,
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
                tool_calls: delta.tool_calls.iter().map(From::from).collect(),
                reasoning: delta.reasoning.as_deref(),
            },
            logprobs: choice.logprobs.as_deref().map(ChatLogprobs::new),
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
    metrics: Option<WholeMetrics>,
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
    routed_experts: (),
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_versions: Option<()>,
}

impl<'a> TextChoice<'a> {
    fn new(choice: &'a Choice<'_>, weight_versions: Option<()>) -> Self {
        Self {
            index: choice.index,
            text: choice.delta.content.as_deref().unwrap_or_default(),
            logprobs: choice.logprobs.as_deref().map(TextLogprobs::new),
            finish_reason: finish_word(choice),
            stop_reason: stop_reason(choice),
            token_ids: choice.token_ids.as_deref(),
            prompt_logprobs: choice.prompt_logprobs.as_deref().map(logprobs::prompt),
            prompt_token_ids: choice.prompt_token_ids.as_deref(),
            routed_experts: (),
            weight_versions,
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
    completion_tokens_details: Option<ReasoningTokens>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names on the wire")]
struct WholeCache {
    cached_tokens: u64,
    created_cache_tokens: Option<u64>,
    multimodal_tokens: (),
}

#[derive(Serialize)]
struct WholeMetrics {
    time_to_first_token_ms: f64,
    generation_time_ms: f64,
    queue_time_ms: f64,
    mean_itl_ms: f64,
    tokens_per_second: f64,
    speculative_decoding: (),
}

impl From<Metrics> for WholeMetrics {
    fn from(metrics: Metrics) -> Self {
        Self {
            time_to_first_token_ms: metrics.time_to_first_token_ms,
            generation_time_ms: metrics.generation_time_ms,
            queue_time_ms: 0.0,
            mean_itl_ms: metrics.mean_itl_ms,
            tokens_per_second: metrics.tokens_per_second,
            speculative_decoding: (),
        }
    }
}

impl From<Usage> for WholeUsage {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            total_tokens: usage.total_tokens(),
            completion_tokens: usage.completion_tokens,
            prompt_tokens_details: usage.cache.map(|cache| WholeCache {
                cached_tokens: cache.cached,
                created_cache_tokens: cache.created,
                multimodal_tokens: (),
            }),
            completion_tokens_details: usage
                .reasoning_tokens
                .map(|reasoning_tokens| ReasoningTokens { reasoning_tokens }),
        }
    }
}
