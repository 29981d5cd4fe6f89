//! `stubline gap`: from arguments to a report.

use std::io::Write;

use anyhow::Context as _;

use super::{play, scenario, table};
use crate::cli::Format;

/// Arguments of `stubline gap`.
#[derive(clap::Args, Debug)]
#[command(
    about = "Reproduce and explain token-count gaps",
    after_help = "A scenario is one cause of a gap: a stub says what the cause needs, the answer is counted on every\nbasis, and each token of the difference is traced to its reason. Exit code 1: a count is not as expected.\n\nExamples:\n  stubline gap\n  stubline gap --scenario 'vllm-think-*' --format json\n  stubline gap --list\n  stubline gap --scenario my-server.toml"
)]
pub struct Args {
    /// Scenarios to play, by name (`*` and `?` stand for anything), or a TOML file of the same form
    #[arg(long, value_name = "GLOB|FILE")]
    scenario: Option<String>,
    /// Name the scenarios and play none
    #[arg(long)]
    list: bool,
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
}

impl Args {
    fn mode(&self) -> Mode<'_> {
        let scenario = self.scenario.as_deref();
        if self.list {
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
        Mode::List(names) => (table::names(&scenario::find(names)?), 0),
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
