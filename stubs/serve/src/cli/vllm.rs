//! `stubline serve vllm`: the real server's flags, by its own names.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use plan::stub::{Parsers, Stub};
use plan::{Front, PrefixCache, ReasoningParser, ToolParser};

use super::ignored::{Ignored, OfVllm};
use super::{Checked, Common, Env};

/// The context of a real server that was not told otherwise.
const DEFAULT_MODEL_LEN: u64 = 131_072;
/// How long uvicorn keeps an idle connection.
const UVICORN_KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Flags of `serve vllm`, by the real server's names.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the real server's switches")]
pub struct VllmArgs {
    /// The model argument
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    model_tag: Option<String>,
    #[command(flatten)]
    common: Common,
    /// Split reasoning from content: `qwen3` or `deepseek_r1`
    #[arg(long, value_name = "NAME")]
    reasoning_parser: Option<ReasoningParser>,
    /// Let the model decide whether to call tools
    #[arg(long, requires = "tool_call_parser")]
    enable_auto_tool_choice: bool,
    /// Find tool calls in the text: hermes
    #[arg(long, value_name = "NAME")]
    tool_call_parser: Option<ToolParser>,
    /// Send usage on every chunk of every stream
    #[arg(long)]
    enable_force_include_usage: bool,
    /// Tell in usage how many prompt tokens the prefix cache had
    #[arg(long)]
    enable_prompt_tokens_details: bool,
    /// Tokens of a block of the prefix cache
    #[arg(long, default_value_t = 128, value_name = "TOKENS")]
    block_size: usize,
    /// Answer with an x-request-id header
    #[arg(long)]
    enable_request_id_headers: bool,
    /// Keys of which one must be given as a bearer token
    #[arg(long, num_args = 1.., value_name = "KEY")]
    api_key: Vec<String>,
    /// Tokens of each chunk behind the first
    #[arg(long, default_value_t = 1, value_name = "TOKENS")]
    stream_interval: u32,
    /// Send a comment when a stream was silent for so many seconds, 0 for never
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    sse_keep_alive_interval: f64,
    /// What `system_fingerprint` says: full, hash, custom or none
    #[arg(long, default_value = "full", value_name = "MODE")]
    fingerprint_mode: FingerprintMode,
    /// What it says with --fingerprint-mode custom
    #[arg(long, value_name = "TEXT")]
    fingerprint_value: Option<String>,
    /// Name tokens of logprobs by their ids
    #[arg(long)]
    return_tokens_as_token_ids: bool,
    /// Origins that browsers may ask from, as a JSON list (default: none; vllm-0.10: all)
    #[arg(long, value_name = "JSON")]
    allowed_origins: Option<String>,
    /// Refuse a request of more choices than this
    #[arg(long, value_name = "NUMBER")]
    max_num_queued_reqs: Option<u64>,
    /// Add times to answers of one choice
    #[arg(long)]
    enable_per_request_metrics: bool,
    /// Path prefix of a proxy in front
    #[arg(long, default_value = "", value_name = "PATH")]
    root_path: String,
    /// Serve token routes beside the others
    #[arg(long)]
    enable_scale_out: bool,
    /// Generate from token routes alone
    #[arg(long)]
    tokens_only: bool,
    #[command(flatten)]
    ignored: Ignored<OfVllm>,
}

/// What `system_fingerprint` says.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum FingerprintMode {
    /// Version and a hash of the configuration.
    Full,
    /// The hash alone.
    Hash,
    /// What the next flag says.
    Custom,
    /// Nothing.
    None,
}

impl VllmArgs {
    /// Checks the flags and what the real server reads from the environment.
    pub(super) fn checked(self, env: Env<'_>) -> anyhow::Result<Checked> {
        self.ignored.warn();
        ensure!(
            self.stream_interval > 0,
            "--stream-interval must be at least 1"
        );
        ensure!(self.block_size > 0, "--block-size must be at least 1");
        let mut common = self.common.clone();
        common.model = common.model.or_else(|| self.model_tag.clone());
        let dialect = common.dialect("vllm")?;
        let keep_alive = match env("VLLM_HTTP_TIMEOUT_KEEP_ALIVE") {
            None => UVICORN_KEEP_ALIVE,
            Some(seconds) => seconds.parse().map(Duration::from_secs).map_err(|_| {
                anyhow!("VLLM_HTTP_TIMEOUT_KEEP_ALIVE={seconds} is no number of seconds")
            })?,
        };
        if !dialect.is_proven() {
            tracing::warn!("this profile is not proven by recordings");
        }
        let context = Some(DEFAULT_MODEL_LEN);
        let mut checked = common.checked(dialect, "model", context, Some(keep_alive))?;
        self.apply(&mut checked.stub, env)?;
        Ok(checked)
    }

    fn apply(self, stub: &mut Stub, env: Env<'_>) -> anyhow::Result<()> {
        if self.reasoning_parser.is_some()
            && stub.engine.tokenizer.vocab.added("</think>").is_none()
        {
            bail!("--reasoning-parser needs a --tokenizer with the tokens <think> and </think>");
        }
        stub.fingerprint = self.fingerprint(stub.fingerprint.take())?;
        stub.parsers = Parsers {
            lax_tool_calls: env("VLLM_ENFORCE_STRICT_TOOL_CALLING").as_deref() == Some("0"),
            reasoning: self.reasoning_parser,
            tools: self
                .tool_call_parser
                .filter(|_| self.enable_auto_tool_choice),
        };
        let keep_alive = Duration::try_from_secs_f64(self.sse_keep_alive_interval)
            .context("--sse-keep-alive-interval is no time")?;
        let streaming = &mut stub.streaming;
        streaming.force_include_usage = self.enable_force_include_usage;
        streaming.keep_alive = Some(keep_alive).filter(|interval| !interval.is_zero());
        streaming.request_metrics = self.enable_per_request_metrics;
        streaming.stream_interval = self.stream_interval;
        streaming.tokens_as_ids = self.return_tokens_as_token_ids;
        stub.engine.max_queued = self.max_num_queued_reqs;
        stub.engine.prefix_cache = self
            .enable_prompt_tokens_details
            .then(|| PrefixCache::blocks(self.block_size));
        stub.front = Front {
            allowed_origins: match &self.allowed_origins {
                None => stub.dialect.allowed_origins(),
                Some(list) => serde_json::from_str(list)
                    .context("--allowed-origins takes a JSON list of strings")?,
            },
            api_keys: self.api_key,
            dev_mode: env("VLLM_SERVER_DEV_MODE").as_deref() == Some("1"),
            health_takes: Duration::ZERO,
            request_id_headers: self.enable_request_id_headers,
            root_path: self.root_path.trim_end_matches('/').to_owned(),
            serves_echo: false,
            serves_info: false,
            serves_generate: self.enable_scale_out || self.tokens_only,
            serves_metrics: true,
            tokens_only: self.tokens_only,
        };
        Ok(())
    }

    fn fingerprint(&self, full: Option<Arc<str>>) -> anyhow::Result<Option<Arc<str>>> {
        Ok(match self.fingerprint_mode {
            FingerprintMode::Full => full,
            FingerprintMode::Hash => full.and_then(|full| Some(full.rsplit_once('-')?.1.into())),
            FingerprintMode::Custom => {
                let value = self.fingerprint_value.clone();
                let value =
                    value.context("--fingerprint-mode custom needs a --fingerprint-value")?;
                Some(value.into())
            }
            FingerprintMode::None => None,
        })
    }
}
