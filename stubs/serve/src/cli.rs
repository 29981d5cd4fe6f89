//! `stubline serve`: from flags to a checked configuration, and a run until a signal.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use plan::pace::Pace;
use plan::source::{Echo, Fixed, RandomTokens, ScriptFile, Source};
use plan::stub::{Engine, MAX_OSL, Streaming, Stub};
use plan::under_way::{Limits, UnderWay};
#[cfg(target_os = "linux")]
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};
use vocab::Tokenizer;
use wire::dialect::Dialect;

use crate::server::{Config, Server, Stopped};

mod ignored;
mod sglang;
mod vllm;

pub(crate) use sglang::HttpParser;
pub use sglang::SglangArgs;
pub use vllm::VllmArgs;

/// The stub to serve, and its flags.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say again what was asked, byte for byte
    #[command(
        after_help = "Example:\n  stubline serve echo --port 8000 --pace steady:ttft=50ms,itl=10ms"
    )]
    Echo(EchoArgs),
    /// Answer the same each time, as fast as can be
    #[command(
        after_help = "Example:\n  stubline serve max --port 8000 --output-length 160 --stream-interval 10"
    )]
    Max(MaxArgs),
    /// Answer as vLLM's OpenAI server does
    #[command(
        after_help = "Example:\n  stubline serve vllm tiny-model --tokenizer fixtures/tokenizers/bpe --source script:fixtures/wire/vllm-0.33.0/scripts.json --reasoning-parser qwen3"
    )]
    Vllm(Box<VllmArgs>),
    /// Answer as SGLang's server does
    #[command(
        after_help = "Example:\n  stubline serve sglang --model-path stub-model --tokenizer fixtures/wire/sglang-0.5.23/stub-model --source script:fixtures/wire/sglang-0.5.23/scripts.json --reasoning-parser qwen3"
    )]
    Sglang(Box<SglangArgs>),
}

/// Where and how anything is served.
#[derive(Args, Clone, Debug)]
pub(crate) struct Listening {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on, 0 for any free one
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Threads that serve (default: the number of cores)
    #[arg(long)]
    workers: Option<usize>,
    /// Write a record of every request here, as JSON lines
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// How long to finish what is in flight after SIGTERM
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) drain: Duration,
    /// Longest request body
    #[arg(long, default_value_t = 32 << 20, value_name = "BYTES")]
    max_body_bytes: usize,
    /// Longest request head
    #[arg(long, default_value_t = 256 << 10, value_name = "BYTES")]
    max_head_bytes: usize,
    /// Stop when the process that started this one ends
    #[arg(long, hide = true)]
    exit_with_parent: bool,
}

/// Flags of every stub.
#[derive(Args, Clone, Debug)]
pub struct Common {
    #[command(flatten)]
    listening: Listening,
    /// The model argument, `root` in /v1/models
    #[arg(long = "model", alias = "model-path", value_name = "NAME")]
    model: Option<String>,
    /// Names to serve the model under; answers carry the first
    #[arg(long, num_args = 1.., value_name = "NAME")]
    served_model_name: Vec<String>,
    /// Server version to imitate, such as vllm-0.32.0 (default: the newest)
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// char, byte, word, a Hugging Face tokenizer.json or its folder (default: char)
    #[arg(long, value_name = "NAME|PATH")]
    tokenizer: Option<String>,
    /// What to say: echo, fixed:TEXT, script:FILE or tokens
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Cut or repeat answers to so many tokens
    #[arg(long, value_name = "TOKENS")]
    max_osl: Option<u64>,
    /// Tokens of a chunk
    #[arg(long, default_value_t = 1, value_name = "TOKENS")]
    tokens_per_chunk: u32,
    /// Longest prompt and answer together (default: 131072; echo and max: unlimited)
    #[arg(long, value_name = "TOKENS")]
    max_model_len: Option<u64>,
    /// Seed of ids and of random tokens
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Requests that run at a time; others wait for their turn (default: any number)
    #[arg(long, value_name = "NUMBER")]
    max_num_seqs: Option<u64>,
    /// When answers are due: burst or steady:ttft=50ms,itl=10ms
    #[arg(long, default_value = "burst", value_name = "SPEC")]
    pace: Pace,
    /// Close a connection that is idle so long between requests, 0s for never (default: 5s as uvicorn; echo and max: never)
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    keep_alive_timeout: Option<Duration>,
}

/// Flags of `serve echo`.
#[derive(Args, Debug)]
pub struct EchoArgs {
    #[command(flatten)]
    common: Common,
    /// Which server's wire format to speak
    #[arg(long, default_value = "vllm")]
    dialect: String,
    /// Let requests limit and stop the answer
    #[arg(long)]
    honor_max_tokens: bool,
    /// Serve /metrics
    #[arg(long)]
    metrics: bool,
}

/// Flags of `serve max`.
#[derive(Args, Debug)]
pub struct MaxArgs {
    #[command(flatten)]
    common: Common,
    /// Which server's wire format to speak
    #[arg(long, default_value = "vllm")]
    dialect: String,
    /// Length of the answer
    #[arg(long, default_value_t = 160, value_name = "CHARACTERS")]
    output_length: u64,
    /// Characters of a chunk
    #[arg(long, default_value_t = 10, value_name = "CHARACTERS")]
    stream_interval: u32,
    /// Serve /metrics
    #[arg(long)]
    metrics: bool,
}

/// An environment variable's value, if it is set.
pub type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// A stub and where to serve it, checked.
#[derive(Debug)]
pub struct Checked {
    /// Where and how.
    pub config: Config,
    /// How long to drain.
    pub drain: Duration,
    /// What.
    pub stub: Stub,
}

impl Command {
    /// Checks the flags and what the real server reads from the environment; what is wrong is said
    /// in one line.
    pub fn checked(self, env: Env<'_>) -> anyhow::Result<Checked> {
        match self {
            Self::Echo(args) => {
                let dialect = args.common.dialect(&args.dialect)?;
                let mut checked = args.common.checked(dialect, "echo", None, None)?;
                checked.stub.engine.honors_limits = args.honor_max_tokens;
                checked.stub.front.serves_echo = true;
                checked.stub.front.serves_metrics = args.metrics;
                Ok(checked)
            }
            Self::Max(args) => {
                ensure!(
                    args.common.source.is_none(),
                    "max has a fixed answer; use --output-length, or `serve vllm` with --source"
                );
                ensure!(
                    args.output_length <= MAX_OSL,
                    "--output-length must be at most {MAX_OSL}"
                );
                ensure!(
                    args.stream_interval > 0,
                    "--stream-interval must be at least 1"
                );
                let mut common = args.common;
                common.source = Some(format!("fixed:{}", filler(args.output_length)));
                common.tokens_per_chunk = args.stream_interval;
                let dialect = common.dialect(&args.dialect)?;
                let mut checked = common.checked(dialect, "max", None, None)?;
                checked.stub.engine.honors_limits = false;
                checked.stub.streaming.renders_once = true;
                checked.stub.front.serves_metrics = args.metrics;
                Ok(checked)
            }
            Self::Vllm(args) => args.checked(env),
            Self::Sglang(args) => args.checked(env),
        }
    }
}

impl Listening {
    /// Whether the number of threads was given.
    pub(crate) fn says_workers(&self) -> bool {
        self.workers.is_some()
    }

    /// What they mean, all else as it is by default.
    pub(crate) fn config(self) -> anyhow::Result<Config> {
        ensure!(self.workers != Some(0), "--workers must be at least 1");
        #[cfg(target_os = "linux")]
        if self.exit_with_parent {
            rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Config {
            address: address(&self.host, self.port)?,
            max_body: self.max_body_bytes,
            max_head: self.max_head_bytes,
            truth: self.truth,
            workers: self.workers.unwrap_or(cores),
            ..Config::default()
        })
    }
}

impl Common {
    fn dialect(&self, name: &str) -> anyhow::Result<Dialect> {
        let newest = Dialect::named(name).filter(|dialect| dialect.name() == name);
        let newest =
            newest.ok_or_else(|| anyhow!("unknown dialect `{name}`; known: sglang, vllm"))?;
        let Some(profile) = &self.profile else {
            return Ok(newest);
        };
        let found = Dialect::named(profile).filter(|dialect| dialect.name() == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = Dialect::names().collect();
            anyhow!("unknown profile `{profile}`; known: {}", known.join(", "))
        })
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.tokens_per_chunk > 0,
            "--tokens-per-chunk must be at least 1"
        );
        ensure!(
            self.max_num_seqs != Some(0),
            "--max-num-seqs must be at least 1"
        );
        ensure!(
            self.max_osl.is_none_or(|tokens| tokens <= MAX_OSL),
            "--max-osl must be at most {MAX_OSL}"
        );
        ensure!(
            self.served_model_name.iter().all(|name| !name.is_empty()),
            "--served-model-name must not be empty"
        );
        Ok(())
    }

    fn checked(
        self,
        dialect: Dialect,
        default_model: &str,
        context: Option<u64>,
        keep_alive: Option<Duration>,
    ) -> anyhow::Result<Checked> {
        self.check()?;
        let tokenizer = Arc::new(tokenizer(
            "--tokenizer",
            self.tokenizer.as_deref().unwrap_or("char"),
        )?);
        let source = source(
            self.source.as_deref().unwrap_or("echo"),
            &tokenizer,
            self.seed,
        )?;
        let root = self.model.unwrap_or_else(|| default_model.to_owned());
        let names = if self.served_model_name.is_empty() {
            vec![root.as_str().into()]
        } else {
            let given = self.served_model_name.into_iter();
            given.map(Into::into).collect()
        };
        let keep_alive = match self.keep_alive_timeout {
            None => keep_alive,
            Some(timeout) => Some(timeout).filter(|timeout| !timeout.is_zero()),
        };
        Ok(Checked {
            drain: self.listening.drain,
            config: Config {
                keep_alive,
                seed: self.seed,
                ..self.listening.config()?
            },
            stub: Stub {
                engine: Engine {
                    dead: AtomicBool::new(false),
                    honors_limits: true,
                    max_model_len: self.max_model_len.or(context),
                    max_osl: self.max_osl,
                    max_queued: None,
                    pace: self.pace,
                    prefix_cache: None,
                    under_way: under_way(limits(dialect, self.max_num_seqs, None)),
                    source,
                    tokenizer: Arc::clone(&tokenizer),
                },
                names,
                root,
                streaming: Streaming {
                    tokens_per_chunk: self.tokens_per_chunk,
                    ..Streaming::default()
                },
                dialect,
                fingerprint: dialect.fingerprint(),
                ..Stub::echo(tokenizer)
            },
        })
    }
}

/// How many requests a dialect's server takes at once and lets wait, and what it keeps of their names.
fn limits(dialect: Dialect, running: Option<u64>, queued: Option<u64>) -> Limits {
    let manner = dialect.manner();
    Limits {
        keeps_names: manner.keeps_names,
        shares_names: manner.shares_names,
        running,
        queued,
    }
}

/// What a stub keeps of requests under way, if it does.
fn under_way(limits: Limits) -> Option<Arc<UnderWay>> {
    (limits != Limits::default()).then(|| UnderWay::new(limits))
}

fn address(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let found = (host, port).to_socket_addrs();
    let mut found =
        found.with_context(|| format!("--host {host} is no address of this machine"))?;
    found
        .next()
        .with_context(|| format!("--host {host} has no address"))
}

/// The tokenizer that a flag names.
pub(crate) fn tokenizer(flag: &str, spec: &str) -> anyhow::Result<Tokenizer> {
    Tokenizer::find(spec, |path| std::fs::read_to_string(path).ok())
        .with_context(|| format!("{flag} {spec}"))
}

pub(crate) fn source(
    spec: &str,
    tokenizer: &Arc<Tokenizer>,
    seed: u64,
) -> anyhow::Result<Box<dyn Source>> {
    if let Some(text) = spec.strip_prefix("fixed:") {
        return Ok(Box::new(Fixed::new(text, tokenizer)));
    }
    if let Some(path) = spec.strip_prefix("script:") {
        let named = || format!("--source {spec}");
        let json = std::fs::read_to_string(path).with_context(named)?;
        let file = ScriptFile::from_json(&json, tokenizer).with_context(named)?;
        return Ok(Box::new(file));
    }
    match spec {
        "echo" => Ok(Box::new(Echo {
            tokenizer: Arc::clone(tokenizer),
        })),
        "tokens" => Ok(Box::new(RandomTokens::new(tokenizer, seed))),
        _ => bail!("--source {spec}: use echo, fixed:TEXT, script:FILE or tokens"),
    }
}

/// A readable text of so many characters.
fn filler(characters: u64) -> String {
    let words = "The quick brown fox jumps over the lazy dog. ";
    let count = usize::try_from(characters).unwrap_or(usize::MAX);
    words.chars().cycle().take(count).collect()
}

/// A stub that listens.
#[derive(Debug)]
pub struct Running {
    pub(crate) server: Server,
    pub(crate) drain: Duration,
}

/// Starts what the flags ask for; whatever is wrong is wrong usage, and nothing has been served.
pub fn start(command: Command) -> anyhow::Result<Running> {
    let checked = command.checked(&|name| std::env::var(name).ok())?;
    let server = Server::start(&checked.config, Arc::new(checked.stub))?;
    Ok(Running {
        server,
        drain: checked.drain,
    })
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Stops it.
    pub fn stop(self) -> std::io::Result<Stopped> {
        self.server.stop(self.drain)
    }

    /// Says where it listens and serves until SIGTERM or SIGINT; gives the exit code.
    pub fn until_signal(self) -> anyhow::Result<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let mut signals = {
            let _entered = runtime.enter();
            Signals::new()?
        };
        announce(self.address())?;
        runtime.block_on(signals.next());
        std::thread::spawn(move || {
            runtime.block_on(signals.next());
            exit_now();
        });
        let stopped = self.stop()?;
        if let Some(late) = stopped.lateness {
            tracing::info!(
                "pacing: {} steps, written {:?} late on average, {:?} at p50, {:?} at p99, {:?} at most",
                late.steps,
                late.mean,
                late.p50,
                late.p99,
                late.max
            );
        }
        if stopped.truth_dropped > 0 {
            tracing::error!("the truth file lacks {} records", stopped.truth_dropped);
            return Ok(1);
        }
        Ok(0)
    }
}

#[expect(clippy::exit, reason = "a second signal ends the process at once")]
fn exit_now() -> ! {
    std::process::exit(130)
}

/// The first line on stdout, which scripts wait for.
fn announce(address: SocketAddr) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on http://{address}")?;
    out.flush()
}

struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// Listens from now on; a runtime must be entered.
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
