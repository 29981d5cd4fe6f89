//! Stub LLM inference servers whose every byte is known, and a harness that proves it.

mod demo;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Stub LLM inference servers whose every byte is known, and a harness that proves it
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  stubline\n  stubline serve echo --port 8000\n  stubline bench --stub max --requests 20000\n  stubline compare --client native --server stub:vllm,stub:sglang\n  stubline conform --url http://127.0.0.1:8000 --profile vllm-0.33.0\n  stubline gap\n  stubline record --url http://127.0.0.1:8000 --cases cases.jsonl --out recorded\n  stubline roofline --scenario usage --report-dir report\n  stubline serve replay recorded"
)]
struct Cli {
    /// What to log: a level, or a filter as in the environment
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve bytes from stdin to whoever sends enough
    #[command(hide = true)]
    Ceiling(perf::ceiling::Args),
    /// Measure a server: rates, latencies, and tokens as both sides count them
    Bench(Box<harness::cli::Args>),
    /// Run benchmark clients against servers and audit what they report
    Compare(Box<harness::compare::cli::Args>),
    /// Check a live server against a dialect's recorded cases
    Conform(Box<harness::conform::cli::Args>),
    /// Start embedded stubs, measure them, show the token gap and a short roofline (the default)
    #[command(after_help = "Example:\n  stubline demo")]
    Demo,
    /// Reproduce and explain token-count gaps
    Gap(Box<harness::gap::cli::Args>),
    /// Install a benchmark client or a real server into the cache folder
    Install(harness::compare::install::Args),
    /// Record a live server's bytes, or a client's traffic with it, into a fixture folder
    Record(Box<harness::capture::cli::Args>),
    /// Measure what servers and clients can do at most, with and without usage
    Roofline(Box<perf::cli::Args>),
    /// Serve a stub, or play a recording
    #[command(
        subcommand,
        after_help = "Example:\n  stubline serve vllm --port 8000 --pace steady:ttft=50ms,itl=10ms --truth truth.jsonl"
    )]
    Serve(serve::command::Serve),
    /// Work for a real server as its model, in JSON lines on stdin and stdout
    #[command(
        subcommand,
        after_help = "Example:\n  stubline worker executorch --model-path fixtures/executorch/scripts.json --tokenizer-path byte"
    )]
    Worker(serve::model_worker::Command),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    if let Err(error) = log_to_stderr(cli.log.as_deref()) {
        return failed(2, &error);
    }
    let result = match cli.command {
        None | Some(Command::Demo) => demo::run(&mut std::io::stdout().lock()),
        Some(Command::Ceiling(args)) => perf::ceiling::run(&args),
        Some(Command::Bench(args)) => harness::cli::run(*args),
        Some(Command::Compare(args)) => {
            harness::compare::cli::run(&args, &mut std::io::stdout().lock())
        }
        Some(Command::Conform(args)) => {
            harness::conform::cli::run(&args, &mut std::io::stdout().lock())
        }
        Some(Command::Gap(args)) => harness::gap::cli::run(&args, &mut std::io::stdout().lock()),
        Some(Command::Install(args)) => harness::compare::install::run(&args),
        Some(Command::Record(args)) => {
            harness::capture::cli::run(&args, &mut std::io::stdout().lock())
        }
        Some(Command::Roofline(args)) => perf::cli::run(&args, &mut std::io::stdout().lock()),
        Some(Command::Serve(command)) => match serve::command::start(command) {
            Ok(running) => running.until_signal(),
            Err(error) => return failed(2, &error),
        },
        Some(Command::Worker(command)) => match command.prepared() {
            Ok(prepared) => Ok(serve::model_worker::run(prepared)),
            Err(error) => return failed(2, &error),
        },
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) if error.is::<harness::UsageError>() => failed(2, &error),
        Err(error) => failed(1, &error),
    }
}

fn failed(code: u8, error: &anyhow::Error) -> ExitCode {
    let line = format!("{error:#}").replace('\n', " ");
    // Nobody is left to tell if stderr is gone.
    let _ = writeln!(std::io::stderr(), "stubline: {line}");
    ExitCode::from(code)
}

/// Help and version as clap prints them; anything else in one line.
fn refused(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = error.print();
            ExitCode::from(u8::from(printed.is_err()))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => failed(
            2,
            &anyhow::anyhow!("a word is missing; see `stubline --help`"),
        ),
        _ => {
            let text = error.render().to_string();
            let told = text.lines().filter(|line| !line.trim().is_empty());
            let told = told.take_while(|line| !line.starts_with("Usage:"));
            let told: Vec<&str> = told
                .map(|line| line.trim().trim_start_matches("error: "))
                .filter(|line| !line.starts_with("For more information"))
                .filter(|line| !line.starts_with("tip: to pass"))
                .collect();
            failed(2, &anyhow::anyhow!("{}", told.join(" ")))
        }
    }
}

fn log_to_stderr(filter: Option<&str>) -> anyhow::Result<()> {
    let filter = match filter {
        Some(filter) => EnvFilter::try_new(filter)
            .map_err(|error| anyhow::anyhow!("--log {filter}: {error}"))?,
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
    };
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    Ok(())
}
