//! A stub server without its sockets: a request in, a reply out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use vocab::Tokenizer;
use wire::dialect::sglang::info::Info;
use wire::dialect::{Dialect, Models, Patterns};
use wire::failure::Failure;
use wire::http1::RequestHead;
use wire::request::{Endpoint, Known, UsagePolicy};
use wire::route::Route;

use crate::cache::PrefixCache;
use crate::front::Front;
use crate::pace::Pace;
use crate::reasoning::ReasoningParser;
use crate::reply::{Facts, Rendered, Reply};
use crate::route;
use crate::source::{Echo, Source};
use crate::tools::ToolParser;
use crate::under_way::UnderWay;
use crate::work::Work;

/// Longest answer in tokens that is made up by repeating.
pub const MAX_OSL: u64 = 1 << 22;

/// Everything that a stub answers from.
#[derive(Debug)]
pub struct Stub {
    /// Which server it imitates.
    pub dialect: Dialect,
    /// What generates.
    pub engine: Engine,
    /// `system_fingerprint`
    pub fingerprint: Option<Arc<str>>,
    /// What stands before the routes.
    pub front: Front,
    /// What SGLang's server tells of itself.
    pub info: Info,
    /// Served names, the first being the one that answers carry.
    pub names: Vec<Arc<str>>,
    /// What is found in the text.
    pub parsers: Parsers,
    /// What its answers have in common, rendered once.
    pub patterns: Arc<Patterns>,
    /// The model argument.
    pub root: String,
    /// How streams are cut and what they carry.
    pub streaming: Streaming,
}

/// What generates answers, and its limits.
#[derive(Debug)]
pub struct Engine {
    /// A script let it die; nothing is generated any more.
    pub dead: AtomicBool,
    /// Whether requests' own limits and stop strings count.
    pub honors_limits: bool,
    /// Longest prompt and answer in tokens, together.
    pub max_model_len: Option<u64>,
    /// The answer's length in tokens, cut or repeated to it.
    pub max_osl: Option<u64>,
    /// Choices that a request may have.
    pub max_queued: Option<u64>,
    /// When its answers are due.
    pub pace: Pace,
    /// Prompts that were seen, if usage tells of them.
    pub prefix_cache: Option<PrefixCache>,
    /// Requests under way, where others can see them or they have to wait for each other.
    pub under_way: Option<Arc<UnderWay>>,
    /// What the model says.
    pub source: Box<dyn Source>,
    /// Text to tokens.
    pub tokenizer: Arc<Tokenizer>,
}

/// What is found in the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parsers {
    /// The model is not held to the parser's own format: `VLLM_ENFORCE_STRICT_TOOL_CALLING=0`.
    pub lax_tool_calls: bool,
    /// `--reasoning-parser`
    pub reasoning: Option<ReasoningParser>,
    /// `--tool-call-parser`, where `--enable-auto-tool-choice` switches it on.
    pub tools: Option<ToolParser>,
}

/// How streams are cut and what answers carry.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the server's own switches")]
pub struct Streaming {
    /// `--enable-cache-report`
    pub cache_report: bool,
    /// `--enable-force-include-usage`, or SGLang's `--stream-response-default-include-usage`
    pub force_include_usage: bool,
    /// SGLang's `--incremental-streaming-output`
    pub incremental: bool,
    /// Say so when a stream was silent so long: `--sse-keep-alive-interval`.
    pub keep_alive: Option<Duration>,
    /// Answers are rendered once for all requests that differ in nothing that shows, if the pace is a burst.
    pub renders_once: bool,
    /// `--enable-per-request-metrics`
    pub request_metrics: bool,
    /// `--stream-interval`: tokens of each chunk but the first.
    pub stream_interval: u32,
    /// `--return-tokens-as-token-ids`
    pub tokens_as_ids: bool,
    /// Tokens of a chunk.
    pub tokens_per_chunk: u32,
    /// SGLang's `--enable-metrics`: answers tell the times of their stages.
    pub tells_stages: bool,
    /// `--skip-tokenizer-init`: answers have ids and no text.
    pub without_text: bool,
}

impl Default for Streaming {
    /// A token a chunk, nothing added.
    fn default() -> Self {
        Self {
            cache_report: false,
            force_include_usage: false,
            incremental: false,
            keep_alive: None,
            renders_once: false,
            request_metrics: false,
            stream_interval: 1,
            tokens_as_ids: false,
            tokens_per_chunk: 1,
            tells_stages: false,
            without_text: false,
        }
    }
}

impl Streaming {
    /// Steps of the first chunk, and of each further one, where a request asks for so many at least.
    pub(crate) fn chunk_steps(&self, asked: u32) -> (u32, u32) {
        let first = self.tokens_per_chunk;
        (first, first.max(self.stream_interval).max(asked))
    }
}

/// A request as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The body.
    pub body: &'a [u8],
    /// Its head.
    pub head: &'a RequestHead<'a>,
    /// The facts shall be whole: somebody writes them down.
    pub wants_facts: bool,
}

/// What a worker brings to each call: time, chance, and what it rendered before.
#[derive(Debug)]
pub struct Context {
    /// Seconds since 1970.
    pub created: u64,
    /// Nanoseconds beyond them.
    pub created_nanos: u32,
    /// The last request, mostly like the next.
    pub(crate) known: Known,
    /// Source of ids.
    pub random: fastrand::Rng,
    /// Answers rendered once.
    pub(crate) rendered: BTreeMap<RenderKey, RenderedOnce>,
    /// Room for the next answer that is rendered.
    spare: Option<Arc<Rendered>>,
}

/// An answer without what is asked of it alone.
#[derive(Clone, Debug)]
pub(crate) struct RenderedOnce {
    pub(crate) facts: Option<Box<Facts>>,
    pub(crate) rendered: Arc<Rendered>,
    pub(crate) works: Option<Arc<[Work]>>,
}

/// What shows of a request to a stub that renders once.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct RenderKey {
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
            created_nanos: 0,
            known: Known::default(),
            random: fastrand::Rng::with_seed(seed),
            rendered: BTreeMap::new(),
            spare: None,
        }
    }

    /// Gives back what was rendered, as room for the next unless somebody else has it too.
    pub fn give_back(&mut self, mut rendered: Arc<Rendered>) {
        if let Some(own) = Arc::get_mut(&mut rendered) {
            own.bytes.clear();
            own.steps.clear();
            self.spare = Some(rendered);
        }
    }

    /// Room for an answer.
    pub(crate) fn take_spare(&mut self) -> Arc<Rendered> {
        self.spare.take().unwrap_or_default()
    }
}

impl Stub {
    /// A stub of vLLM that echoes at once, without limits.
    pub fn echo(tokenizer: Arc<Tokenizer>) -> Self {
        let dialect = Dialect::VLLM;
        Self {
            dialect,
            engine: Engine {
                dead: AtomicBool::new(false),
                honors_limits: false,
                max_model_len: None,
                max_osl: None,
                max_queued: None,
                pace: Pace::Burst,
                prefix_cache: None,
                under_way: None,
                source: Box::new(Echo {
                    tokenizer: Arc::clone(&tokenizer),
                }),
                tokenizer,
            },
            fingerprint: dialect.fingerprint(),
            front: Front::default(),
            info: Info::default(),
            names: vec!["echo".into()],
            parsers: Parsers::default(),
            patterns: Arc::default(),
            root: "echo".into(),
            streaming: Streaming::default(),
        }
    }

    /// Answers a call; what asks for the process itself (metrics, the raw request) is `Err` with its route.
    pub fn reply(&self, call: &Call<'_>, context: &mut Context) -> Result<Reply, Route> {
        if let Some(mut reply) = self.front.refuses(self.dialect.manner(), call) {
            self.decorate(call, context, &mut reply);
            return Ok(reply);
        }
        let mut reply = match route::find(self, call) {
            Ok(route) => {
                let mut reply = route::reply(route, self, call, context)?;
                reply.route = Some(route);
                reply
            }
            Err(reply) => *reply,
        };
        self.decorate(call, context, &mut reply);
        Ok(reply)
    }

    /// Adds the headers that every answer has, to one that is not made here.
    pub fn decorate(&self, call: &Call<'_>, context: &mut Context, reply: &mut Reply) {
        self.front
            .decorate(self.dialect.manner(), call, context, reply);
    }

    /// What is told of the served models.
    pub(crate) fn models(&self, created: u64) -> Models<'_> {
        Models {
            created,
            max_model_len: self.engine.max_model_len,
            names: &self.names,
            root: &self.root,
        }
    }

    /// Checks a request's model against the served names.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), Failure> {
        match model {
            Some(model) if !model.is_empty() && !self.names.iter().any(|name| **name == *model) => {
                let unknown = self.dialect.unknown_model(model, &self.names);
                unknown.map_or(Ok(()), Err)
            }
            _ => Ok(()),
        }
    }
}
