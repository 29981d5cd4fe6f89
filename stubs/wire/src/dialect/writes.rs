//! How answers are written: ids, heads, bodies, events, pages.

use super::{Dialect, Envelope, Head, Models, Render, messages, responses, sglang, uvicorn, vllm};
use crate::chunk::Chunk;
use crate::http1::Chunking;
use crate::metrics::{Series, Snapshot};
use crate::request::Endpoint;

impl Dialect {
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
    pub(super) fn responses(self) -> responses::Spelling {
        match self {
            Self::Sglang(_) => sglang::RESPONSES,
            Self::Vllm(profile) => profile.responses(),
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
    pub(super) fn random_id(
        self,
        prefix: &str,
        is_short: bool,
        mut random: impl FnMut() -> u64,
    ) -> String {
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
    pub(super) fn messages(self) -> messages::Spelling {
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
