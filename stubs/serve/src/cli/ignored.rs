//! Flags of the real server that cannot show on the wire.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// Flags without a value.
const SWITCHES: [&str; 7] = [
    "disable-log-requests",
    "disable-log-stats",
    "enable-prefix-caching",
    "enable-server-load-tracking",
    "enforce-eager",
    "no-enable-prefix-caching",
    "trust-remote-code",
];

/// Flags with a value.
const VALUES: [&str; 13] = [
    "compilation-config",
    "data-parallel-size",
    "device",
    "dtype",
    "gpu-memory-utilization",
    "kv-cache-dtype",
    "load-format",
    "max-num-batched-tokens",
    "max-num-seqs",
    "pipeline-parallel-size",
    "scheduling-policy",
    "tensor-parallel-size",
    "uvicorn-log-level",
];

/// The flags of that kind that were given: accepted, so that a real server's command line works, and
/// named once when the stub starts.
#[derive(Clone, Debug, Default)]
pub(super) struct Ignored {
    given: Vec<&'static str>,
}

impl Ignored {
    pub(super) fn warn(&self) {
        for flag in &self.given {
            tracing::warn!("--{flag} is accepted and changes nothing");
        }
    }
}

impl Args for Ignored {
    fn augment_args(command: Command) -> Command {
        let switches = SWITCHES.map(|name| flag(name).action(ArgAction::SetTrue));
        let values = VALUES.map(|name| flag(name).value_name("VALUE"));
        command.args(switches).args(values)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .help("Changes nothing")
        .help_heading("Accepted, since real command lines have them")
}

impl FromArgMatches for Ignored {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let names = SWITCHES.into_iter().chain(VALUES);
        let given = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
        Ok(Self {
            given: names.filter(given).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
