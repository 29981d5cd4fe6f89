//! The `bench` command: what was typed, and what it means.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::BoolishValueParser;
use serde_json::{Map, Value};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use vocab::Tokenizer;
use wire::request::Endpoint;

use crate::arrival::Arrival;
use crate::bench::{self, Config, Dialect, Limit, TokenCountSource};
use crate::dataset::{self, Sample};
use crate::error::UsageError;
use crate::files;
use crate::report::{self, Summary};
use crate::stub::Stub;

const EXAMPLES: &str = "\
Examples:
  stubline bench --stub max --load burst --requests 20000
  stubline bench --url http://127.0.0.1:8000 --dataset prompts.jsonl --load poisson:50 --duration 30s
  stubline bench --stub max --load concurrency:64 --warm-up 2s --until-stable
  stubline bench --url http://127.0.0.1:30000 --dialect sglang --endpoint generate --tokenizer FOLDER

Exit code: 0 all samples completed, 1 a sample failed or the run was interrupted, 2 wrong usage or
input, 4 all completed, but some of the primary token counts are missing.";

const UNTIL_STABLE: &str = "\
End once the 95% interval of the mean throughput is within ± this share [=1%]

The throughput is taken in windows of half a second from the end of the warm-up, six at least. All
of them count, a slow start too: leave it out with --warm-up. The run ends after --duration in any
case; the report says how well the throughput is known then.";

/// Arguments of the benchmark client.
#[derive(Clone, Debug, clap::Args)]
#[command(
    about = "Measure a server: rates, latencies, and tokens as both sides count them",
    after_help = EXAMPLES
)]
#[group(skip)]
pub struct Args {
    /// Server to measure
    #[arg(long, value_name = "http://HOST:PORT")]
    url: Option<String>,
    /// Stub to start and measure: the words after `stubline serve`
    #[arg(long, value_name = "SPEC", conflicts_with = "url")]
    stub: Option<String>,
    /// Model to ask for [default: the first of /v1/models]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// vllm, sglang, executorch or openai
    #[arg(long, default_value = "vllm")]
    dialect: Dialect,
    /// Route to measure: chat, completions, or generate, which is SGLang's own
    #[arg(long, default_value = "chat", value_parser = endpoint)]
    endpoint: Endpoint,
    #[arg(
        long,
        value_name = "FILE|random:ISL,OSL",
        default_value = "random:128,128",
        help = "JSON lines of {prompt|messages|input_ids, max_tokens?, id?}, or random prompts"
    )]
    dataset: String,
    /// How the client counts tokens: char, byte, word, a tokenizer.json or its folder
    #[arg(long, value_name = "NAME|PATH", default_value = "char")]
    tokenizer: String,
    /// burst, concurrency:N, poisson:QPS or constant:QPS
    #[arg(long, default_value = "concurrency:32")]
    load: Arrival,
    /// Number of requests
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    requests: Option<u64>,
    /// How long to send requests behind the warm-up: 250ms, 10s, 1m [default: 10s, 60s with --until-stable]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Send requests for this long first, which count in no figure
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    warm_up: Duration,
    #[arg(
        long,
        value_name = "SHARE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1%",
        value_parser = share,
        conflicts_with = "requests",
        help = "End once the 95% interval of the mean throughput is within ± this share [=1%]",
        long_help = UNTIL_STABLE
    )]
    until_stable: Option<f64>,
    /// Ask for streamed answers
    #[arg(
        long,
        value_name = "on|off",
        default_value = "on",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
        action = clap::ArgAction::Set
    )]
    stream: bool,
    /// Do not ask for usage in streams
    #[arg(long)]
    no_stream_include_usage: bool,
    /// Whose token counts get the plain names: client or server
    #[arg(long, value_name = "SOURCE", default_value = "client")]
    token_count_source: TokenCountSource,
    /// Output tokens to ask for where the data set does not say
    #[arg(long, value_name = "N")]
    max_tokens: Option<u32>,
    /// Answers to ask for with each prompt; of several, streams are not asked for usage
    #[arg(long, value_name = "N", default_value_t = 1)]
    n: u32,
    /// Ask for answers that go on behind their end token, to the length asked for
    #[arg(long)]
    ignore_eos: bool,
    /// Members to add to each request's body
    #[arg(long, value_name = "JSON", value_parser = object)]
    extra_body: Option<Map<String, Value>>,
    /// Most connections [default: the concurrency, 64 for burst, else 256]
    #[arg(long, value_name = "N")]
    connections: Option<usize>,
    /// Threads that send [default: half the cores]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// How long a request may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    timeout: Duration,
    /// Bearer token to send
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Seed of random prompts and arrival times
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Folder for the summary, the events, the token accounting and the report
    #[arg(long, value_name = "DIR")]
    report_dir: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Format {
    /// One JSON document.
    Json,
    /// For people.
    Table,
}

/// Runs the command and gives its exit code.
///
/// # Errors
/// [`UsageError`] is for exit code 2, all others for 1.
pub fn run(args: Args) -> anyhow::Result<u8> {
    let (format, report_dir, spec) = (args.format, args.report_dir.clone(), args.stub.clone());
    let mut config = args.config()?;
    if let Some(dir) = &report_dir {
        let wrong = |error| UsageError(format!("--report-dir {}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(wrong)?;
    }
    let stub = spec.as_deref().map(|spec| Stub::start(spec, None));
    let stub = stub.transpose()?;
    if let Some(stub) = &stub {
        config.url.clone_from(&stub.url);
    }
    files::raise_limit();
    end_at_signal(&config.interrupt, || exit_now())?;
    let run = bench::run(&config)?;
    drop(stub);
    let summary = Summary::new(&run, &config);
    let text = report::text(&summary);
    if let Some(dir) = &report_dir {
        report::write_folder(dir, &run, &config, &summary)
            .with_context(|| format!("failed to write the report to {}", dir.display()))?;
    }
    let printed = match format {
        Format::Json => report::json(&summary),
        Format::Table => text,
    };
    std::io::stdout()
        .write_all(printed.as_bytes())
        .context("failed to print the report")?;
    Ok(summary.exit_code())
}

/// Whoever signals a process and then its group means one signal.
const SAME_SIGNAL: Duration = Duration::from_millis(250);

/// Ends the run at the first SIGINT, SIGTERM or SIGHUP; what is done `again` at each later one may end the process.
pub(crate) fn end_at_signal(
    interrupt: &Arc<AtomicBool>,
    again: impl Fn() + Send + 'static,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let interrupt = Arc::clone(interrupt);
    let entered = runtime.enter();
    let (mut int, mut term, mut hangup) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    );
    drop(entered);
    std::thread::spawn(move || {
        let mut next = || {
            runtime.block_on(async {
                tokio::select! {
                    _ = int.recv() => {}
                    _ = term.recv() => {}
                    _ = hangup.recv() => {}
                }
            });
        };
        next();
        interrupt.store(true, Ordering::Relaxed);
        let first = Instant::now();
        loop {
            next();
            if first.elapsed() >= SAME_SIGNAL {
                again();
            }
        }
    });
    Ok(())
}

#[expect(clippy::exit, reason = "a second signal ends the process at once")]
fn exit_now() -> ! {
    std::process::exit(130)
}

impl Args {
    /// What the arguments mean; the URL is still empty where a stub is to be started.
    fn config(self) -> Result<Config, UsageError> {
        let tokenizer = tokenizer(&self.tokenizer)?;
        let limit = match (self.requests, self.duration) {
            (Some(0), _) => return Err(UsageError("--requests must be at least 1".into())),
            (Some(requests), _) => Limit::Requests(requests),
            (None, duration) => {
                let seconds = if self.until_stable.is_some() { 60 } else { 10 };
                Limit::Duration(duration.unwrap_or_else(|| Duration::from_secs(seconds)))
            }
        };
        let samples = samples(&self.dataset, &tokenizer, self.endpoint, limit, self.seed)?;
        if self.url.is_none() && self.stub.is_none() {
            let message = "which server? --url http://HOST:PORT, or --stub max to start one";
            return Err(UsageError(message.into()));
        }
        let url = self.url.unwrap_or_default();
        let defaults = Config::new(url, Arc::new(samples), Arc::new(tokenizer));
        let config = Config {
            model: self.model,
            dialect: self.dialect,
            endpoint: self.endpoint,
            load: self.load,
            limit,
            stream: self.stream,
            include_usage: !self.no_stream_include_usage,
            token_count_source: self.token_count_source,
            connections: self.connections,
            workers: self.workers.unwrap_or(defaults.workers),
            timeout: self.timeout,
            max_tokens: self.max_tokens,
            n: self.n,
            ignore_eos: self.ignore_eos,
            extra_body: self.extra_body.unwrap_or_default(),
            api_key: self.api_key,
            seed: self.seed,
            warm_up: self.warm_up,
            until_stable: self.until_stable,
            keep_events: self.report_dir.is_some(),
            progress: true,
            ..defaults
        };
        config.check()?;
        Ok(config)
    }
}

/// Reads a JSON object.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}

pub(crate) fn endpoint(word: &str) -> Result<Endpoint, &'static str> {
    match word {
        "chat" => Ok(Endpoint::Chat),
        "completions" => Ok(Endpoint::Completions),
        "generate" => Ok(Endpoint::Generate),
        _ => Err("expected chat, completions or generate"),
    }
}

/// Reads a time, which may be 0.
fn time(text: &str) -> Result<Duration, &'static str> {
    humantime::parse_duration(text).map_err(|_| "expected a time such as 250ms, 10s or 1m")
}

/// Reads a time above 0.
///
/// # Errors
/// What was expected.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let duration = humantime::parse_duration(text).unwrap_or_default();
    let is_some = !duration.is_zero();
    is_some
        .then_some(duration)
        .ok_or("expected a time above 0 such as 250ms, 10s or 1m")
}

/// Reads a percentage between 0 and 100 as a share.
fn share(text: &str) -> Result<f64, &'static str> {
    let number = text
        .strip_suffix('%')
        .and_then(|number| number.parse().ok());
    let share = number.map(|number: f64| number / 100.0);
    let usable = share.filter(|share| (f64::MIN_POSITIVE..1.0).contains(share));
    usable.ok_or("expected a percentage such as 1% or 0.5%")
}

pub(crate) fn tokenizer(name: &str) -> Result<Tokenizer, UsageError> {
    Tokenizer::find(name, |path| std::fs::read_to_string(path).ok()).map_err(|error| {
        let error = anyhow::Error::new(error);
        UsageError(format!("--tokenizer {name}: {error:#}"))
    })
}

/// Most distinct random samples, and most of their tokens together.
const RANDOM_SAMPLES: u64 = 1000;
const RANDOM_TOKENS: u64 = 4_000_000;

/// Samples of a file, or random ones: as token ids where the endpoint takes them.
pub(crate) fn samples(
    dataset: &str,
    tokenizer: &Tokenizer,
    endpoint: Endpoint,
    limit: Limit,
    seed: u64,
) -> Result<Vec<Sample>, UsageError> {
    let Some(lengths) = dataset.strip_prefix("random:") else {
        return dataset::read(Path::new(dataset));
    };
    let read = lengths
        .split_once(',')
        .and_then(|(isl, osl)| Some((isl.parse::<u32>().ok()?, osl.parse().ok()?)))
        .filter(|&(isl, osl)| isl > 0 && osl > 0);
    let (isl, osl) = read.ok_or_else(|| {
        UsageError(format!(
            "--dataset {dataset}: expected random:ISL,OSL, two numbers of tokens above 0"
        ))
    })?;
    let wanted = match limit {
        Limit::Duration(_) => RANDOM_SAMPLES,
        Limit::Requests(requests) => requests.min(RANDOM_SAMPLES),
    };
    let count = wanted.clamp(1, (RANDOM_TOKENS / u64::from(isl.max(1))).max(1));
    let (isl, count) = (
        isl as usize,
        usize::try_from(count).expect("at most a thousand"),
    );
    let mut samples = dataset::random(isl, osl, count, &tokenizer.vocab, seed);
    if endpoint == Endpoint::Generate {
        dataset::encode(&mut samples, &tokenizer.vocab);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::dataset::Prompt;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn config(line: &str) -> Result<Config, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        command.args.config().map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_help() {
        let config = config("--url http://h:1").unwrap();
        assert_eq!(config.load, Arrival::Concurrency(32));
        assert_eq!(config.limit, Limit::Duration(Duration::from_secs(10)));
        assert_eq!(config.samples.len(), 1000);
        assert_eq!(config.samples[0].max_tokens, Some(128));
        assert_eq!(config.endpoint, Endpoint::Chat);
        assert!(config.stream && config.include_usage && !config.keep_events);
    }

    #[test]
    fn every_flag_reaches_the_configuration() {
        let config = config(
            "--stub echo --n 2 --model m --dialect openai --endpoint completions --dataset random:5,6 \
             --tokenizer word --load burst --requests 7 --stream off --no-stream-include-usage \
             --max-tokens 8 --connections 9 --workers 3 \
             --timeout 1.5s --api-key k --seed 4 --report-dir d --format json --warm-up 2s --extra-body {\"stop\":\"E\"}",
        )
        .unwrap();
        assert_eq!(config.warm_up, Duration::from_secs(2));
        assert_eq!(config.extra_body["stop"], "E");
        assert_eq!(
            (config.load, config.limit),
            (Arrival::Burst, Limit::Requests(7))
        );
        assert_eq!(
            (config.dialect, config.endpoint),
            (Dialect::Openai, Endpoint::Completions)
        );
        assert_eq!(
            (config.samples.len(), config.samples[0].max_tokens),
            (7, Some(6))
        );
        assert!(!config.stream && !config.include_usage && config.keep_events);
        assert_eq!(
            (config.max_tokens, config.connections, config.workers),
            (Some(8), Some(9), 3)
        );
        assert_eq!(config.n, 2);
        assert_eq!(config.timeout, Duration::from_millis(1500));
        assert_eq!((config.api_key.as_deref(), config.seed), (Some("k"), 4));
        assert_eq!(config.model.as_deref(), Some("m"));
    }

    #[test]
    fn a_native_run_asks_with_ids_where_the_tokenizer_has_them() {
        let native = "--url http://h:1 --dialect sglang --endpoint generate --ignore-eos \
                      --token-count-source server --dataset random:5,6";
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/tokenizers/bpe");
        let text = config(native).unwrap();
        assert!(matches!(text.samples[0].prompt, Prompt::Text(_)) && text.ignore_eos);
        assert_eq!(text.token_count_source, TokenCountSource::Server);
        let ids = config(&format!("{native} --tokenizer {folder}")).unwrap();
        assert!(matches!(&ids.samples[0].prompt, Prompt::InputIds(ids) if ids.len() == 5));
    }

    #[test]
    fn a_run_until_stable_lasts_a_minute_at_most_unless_told() {
        let minute = Limit::Duration(Duration::from_mins(1));
        for (flags, allowed, limit) in [
            ("--until-stable", 0.01, minute),
            ("--until-stable=2.5%", 0.025, minute),
            (
                "--until-stable --duration 5s",
                0.01,
                Limit::Duration(Duration::from_secs(5)),
            ),
        ] {
            let config = config(&format!("--url http://h:1 {flags}")).unwrap();
            assert_eq!((config.until_stable, config.limit), (Some(allowed), limit));
        }
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for line in [
            "",
            "--url http://h:1 --stub echo",
            "--url http://h:1 --requests 1 --duration 1s",
            "--url http://h:1 --load often",
            "--url http://h:1 --timeout 0s",
            "--url http://h:1 --duration 10",
            "--url http://h:1 --warm-up 10",
            "--url http://h:1 --until-stable=1",
            "--url http://h:1 --until-stable=0%",
            "--url http://h:1 --until-stable=100%",
            "--url http://h:1 --until-stable --requests 9",
            "--url http://h:1 --stream maybe",
            "--url http://h:1 --dataset random:1",
            "--url http://h:1 --dataset random:0,5",
            "--url http://h:1 --requests 0",
            "--url http://h:1 --dataset /nowhere.jsonl",
            "--url http://h:1 --tokenizer /nowhere",
            "--url http://h:1 --endpoint generate",
            "--url http://h:1 --dialect openai --endpoint generate",
            "--url http://h:1 --dialect sglang --endpoint generate --no-stream-include-usage",
            "--url http://h:1 --dialect sglang --endpoint embeddings",
            "--url http://h:1 --dialect executorch --ignore-eos",
            "--url http://h:1 --token-count-source server --no-stream-include-usage",
            "--url http://h:1 --token-count-source both",
            "--url http://h:1 --n 0",
        ] {
            assert!(config(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_tokenizer_is_a_folder_or_a_file_in_it() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/tokenizers/bpe");
        for path in [folder.to_owned(), format!("{folder}/tokenizer.json")] {
            assert!(tokenizer(&path).unwrap().template.is_some(), "{path}");
        }
        let error = tokenizer("/nowhere").unwrap_err().to_string();
        assert!(error.starts_with("--tokenizer /nowhere: "), "{error}");
    }
}
