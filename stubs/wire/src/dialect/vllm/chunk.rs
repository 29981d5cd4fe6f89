//! vLLM's streamed objects. Key order and which keys are null or absent follow the recordings.

use serde::Serialize;

use crate::chunk::{Choice, Chunk, ToolCall};
use crate::dialect::key::Key;
use crate::dialect::{Envelope, Metrics};
use crate::failure::Failure;
use crate::finish::{Finish, StopReason};
use crate::json::Json;
use crate::python;
use crate::request::{Endpoint, UsagePolicy};
use crate::usage::Usage;

use super::logprobs::{self, ChatLogprobs};
use super::{Profile, generate};
use crate::dialect::logprobs::TextLogprobs;

/// Appends the JSON of one event.
pub(crate) fn encode(profile: &Profile, envelope: &Envelope, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
    if let Some(message) = &chunk.error {
        return error_event(profile, envelope.endpoint, message, out);
    }
    if let Some(mode) = envelope.output_mode {
        return generate::encode(profile, mode, envelope, chunk, out);
    }
    let choice = chunk.choices.first();
    let is_chat = envelope.endpoint == Endpoint::Chat;
    let is_role = choice.is_some_and(|choice| choice.delta.role.is_some());
    let is_model_output = choice.is_some_and(|choice| !is_role && !choice.is_echo);
    let ends_choice = choice.is_some_and(|choice| choice.finish.is_some());
    let ends_stream = match choice {
        Some(_) => ends_choice && envelope.usage == UsagePolicy::Omit,
        None => true,
    };
    let choices = choice.map(|choice| match envelope.endpoint {
        Endpoint::Chat => FrameChoice::Chat(chat_choice(profile, choice)),
        Endpoint::Completions | Endpoint::Generate => {
            FrameChoice::Text(text_choice(profile, choice))
        }
    });
    let frame = Frame {
        id: &envelope.id,
        object: if is_chat {
            "chat.completion.chunk"
        } else {
            "text_completion"
        },
        created: envelope.created,
        model: &envelope.model,
        choices: choices.as_slice(),
        usage: Key::with(
            chunk
                .usage
                .map(|usage| FrameUsage::new(profile, usage, is_chat && choice.is_some())),
        ),
        system_fingerprint: Key::with(envelope.fingerprint.as_deref().filter(|_| ends_stream)),
        prompt_token_ids: Key::when(is_role, envelope.prompt_token_ids.as_deref()),
        prompt_text: Key::when(
            is_role && profile.has("prompt_text"),
            envelope.prompt_text.as_deref(),
        ),
        metrics: Key::with(
            envelope
                .metrics
                .filter(|_| choice.is_none())
                .map(From::from),
        ),
        kv_transfer_params: Key::when(profile.streams_kv_transfer_params && is_model_output, None),
    };
    serde_json::to_writer(out, &frame).expect("strings and numbers encode");
}

/// An error in place of the rest of a stream; some are written with Python's default spacing.
fn error_event(profile: &Profile, endpoint: Endpoint, message: &str, out: &mut Vec<u8>) {
    let failure = Failure::internal(message);
    let mut json = Vec::new();
    failure.encode(&mut json);
    if profile.compact_chat_errors && endpoint == Endpoint::Chat {
        out.extend_from_slice(&json);
    } else {
        let read = Json::parse(&json).expect("what was just written is JSON");
        out.extend_from_slice(python::dumps(&read).as_bytes());
    }
}

#[derive(Serialize)]
struct Frame<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [FrameChoice<'a>],
    #[serde(skip_serializing_if = "Key::is_absent")]
    usage: Key<FrameUsage>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    system_fingerprint: Key<&'a str>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    prompt_token_ids: Key<&'a [u32]>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    prompt_text: Key<&'a str>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    metrics: Key<FrameMetrics>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    kv_transfer_params: Key<()>,
}

/// `metrics`, without what is null.
#[derive(Serialize)]
pub(super) struct FrameMetrics {
    time_to_first_token_ms: f64,
    generation_time_ms: f64,
    queue_time_ms: f64,
    mean_itl_ms: f64,
    tokens_per_second: f64,
}

impl From<Metrics> for FrameMetrics {
    fn from(metrics: Metrics) -> Self {
        Self {
            time_to_first_token_ms: metrics.time_to_first_token_ms,
            generation_time_ms: metrics.generation_time_ms,
            queue_time_ms: 0.0,
            mean_itl_ms: metrics.mean_itl_ms,
            tokens_per_second: metrics.tokens_per_second,
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum FrameChoice<'a> {
    Chat(ChatChoice<'a>),
    Text(TextChoice<'a>),
}

#[derive(Serialize)]
struct ChatChoice<'a> {
    index: u32,
    delta: ChatDelta<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    stop_reason: Key<&'a StopReason<'a>>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    token_ids: Key<&'a [u32]>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    weight_versions: Key<()>,
}

#[derive(Serialize)]
struct ChatDelta<'a> {
    #[serde(skip_serializing_if = "Key::is_absent")]
    role: Key<&'a str>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    content: Key<&'a str>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    reasoning_content: Key<&'a str>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    reasoning: Key<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<FrameCall<'a>>,
}

#[derive(Serialize)]
struct FrameCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    index: u32,
    function: FrameFunction<'a>,
}

#[derive(Serialize)]
struct FrameFunction<'a> {
    #[serde(skip_serializing_if = "Key::is_absent")]
    name: Key<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
}

impl<'a> FrameCall<'a> {
    fn new(call: &'a ToolCall<'_>, with_null_name: bool) -> Self {
        let name = call.name.as_deref();
        Self {
            id: call.id.as_deref(),
            kind: call.id.is_some().then_some("function"),
            index: call.index,
            function: FrameFunction {
                name: Key::when(with_null_name || name.is_some(), name),
                arguments: call.arguments.as_deref(),
            },
        }
    }
}

#[derive(Serialize)]
struct TextChoice<'a> {
    index: u32,
    text: &'a str,
    logprobs: Option<TextLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    stop_reason: Option<&'a StopReason<'a>>,
    prompt_token_ids: Option<&'a [u32]>,
    token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    weight_versions: Key<()>,
}

fn chat_choice<'a>(profile: &Profile, choice: &'a Choice<'_>) -> ChatChoice<'a> {
    let delta = &choice.delta;
    let is_model_output = delta.role.is_none() && !choice.is_echo;
    let finish = choice.finish.as_ref();
    let (content, reasoning) = (delta.content.as_deref(), delta.reasoning.as_deref());
    let says_reasoning = delta.nulls.reasoning || reasoning.is_some();
    let is_old = profile.reasoning_key == "reasoning_content";
    let call = |call| FrameCall::new(call, delta.nulls.call_name);
    ChatChoice {
        index: choice.index,
        delta: ChatDelta {
            role: Key::with(delta.role.as_deref()),
            content: Key::when(delta.nulls.content || content.is_some(), content),
            reasoning_content: Key::when(says_reasoning && is_old, reasoning),
            reasoning: Key::when(says_reasoning && !is_old, reasoning),
            tool_calls: delta.tool_calls.iter().map(call).collect(),
        },
        logprobs: choice.logprobs.as_deref().map(ChatLogprobs::new),
        finish_reason: finish_word(choice),
        stop_reason: Key::when(
            finish.is_some(),
            finish.and_then(|finish| finish.stop_reason.as_ref()),
        ),
        token_ids: Key::when(is_model_output, choice.token_ids.as_deref()),
        weight_versions: Key::when(profile.has("weight_versions") && finish.is_some(), None),
    }
}

fn text_choice<'a>(profile: &Profile, choice: &'a Choice<'_>) -> TextChoice<'a> {
    let finish = choice.finish.as_ref();
    TextChoice {
        index: choice.index,
        text: choice.delta.content.as_deref().unwrap_or_default(),
        logprobs: choice.logprobs.as_deref().map(logprobs::of_text),
        finish_reason: finish_word(choice),
        stop_reason: finish.and_then(|finish| finish.stop_reason.as_ref()),
        prompt_token_ids: choice.prompt_token_ids.as_deref(),
        token_ids: choice.token_ids.as_deref(),
        weight_versions: Key::when(profile.has("weight_versions"), None),
    }
}

pub(super) fn finish_word(choice: &Choice<'_>) -> Option<&'static str> {
    let word = |finish: &Finish<'_>| finish.reason.as_str();
    choice.finish.as_ref().map(word)
}

#[derive(Serialize)]
pub(super) struct FrameUsage {
    prompt_tokens: Option<u64>,
    total_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<FrameCache>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    completion_tokens_details: Key<ReasoningTokens>,
}

/// `prompt_tokens_details`, without what is null.
#[derive(Serialize)]
struct FrameCache {
    cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_cache_tokens: Option<u64>,
}

/// `completion_tokens_details`
#[derive(Serialize)]
pub(super) struct ReasoningTokens {
    pub(super) reasoning_tokens: u64,
}

impl FrameUsage {
    /// `with_null`: the details are written though there are none.
    pub(super) fn new(profile: &Profile, usage: Usage, with_null: bool) -> Self {
        let has_details = profile.has("completion_tokens_details");
        let details = usage
            .reasoning_tokens
            .filter(|_| has_details)
            .map(|reasoning_tokens| ReasoningTokens { reasoning_tokens });
        Self {
            prompt_tokens: usage.prompt_tokens,
            total_tokens: usage.total_tokens(),
            completion_tokens: usage.completion_tokens,
            prompt_tokens_details: usage.cache.map(|cache| FrameCache {
                cached_tokens: cache.cached,
                created_cache_tokens: cache
                    .created
                    .filter(|_| profile.has("created_cache_tokens")),
            }),
            completion_tokens_details: Key::when(
                (with_null && has_details) || details.is_some(),
                details,
            ),
        }
    }
}
