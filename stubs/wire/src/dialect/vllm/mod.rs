//! vLLM's `OpenAI` server: uvicorn heads, pydantic's JSON, vLLM's chunks.

pub(super) mod chunk;
mod generate;
mod logprobs;
mod message;
pub(super) mod metrics;
pub(super) mod models;
pub(super) mod refusal;
pub(super) mod render;
pub(super) mod request;
pub(super) mod sampling;
mod schema;
mod validators;
pub(super) mod whole;

pub use render::Render;
pub use request::{DetokenizeRequest, TokenizeRequest};

use crate::dialect::{Content, Head};
use crate::failure::Failure;
use crate::http1;
use crate::request::Endpoint;

/// What differs between versions.
#[derive(Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "a difference each")]
pub struct Profile {
    /// `vllm-0.33.0`
    pub name: &'static str,
    /// As `/version` says it.
    pub version: &'static str,
    /// Hash of the recorded engine configuration, in `system_fingerprint`.
    fingerprint_hash: &'static str,
    /// Streamed chunks end with `kv_transfer_params`.
    streams_kv_transfer_params: bool,
    /// Choices have `weight_versions`.
    has_weight_versions: bool,
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
}

/// All profiles, the newest first.
pub static PROFILES: [Profile; 2] = [
    Profile {
        name: "vllm-0.33.0",
        version: "0.33.0",
        fingerprint_hash: "3b405636",
        streams_kv_transfer_params: true,
        has_weight_versions: true,
        names_prompt_parameter: true,
        compact_chat_errors: true,
        cache_config: metrics::CACHE_CONFIG_0_33,
        openapi_bytes: 304_876,
        renders_parse_context: true,
        dead_engine: "The server had an error while processing your request.",
        missing_call_stops: true,
    },
    Profile {
        name: "vllm-0.32.0",
        version: "0.32.0",
        fingerprint_hash: "2bce7987",
        streams_kv_transfer_params: false,
        has_weight_versions: false,
        names_prompt_parameter: false,
        compact_chat_errors: false,
        cache_config: metrics::CACHE_CONFIG_0_32,
        openapi_bytes: 274_459,
        renders_parse_context: false,
        dead_engine: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        missing_call_stops: false,
    },
];

impl Profile {
    pub(super) fn fingerprint(&self) -> String {
        format!("vllm-{}-{}", self.version, self.fingerprint_hash)
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

pub(super) fn response_id(endpoint: Endpoint, random: u64, given: Option<&str>) -> String {
    let prefix = match endpoint {
        Endpoint::Chat => "chatcmpl",
        Endpoint::Completions => "cmpl",
    };
    prefixed(prefix, random, given)
}

pub(super) fn generate_id(random: u64, given: Option<&str>) -> String {
    prefixed("generate-tokens", random, given)
}

fn prefixed(prefix: &str, random: u64, given: Option<&str>) -> String {
    match given {
        Some(given) => format!("{prefix}-{given}"),
        None => format!("{prefix}-{random:016x}"),
    }
}

pub(super) fn write_head(head: &Head<'_>, out: &mut Vec<u8>) {
    let (bytes, kind) = match head.content {
        Content::Empty => (Some(0), None),
        Content::Json(bytes) => (Some(bytes), Some("application/json")),
        Content::Stream => (None, Some("text/event-stream; charset=utf-8")),
        Content::Untold => (None, None),
        Content::Text(bytes) => (Some(bytes), Some("text/plain; charset=utf-8")),
    };
    let length = bytes.map(|bytes| bytes.to_string());
    let mut headers = Vec::with_capacity(10);
    headers.extend([("date", head.date), ("server", "uvicorn")]);
    headers.extend(pairs(&head.headers.first));
    headers.extend(length.as_deref().map(|length| ("content-length", length)));
    let kind = head.headers.content_type.or(kind);
    headers.extend(kind.map(|kind| ("content-type", kind)));
    headers.extend(pairs(&head.headers.middle));
    if !head.headers.without_vary {
        headers.push(("vary", "Origin"));
    }
    headers.extend(pairs(&head.headers.last));
    if head.close {
        headers.push(("connection", "close"));
    }
    if head.content == Content::Stream {
        headers.push(("transfer-encoding", "chunked"));
    }
    http1::write_head(head.status, headers, out);
}

fn pairs<'h>(
    headers: &'h [(&'static str, String)],
) -> impl Iterator<Item = (&'static str, &'h str)> {
    headers.iter().map(|(name, value)| (*name, &**value))
}

pub(super) fn write_invalid(date: &str, out: &mut Vec<u8>) {
    let headers = [
        ("date", date),
        ("server", "uvicorn"),
        ("content-type", "text/plain; charset=utf-8"),
        ("content-length", "30"),
        ("connection", "close"),
    ];
    http1::write_head(400, headers, out);
    out.extend_from_slice(b"Invalid HTTP request received.");
}
