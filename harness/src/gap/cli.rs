//! `stubline gap`: from arguments to a report.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{from_run, live, play, scenario, table};
use crate::cli::Format;

/// Arguments of `stubline gap`.
#[derive(clap::Args, Debug)]
#[command(
    about = "Reproduce token-count gaps, or explain those of a live server or a past run",
    after_help = "A scenario is one cause of a gap: a stub says what the cause needs, the answer is counted on every\nbasis, and each token of the difference is traced to its reason. Exit code 1: a count is not as expected, or tokens\nof a server or a run stay unexplained.\n\nExamples:\n  stubline gap\n  stubline gap --scenario 'think-*' --format json\n  stubline gap --list\n  stubline gap --scenario my-server.toml\n  stubline gap --url http://127.0.0.1:8000 --tokenizer MODEL_FOLDER --dataset prompts.jsonl\n  stubline gap --from-run report --tokenizer MODEL_FOLDER"
)]
pub struct Args {
    /// Scenarios to play, by name (`*` and `?` stand for anything), or a TOML file of the same form
    #[arg(long, value_name = "GLOB|FILE", conflicts_with_all = ["url", "from_run"])]
    scenario: Option<String>,
    /// Name the scenarios and play none
    #[arg(long, conflicts_with_all = ["url", "from_run"])]
    list: bool,
    /// Folder of a run of `MLPerf`'s endpoints, or of `bench --report-dir`, whose counts to explain
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    from_run: Option<PathBuf>,
    #[command(flatten)]
    pub(super) live: live::Args,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What is looked at.
enum Mode<'a> {
    /// Scenarios, played by stubs.
    Scenarios(Option<&'a str>),
    /// Their names.
    List(Option<&'a str>),
    /// A live server.
    Live,
    /// A folder.
    Run(&'a Path),
}

impl Args {
    fn mode(&self) -> Mode<'_> {
        let scenario = self.scenario.as_deref();
        if self.live.url.is_some() {
            Mode::Live
        } else if let Some(dir) = &self.from_run {
            Mode::Run(dir)
        } else if self.list {
            Mode::List(scenario)
        } else {
            Mode::Scenarios(scenario)
        }
    }
}

/// Runs the command and gives its exit code: 1 if a count is not as expected.
///
/// # Errors
/// [`crate::UsageError`] is for exit code 2, all others for 1.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<u8> {
    let (printed, code) = match args.mode() {
        Mode::Live => return live::run(&args.live, args.format, out),
        Mode::Run(dir) => {
            let tokenizer = args.live.tokenizer.as_deref();
            return from_run::run(dir, tokenizer, args.live.limits(), (args.format, out));
        }
        Mode::List(names) => (table::names(&scenario::find(names)?, args.format), 0),
        Mode::Scenarios(names) => {
            let outcomes = play::play(&scenario::find(names)?)?;
            let printed = match args.format {
                Format::Json => table::json(&outcomes),
                Format::Table => table::text(&outcomes),
            };
            let failed = outcomes.iter().any(|outcome| !outcome.held);
            (printed, u8::from(failed))
        }
    };
    out.write_all(printed.as_bytes())
        .context("failed to print the report")?;
    Ok(code)
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

    fn parsed(line: &str) -> Result<Command, clap::Error> {
        let words = std::iter::once("gap").chain(line.split_whitespace());
        Command::try_parse_from(words)
    }

    #[test]
    fn one_thing_is_looked_at() {
        for (line, fits) in [
            ("", true),
            ("--list --scenario a", true),
            (
                "--url http://h:1 --tokenizer char --requests 3 --worst 2",
                true,
            ),
            ("--from-run d --tokenizer char --tolerance 3", true),
            ("--from-run d --url http://h:1", false),
            ("--from-run d --list", false),
            ("--from-run d --requests 3", false),
            ("--from-run d --dataset random:1,1", false),
            ("--url http://h:1 --scenario a", false),
            ("--endpoint chat", false),
        ] {
            assert_eq!(parsed(line).is_ok(), fits, "{line}");
        }
        let mode = parsed("--from-run d").unwrap();
        assert!(matches!(mode.args.mode(), Mode::Run(_)));
    }
}
