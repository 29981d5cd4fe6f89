//! vLLM's `OpenAI` server: uvicorn heads, pydantic's JSON, vLLM's chunks.

pub(super) mod checks;
pub(super) mod chunk;
mod generate;
mod logprobs;
mod message;
pub(super) mod messages_request;
pub(super) mod metrics;
pub(super) mod models;
pub(super) mod refusal;
pub(super) mod render;
pub(super) mod request;
pub(super) mod responses;
pub(super) mod responses_request;
mod routes;
mod sampling;
mod schema;
mod validators;
pub(super) mod whole;

pub use render::Render;
pub use request::{DetokenizeRequest, TokenizeRequest};

use std::sync::Arc;

use crate::dialect::manner::{
    Finishes, Holds, Keyed, Manner, Messages, Probabilities, Responses, Roles, Voices,
};
use crate::dialect::{messages, responses as shared};
use crate::failure::Failure;
use crate::request::Endpoint;

/// What differs between versions.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a difference each")]
pub struct Profile {
    /// `vllm-0.33.0`
    pub name: &'static str,
    /// As `/version` says it.
    pub version: &'static str,
    /// Its bytes were compared with recordings; otherwise it is made from what is known of it.
    pub is_proven: bool,
    /// Hash of the recorded engine configuration, in `system_fingerprint`, which older versions lack.
    fingerprint_hash: Option<&'static str>,
    /// Keys that newer versions write.
    lacks: &'static [&'static str],
    /// What the key of reasoning is called.
    pub(super) reasoning_key: &'static str,
    /// Ids have 32 digits rather than 16.
    has_long_ids: bool,
    /// Streamed chunks end with `kv_transfer_params`.
    streams_kv_transfer_params: bool,
    /// The refusal of an unknown model lists those that are served.
    lists_models: bool,
    /// Usage that is forced comes at the end alone, not with each chunk.
    pub(super) forces_final_usage: bool,
    /// Browsers may ask from anywhere unless told otherwise.
    pub(super) allows_all_origins: bool,
    /// The refusal of an empty prompt list names the parameter.
    names_prompt_parameter: bool,
    /// An error inside a chat stream is written without spaces.
    compact_chat_errors: bool,
    /// The labels of `vllm:cache_config_info`.
    pub(super) cache_config: &'static str,
    /// Length of `/openapi.json` in bytes, as recorded without flags.
    pub(super) openapi_bytes: usize,
    /// Rendered chats tell what a parser of the answer has to know.
    renders_parse_context: bool,
    /// What is said when the engine has died.
    pub(super) dead_engine: &'static str,
    /// A required tool call that was not made ends an unstreamed answer with `stop`.
    pub(super) missing_call_stops: bool,
    /// Responses have the keys of a prompt cache and a safety identifier.
    has_prompt_cache_keys: bool,
    /// A response that a limit cut says so in its items and its last event.
    tells_incomplete: bool,
    /// Errors of `/v1/messages` have Anthropic's types, and one in a stream ends the block before it.
    names_anthropic_errors: bool,
}

/// A profile is known by its name.
impl PartialEq for Profile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.name == other.name
    }
}

impl Eq for Profile {}

/// All profiles, the newest first.
pub static PROFILES: [Profile; 3] = [V0_33_0, V0_32_0, V0_10];

const V0_33_0: Profile = Profile {
    name: "vllm-0.33.0",
    version: "0.33.0",
    is_proven: true,
    fingerprint_hash: Some("3b405636"),
    lacks: &[],
    reasoning_key: "reasoning",
    has_long_ids: false,
    streams_kv_transfer_params: true,
    lists_models: true,
    forces_final_usage: false,
    allows_all_origins: false,
    names_prompt_parameter: true,
    compact_chat_errors: true,
    cache_config: metrics::CACHE_CONFIG_0_33,
    openapi_bytes: 304_876,
    renders_parse_context: true,
    dead_engine: "The server had an error while processing your request.",
    missing_call_stops: true,
    has_prompt_cache_keys: true,
    tells_incomplete: true,
    names_anthropic_errors: true,
};

const V0_32_0: Profile = Profile {
    name: "vllm-0.32.0",
    version: "0.32.0",
    fingerprint_hash: Some("2bce7987"),
    lacks: &["weight_versions"],
    streams_kv_transfer_params: false,
    names_prompt_parameter: false,
    compact_chat_errors: false,
    cache_config: metrics::CACHE_CONFIG_0_32,
    openapi_bytes: 274_459,
    renders_parse_context: false,
    dead_engine: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    missing_call_stops: false,
    has_prompt_cache_keys: false,
    tells_incomplete: false,
    names_anthropic_errors: false,
    ..V0_33_0
};

const V0_10: Profile = Profile {
    name: "vllm-0.10",
    version: "0.10.2",
    is_proven: false,
    fingerprint_hash: None,
    lacks: &[
        "completion_tokens_details",
        "created_cache_tokens",
        "ec_transfer_params",
        "metrics",
        "multimodal_tokens",
        "prompt_text",
        "routed_experts",
        "weight_versions",
    ],
    reasoning_key: "reasoning_content",
    has_long_ids: true,
    lists_models: false,
    forces_final_usage: true,
    allows_all_origins: true,
    ..V0_32_0
};

/// How it behaves where plans are made.
pub(super) const MANNER: Manner = Manner {
    allows_credentials: false,
    bare_refusals: false,
    bare_roles: false,
    ends_repeat: false,
    ends_tell_token: false,
    fails_given_up: false,
    finishes: Finishes::WithText,
    holds: Holds::Characters,
    keeps_names: false,
    keyed: Keyed::Only(&["/v1", "/v2", "/inference", "/cohere"]),
    knows_origins: true,
    latin_names: false,
    messages: Messages {
        signs_thoughts: true,
        streams_failures: false,
    },
    probabilities: Probabilities::Places,
    redirects_slashes: true,
    repeats_model: false,
    responses: Responses {
        completes_reasoning: false,
        drops_gaps: false,
        has_failed: false,
        holds_messages: false,
        stays_uncached: false,
        streams_refusals: false,
    },
    roles: Roles::First,
    routes: routes::ROUTES,
    separates_prompts: false,
    shares_names: false,
    tells_choices: false,
    tells_in_brief: false,
    usage_needs_asking: true,
    voices: Voices::Vllm,
    waits_with_head: false,
    whole_calls: false,
};

impl Profile {
    pub(super) fn fingerprint(&self) -> Option<Arc<str>> {
        let hash = self.fingerprint_hash?;
        Some(format!("vllm-{}-{hash}", self.version).into())
    }

    /// Whether this version writes a key.
    fn has(&self, key: &str) -> bool {
        !self.lacks.contains(&key)
    }

    /// How it spells messages.
    pub(super) fn messages(&self) -> messages::Spelling {
        messages::Spelling {
            errors: if self.names_anthropic_errors {
                messages::Errors::Anthropic
            } else {
                messages::Errors::Own
            },
            forgives_arguments: false,
            index_first: false,
            knows_stop_strings: true,
            streams_all: true,
            tells_cache: false,
        }
    }

    /// How it spells responses.
    pub(super) fn responses(&self) -> shared::Spelling {
        shared::Spelling {
            has_empty_call_keys: true,
            lists_no_parts: false,
            name_inside: false,
            promises_logprobs: true,
            tells_incomplete: self.tells_incomplete,
            tells_incomplete_items: self.tells_incomplete,
            tells_phase: false,
            type_first: false,
        }
    }

    pub(super) fn no_prompts(&self) -> Failure {
        let message = "You must pass at least one prompt";
        if self.names_prompt_parameter {
            Failure::bad_request(format!("{message} (parameter=prompt)"), Some("prompt"))
        } else {
            Failure::bad_request(message, None)
        }
    }
}

pub(super) fn response_id(
    profile: &Profile,
    endpoint: Endpoint,
    random: u64,
    given: Option<&str>,
) -> String {
    let prefix = match endpoint {
        Endpoint::Chat => "chatcmpl",
        Endpoint::Completions | Endpoint::Generate => "cmpl",
    };
    if profile.has_long_ids && given.is_none() {
        // The second half follows from the first; all that matters is that ids differ.
        let second = random.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15;
        return format!("{prefix}-{random:016x}{second:016x}");
    }
    prefixed(prefix, random, given)
}

pub(super) fn generate_id(random: u64, given: Option<&str>) -> String {
    prefixed("generate-tokens", random, given)
}

fn prefixed(prefix: &str, random: u64, given: Option<&str>) -> String {
    if let Some(given) = given {
        return [prefix, "-", given].concat();
    }
    let mut id = String::with_capacity(prefix.len() + 17);
    id.push_str(prefix);
    id.push('-');
    for byte in random.to_be_bytes() {
        for digit in [byte >> 4, byte & 15] {
            id.extend(char::from_digit(digit.into(), 16));
        }
    }
    id
}
