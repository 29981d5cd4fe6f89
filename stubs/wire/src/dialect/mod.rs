//! The imitated servers: how each spells what a chunk says.
//!
//! The set is closed, so a dialect is an enum and this is the one place that matches on it.

mod body;
mod encoder;
mod envelope;
mod key;
mod logprobs;
mod manner;
pub mod messages;
mod messages_request;
mod pattern;
mod prometheus;
pub mod responses;
mod responses_request;
pub mod sglang;
mod uvicorn;
pub mod vllm;

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

use crate::chunk::Chunk;
use crate::failure::{ErrorObject, Failure};
use crate::finish::Finish;
use crate::http1::Chunking;
use crate::metrics::{Series, Snapshot};
use crate::request::{Endpoint, Known, Message, Request, UsagePolicy};

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
    fn vllm(self) -> &'static vllm::Profile {
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

    /// Checks that a body is said to be JSON.
    pub fn check_content_type(self, content_type: Option<&str>) -> Result<(), Failure> {
        body::check_content_type(content_type)
    }

    /// Length of `/openapi.json` in bytes.
    pub fn openapi_bytes(self) -> usize {
        self.vllm().openapi_bytes
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
            Self::Sglang(profile) => profile.front.parse(endpoint, content_type, body, known),
            Self::Vllm(_) => vllm::request::parse(endpoint, content_type, body, known),
        }
    }

    /// Reads the body of `/inference/v1/generate`: a completion with an output mode.
    pub fn parse_generate<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<Request<'a>, Failure> {
        vllm::request::parse_generate(content_type, body)
    }

    /// Reads the body of `/v1/responses`.
    pub fn parse_responses<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<ResponsesRequest<'a>, Failure> {
        match self {
            Self::Sglang(_) => sglang::responses_request::parse(content_type, body),
            Self::Vllm(_) => vllm::responses_request::parse(content_type, body),
        }
    }

    /// Reads the body of `/v1/messages`, or of its `count_tokens`; `reasons` says that there is a
    /// reasoning parser.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse_messages<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
        counts: bool,
        reasons: bool,
    ) -> Result<Request<'a>, Failure> {
        match self {
            Self::Sglang(_) => sglang::messages_request::parse(content_type, body, counts, reasons),
            Self::Vllm(_) if counts => vllm::messages_request::parse_count(content_type, body),
            Self::Vllm(_) => vllm::messages_request::parse(content_type, body),
        }
    }

    /// Reads the body of `/tokenize`.
    pub fn parse_tokenize<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<vllm::TokenizeRequest<'a>, Failure> {
        vllm::request::parse_tokenize(content_type, body)
    }

    /// Reads the body of `/detokenize`.
    pub fn parse_detokenize<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<vllm::DetokenizeRequest<'a>, Failure> {
        vllm::request::parse_detokenize(content_type, body)
    }

    /// Checks what needs no prompt.
    ///
    /// # Errors
    /// The server's answer to a request that it refuses.
    pub fn check_parts(self, request: &Request<'_>, served: Served) -> Result<(), Failure> {
        match self {
            Self::Sglang(profile) => profile.front.check_parts(request, served),
            Self::Vllm(_) => vllm::checks::before_prompt(request, served),
        }
    }

    /// Checks the length asked for, and sampling parameters, behind a prompt of so many tokens.
    ///
    /// # Errors
    /// The server's answer to a request that it refuses.
    pub fn check_sampling(
        self,
        request: &Request<'_>,
        prompt: u64,
        context: Option<u64>,
    ) -> Result<(), Failure> {
        match self {
            Self::Sglang(profile) => {
                sglang::refusal::check_sampling(profile.front, request, prompt, context)
            }
            Self::Vllm(_) => vllm::checks::behind_prompt(request, prompt, context),
        }
    }

    /// The answer to a model name that is not served, if the server minds.
    pub fn unknown_model(self, model: &str, served: &[Arc<str>]) -> Option<Failure> {
        match self {
            Self::Sglang(_) => None,
            Self::Vllm(profile) => Some(vllm::refusal::unknown_model(profile, model, served)),
        }
    }

    /// The answer to a request for a model that is not served, where one can be asked for.
    pub fn missing_model(self, name: &str) -> Failure {
        match self {
            Self::Sglang(profile) => profile.front.missing_model(name),
            Self::Vllm(profile) => vllm::refusal::unknown_model(profile, name, &[]),
        }
    }

    /// The answer to a prompt of `tokens` tokens beyond a context of `context`.
    pub fn prompt_too_long(self, tokens: u64, is_text: bool, context: u64) -> Failure {
        match self {
            Self::Sglang(profile) => {
                sglang::refusal::prompt_too_long(profile.front, tokens, context)
            }
            // The tokenizer stops one token behind the limit; lists of ids are counted whole.
            Self::Vllm(_) if is_text => vllm::refusal::prompt_too_long(context + 1, context),
            Self::Vllm(_) => vllm::refusal::prompt_too_long(tokens, context),
        }
    }

    /// Checks a chat's messages, for the model of that name.
    ///
    /// # Errors
    /// The server's answer to messages that it cannot show to a model.
    pub fn check_messages(self, messages: &[Message<'_>], model: &str) -> Result<(), Failure> {
        match self {
            Self::Sglang(profile) => profile.front.check_messages(messages),
            Self::Vllm(_) => vllm::checks::messages(messages, model),
        }
    }

    /// The answer to a prompt with a token id beyond a vocabulary of `size`.
    pub fn unknown_id(self, id: u32, size: usize) -> Failure {
        match self {
            Self::Sglang(profile) => sglang::refusal::unknown_id(profile.front, id, size),
            Self::Vllm(_) => vllm::refusal::unknown_id(id),
        }
    }

    /// The answer to a request that finds the queue full.
    pub fn queue_full(self) -> Failure {
        match self {
            Self::Sglang(_) => sglang::refusal::queue_full(),
            Self::Vllm(_) => vllm::checks::queue_full(),
        }
    }

    /// The answer to a request of a name that another has which is under way, where names are kept.
    pub fn duplicate_name(self, name: &str) -> Failure {
        sglang::refusal::duplicate_name(name)
    }

    /// The end of a request that never ran, since the queue was full or it was given up there.
    pub fn unstarted(self, is_full: bool) -> Finish<'static> {
        sglang::native::unstarted(is_full)
    }

    /// The failure that an answer ends in that is given up, where it does.
    pub fn given_up(self, endpoint: Endpoint) -> Option<Failure> {
        match self {
            Self::Sglang(profile) => profile.front.given_up(endpoint),
            Self::Vllm(_) => None,
        }
    }

    /// The answer to a request without a prompt.
    pub fn no_prompts(self, endpoint: Endpoint) -> Failure {
        match self {
            Self::Sglang(profile) => sglang::refusal::no_prompts(profile.front, endpoint),
            Self::Vllm(profile) => profile.no_prompts(),
        }
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

    /// What is said when the engine has died.
    pub fn dead_engine(self) -> &'static str {
        self.vllm().dead_engine
    }

    /// Whether an unstreamed answer that lacks a required tool call ends with `stop`.
    pub fn missing_call_stops(self) -> bool {
        self.vllm().missing_call_stops
    }

    /// Appends the JSON of one event; `told` is what the stream has said so far, where events repeat it.
    pub fn encode(
        self,
        envelope: &Envelope,
        chunk: &Chunk<'_>,
        told: &mut sglang::Told,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Sglang(profile) => {
                sglang::chunk::encode(profile.front, envelope, chunk, told, out);
            }
            Self::Vllm(profile) => vllm::chunk::encode(profile, envelope, chunk, out),
        }
    }

    /// Appends a failure as the server writes it on the routes of an endpoint, or on others.
    pub fn encode_failure(self, endpoint: Option<Endpoint>, failure: &Failure, out: &mut Vec<u8>) {
        match self {
            Self::Sglang(profile) => profile.front.encode_failure(endpoint, failure, out),
            Self::Vllm(_) => failure.encode(out),
        }
    }

    /// How a request is refused: by the event of a stream, which is appended and stands behind a chat's
    /// role if true.
    ///
    /// # Errors
    /// The failure, where it is answered with a status of its own.
    pub fn refuse(
        self,
        request: &Request<'_>,
        is_typed: bool,
        failure: Failure,
        out: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        match self {
            Self::Sglang(profile) => profile.front.refuse(request, is_typed, failure, out),
            Self::Vllm(_) => Err(failure),
        }
    }

    /// Appends the JSON of an answer that is not streamed.
    pub fn encode_whole(self, envelope: &Envelope, answer: &Chunk<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Sglang(profile) => sglang::whole::encode(profile.front, envelope, answer, out),
            Self::Vllm(profile) => vllm::whole::encode(profile, envelope, answer, out),
        }
    }

    /// Appends the JSON of rendered prompts: of a chat the one, of a completion a list.
    pub fn encode_render(self, renders: &[Render<'_>], out: &mut Vec<u8>) {
        vllm::render::encode(self.vllm(), renders, out);
    }

    /// How it spells responses.
    fn responses(self) -> responses::Spelling {
        match self {
            Self::Sglang(_) => sglang::RESPONSES,
            Self::Vllm(profile) => profile.responses(),
        }
    }

    /// Checks what of a request to `/v1/responses` needs no prompt.
    ///
    /// # Errors
    /// The server's answer to a request that it refuses.
    pub fn check_response(
        self,
        asked: &ResponsesRequest<'_>,
        served: &[Arc<str>],
    ) -> Result<(), Failure> {
        match self {
            Self::Sglang(_) => sglang::responses_request::check(asked, served),
            Self::Vllm(_) => vllm::responses_request::check(asked),
        }
    }

    /// The answer to a question for a response of that id: none is kept.
    pub fn unknown_response(self, id: &str) -> Failure {
        match self {
            Self::Sglang(_) => sglang::responses_request::not_kept("response_id"),
            Self::Vllm(_) => vllm::responses_request::unknown(id),
        }
    }

    /// A failure as `/v1/responses` has it.
    pub fn response_failure(self, failure: Failure) -> Failure {
        match self {
            Self::Sglang(_) => sglang::responses_request::nested(failure),
            Self::Vllm(_) => failure,
        }
    }

    /// Appends the JSON of a whole response.
    pub fn encode_response(
        self,
        outline: &responses::Outline<'_>,
        snapshot: &responses::Snapshot<'_>,
        out: &mut Vec<u8>,
    ) {
        let written = match self {
            Self::Sglang(_) => {
                serde_json::to_writer(out, &sglang::responses::Response::new(outline, snapshot))
            }
            Self::Vllm(profile) => {
                let response = vllm::responses::Response::new(profile, outline, snapshot);
                serde_json::to_writer(out, &response)
            }
        };
        written.expect("strings and numbers encode");
    }

    /// Appends an event of a streamed response as a whole.
    pub fn encode_response_progress(
        self,
        outline: &responses::Outline<'_>,
        progress: responses::Progress,
        snapshot: &responses::Snapshot<'_>,
        number: u64,
        out: &mut Vec<u8>,
    ) {
        let spelling = self.responses();
        let kind = (progress, snapshot.status);
        match self {
            Self::Sglang(_) => {
                let response = sglang::responses::Response::new(outline, snapshot);
                responses::encode_progress(spelling, kind, &response, number, out);
            }
            Self::Vllm(profile) => {
                let response = vllm::responses::Response::new(profile, outline, snapshot);
                responses::encode_progress(spelling, kind, &response, number, out);
            }
        }
    }

    /// Appends an event of an item of a streamed response.
    pub fn encode_response_event(
        self,
        item: &responses::Item,
        event: responses::Event<'_>,
        place: responses::Place,
        out: &mut Vec<u8>,
    ) {
        responses::encode_event(self.responses(), item, event, place, out);
    }

    /// The id of an item of a response, for random bits, 64 at a time.
    pub fn response_item_id(
        self,
        kind: &responses::ItemKind,
        random: impl FnMut() -> u64,
    ) -> String {
        let is_call = matches!(kind, responses::ItemKind::Call { .. });
        self.random_id(kind.prefix(), is_call, random)
    }

    /// An id of an answer of `/v1/messages` or `/v1/responses` or of its parts, of which SGLang's are
    /// short or long.
    fn random_id(self, prefix: &str, is_short: bool, mut random: impl FnMut() -> u64) -> String {
        match self {
            Self::Sglang(_) if is_short => format!("{prefix}_{:08x}", random() >> 32),
            Self::Sglang(_) => {
                let digits = sglang::response_id(random(), random());
                format!("{prefix}_{digits}")
            }
            Self::Vllm(_) => format!("{prefix}_{:016x}", random()),
        }
    }

    /// How it spells messages.
    fn messages(self) -> messages::Spelling {
        match self {
            Self::Sglang(_) => sglang::MESSAGES,
            Self::Vllm(profile) => profile.messages(),
        }
    }

    /// Appends the JSON of a whole message.
    ///
    /// # Errors
    /// A call's arguments are no JSON, and the server minds.
    pub fn encode_message(
        self,
        message: &messages::Message<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), messages::BadArguments> {
        messages::encode(self.messages(), message, out)
    }

    /// Appends one event of a streamed message.
    pub fn encode_message_event(self, event: messages::Event<'_>, out: &mut Vec<u8>) {
        messages::encode_event(self.messages(), event, out);
    }

    /// Whether a streamed message that fails ends the block that is open.
    pub fn ends_failed_blocks(self) -> bool {
        self.messages().errors != messages::Errors::Own
    }

    /// Appends the JSON of an error of `/v1/messages`; `generating` refused the request, which was good.
    pub fn encode_message_error(self, error: &ErrorObject, generating: bool, out: &mut Vec<u8>) {
        messages::encode_error(self.messages(), error, generating, out);
    }

    /// Appends the answer of `/v1/messages/count_tokens`.
    pub fn encode_token_count(self, input_tokens: u64, out: &mut Vec<u8>) {
        messages::encode_count(self.messages(), input_tokens, out);
    }

    /// Appends the JSON of `/v1/models`; `random_id` gives 64 random bits for each entry.
    pub fn encode_models(
        self,
        models: &Models<'_>,
        random_id: impl FnMut() -> u64,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Sglang(_) => sglang::models::encode(models, out),
            Self::Vllm(_) => vllm::models::encode(models, random_id, out),
        }
    }

    /// Appends the JSON of one model of `/v1/models/{model}`.
    pub fn encode_model(self, models: &Models<'_>, name: &str, out: &mut Vec<u8>) {
        sglang::models::encode_one(models, name, out);
    }

    /// Upper bounds of the buckets of a series on the metrics page.
    pub fn bounds(self, series: Series) -> &'static [u64] {
        match self {
            Self::Sglang(_) => sglang::metrics::bounds(series),
            Self::Vllm(_) => series.bounds(),
        }
    }

    /// Appends the metrics page.
    pub fn encode_metrics(self, snapshot: &Snapshot<'_>, out: &mut String) {
        match self {
            Self::Sglang(_) => sglang::metrics::encode(snapshot, out),
            Self::Vllm(profile) => vllm::metrics::encode(profile.cache_config, snapshot, out),
        }
    }

    /// The response id for random bits, 64 at a time, or for the name that the client gave the request.
    pub fn response_id(
        self,
        endpoint: Endpoint,
        mut random: impl FnMut() -> u64,
        given: Option<&str>,
    ) -> String {
        match self {
            Self::Sglang(_) => match given {
                Some(name) => name.to_owned(),
                None => sglang::response_id(random(), random()),
            },
            Self::Vllm(profile) => vllm::response_id(profile, endpoint, random(), given),
        }
    }

    /// The id of a typed answer for random bits, 64 at a time.
    pub fn typed_id(self, endpoint: Endpoint, mut random: impl FnMut() -> u64) -> String {
        sglang::rust::typed_id(endpoint, random(), random())
    }

    /// The same for an answer of `/inference/v1/generate`.
    pub fn generate_id(self, random: u64, given: Option<&str>) -> String {
        vllm::generate_id(random, given)
    }

    /// The id of an answer of `/v1/responses` for random bits, 64 at a time.
    pub fn responses_id(self, random: impl FnMut() -> u64) -> String {
        self.random_id("resp", false, random)
    }

    /// The id of an answer of `/v1/messages`, or the name that the client gave the request.
    pub fn message_id(self, random: impl FnMut() -> u64, given: Option<&str>) -> String {
        match self {
            Self::Sglang(_) => self.random_id("msg", false, random),
            Self::Vllm(_) => self.response_id(Endpoint::Chat, random, given),
        }
    }

    /// How chunks are framed in an answer to HTTP/1.0 or to HTTP/1.1.
    pub fn chunking(self, is_http10: bool) -> Chunking {
        match self {
            Self::Sglang(profile) => profile.front.chunking(is_http10),
            Self::Vllm(_) => Chunking::Lower,
        }
    }

    /// Whether a request of HTTP/1.1 without a host is refused.
    pub fn needs_host(self) -> bool {
        match self {
            Self::Sglang(profile) => profile.front.needs_host(),
            Self::Vllm(_) => false,
        }
    }

    /// Appends a response head.
    pub fn write_head(self, head: &Head<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Sglang(profile) => profile.front.write_head(head, out),
            Self::Vllm(_) => uvicorn::write_head(uvicorn::Parser::Httptools, head, out),
        }
    }

    /// Appends the whole response to bytes that are no HTTP.
    pub fn write_invalid(self, date: &str, out: &mut Vec<u8>) {
        match self {
            Self::Sglang(profile) => profile.front.write_invalid(date, out),
            Self::Vllm(_) => {
                uvicorn::write_invalid(uvicorn::Parser::Httptools, date, out);
            }
        }
    }
}
