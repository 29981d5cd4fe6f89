//! `stubline serve sglang`: the real server's flags, by its own names.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;
use plan::stub::{Parsers, Stub};
use plan::under_way::UnderWay;
use plan::{Front, PrefixCache, ReasoningParser, ToolParser};
use serde_json::Value;
use wire::dialect::sglang::info::Info;

use super::ignored::{Ignored, OfSglang};
use super::{Checked, Common, Env, limits};

/// The context where neither a flag nor the model's folder tells one.
const DEFAULT_CONTEXT: u64 = 131_072;
/// How long it takes to see whether the server is well.
const HEALTH_TAKES: Duration = Duration::from_secs(1);
/// How long uvicorn keeps an idle connection.
const UVICORN_KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Flags of `serve sglang`, by the real server's names.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the real server's switches")]
pub struct SglangArgs {
    #[command(flatten)]
    common: Common,
    /// Longest prompt and answer together (default: what the tokenizer's folder says)
    #[arg(long, value_name = "TOKENS", conflicts_with = "max_model_len")]
    context_length: Option<u64>,
    /// Split reasoning from content: `qwen3` or `deepseek-r1`
    #[arg(long, value_name = "NAME")]
    reasoning_parser: Option<String>,
    /// Find tool calls in the text: `qwen25` or `hermes`
    #[arg(long, value_name = "NAME")]
    tool_call_parser: Option<String>,
    /// Key that must be given as a bearer token
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Frames of /generate say what is new, not all so far
    #[arg(long)]
    incremental_streaming_output: bool,
    /// Tokens of each chunk behind the first
    #[arg(long, default_value_t = 1, value_name = "TOKENS")]
    stream_interval: u32,
    /// End every stream with usage
    #[arg(long)]
    stream_response_default_include_usage: bool,
    /// Tell in usage how many prompt tokens the prefix cache had
    #[arg(long)]
    enable_cache_report: bool,
    /// Serve /metrics, and tell the times of a request's stages
    #[arg(long)]
    enable_metrics: bool,
    /// Find nothing in the prefix cache
    #[arg(long)]
    disable_radix_cache: bool,
    /// Take and give token ids alone
    #[arg(long)]
    skip_tokenizer_init: bool,
    /// Requests that run at a time (default: any number)
    #[arg(long, value_name = "NUMBER")]
    max_running_requests: Option<u64>,
    /// Requests that wait for their turn (default: any number)
    #[arg(long, value_name = "NUMBER")]
    max_queued_requests: Option<u64>,
    /// The HTTP parser whose heads to write: h11 or httptools
    #[arg(long, default_value = "h11", value_name = "NAME")]
    http: HttpParser,
    /// Answer /health at once; the real server generates a token first, which takes a second
    #[arg(long)]
    fast_health: bool,
    #[command(flatten)]
    ignored: Ignored<OfSglang>,
}

/// An HTTP parser of uvicorn.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum HttpParser {
    /// What uvicorn runs on by itself.
    H11,
    /// What `uvicorn[standard]` brings.
    Httptools,
}

impl SglangArgs {
    /// Checks the flags and what the real server reads from the environment.
    pub(super) fn checked(self, env: Env<'_>) -> anyhow::Result<Checked> {
        self.ignored.warn();
        ensure!(
            self.stream_interval > 0,
            "--stream-interval must be at least 1"
        );
        let mut common = self.common.clone();
        if env("SGLANG_RUST_SERVER").as_deref() == Some("1") {
            common
                .profile
                .get_or_insert_with(|| "sglang-0.5.23-rust".into());
        }
        let mut dialect = common.dialect("sglang")?;
        if self.http == HttpParser::Httptools {
            dialect = dialect.with_httptools();
        }
        let keep_alive = match env("SGLANG_TIMEOUT_KEEP_ALIVE") {
            None => UVICORN_KEEP_ALIVE,
            Some(seconds) => seconds.parse().map(Duration::from_secs).map_err(|_| {
                anyhow!("SGLANG_TIMEOUT_KEEP_ALIVE={seconds} is no number of seconds")
            })?,
        };
        let config = common.tokenizer.as_deref().and_then(config_of);
        let in_folder = config.as_ref().and_then(context_of);
        let context = self.context_length.or(in_folder).unwrap_or(DEFAULT_CONTEXT);
        let mut checked = common.checked(dialect, "model", Some(context), Some(keep_alive))?;
        checked.stub.info = self.info(&checked, config.as_ref());
        self.apply(&mut checked.stub)?;
        Ok(checked)
    }

    /// What the server tells of itself.
    fn info(&self, checked: &Checked, config: Option<&Value>) -> Info {
        let told = |name: &str| config.and_then(|config| config.get(name)).cloned();
        let (stub, address) = (&checked.stub, checked.config.address);
        let text = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
        let number = |number: Option<u64>| number.map_or(Value::Null, Value::from);
        let root = stub.root.as_str();
        Info {
            architectures: told("architectures")
                .and_then(|names| serde_json::from_value(names).ok()),
            arguments: vec![
                ("model_path", root.into()),
                ("tokenizer_path", root.into()),
                ("served_model_name", (*stub.names[0]).into()),
                ("host", address.ip().to_string().into()),
                ("port", address.port().into()),
                ("context_length", number(self.context_length)),
                ("reasoning_parser", text(&self.reasoning_parser)),
                ("tool_call_parser", text(&self.tool_call_parser)),
                ("api_key", text(&self.api_key)),
                (
                    "incremental_streaming_output",
                    self.incremental_streaming_output.into(),
                ),
                ("stream_interval", self.stream_interval.into()),
                (
                    "stream_response_default_include_usage",
                    self.stream_response_default_include_usage.into(),
                ),
                ("enable_cache_report", self.enable_cache_report.into()),
                ("enable_metrics", self.enable_metrics.into()),
                ("disable_radix_cache", self.disable_radix_cache.into()),
                ("skip_tokenizer_init", self.skip_tokenizer_init.into()),
                ("max_running_requests", number(self.max_running_requests)),
                ("max_queued_requests", number(self.max_queued_requests)),
            ],
            launch_command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
            model_type: told("model_type").and_then(|name| name.as_str().map(str::to_owned)),
        }
    }

    fn apply(self, stub: &mut Stub) -> anyhow::Result<()> {
        stub.parsers = Parsers {
            lax_tool_calls: false,
            reasoning: self
                .reasoning_parser
                .as_deref()
                .map(reasoning)
                .transpose()?,
            tools: self.tool_call_parser.as_deref().map(tools).transpose()?,
        };
        ensure!(
            self.max_running_requests != Some(0),
            "--max-running-requests must be at least 1"
        );
        let running = self.max_running_requests.or(self.common.max_num_seqs);
        let limits = limits(stub.dialect, running, self.max_queued_requests);
        stub.engine.under_way = Some(UnderWay::new(limits));
        let streaming = &mut stub.streaming;
        streaming.cache_report = self.enable_cache_report;
        streaming.force_include_usage = self.stream_response_default_include_usage;
        streaming.incremental = self.incremental_streaming_output;
        streaming.stream_interval = self.stream_interval;
        streaming.tells_stages = self.enable_metrics;
        streaming.without_text = self.skip_tokenizer_init;
        stub.engine.prefix_cache = (!self.disable_radix_cache).then(PrefixCache::radix);
        stub.front = Front {
            allowed_origins: stub.dialect.allowed_origins(),
            api_keys: self.api_key.into_iter().collect(),
            health_takes: if self.fast_health {
                Duration::ZERO
            } else {
                HEALTH_TAKES
            },
            serves_info: true,
            serves_metrics: self.enable_metrics,
            ..Front::default()
        };
        Ok(())
    }
}

/// A reasoning parser by SGLang's name for it.
fn reasoning(name: &str) -> anyhow::Result<ReasoningParser> {
    ReasoningParser::sglang(name).context("--reasoning-parser")
}

/// A tool parser by SGLang's name for it.
fn tools(name: &str) -> anyhow::Result<ToolParser> {
    ToolParser::sglang(name).context("--tool-call-parser")
}

/// What a model's folder says of it.
fn config_of(folder: &str) -> Option<Value> {
    let config = std::fs::read(Path::new(folder).join("config.json")).ok()?;
    serde_json::from_slice(&config).ok()
}

/// The context that a model's configuration tells of.
fn context_of(config: &Value) -> Option<u64> {
    config.get("max_position_embeddings")?.as_u64()
}
