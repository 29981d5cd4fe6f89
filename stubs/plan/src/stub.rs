//! A stub server without its sockets: a request in, a reply out.

use std::collections::HashMap;
use std::sync::Arc;

use vocab::Tokenizer;
use wire::dialect::Dialect;
use wire::failure::Failure;
use wire::request::{Endpoint, UsagePolicy};

use crate::pace::Pace;
use crate::reasoning::ReasoningParser;
use crate::reply::{Facts, Rendered, Reply};
use crate::route::Route;
use crate::source::{Echo, Source};

/// Everything that a stub answers from.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a server"
)]
pub struct Stub {
    /// Which server it imitates.
    pub dialect: Dialect,
    /// `system_fingerprint`
    pub fingerprint: Option<String>,
    /// `--enable-force-include-usage`
    pub force_include_usage: bool,
    /// Whether requests' own limits and stop strings count.
    pub honors_limits: bool,
    /// The answer's length in tokens, cut or repeated to it.
    pub max_osl: Option<u64>,
    /// Longest prompt and answer in tokens, together.
    pub max_model_len: Option<u64>,
    /// Served names, the first being the one that answers carry.
    pub names: Vec<String>,
    /// When its answers are due.
    pub pace: Pace,
    /// `--reasoning-parser`
    pub reasoning_parser: Option<ReasoningParser>,
    /// Streams are rendered once for all requests that differ in nothing that shows.
    pub renders_once: bool,
    /// The model argument.
    pub root: String,
    /// `POST /echo` is there.
    pub serves_echo: bool,
    /// `GET /metrics` is there.
    pub serves_metrics: bool,
    /// What the model says.
    pub source: Box<dyn Source>,
    /// Tokens of a chunk.
    pub tokens_per_chunk: u32,
    /// Text to tokens.
    pub tokenizer: Arc<Tokenizer>,
}

/// A request as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The body.
    pub body: &'a [u8],
    /// `content-type`
    pub content_type: Option<&'a str>,
    /// `host`
    pub host: Option<&'a str>,
    /// `POST`
    pub method: &'a str,
    /// The path without query.
    pub path: &'a str,
    /// The target as sent.
    pub target: &'a str,
    /// `x-request-id`
    pub request_id: Option<&'a str>,
    /// The facts shall have the prompt's text.
    pub wants_prompt: bool,
}

/// What a worker brings to each call: time, chance, and what it rendered before.
#[derive(Debug)]
pub struct Context {
    /// Seconds since 1970.
    pub created: u64,
    /// Streams rendered once.
    pub rendered: HashMap<RenderKey, (Arc<Rendered>, Facts)>,
    /// Source of ids.
    pub random: fastrand::Rng,
}

/// What shows of a request to a stub that renders once.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RenderKey {
    pub(crate) endpoint: Endpoint,
    pub(crate) prompt_tokens: u64,
    pub(crate) stream: bool,
    pub(crate) usage: UsagePolicy,
}

/// Rendered streams that a worker keeps.
pub(crate) const MAX_RENDERED: usize = 4096;

impl Context {
    /// A context whose ids follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            created: 0,
            rendered: HashMap::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }
}

impl Stub {
    /// A stub of vLLM that echoes at once, without limits.
    pub fn echo(tokenizer: Arc<Tokenizer>) -> Self {
        let dialect = Dialect::VLLM;
        Self {
            dialect,
            fingerprint: dialect.fingerprint(),
            force_include_usage: false,
            honors_limits: false,
            max_osl: None,
            max_model_len: None,
            names: vec!["echo".into()],
            pace: Pace::Burst,
            reasoning_parser: None,
            renders_once: false,
            root: "echo".into(),
            serves_echo: true,
            serves_metrics: false,
            source: Box::new(Echo {
                tokenizer: Arc::clone(&tokenizer),
            }),
            tokens_per_chunk: 1,
            tokenizer,
        }
    }

    /// Answers a call; what asks for the process itself (metrics, the raw request) is `Err` with its route.
    pub fn reply(&self, call: &Call<'_>, context: &mut Context) -> Result<Reply, Route> {
        match Route::find(self, call) {
            Ok(route) => route.reply(self, call, context),
            Err(reply) => Ok(*reply),
        }
    }

    /// Checks a request's model against the served names.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), Failure> {
        match model {
            Some(model) if !model.is_empty() && !self.names.iter().any(|name| name == model) => {
                Err(self.dialect.unknown_model(model, &self.names))
            }
            _ => Ok(()),
        }
    }
}
