//! The `roofline` command: what was typed, and what it means.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use harness::UsageError;
use harness::cli::{Format, duration};

use crate::external::Client;
use crate::measure::{self, Settings};
use crate::place::Places;
use crate::report::{Report, text};
use crate::scenario::{self, Changes, Scenario};

const EXAMPLES: &str = "\
Examples:
  stubline roofline
  stubline roofline --scenario usage --report-dir report
  stubline roofline --scenario ceiling --server-cmd 'other=python server.py --port {port}'
  stubline roofline --client-cmd 'wrk -t1 -c64 -d2 -s post.lua {url}/v1/chat/completions'

In --server-cmd, {port} is filled in, and {workers}, {length}, {interval}, {stream} if they are there;
in --client-cmd {url}, or {host} and {port}, and {model}, {stream}, {usage}, {concurrency}, {duration}.
Exit code: 0 measured, 1 a request failed or nothing could be measured, 2 wrong usage or input.";

/// Arguments of the roofline.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[group(skip)]
pub struct Args {
    /// Rows to measure: a built-in set or a file (see --list)
    #[arg(long, value_name = "NAME|FILE", default_value = "quick")]
    scenario: String,
    /// List the built-in sets
    #[arg(long)]
    list: bool,
    /// Live server to measure in place of stubs
    #[arg(long, value_name = "http://HOST:PORT", conflicts_with = "server_cmd")]
    url: Option<String>,
    /// One more server: a command that listens on {port}; may be given several times
    #[arg(long, value_name = "NAME=COMMAND")]
    server_cmd: Vec<String>,
    /// Somebody else's client, a command with {url}, run once for each row and round
    #[arg(long, value_name = "COMMAND")]
    client_cmd: Option<String>,
    /// Model to ask for, of servers that are not stubs [default: stub; of --url, its first]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Threads of each server [default: a thread per core that it has]
    #[arg(long, value_name = "N")]
    server_workers: Option<usize>,
    /// Threads of the client [default: a thread per core that it has]
    #[arg(long, value_name = "N")]
    client_workers: Option<usize>,
    /// Let both sides run on all cores; by default each has half of them
    #[arg(long)]
    no_pin: bool,
    /// Characters of an answer [default: the scenario's]
    #[arg(long, value_name = "CHARACTERS")]
    output_length: Option<usize>,
    /// Characters of a chunk [default: the scenario's]
    #[arg(long, value_name = "CHARACTERS")]
    stream_interval: Option<usize>,
    /// Requests in flight [default: the scenario's]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    concurrency: Vec<usize>,
    /// How long a row is measured in a round [default: the scenario's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    window: Option<Duration>,
    /// Interleaved rounds [default: the scenario's]
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    rounds: Option<usize>,
    /// How long all rounds take together; six are measured in any case
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Leave out the rows that ask for usage
    #[arg(long)]
    no_stream_include_usage: bool,
    /// How long a server may take to start
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    init_timeout: Duration,
    /// Seed of arrival times and of bootstraps
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Folder for roofline.json, roofline.html and report.txt
    #[arg(long, value_name = "DIR")]
    report_dir: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Runs the command and gives its exit code.
///
/// # Errors
/// [`UsageError`] is for exit code 2, all others for 1.
pub fn run(args: &Args, out: &mut impl std::io::Write) -> anyhow::Result<u8> {
    if args.list {
        for (name, about) in scenario::list() {
            writeln!(out, "{name:8}  {about}")?;
        }
        return Ok(0);
    }
    let scenario = args.scenario()?;
    let settings = args.settings(&scenario)?;
    if let Some(folder) = &args.report_dir {
        let wrong = |error| UsageError(format!("--report-dir {}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(wrong)?;
    }
    // Thousands of connections need a file descriptor each, on both sides.
    harness::files::raise_limit();
    let roofline = measure::measure(&scenario, &settings, &mut show)?;
    show("");
    let report = Report::new(&args.scenario, &scenario, &settings, &roofline);
    if let Some(folder) = &args.report_dir {
        report
            .write_folder(folder)
            .with_context(|| format!("failed to write the report to {}", folder.display()))?;
    }
    let printed = match args.format {
        Format::Json => report.json(),
        Format::Table => text(&report),
    };
    out.write_all(printed.as_bytes())
        .context("failed to print the report")?;
    Ok(u8::from(report.rows.iter().any(|row| row.failed > 0)))
}

impl Args {
    fn scenario(&self) -> Result<Scenario, UsageError> {
        let command = |text: &String| match text.split_once('=') {
            Some((name, command)) if !name.is_empty() && !name.contains(' ') => {
                Ok((name.to_owned(), command.to_owned()))
            }
            _ => Err(UsageError(format!(
                "--server-cmd {text:?}: expected NAME=COMMAND"
            ))),
        };
        let commands: Result<_, UsageError> = self.server_cmd.iter().map(command).collect();
        for (flag, is_wrong) in [
            ("--concurrency", self.concurrency.contains(&0)),
            ("--output-length", self.output_length == Some(0)),
            ("--rounds", self.rounds == Some(0)),
            ("--stream-interval", self.stream_interval == Some(0)),
        ] {
            if is_wrong {
                return Err(UsageError(format!("{flag} must be at least 1")));
            }
        }
        let changes = Changes {
            concurrency: self.concurrency.clone(),
            length: self.output_length,
            interval: self.stream_interval,
            no_usage: self.no_stream_include_usage,
            commands: commands?,
            url: self.url.clone(),
        };
        let mut scenario = scenario::find(&self.scenario, &changes)?;
        scenario.window = self.window.unwrap_or(scenario.window);
        scenario.rounds = self.rounds.unwrap_or(scenario.rounds);
        if scenario.rounds == 0 {
            let name = &self.scenario;
            let reason = "rounds must be at least 1";
            return Err(UsageError(format!("--scenario {name}: {reason}")));
        }
        Ok(scenario)
    }

    fn settings(&self, scenario: &Scenario) -> Result<Settings, UsageError> {
        for (flag, workers) in [
            ("--server-workers", self.server_workers),
            ("--client-workers", self.client_workers),
        ] {
            if workers == Some(0) {
                return Err(UsageError(format!("{flag} must be at least 1")));
            }
        }
        let client = self.client_cmd.clone().map(|command| Client {
            command,
            model: self.model.clone(),
            window: scenario.window,
            patience: scenario.window * 4 + Duration::from_mins(1),
        });
        if let Some(client) = &client
            && !["{url}", "{port}"]
                .iter()
                .any(|hole| client.command.contains(hole))
        {
            let command = &client.command;
            let reason = "expected {url} in it, the server to measure";
            return Err(UsageError(format!("--client-cmd {command:?}: {reason}")));
        }
        Ok(Settings {
            client,
            model: self.model.clone(),
            patience: self.init_timeout,
            places: Places::new(!self.no_pin, self.server_workers, self.client_workers),
            seed: self.seed,
            trial: scenario.window * 4,
            duration: self.duration,
        })
    }
}

/// Says how far it is, on a terminal.
fn show(state: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // Nobody is left to tell if stderr is gone.
        let _ = write!(stderr, "\r\x1b[K{state}").and_then(|()| stderr.flush());
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn read(words: &[&str]) -> Result<(Scenario, Settings), String> {
        let words = std::iter::once("roofline").chain(words.iter().copied());
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        let scenario = command.args.scenario().map_err(|error| error.to_string())?;
        let settings = command
            .args
            .settings(&scenario)
            .map_err(|error| error.to_string())?;
        Ok((scenario, settings))
    }

    #[test]
    fn every_flag_reaches_what_is_measured() {
        let (scenario, settings) = read(&[
            "--scenario",
            "usage",
            "--server-cmd",
            "x=serve {port}",
            "--server-workers",
            "3",
            "--client-workers",
            "2",
            "--no-pin",
            "--output-length",
            "40",
            "--stream-interval",
            "4",
            "--concurrency",
            "1,2",
            "--window",
            "100ms",
            "--rounds",
            "9",
            "--seed",
            "5",
            "--model",
            "m",
            "--init-timeout",
            "1m",
            "--client-cmd",
            "ask {url}",
            "--no-stream-include-usage",
        ])
        .unwrap();
        assert_eq!(
            (scenario.rounds, scenario.window),
            (9, Duration::from_millis(100))
        );
        assert_eq!(scenario.rows.len(), 2 * 2);
        assert_eq!(scenario.rows[0].events(), Some(10));
        assert_eq!(settings.places, Places::new(false, Some(3), Some(2)));
        assert_eq!(
            (settings.seed, settings.patience),
            (5, Duration::from_mins(1))
        );
        let client = settings.client.unwrap();
        assert_eq!(
            (&*client.command, client.model.as_deref()),
            ("ask {url}", Some("m"))
        );
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for (words, reason) in [
            (&["--scenario", "/nowhere"][..], "built in are quick"),
            (&["--server-cmd", "serve {port}"], "expected NAME=COMMAND"),
            (&["--client-cmd", "ask"], "expected {url}"),
            (&["--concurrency", "0"], "at least 1"),
            (&["--rounds", "0"], "--rounds must"),
            (&["--output-length", "0"], "--output-length must"),
            (&["--stream-interval", "0"], "--stream-interval must"),
            (&["--client-workers", "0"], "--client-workers must"),
            (&["--window", "0s"], "a time above 0"),
            (
                &["--rounds", "3", "--duration", "3s"],
                "cannot be used with",
            ),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
