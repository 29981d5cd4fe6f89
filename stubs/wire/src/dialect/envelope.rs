//! What stands around an answer: the facts that its chunks share, and its head.

use std::sync::Arc;

use crate::chunk::TokenLogprob;
use crate::request::{Endpoint, NativeLogprobs, OutputMode, UsagePolicy};

/// What all chunks of one answer share.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// `created`, in seconds.
    pub created: u64,
    /// Which route answers.
    pub endpoint: Endpoint,
    /// `system_fingerprint`
    pub fingerprint: Option<Arc<str>>,
    /// `id`
    pub id: String,
    /// `model`
    pub model: Arc<str>,
    /// `metrics`, where the server adds them.
    pub metrics: Option<Metrics>,
    /// `prompt_logprobs` of a chat, where the request asked for them.
    pub prompt_logprobs: Option<Vec<Option<TokenLogprob>>>,
    /// `prompt_text`, where the request asked for it.
    pub prompt_text: Option<String>,
    /// `prompt_token_ids`, where the request asked for them.
    pub prompt_token_ids: Option<Vec<u32>>,
    /// `output_mode`, where `/inference/v1/generate` answers.
    pub output_mode: Option<OutputMode>,
    /// Which chunks carry usage.
    pub usage: UsagePolicy,
    /// Ids of the choices behind the first, where each has its own.
    pub further_ids: Vec<String>,
    /// It is written by types made for `OpenAI`'s API, not by the server's own encoder.
    pub is_typed: bool,
    /// What goes into `meta_info`, where the answer has it.
    pub meta: Option<Box<Meta>>,
}

/// What SGLang's `meta_info` tells beside the counts of a choice.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches of the server and of the request"
)]
pub struct Meta {
    /// Frames of a stream say what is new, not all so far: `--incremental-streaming-output`.
    pub incremental: bool,
    /// The answer is a list, its streamed frames numbered.
    pub is_list: bool,
    /// Logprobs of the prompt and the answer, if asked for.
    pub logprobs: Option<NativeLogprobs>,
    /// Unix seconds when the request came.
    pub started: f64,
    /// Times of the request's stages are told: `--enable-metrics`.
    pub tells_stages: bool,
    /// There is no text, but ids alone: `--skip-tokenizer-init`.
    pub without_text: bool,
}

impl Envelope {
    /// An envelope at second 0 with nothing that a request or a server has to ask for.
    pub fn new(endpoint: Endpoint, id: String, model: Arc<str>) -> Self {
        Self {
            created: 0,
            endpoint,
            fingerprint: None,
            id,
            model,
            metrics: None,
            prompt_logprobs: None,
            prompt_text: None,
            prompt_token_ids: None,
            output_mode: None,
            usage: UsagePolicy::Omit,
            further_ids: Vec::new(),
            is_typed: false,
            meta: None,
        }
    }

    /// The id of a choice.
    pub fn id_of(&self, choice: u32) -> &str {
        let further = (choice as usize).checked_sub(1);
        let further = further.and_then(|number| self.further_ids.get(number));
        further.unwrap_or(&self.id)
    }
}

/// How long one request took, as the server says it; milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics {
    /// From the first token to the last.
    pub generation_time_ms: f64,
    /// Between tokens.
    pub mean_itl_ms: f64,
    /// From the arrival to the first token.
    pub time_to_first_token_ms: f64,
    /// Tokens a second.
    pub tokens_per_second: f64,
}

/// What a response head says beside its status.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Content {
    /// No body.
    #[default]
    Empty,
    /// A JSON body of that many bytes.
    Json(usize),
    /// An event stream.
    Stream,
    /// A plain text of that many bytes.
    Text(usize),
    /// A body of which the head of an answer to `HEAD` tells nothing but its type.
    Untold,
}

impl Content {
    /// The body's length in bytes, where the head tells it.
    pub fn length(self) -> Option<usize> {
        match self {
            Self::Empty => Some(0),
            Self::Json(bytes) | Self::Text(bytes) => Some(bytes),
            Self::Stream | Self::Untold => None,
        }
    }
}

/// The head of a response.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The connection ends with this response.
    pub close: bool,
    /// The body.
    pub content: Content,
    /// The `date` header.
    pub date: &'a str,
    /// Headers of this answer's own.
    pub headers: &'a Headers,
    /// The request's HTTP version knows no chunks: a stream ends with the connection.
    pub is_unframed: bool,
    /// HTTP status.
    pub status: u16,
}

/// Headers that some answers have, by where they stand.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Headers {
    /// Before `content-length`.
    pub first: Vec<(&'static str, String)>,
    /// Behind `content-type`.
    pub middle: Vec<(&'static str, String)>,
    /// Behind `vary`.
    pub last: Vec<(&'static str, String)>,
    /// Made outside the layer that adds `vary`.
    pub without_vary: bool,
    /// The content type's name begins its words with capitals, where the HTTP parser leaves it so.
    pub is_capitalised: bool,
    /// A content type other than the usual one; none at all if it is empty.
    pub content_type: Option<&'static str>,
}

/// A served model list's facts.
#[derive(Clone, Copy, Debug)]
pub struct Models<'a> {
    /// `created`, in seconds.
    pub created: u64,
    /// Longest context in tokens, if there is a limit.
    pub max_model_len: Option<u64>,
    /// The served names.
    pub names: &'a [Arc<str>],
    /// The model argument.
    pub root: &'a str,
}

/// A served model, as far as servers tell of it alike.
#[derive(serde::Serialize)]
pub(super) struct ModelCard<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: &'a str,
    parent: (),
    max_model_len: Option<u64>,
}

impl Models<'_> {
    /// What is told of one of them.
    pub(super) fn card<'a>(
        &self,
        id: &'a str,
        root: &'a str,
        owned_by: &'static str,
    ) -> ModelCard<'a> {
        ModelCard {
            id,
            object: "model",
            created: self.created,
            owned_by,
            root,
            parent: (),
            max_model_len: self.max_model_len,
        }
    }
}

/// Appends the JSON of a list of models.
pub(super) fn write_list(cards: impl serde::Serialize, out: &mut Vec<u8>) {
    #[derive(serde::Serialize)]
    struct List<C> {
        object: &'static str,
        data: C,
    }
    let list = List {
        object: "list",
        data: cards,
    };
    serde_json::to_writer(out, &list).expect("strings and numbers encode");
}
