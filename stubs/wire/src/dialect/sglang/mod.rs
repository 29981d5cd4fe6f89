//! SGLang's server: its own `/generate` and its `OpenAI` routes.

pub mod bodies;
pub(super) mod chunk;
mod completion;
pub mod info;
mod logprobs;
pub(super) mod messages_request;
pub(super) mod models;
pub mod moment;
pub(super) mod native;
pub(super) mod refusal;
pub(super) mod request;
pub(super) mod responses;
pub(super) mod responses_request;
pub(super) mod routes;
mod schema;
mod usage;
pub(super) mod whole;

pub use native::{Told, ToldChoice};
pub use usage::FullUsage;

use crate::dialect::manner::{
    Finishes, Holds, Keyed, Manner, Messages, Probabilities, Responses, Roles, Voices,
};
use crate::dialect::uvicorn::Parser;
use crate::dialect::{messages, responses as shared};

/// What differs between versions and front ends.
#[derive(Debug)]
pub struct Profile {
    /// `sglang-0.5.23`
    pub name: &'static str,
    /// The server's own version.
    pub version: &'static str,
    /// Which HTTP parser its uvicorn runs on; none for the front end in Rust.
    pub(super) parser: Parser,
}

/// A profile is known by its name, and by what reads its HTTP.
impl PartialEq for Profile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.name == other.name && self.parser == other.parser)
    }
}

impl Eq for Profile {}

/// All profiles, the newest first.
pub static PROFILES: [Profile; 1] = [V0_5_23];

/// The newest profile behind httptools.
pub(super) static HTTPTOOLS: Profile = Profile {
    parser: Parser::Httptools,
    ..V0_5_23
};

const V0_5_23: Profile = Profile {
    name: "sglang-0.5.23",
    version: "0.5.23",
    parser: Parser::H11,
};

/// How it behaves where plans are made.
pub(super) const MANNER: Manner = Manner {
    allows_credentials: true,
    ends_repeat: true,
    ends_tell_token: true,
    finishes: Finishes::Behind,
    holds: Holds::Steps,
    keeps_names: true,
    keyed: Keyed::AllBut(&["/health", "/ready", "/metrics"]),
    messages: Messages {
        signs_thoughts: false,
        streams_failures: true,
    },
    probabilities: Probabilities::Logits,
    redirects_slashes: false,
    repeats_model: true,
    responses: Responses {
        completes_reasoning: true,
        drops_gaps: true,
        has_failed: true,
        holds_messages: true,
        stays_uncached: true,
        streams_refusals: true,
    },
    roles: Roles::WithText,
    routes: routes::ROUTES,
    tells_choices: true,
    usage_needs_asking: false,
    voices: Voices::Sglang,
    waits_with_head: true,
};

/// How it spells messages.
pub(super) const MESSAGES: messages::Spelling = messages::Spelling {
    errors: messages::Errors::OwnOfGenerating,
    forgives_arguments: true,
    index_first: true,
    knows_stop_strings: false,
    streams_all: false,
    tells_cache: true,
};

/// How it spells responses.
pub(super) const RESPONSES: shared::Spelling = shared::Spelling {
    has_empty_call_keys: false,
    lists_no_parts: true,
    name_inside: true,
    promises_logprobs: false,
    tells_incomplete: true,
    tells_incomplete_items: false,
    tells_phase: true,
    type_first: true,
};

/// 32 hex digits.
pub(super) fn response_id(high: u64, low: u64) -> String {
    format!("{high:016x}{low:016x}")
}
