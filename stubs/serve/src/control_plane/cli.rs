//! The flags of `stubline serve executorch`: the real server's, and those of the worker in its place.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use clap::ValueEnum;
use plan::control_plane::{ChatTemplate, ControlPlane, Detail, ToolFormat, TurnLog};
use plan::model_worker::{Model, Timing};
use plan::pace::Pace;
use vocab::{Tokenizer, TokenizerError};
use wire::dialect::uvicorn::Parser;
use wire::executorch::{PROFILES, Profile};

use super::Desk;
use super::counters::TurnCounters;
use super::log::Log;
use super::process::Starts;
use super::worker::Worker;
use crate::cli::{HttpParser, Listening, Running, source, tokenizer};
use crate::model_worker::{Behaviour, Prepared, prepare};
use crate::server::{Server, StartError};

/// How long uvicorn keeps an idle connection.
const UVICORN_KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Names the level of the log of turns.
const LEVEL: &str = "STUBLINE_TURN_LOG_LEVEL";
/// The longest prompt and answer of a source without a limit of its own.
const DEFAULT_WINDOW: u64 = 131_072;

/// Flags of `serve executorch`.
#[derive(clap::Args, Debug)]
#[command(mut_arg("workers", |workers| workers.help("Threads that serve (default: 1)")))]
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

/// Starts the server and its worker; whatever is wrong is wrong usage, and nothing has been served.
/// Turns are logged to `log`.
pub fn start(args: &Args, log: impl Write + Send + 'static) -> anyhow::Result<Running> {
    args.check()?;
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
    let desk = || {
        let worker = Worker::start(starts, profile).map_err(|error| {
            let named = args.worker_bin.as_ref();
            let named = named.map(|binary| format!("--worker-bin {}: ", binary.display()));
            StartError::ModelWorker(format!("{}{error}", named.unwrap_or_default()))
        })?;
        Ok(Desk {
            counters: TurnCounters::default(),
            has_metrics: args.metrics,
            log: Log::new(form, detail, Box::new(log)),
            parser: match args.http {
                HttpParser::H11 => Parser::H11,
                HttpParser::Httptools => Parser::Httptools,
            },
            plane,
            worker,
        })
    };
    let server = Server::control_plane(&config, desk)?;
    args.warn();
    Ok(Running {
        server,
        drain: args.listening.drain,
    })
}

impl Args {
    /// Refuses flags that could do nothing beside others.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.num_runners == 1,
            "--num-runners must be 1: one worker has many sessions, and more would load the model again"
        );
        ensure!(self.max_osl != Some(0), "--max-osl must be at least 1");
        ensure!(
            self.source.is_none() || self.model_path.is_none(),
            "use --source or --model-path, not both"
        );
        if self.worker_bin.is_some() {
            let says = self.source.is_some() || self.max_osl.is_some() || self.pace.is_some();
            ensure!(
                !says && !self.behaviour.says_anything(),
                "--worker-bin has what it says, its pace and its sessions from its own --model-path; \
                 leave out flags that are for our worker"
            );
            ensure!(
                self.model_path.is_some() && self.tokenizer_path.is_some(),
                "--worker-bin is called with --model-path and --tokenizer-path: give both"
            );
        }
        if let Some(PaceArg::Pace(Pace::Steady { ttft, itl })) = self.pace {
            ensure!(
                ttft >= itl,
                "--pace: a worker's first text comes with its first step, so ttft must not be below itl"
            );
        }
        Ok(())
    }

    /// Says what a user of the real server would miss.
    fn warn(&self) {
        if self.hf_tokenizer.is_none() && !self.allow_chatml_fallback {
            tracing::warn!(
                "no --hf-tokenizer: plain ChatML stands in for a chat template, which the real server \
                 does with --allow-chatml-fallback alone"
            );
        }
        if self.hf_tokenizer.is_none() && self.max_context.is_some() {
            tracing::warn!(
                "--max-context does nothing without --hf-tokenizer, which counts prompts"
            );
        }
    }

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
        let template = match &self.hf_tokenizer {
            Some(path) => {
                let named = || format!("--hf-tokenizer {}", path.display());
                let read = |name: &str| std::fs::read_to_string(path.join(name)).ok();
                let tokenizer = Tokenizer::from_files(read).map_err(|error| match error {
                    TokenizerError::Missing => anyhow!("there is no tokenizer.json in it"),
                    error => anyhow!(error),
                });
                let tokenizer = Arc::new(tokenizer.with_context(named)?);
                match ChatTemplate::of(tokenizer) {
                    Err(_) if self.allow_chatml_fallback => ChatTemplate::chatml(),
                    template => template.with_context(named)?,
                }
            }
            None => ChatTemplate::chatml(),
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
            return Ok(Starts::Process {
                binary: binary.clone(),
                model_path: self.model_path.clone().unwrap_or_default(),
                tokenizer_path: tokenizer_path.to_owned(),
            });
        }
        let of_source = self.source.as_deref();
        let of_source = of_source.and_then(|source| source.strip_prefix("script:"));
        let script = match of_source {
            Some(path) => Some(("--source", path)),
            None => self
                .model_path
                .as_deref()
                .map(|path| ("--model-path", path)),
        };
        let (mut prepared, pace) = match script {
            Some(model) => {
                ensure!(
                    self.max_osl.is_none(),
                    "--max-osl is for sources that are no scripts"
                );
                let tokenizer = ("--tokenizer-path", tokenizer_path);
                (prepare(model, tokenizer)?, PaceArg::Costs)
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
        Ok(Prepared {
            model,
            tokenizer,
            timing: Timing::Strict,
        })
    }
}
