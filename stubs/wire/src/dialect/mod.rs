//! The imitated servers: how each spells what a chunk says.
//!
//! The set is closed, so a dialect is an enum, and this is the one module that matches on it: what it is
//! like here, what it reads, refuses and writes in its own files.

mod body;
mod encoder;
mod envelope;
mod key;
mod logprobs;
mod manner;
pub mod messages;
mod messages_request;
mod pattern;
pub mod prometheus;
mod reads;
mod refusals;
pub mod responses;
mod responses_request;
pub mod sglang;
pub mod uvicorn;
pub mod vllm;
mod writes;

pub use encoder::{Encoder, Field, Template};
pub use envelope::{Content, Envelope, Head, Headers, Meta, Metrics, Models};
pub use manner::{
    Finishes, Holds, Keyed, Manner, Messages as MessagesManner, Probabilities,
    Responses as ResponsesManner, Roles, Served, Voices,
};
pub use pattern::{Patterns, Shape};
pub use responses_request::{Echoed, ResponsesRequest};

pub use vllm::Render;

use std::sync::Arc;

use crate::request::{Endpoint, Request, UsagePolicy};

/// A server at a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dialect {
    /// SGLang's server.
    Sglang(&'static sglang::Profile),
    /// vLLM's `OpenAI` server.
    Vllm(&'static vllm::Profile),
}

impl Dialect {
    /// The newest profile of vLLM.
    pub const VLLM: Self = Self::Vllm(&vllm::PROFILES[0]);

    /// The newest profile of SGLang.
    pub const SGLANG: Self = Self::Sglang(&sglang::PROFILES[0]);

    /// All profiles, the newest of each dialect first.
    fn all() -> impl Iterator<Item = Self> {
        let sglang = sglang::PROFILES.iter().map(Self::Sglang);
        vllm::PROFILES.iter().map(Self::Vllm).chain(sglang)
    }

    /// The profile of that name, as `vllm-0.33.0`; a dialect's bare name is its newest.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|dialect| dialect.profile() == name || dialect.name() == name)
    }

    /// Names of all profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::all().map(Self::profile)
    }

    /// The profile's name.
    pub fn profile(self) -> &'static str {
        match self {
            Self::Sglang(profile) => profile.name,
            Self::Vllm(profile) => profile.name,
        }
    }

    /// How it behaves where plans are made.
    pub fn manner(self) -> &'static Manner {
        match self {
            Self::Sglang(profile) => profile.front.manner(false),
            Self::Vllm(_) => &vllm::MANNER,
        }
    }

    /// How it behaves where an answer is planned that is typed, or is not.
    pub fn answer_manner(self, is_typed: bool) -> &'static Manner {
        match self {
            Self::Sglang(profile) => profile.front.manner(is_typed),
            Self::Vllm(_) => &vllm::MANNER,
        }
    }

    /// Whether the answer to a request is written by types made for `OpenAI`'s API rather than by the
    /// server's own encoder; `parses_tools` if there is a tool parser.
    pub fn is_typed(self, request: &Request<'_>, parses_tools: bool) -> bool {
        match self {
            Self::Sglang(profile) => profile.front.is_typed(request, parses_tools),
            Self::Vllm(_) => false,
        }
    }

    /// Adds the headers of a stream.
    pub fn dress_stream(self, endpoint: Endpoint, is_typed: bool, headers: &mut Headers) {
        match self {
            Self::Sglang(profile) => profile.front.dress_stream(endpoint, is_typed, headers),
            Self::Vllm(_) => {}
        }
    }

    /// The same behind another HTTP parser, where the server has a choice.
    #[must_use]
    pub fn with_httptools(self) -> Self {
        match self {
            Self::Sglang(profile) if profile.name == sglang::HTTPTOOLS.name => {
                Self::Sglang(&sglang::HTTPTOOLS)
            }
            same => same,
        }
    }

    /// The profile for what vLLM alone serves.
    pub(super) fn vllm(self) -> &'static vllm::Profile {
        match self {
            Self::Sglang(_) => &vllm::PROFILES[0],
            Self::Vllm(profile) => profile,
        }
    }

    /// The dialect's name without version, as the truth file has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sglang(_) => "sglang",
            Self::Vllm(_) => "vllm",
        }
    }

    /// The server's own version.
    pub fn version(self) -> &'static str {
        match self {
            Self::Sglang(profile) => profile.version,
            Self::Vllm(profile) => profile.version,
        }
    }

    /// `system_fingerprint` where nothing configures it.
    pub fn fingerprint(self) -> Option<Arc<str>> {
        match self {
            Self::Sglang(_) => None,
            Self::Vllm(profile) => profile.fingerprint(),
        }
    }

    /// Length of `/openapi.json` in bytes.
    pub fn openapi_bytes(self) -> usize {
        self.vllm().openapi_bytes
    }

    /// Whether its bytes were compared with recordings.
    pub fn is_proven(self) -> bool {
        match self {
            Self::Sglang(_) => true,
            Self::Vllm(profile) => profile.is_proven,
        }
    }

    /// What the key of reasoning is called.
    pub fn reasoning_key(self) -> &'static str {
        self.vllm().reasoning_key
    }

    /// The policy where the server sends usage unasked and the request has asked for `asked`.
    pub fn forced_usage(self, asked: UsagePolicy) -> UsagePolicy {
        match self {
            Self::Sglang(_) if asked.is_running() => UsagePolicy::Continuous,
            Self::Sglang(_) => UsagePolicy::Final,
            Self::Vllm(profile) if profile.forces_final_usage => UsagePolicy::Final,
            Self::Vllm(_) => UsagePolicy::Continuous,
        }
    }

    /// Origins that browsers may ask from unless told otherwise.
    pub fn allowed_origins(self) -> Vec<String> {
        match self {
            Self::Sglang(_) => vec!["*".into()],
            Self::Vllm(profile) if profile.allows_all_origins => vec!["*".into()],
            Self::Vllm(_) => Vec::new(),
        }
    }

    /// Whether an unstreamed answer that lacks a required tool call ends with `stop`.
    pub fn missing_call_stops(self) -> bool {
        self.vllm().missing_call_stops
    }

    /// Whether a request of HTTP/1.1 without a host is refused.
    pub fn needs_host(self) -> bool {
        match self {
            Self::Sglang(profile) => profile.front.needs_host(),
            Self::Vllm(_) => false,
        }
    }
}
