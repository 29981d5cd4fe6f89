//! The imitated servers: how each spells what a chunk says.
//!
//! The set is closed, so a dialect is an enum and this is the one place that matches on it.

mod encoder;
mod envelope;
mod key;
mod pattern;
pub mod vllm;

pub use encoder::{Encoder, Field, Template};
pub use envelope::{Content, Envelope, Head, Headers, Metrics, Models};
pub use pattern::{Patterns, Shape};

pub use vllm::Render;

use std::sync::Arc;

use crate::chunk::Chunk;
use crate::failure::{ErrorObject, Failure};
use crate::metrics::Snapshot;
use crate::request::{Endpoint, Known, Request, Sampling, UsagePolicy};

/// A server at a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dialect {
    /// vLLM's `OpenAI` server.
    Vllm(&'static vllm::Profile),
}

impl Dialect {
    /// The newest profile of vLLM.
    pub const VLLM: Self = Self::Vllm(&vllm::PROFILES[0]);

    /// The profile of that name, as `vllm-0.33.0`; a dialect's bare name is its newest.
    pub fn named(name: &str) -> Option<Self> {
        if name == "vllm" {
            return Some(Self::VLLM);
        }
        let mut profiles = vllm::PROFILES.iter();
        profiles
            .find(|profile| profile.name == name)
            .map(Self::Vllm)
    }

    /// Names of all profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        vllm::PROFILES.iter().map(|profile| profile.name)
    }

    /// The dialect's name without version, as the truth file has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm(_) => "vllm",
        }
    }

    /// The server's own version.
    pub fn version(self) -> &'static str {
        match self {
            Self::Vllm(profile) => profile.version,
        }
    }

    /// `system_fingerprint` where nothing configures it.
    pub fn fingerprint(self) -> Option<Arc<str>> {
        match self {
            Self::Vllm(profile) => profile.fingerprint(),
        }
    }

    /// Checks that a body is said to be JSON.
    pub fn check_content_type(self, content_type: Option<&str>) -> Result<(), Failure> {
        match self {
            Self::Vllm(_) => vllm::request::check_content_type(content_type),
        }
    }

    /// Length of `/openapi.json` in bytes.
    pub fn openapi_bytes(self) -> usize {
        match self {
            Self::Vllm(profile) => profile.openapi_bytes,
        }
    }

    /// Reads a request body.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse<'a>(
        self,
        endpoint: Endpoint,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<Box<Request<'a>>, Failure> {
        self.parse_known(endpoint, content_type, body, &mut Known::default())
    }

    /// The same, quicker where the body is like the last one.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse_known<'a>(
        self,
        endpoint: Endpoint,
        content_type: Option<&str>,
        body: &'a [u8],
        known: &mut Known,
    ) -> Result<Box<Request<'a>>, Failure> {
        match self {
            Self::Vllm(_) => vllm::request::parse(endpoint, content_type, body, known),
        }
    }

    /// Reads the body of `/inference/v1/generate`: a completion with an output mode.
    pub fn parse_generate<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<Request<'a>, Failure> {
        match self {
            Self::Vllm(_) => vllm::request::parse_generate(content_type, body),
        }
    }

    /// Reads the body of `/v1/responses`.
    pub fn parse_responses<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<vllm::ResponsesRequest<'a>, Failure> {
        match self {
            Self::Vllm(_) => vllm::responses_request::parse(content_type, body),
        }
    }

    /// Reads the body of `/v1/messages`.
    pub fn parse_messages<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<Request<'a>, Failure> {
        match self {
            Self::Vllm(_) => vllm::messages_request::parse(content_type, body),
        }
    }

    /// Reads the body of `/v1/messages/count_tokens`.
    pub fn parse_count_tokens<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<Request<'a>, Failure> {
        match self {
            Self::Vllm(_) => vllm::messages_request::parse_count(content_type, body),
        }
    }

    /// Reads the body of `/tokenize`.
    pub fn parse_tokenize<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<vllm::TokenizeRequest<'a>, Failure> {
        match self {
            Self::Vllm(_) => vllm::request::parse_tokenize(content_type, body),
        }
    }

    /// Reads the body of `/detokenize`.
    pub fn parse_detokenize<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<vllm::DetokenizeRequest<'a>, Failure> {
        match self {
            Self::Vllm(_) => vllm::request::parse_detokenize(content_type, body),
        }
    }

    /// Checks sampling parameters; `max_tokens` is what the context leaves.
    pub fn check_sampling(self, sampling: &Sampling<'_>, max_tokens: i128) -> Result<(), Failure> {
        match self {
            Self::Vllm(_) => vllm::sampling::check(sampling, max_tokens),
        }
    }

    /// The answer to a model name that is not served.
    pub fn unknown_model(self, model: &str, served: &[Arc<str>]) -> Failure {
        match self {
            Self::Vllm(profile) => vllm::refusal::unknown_model(profile, model, served),
        }
    }

    /// The answer to `asked` tokens of answer, named `name`, beyond a context of `context` tokens.
    pub fn length_too_large(self, name: &str, asked: i128, context: u64) -> Failure {
        match self {
            Self::Vllm(_) => vllm::refusal::length_too_large(name, asked, context),
        }
    }

    /// The answer to a prompt of `tokens` tokens beyond a context of `context`.
    pub fn prompt_too_long(self, tokens: u64, context: u64) -> Failure {
        match self {
            Self::Vllm(_) => vllm::refusal::prompt_too_long(tokens, context),
        }
    }

    /// The answer to an empty list of prompts.
    pub fn no_prompts(self) -> Failure {
        match self {
            Self::Vllm(profile) => profile.no_prompts(),
        }
    }

    /// Whether its bytes were compared with recordings.
    pub fn is_proven(self) -> bool {
        match self {
            Self::Vllm(profile) => profile.is_proven,
        }
    }

    /// What the key of reasoning is called.
    pub fn reasoning_key(self) -> &'static str {
        match self {
            Self::Vllm(profile) => profile.reasoning_key,
        }
    }

    /// The policy where the server sends usage unasked.
    pub fn forced_usage(self) -> UsagePolicy {
        match self {
            Self::Vllm(profile) if profile.forces_final_usage => UsagePolicy::Final,
            Self::Vllm(_) => UsagePolicy::Continuous,
        }
    }

    /// Origins that browsers may ask from unless told otherwise.
    pub fn allowed_origins(self) -> Vec<String> {
        match self {
            Self::Vllm(profile) if profile.allows_all_origins => vec!["*".into()],
            Self::Vllm(_) => Vec::new(),
        }
    }

    /// What is said when the engine has died.
    pub fn dead_engine(self) -> &'static str {
        match self {
            Self::Vllm(profile) => profile.dead_engine,
        }
    }

    /// Whether an unstreamed answer that lacks a required tool call ends with `stop`.
    pub fn missing_call_stops(self) -> bool {
        match self {
            Self::Vllm(profile) => profile.missing_call_stops,
        }
    }

    /// Appends the JSON of one event.
    pub fn encode(self, envelope: &Envelope, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Vllm(profile) => vllm::chunk::encode(profile, envelope, chunk, out),
        }
    }

    /// Appends the JSON of an answer that is not streamed.
    pub fn encode_whole(self, envelope: &Envelope, answer: &Chunk<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Vllm(profile) => vllm::whole::encode(profile, envelope, answer, out),
        }
    }

    /// Appends the JSON of rendered prompts: of a chat the one, of a completion a list.
    pub fn encode_render(self, renders: &[Render<'_>], out: &mut Vec<u8>) {
        match self {
            Self::Vllm(profile) => vllm::render::encode(profile, renders, out),
        }
    }

    /// Appends the JSON of a whole response.
    pub fn encode_response(
        self,
        outline: &vllm::responses::Outline<'_>,
        snapshot: &vllm::responses::Snapshot<'_>,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Vllm(profile) => vllm::responses::encode(profile, outline, snapshot, out),
        }
    }

    /// Appends an event of a streamed response as a whole.
    pub fn encode_response_progress(
        self,
        outline: &vllm::responses::Outline<'_>,
        progress: vllm::responses::Progress,
        snapshot: &vllm::responses::Snapshot<'_>,
        number: u64,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Vllm(profile) => {
                vllm::responses::encode_progress(profile, outline, progress, snapshot, number, out);
            }
        }
    }

    /// Appends an event of an item of a streamed response.
    pub fn encode_response_event(
        self,
        item: &vllm::responses::Item,
        event: vllm::responses::Event<'_>,
        place: vllm::responses::Place,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Vllm(profile) => {
                vllm::responses::encode_event(profile, item, event, place, out);
            }
        }
    }

    /// Appends the JSON of a whole message.
    pub fn encode_message(
        self,
        message: &vllm::messages::Message<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), vllm::messages::BadArguments> {
        match self {
            Self::Vllm(_) => vllm::messages::encode(message, out),
        }
    }

    /// Appends one event of a streamed message.
    pub fn encode_message_event(self, event: vllm::messages::Event<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Vllm(profile) => vllm::messages::encode_event(profile, event, out),
        }
    }

    /// Whether a streamed message that fails ends the block that is open.
    pub fn ends_failed_blocks(self) -> bool {
        match self {
            Self::Vllm(profile) => profile.names_anthropic_errors,
        }
    }

    /// Appends the JSON of an error of `/v1/messages`.
    pub fn encode_message_error(self, error: &ErrorObject, out: &mut Vec<u8>) {
        match self {
            Self::Vllm(profile) => vllm::messages::encode_error(profile, error, out),
        }
    }

    /// Appends the answer of `/v1/messages/count_tokens`.
    pub fn encode_token_count(self, input_tokens: u64, out: &mut Vec<u8>) {
        match self {
            Self::Vllm(_) => vllm::messages::encode_count(input_tokens, out),
        }
    }

    /// Appends the JSON of `/v1/models`; `random_id` gives 64 random bits for each entry.
    pub fn encode_models(
        self,
        models: &Models<'_>,
        random_id: impl FnMut() -> u64,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Vllm(_) => vllm::models::encode(models, random_id, out),
        }
    }

    /// Appends the metrics page.
    pub fn encode_metrics(self, snapshot: &Snapshot<'_>, out: &mut String) {
        match self {
            Self::Vllm(profile) => vllm::metrics::encode(profile.cache_config, snapshot, out),
        }
    }

    /// The response id for 64 random bits, or for the name that the client gave the request.
    pub fn response_id(self, endpoint: Endpoint, random: u64, given: Option<&str>) -> String {
        match self {
            Self::Vllm(profile) => vllm::response_id(profile, endpoint, random, given),
        }
    }

    /// The same for an answer of `/inference/v1/generate`.
    pub fn generate_id(self, random: u64, given: Option<&str>) -> String {
        match self {
            Self::Vllm(_) => vllm::generate_id(random, given),
        }
    }

    /// The id of an answer of `/v1/responses` for 64 random bits.
    pub fn responses_id(self, random: u64) -> String {
        match self {
            Self::Vllm(_) => vllm::responses::id(random),
        }
    }

    /// Appends a response head.
    pub fn write_head(self, head: &Head<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Vllm(_) => vllm::write_head(head, out),
        }
    }

    /// Appends the whole response to bytes that are no HTTP.
    pub fn write_invalid(self, date: &str, out: &mut Vec<u8>) {
        match self {
            Self::Vllm(_) => vllm::write_invalid(date, out),
        }
    }
}
