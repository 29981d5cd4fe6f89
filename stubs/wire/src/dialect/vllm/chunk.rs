//! vLLM's streamed objects. Key order and which keys are null or absent follow the recordings.

use serde::Serialize;

use crate::chunk::{Choice, Chunk};
use crate::dialect::Envelope;
use crate::dialect::key::Key;
use crate::failure::{ErrorObject, Failure};
use crate::finish::{Finish, StopReason};
use crate::request::{Endpoint, UsagePolicy};
use crate::usage::Usage;

use super::Profile;

/// Appends the JSON of one event.
pub(crate) fn encode(profile: &Profile, envelope: &Envelope, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
    if let Some(message) = &chunk.error {
        let error = ErrorObject {
            message: message.to_string(),
            kind: "InternalServerError",
            param: None,
            code: 500,
        };
        return Failure::Error(error).encode(out);
    }
    let choice = chunk.choices.first();
    let is_chat = envelope.endpoint == Endpoint::Chat;
    let is_role = choice.is_some_and(|choice| choice.delta.role.is_some());
    let ends_choice = choice.is_some_and(|choice| choice.finish.is_some());
    let ends_stream = match choice {
        Some(_) => ends_choice && envelope.usage == UsagePolicy::Omit,
        None => true,
    };
    let choices = choice.map(|choice| match envelope.endpoint {
        Endpoint::Chat => FrameChoice::Chat(chat_choice(profile, envelope, choice)),
        Endpoint::Completions => FrameChoice::Text(text_choice(profile, choice)),
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
                .map(|usage| FrameUsage::new(usage, is_chat && choice.is_some())),
        ),
        system_fingerprint: Key::with(envelope.fingerprint.as_deref().filter(|_| ends_stream)),
        prompt_token_ids: Key::when(is_role, envelope.prompt_token_ids.as_deref()),
        prompt_text: Key::when(is_role, envelope.prompt_text.as_deref()),
        kv_transfer_params: Key::when(
            profile.streams_kv_transfer_params && choice.is_some() && !is_role,
            None,
        ),
    };
    serde_json::to_writer(out, &frame).expect("strings and numbers encode");
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
    kv_transfer_params: Key<()>,
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
    logprobs: (),
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
    reasoning: Key<&'a str>,
}

#[derive(Serialize)]
struct TextChoice<'a> {
    index: u32,
    text: &'a str,
    logprobs: (),
    finish_reason: Option<&'static str>,
    stop_reason: Option<&'a StopReason<'a>>,
    prompt_token_ids: (),
    token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    weight_versions: Key<()>,
}

fn chat_choice<'a>(
    profile: &Profile,
    envelope: &Envelope,
    choice: &'a Choice<'_>,
) -> ChatChoice<'a> {
    let delta = &choice.delta;
    let is_role = delta.role.is_some();
    let finish = choice.finish.as_ref();
    let hidden = envelope.reasoning_hidden && !is_role && delta.content.is_some();
    let reasoning = delta.reasoning.as_deref();
    ChatChoice {
        index: choice.index,
        delta: ChatDelta {
            role: Key::with(delta.role.as_deref()),
            content: Key::with(delta.content.as_deref()),
            reasoning: Key::when(hidden || reasoning.is_some(), reasoning),
        },
        logprobs: (),
        finish_reason: finish_word(choice),
        stop_reason: Key::when(
            finish.is_some(),
            finish.and_then(|finish| finish.stop_reason.as_ref()),
        ),
        token_ids: Key::when(!is_role, choice.token_ids.as_deref()),
        weight_versions: Key::when(profile.has_weight_versions && finish.is_some(), None),
    }
}

fn text_choice<'a>(profile: &Profile, choice: &'a Choice<'_>) -> TextChoice<'a> {
    let finish = choice.finish.as_ref();
    TextChoice {
        index: choice.index,
        text: choice.delta.content.as_deref().unwrap_or_default(),
        logprobs: (),
        finish_reason: finish_word(choice),
        stop_reason: finish.and_then(|finish| finish.stop_reason.as_ref()),
        prompt_token_ids: (),
        token_ids: choice.token_ids.as_deref(),
        weight_versions: Key::when(profile.has_weight_versions, None),
    }
}

pub(super) fn finish_word(choice: &Choice<'_>) -> Option<&'static str> {
    let word = |finish: &Finish<'_>| finish.reason.as_str();
    choice.finish.as_ref().map(word)
}

#[derive(Serialize)]
struct FrameUsage {
    prompt_tokens: Option<u64>,
    total_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    completion_tokens_details: Key<ReasoningTokens>,
}

/// `completion_tokens_details`
#[derive(Serialize)]
pub(super) struct ReasoningTokens {
    pub(super) reasoning_tokens: u64,
}

impl FrameUsage {
    /// `with_null`: the details are written though there are none.
    fn new(usage: Usage, with_null: bool) -> Self {
        let details = usage
            .reasoning_tokens
            .map(|reasoning_tokens| ReasoningTokens { reasoning_tokens });
        Self {
            prompt_tokens: usage.prompt_tokens,
            total_tokens: usage.total_tokens(),
            completion_tokens: usage.completion_tokens,
            completion_tokens_details: Key::when(with_null || details.is_some(), details),
        }
    }
}
