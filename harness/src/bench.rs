//! The native client: one load against one server.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;
use vocab::Tokenizer;
use wire::request::Endpoint;

use crate::arrival::Arrival;
use crate::count::{self, Counts};
use crate::cpu::Cpu;
use crate::dataset::Sample;
use crate::error::UsageError;
use crate::http::Target;
use crate::load::{self, Job};
use crate::malformed;
use crate::record::Record;
use crate::totals::Totals;

pub use crate::malformed::Malformed;

/// What to send, how, and how to count what comes back.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Config {
    /// `http://HOST:PORT`, a path in front of `/v1` allowed.
    pub url: String,
    /// The model to ask for; by default the first that the server lists.
    pub model: Option<String>,
    /// Which server is expected.
    pub dialect: Dialect,
    /// Which route is measured.
    pub endpoint: Endpoint,
    /// What is asked, in turn and again from the start.
    pub samples: Arc<Vec<Sample>>,
    /// The client's way to count tokens.
    pub tokenizer: Arc<Tokenizer>,
    /// When requests are sent.
    pub load: Arrival,
    /// When the run ends.
    pub limit: Limit,
    /// Ask for streamed answers.
    pub stream: bool,
    /// Ask for usage at the end of a stream.
    pub include_usage: bool,
    /// Ask for usage with every event too.
    pub continuous_usage: bool,
    /// Which count gets the plain names in the summary.
    pub token_count_source: TokenCountSource,
    /// Most connections; by default the concurrency, 64 for a burst, 256 for an open loop.
    pub connections: Option<usize>,
    /// Threads that send requests.
    pub workers: usize,
    /// How long a request may take.
    pub timeout: Duration,
    /// Output tokens to ask for where a sample does not say.
    pub max_tokens: Option<u32>,
    /// Answers to ask for with each request.
    pub n: u32,
    /// Ask for answers that go on behind their end token.
    pub ignore_eos: bool,
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// Of the arrival times.
    pub seed: u64,
    /// How long requests are sent before those that count.
    pub warm_up: Duration,
    /// End the run before its limit once half the 95% interval of the mean throughput is no wider than
    /// this share of it.
    pub until_stable: Option<f64>,
    /// Set by anybody to end the run early.
    pub interrupt: Arc<AtomicBool>,
    /// What is kept of each request.
    pub keep: Keep,
    /// Keep time and size of every event, where records are kept.
    pub keep_events: bool,
    /// Keep the data of every event, where records are kept.
    pub keep_data: bool,
    /// Members that every request body gets besides the client's own.
    pub extra_body: serde_json::Map<String, Value>,
    /// Cores that the sending threads may use; by default those of the caller.
    pub cores: Option<Vec<usize>>,
    /// Show a progress bar where stderr is a terminal.
    pub progress: bool,
}

impl Config {
    /// A streamed chat load of 32 requests in flight for ten seconds.
    pub fn new(url: String, samples: Arc<Vec<Sample>>, tokenizer: Arc<Tokenizer>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            url,
            model: None,
            dialect: Dialect::Vllm,
            endpoint: Endpoint::Chat,
            samples,
            tokenizer,
            load: Arrival::Concurrency(32),
            limit: Limit::Duration(Duration::from_secs(10)),
            stream: true,
            include_usage: true,
            continuous_usage: false,
            token_count_source: TokenCountSource::Client,
            connections: None,
            // The server often runs on the same machine and needs the other half.
            workers: (cores / 2).max(1),
            timeout: Duration::from_mins(1),
            max_tokens: None,
            n: 1,
            ignore_eos: false,
            api_key: None,
            seed: 0,
            warm_up: Duration::ZERO,
            until_stable: None,
            interrupt: Arc::default(),
            keep: Keep::Records,
            keep_events: false,
            keep_data: false,
            extra_body: serde_json::Map::new(),
            cores: None,
            progress: false,
        }
    }
}

impl Config {
    /// Refuses what does not go together.
    pub(crate) fn check(&self) -> Result<(), UsageError> {
        let usage_off = self.stream && !self.include_usage;
        let is_native = self.endpoint == Endpoint::Generate;
        let by_server = self.token_count_source == TokenCountSource::Server;
        let has_no_end = matches!(self.dialect, Dialect::Executorch | Dialect::Openai);
        let reason = if is_native && self.dialect != Dialect::Sglang {
            "--endpoint generate is SGLang's own route: use --dialect sglang, or chat or completions"
        } else if is_native && !self.include_usage {
            "--no-stream-include-usage does not go with --endpoint generate, whose answers always have counts"
        } else if self.ignore_eos && has_no_end {
            "--ignore-eos is not known to this dialect: use it with --dialect vllm or sglang"
        } else if by_server && usage_off {
            "--token-count-source server needs usage, which --no-stream-include-usage turns off"
        } else if self.n == 0 {
            "--n must be at least 1"
        } else {
            return Ok(());
        };
        Err(UsageError(reason.into()))
    }

    /// Answers that each request asks for, in the user's own members too.
    pub(crate) fn choices(&self) -> u64 {
        let params = self.extra_body.get("sampling_params");
        let extra = match self.endpoint {
            Endpoint::Generate => params.and_then(|params| params.get("n")),
            Endpoint::Chat | Endpoint::Completions => self.extra_body.get("n"),
        };
        let extra = extra.and_then(Value::as_u64);
        extra.unwrap_or_else(|| self.n.into())
    }

    /// Streams are asked for usage: of several answers it would be one sum, which who adds them to the
    /// body may well want.
    pub(crate) fn asks_for_usage(&self) -> bool {
        self.stream && self.include_usage && self.n == 1
    }
}

/// A server that is imitated.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// ExecuTorch's `OpenAI` server.
    Executorch,
    /// Any server of the `OpenAI` API.
    Openai,
    /// SGLang
    Sglang,
    /// vLLM
    Vllm,
}

impl FromStr for Dialect {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "executorch" => Ok(Self::Executorch),
            "openai" => Ok(Self::Openai),
            "sglang" => Ok(Self::Sglang),
            "vllm" => Ok(Self::Vllm),
            _ => Err("expected vllm, sglang, executorch or openai"),
        }
    }
}

/// What a run keeps of its requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keep {
    /// A record of each, and the totals.
    Records,
    /// The totals alone: memory does not grow with the run.
    Totals,
}

/// When a run ends, its warm-up apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    /// After this time no request is sent; answers under way are read to their end.
    Duration(Duration),
    /// After this many requests.
    Requests(u64),
}

/// Who counts the tokens that the summary is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenCountSource {
    /// The client's tokenizer.
    Client,
    /// The server's `usage`.
    Server,
}

impl FromStr for TokenCountSource {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "client" => Ok(Self::Client),
            "server" => Ok(Self::Server),
            _ => Err("expected client or server"),
        }
    }
}

/// A finished run: what each request did and what it counts as.
#[derive(Clone, Debug)]
pub struct Run {
    /// What the request ids of this run begin with.
    pub id: String,
    /// The model that was asked for.
    pub model: String,
    /// Requests in the order in which they were taken up, if they are kept.
    pub records: Vec<Record>,
    /// Token counts of each record.
    pub counts: Vec<Counts>,
    /// The first count of the server's that is none, if there is one.
    pub malformed: Option<Malformed>,
    /// What all requests come to.
    pub totals: Totals,
    /// From the end of the warm-up to the last answer's end, in nanoseconds.
    pub duration_ns: u64,
    /// What the sending threads took of the cores, from the end of the warm-up.
    pub client: Cpu,
    /// What the server took, from the end of the warm-up, if its metrics tell.
    pub server: Option<Cpu>,
    /// How well the throughput is known, if the run was to last until it is.
    pub stability: Option<Stability>,
    /// The run was ended early.
    pub interrupted: bool,
}

/// How well a mean throughput is known.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Stability {
    /// Windows of half a second that it comes from.
    pub windows: u64,
    /// Half its 95% interval as a share of it; none from a few windows.
    pub half_width: Option<f64>,
    /// That is as little as was asked for.
    pub is_stable: bool,
}

impl Run {
    /// The `x-request-id` of a request.
    pub fn request_id(&self, record: &Record) -> String {
        format!("{}{}", self.id, record.request)
    }
}

/// Runs a load to its end on threads of its own, and counts tokens after it.
///
/// # Errors
/// [`UsageError`] if the configuration does not make sense, anything else if the run could not start.
pub fn run(config: &Config) -> anyhow::Result<Run> {
    let target = Target::parse(&config.url)?;
    run_beside(config, || target.cpu(config.api_key.as_deref()))
}

/// The same, where somebody else knows what the server has taken of the cores so far.
///
/// # Errors
/// As [`run`].
pub fn run_beside(config: &Config, server: impl Fn() -> Option<Cpu>) -> anyhow::Result<Run> {
    config.check()?;
    let by_server = config.token_count_source == TokenCountSource::Server;
    if by_server
        && config.stream
        && !config.asks_for_usage()
        && config.endpoint != Endpoint::Generate
    {
        tracing::warn!(
            "streams of several answers are not asked for usage: counts will be missing"
        );
    }
    let target = Target::parse(&config.url)?;
    let model = model(config, &target)?;
    let id = format!("bench-{:x}-", fastrand::u64(..));
    let job = Job::new(config, &target, &model, &id)?;
    let mut before = None;
    let load = load::run(job, config.cores.as_deref(), || before = server())?;
    let server = before.and_then(|before| Some(server()?.since(before)));
    if let Some(failed) = load.records.iter().find(|record| !record.is_completed()) {
        let kind = failed.failure.map(|failure| failure.to_string());
        let detail = &failed.detail;
        tracing::warn!(
            request = failed.request,
            kind,
            detail,
            "first failed sample"
        );
    }
    let malformed = malformed::first(&load.records);
    if let Some(malformed) = &malformed {
        tracing::warn!(
            request = malformed.request,
            samples = malformed.samples,
            "malformed usage: {malformed}; such counts are left out"
        );
    }
    let warm_up_ns = u64::try_from(config.warm_up.as_nanos()).unwrap_or(u64::MAX);
    Ok(Run {
        id,
        model,
        counts: count::counts(config, &load.records),
        malformed,
        duration_ns: load.totals.ended_ns.saturating_sub(warm_up_ns),
        records: load.records,
        totals: load.totals,
        client: load.client,
        server,
        stability: load.stability,
        interrupted: load.interrupted,
    })
}

/// The model to ask for; a server of which none is asked need not list any.
pub(crate) fn model(config: &Config, target: &Target) -> anyhow::Result<String> {
    if let Some(model) = &config.model {
        return Ok(model.clone());
    }
    match target.first_model(config.api_key.as_deref()) {
        Err(error) if config.endpoint == Endpoint::Generate && error.is::<UsageError>() => {
            Ok(String::new())
        }
        model => model,
    }
}

/// What a server says that it has taken of the cores since it started; `None` if it tells nothing.
///
/// # Errors
/// [`UsageError`] if the URL is none.
pub fn server_cpu(url: &str, api_key: Option<&str>) -> Result<Option<Cpu>, UsageError> {
    Ok(Target::parse(url)?.cpu(api_key))
}
