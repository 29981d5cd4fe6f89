//! The flags of `stubline serve executorch`: the real server's, and those of the worker in its place.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::ValueEnum;
use plan::control_plane::{ChatTemplate, ControlPlane, Detail, ToolFormat, TurnLog};
use plan::model_worker::{Model, Timing};
use plan::pace::Pace;
use wire::dialect::uvicorn::Parser;
use wire::executorch::{PROFILES, Profile};

use super::counters::TurnCounters;
use super::log::Log;
use super::process::Starts;
use super::worker::Worker;
use super::{Desk, run};
use crate::cli::{HttpParser, Listening, Running, source, tokenizer};
use crate::model_worker::{Behaviour, Prepared, prepare};
use crate::server::Server;

/// How long uvicorn keeps an idle connection.
const UVICORN_KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Names the level of the log of turns.
const LEVEL: &str = "STUBLINE_TURN_LOG_LEVEL";
/// The longest prompt and answer of a source without a limit of its own.
const DEFAULT_WINDOW: u64 = 131_072;

/// Flags of `serve executorch`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    listening: Listening,
    /// A script file, or what `--worker-bin` is to load
    #[arg(long, value_name = "FILE")]
    model_path: Option<String>,
    /// How the worker cuts prompts: char, byte, word, a tokenizer.json or its folder (default: char)
    #[arg(long, alias = "tokenizer", value_name = "NAME|PATH")]
    tokenizer_path: Option<String>,
    /// What to say without a model file: echo (the default), fixed:TEXT, script:FILE or tokens
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Cut or repeat a source's answers to so many tokens
    #[arg(long, value_name = "TOKENS")]
    max_osl: Option<u64>,
    /// Name of the model
    #[arg(
        long,
        alias = "model",
        alias = "served-model-name",
        default_value = "executorch",
        value_name = "NAME"
    )]
    model_id: String,
    /// A worker to start in place of our own, called as the real server calls it
    #[arg(long, value_name = "FILE")]
    worker_bin: Option<PathBuf>,
    /// Workers, of which there is one
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    num_runners: u64,
    /// Folder with the model's tokenizer and chat template
    #[arg(long, value_name = "PATH")]
    hf_tokenizer: Option<PathBuf>,
    /// Plain ChatML is meant to stand in for a chat template
    #[arg(long)]
    allow_chatml_fallback: bool,
    /// The model does not think unless a request asks for it
    #[arg(long)]
    no_think: bool,
    /// Refuse prompts that do not fit, as the tokenizer counts them
    #[arg(long, value_name = "TOKENS")]
    max_context: Option<u64>,
    /// How answers call tools: hermes or `qwen_xml`
    #[arg(long, default_value = "hermes", value_name = "NAME")]
    tool_call_parser: ToolFormat,
    /// Server version to imitate: executorch-1.5.1 or executorch-cff6f4dd32e6 (default: the newest)
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The HTTP parser whose heads to write: h11 or httptools
    #[arg(long, default_value = "httptools", value_name = "NAME")]
    http: HttpParser,
    /// Close a connection that is idle so long between requests, 0s for never (default: 5s as uvicorn)
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    keep_alive_timeout: Option<Duration>,
    /// Serve /metrics, which the real server does not have
    #[arg(long)]
    metrics: bool,
    /// Keys of the line that each turn gets in the log
    #[arg(long, default_value = "upstream", value_name = "FORM")]
    turn_log: TurnLogArg,
    /// How much of turns is logged (default: the environment's `STUBLINE_TURN_LOG_LEVEL`, else info)
    #[arg(long, value_name = "LEVEL")]
    turn_log_level: Option<DetailArg>,
    /// When our worker speaks: burst, steady:ttft=50ms,itl=10ms, or costs: as its times say (default:
    /// burst; costs with a model file)
    #[arg(long, value_name = "SPEC")]
    pace: Option<PaceArg>,
    #[command(flatten)]
    behaviour: Behaviour,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TurnLogArg {
    /// The real server's, in its order.
    Upstream,
    /// With the reset reason under its own name, request, queue, TTFT and cancellation.
    Strict,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DetailArg {
    Off,
    Debug,
    Info,
}

#[derive(Clone, Copy, Debug)]
enum PaceArg {
    Costs,
    Pace(Pace),
}

impl std::str::FromStr for PaceArg {
    type Err = String;

    fn from_str(spec: &str) -> Result<Self, String> {
        if spec == "costs" {
            return Ok(Self::Costs);
        }
        let pace = spec.parse().map(Self::Pace);
        pace.map_err(|error: plan::pace::PaceError| format!("{error}, or `costs`"))
    }
}

/// Starts the worker and the server; whatever is wrong is wrong usage, and nothing has been served.
/// Turns are logged to `log`.
pub fn start(args: &Args, log: impl Write + Send + 'static) -> anyhow::Result<Running> {
    ensure!(
        args.num_runners == 1,
        "--num-runners must be 1: one worker has many sessions, and more would load the model again"
    );
    let profile = args.profile()?;
    let detail = args.detail(std::env::var(LEVEL).ok().as_deref())?;
    let form = match args.turn_log {
        TurnLogArg::Strict => TurnLog::Strict,
        TurnLogArg::Upstream => TurnLog::Upstream,
    };
    let mut plane = ControlPlane::new(profile, args.model_id.clone(), args.template()?);
    plane.max_context = args.max_context;
    plane.tool_format = args.tool_call_parser;
    let starts = args.starts()?;
    let mut config = args.listening.clone().config()?;
    if !args.listening.says_workers() {
        // The worker takes one turn at a time, so one thread has enough to do.
        config.workers = 1;
    }
    let keep_alive = args.keep_alive_timeout.unwrap_or(UVICORN_KEEP_ALIVE);
    config.keep_alive = Some(keep_alive).filter(|timeout| !timeout.is_zero());
    let worker = Worker::start(starts, profile).map_err(|error| match &args.worker_bin {
        Some(binary) => anyhow!("--worker-bin {}: {error}", binary.display()),
        None => anyhow!(error),
    })?;
    let desk = Arc::new(Desk {
        counters: TurnCounters::default(),
        has_metrics: args.metrics,
        log: Log::new(form, detail, Box::new(log)),
        parser: match args.http {
            HttpParser::H11 => Parser::H11,
            HttpParser::Httptools => Parser::Httptools,
        },
        plane,
        worker,
    });
    let server = Server::control_plane(&config, move |listener, shared| {
        run(listener, shared, Arc::clone(&desk))
    });
    Ok(Running {
        server: server.context("failed to start")?,
        drain: args.listening.drain,
    })
}

impl Args {
    fn profile(&self) -> anyhow::Result<&'static Profile> {
        let name = match self.profile.as_deref() {
            None | Some("executorch") => return Ok(&PROFILES[0]),
            Some(name) => name,
        };
        let found = PROFILES.iter().find(|profile| profile.name == name);
        found.ok_or_else(|| {
            let known = PROFILES.map(|profile| profile.name).join(", ");
            anyhow!("unknown profile `{name}`; known: {known}")
        })
    }

    /// The flag goes before the environment.
    fn detail(&self, env: Option<&str>) -> anyhow::Result<Detail> {
        let level = match (self.turn_log_level, env) {
            (Some(level), _) => level,
            (None, None | Some("")) => DetailArg::Info,
            (None, Some(text)) => DetailArg::from_str(text, true)
                .map_err(|_| anyhow!("{LEVEL}={text}: use off, debug or info"))?,
        };
        Ok(match level {
            DetailArg::Debug => Detail::Debug,
            DetailArg::Info => Detail::Info,
            DetailArg::Off => Detail::Off,
        })
    }

    fn template(&self) -> anyhow::Result<ChatTemplate> {
        let template = if let Some(path) = &self.hf_tokenizer {
            let spec = path.to_str().context("--hf-tokenizer is no text")?;
            let tokenizer = Arc::new(tokenizer("--hf-tokenizer", spec)?);
            match ChatTemplate::of(tokenizer) {
                Err(_) if self.allow_chatml_fallback => ChatTemplate::chatml(),
                template => template.with_context(|| format!("--hf-tokenizer {spec}"))?,
            }
        } else {
            if !self.allow_chatml_fallback {
                tracing::warn!(
                    "no --hf-tokenizer: plain ChatML stands in for a chat template, which the real \
                     server does with --allow-chatml-fallback alone"
                );
            }
            ChatTemplate::chatml()
        };
        Ok(if self.no_think {
            template.without_thinking()
        } else {
            template
        })
    }

    fn starts(&self) -> anyhow::Result<Starts> {
        let tokenizer_path = self.tokenizer_path.as_deref().unwrap_or("char");
        if let Some(binary) = &self.worker_bin {
            ensure!(
                self.source.is_none() && self.pace.is_none(),
                "--worker-bin has what it says and its pace from its own --model-path; leave out \
                 --source and --pace"
            );
            return Ok(Starts::Process {
                binary: binary.clone(),
                model_path: self.model_path.clone().unwrap_or_default(),
                tokenizer_path: tokenizer_path.to_owned(),
            });
        }
        let script = match (&self.source, &self.model_path) {
            (Some(source), _) => source.strip_prefix("script:"),
            (None, path) => path.as_deref(),
        };
        let (mut prepared, pace) = match script {
            Some(path) => {
                ensure!(
                    self.max_osl.is_none(),
                    "--max-osl is for sources that are no scripts"
                );
                (prepare(Path::new(path), tokenizer_path)?, PaceArg::Costs)
            }
            None => (self.sourced(tokenizer_path)?, PaceArg::Pace(Pace::Burst)),
        };
        let settings = &mut prepared.model.settings;
        match self.pace.unwrap_or(pace) {
            PaceArg::Costs => {}
            PaceArg::Pace(Pace::Burst) => settings.sleep = false,
            PaceArg::Pace(Pace::Steady { ttft, itl }) => {
                settings.sleep = true;
                settings.prefill_ms = ttft.saturating_sub(itl).as_secs_f64() * 1e3;
                settings.prefill_ms_per_token = 0.0;
                settings.decode_ms_per_token = itl.as_secs_f64() * 1e3;
            }
        }
        self.behaviour.apply(&mut prepared)?;
        Ok(Starts::Thread(Box::new(prepared)))
    }

    /// A worker that says what a source makes of the last user message.
    fn sourced(&self, tokenizer_path: &str) -> anyhow::Result<Prepared> {
        let tokenizer = Arc::new(tokenizer("--tokenizer-path", tokenizer_path)?);
        let spec = self.source.as_deref().unwrap_or("echo");
        let source = source(spec, &tokenizer, 0)?;
        let mut model = Model::of(source, self.max_osl);
        model.settings.window = Some(DEFAULT_WINDOW);
        if self.max_osl == Some(0) {
            bail!("--max-osl must be at least 1");
        }
        Ok(Prepared {
            model,
            tokenizer,
            timing: Timing::Strict,
        })
    }
}
