//! Flags of the real server that cannot show on the wire.

use std::marker::PhantomData;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// Flags of one server.
pub(super) trait Flags: Clone + std::fmt::Debug + Default {
    /// Those without a value.
    const SWITCHES: &[&str];
    /// Those with a value.
    const VALUES: &[&str];
}

/// vLLM's.
#[derive(Clone, Debug, Default)]
pub(super) struct OfVllm;

impl Flags for OfVllm {
    const SWITCHES: &[&str] = &[
        "disable-log-requests",
        "disable-log-stats",
        "enable-prefix-caching",
        "enable-server-load-tracking",
        "enforce-eager",
        "no-enable-prefix-caching",
        "trust-remote-code",
    ];
    const VALUES: &[&str] = &[
        "compilation-config",
        "data-parallel-size",
        "device",
        "dtype",
        "gpu-memory-utilization",
        "kv-cache-dtype",
        "load-format",
        "max-num-batched-tokens",
        "pipeline-parallel-size",
        "scheduling-policy",
        "tensor-parallel-size",
        "uvicorn-log-level",
    ];
}

/// SGLang's.
#[derive(Clone, Debug, Default)]
pub(super) struct OfSglang;

impl Flags for OfSglang {
    const SWITCHES: &[&str] = &[
        "disable-cuda-graph",
        "disable-custom-all-reduce",
        "disable-overlap-schedule",
        "enable-dp-attention",
        "enable-mixed-chunk",
        "enable-p2p-check",
        "enable-torch-compile",
        "log-requests",
        "skip-server-warmup",
        "trust-remote-code",
    ];
    const VALUES: &[&str] = &[
        "attention-backend",
        "chat-template",
        "chunked-prefill-size",
        "cuda-graph-max-bs",
        "device",
        "dp-size",
        "dtype",
        "grammar-backend",
        "kv-cache-dtype",
        "load-format",
        "log-level",
        "log-level-http",
        "max-prefill-tokens",
        "max-total-tokens",
        "mem-fraction-static",
        "page-size",
        "pp-size",
        "quantization",
        "random-seed",
        "revision",
        "sampling-backend",
        "schedule-conservativeness",
        "schedule-policy",
        "tensor-parallel-size",
        "tp",
        "tp-size",
        "watchdog-timeout",
    ];
}

/// The flags of that kind that were given: accepted, so that a real server's command line works, and
/// named once when the stub starts.
#[derive(Clone, Debug, Default)]
pub(super) struct Ignored<F> {
    given: Vec<&'static str>,
    of: PhantomData<F>,
}

impl<F: Flags> Ignored<F> {
    pub(super) fn warn(&self) {
        for flag in &self.given {
            tracing::warn!("--{flag} is accepted and changes nothing");
        }
    }
}

impl<F: Flags> Args for Ignored<F> {
    fn augment_args(command: Command) -> Command {
        let switches = F::SWITCHES.iter();
        let switches = switches.map(|name| flag(name).action(ArgAction::SetTrue));
        let values = F::VALUES.iter().map(|name| flag(name).value_name("VALUE"));
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

impl<F: Flags> FromArgMatches for Ignored<F> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let names = F::SWITCHES.iter().chain(F::VALUES).copied();
        let given = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
        Ok(Self {
            given: names.filter(given).collect(),
            of: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
