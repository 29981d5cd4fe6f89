//! SGLang's server: its own `/generate` and its `OpenAI` routes.

pub mod bodies;
pub(super) mod chunk;
mod completion;
mod front;
pub mod info;
mod lists;
mod logprobs;
pub(super) mod messages_request;
pub(super) mod metrics;
pub(super) mod models;
pub mod moment;
pub(super) mod native;
pub(super) mod refusal;
pub(super) mod request;
pub(super) mod responses;
pub(super) mod responses_request;
pub(super) mod routes;
pub(super) mod rust;
mod schema;
mod usage;
pub(super) mod whole;

pub use native::{Told, ToldChoice};
pub use usage::FullUsage;

pub(super) use front::Front;

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
    /// What reads and writes its HTTP.
    pub(super) front: Front,
}

/// A profile is known by its name, and by what reads its HTTP.
impl PartialEq for Profile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.name == other.name && self.front == other.front)
    }
}

impl Eq for Profile {}

/// All profiles, the newest first.
pub static PROFILES: [Profile; 2] = [
    V0_5_23,
    Profile {
        name: "sglang-0.5.23-rust",
        front: Front::Rust,
        ..V0_5_23
    },
];

/// The newest profile behind httptools.
pub(super) static HTTPTOOLS: Profile = Profile {
    front: Front::Python(Parser::Httptools),
    ..V0_5_23
};

const V0_5_23: Profile = Profile {
    name: "sglang-0.5.23",
    version: "0.5.23",
    front: Front::Python(Parser::H11),
};

/// How it behaves where plans are made.
pub(super) const MANNER: Manner = Manner {
    allows_credentials: true,
    bare_refusals: false,
    bare_roles: false,
    ends_repeat: true,
    ends_tell_token: true,
    fails_given_up: false,
    finishes: Finishes::Behind,
    holds: Holds::Steps,
    keeps_names: true,
    keyed: Keyed::AllBut(&["/health", "/ready", "/metrics"]),
    knows_origins: true,
    latin_names: true,
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
    separates_prompts: false,
    shares_names: false,
    tells_choices: true,
    tells_in_brief: false,
    usage_needs_asking: false,
    voices: Voices::Sglang,
    waits_with_head: true,
    whole_calls: false,
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
