//! `stubline worker`: a model worker on stdin and stdout, as ExecuTorch's LLM server starts one.

mod control;
mod pipes;

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use clap::{Args, Subcommand, ValueEnum};
use plan::model_worker::{Model, Timing, Worker};
use vocab::Tokenizer;

pub use pipes::Frames;

use control::Control;
use pipes::Pipes;

/// The variable that names the control descriptor.
pub(crate) const CONTROL: &str = "EXECUTORCH_LLM_WORKER_CONTROL_FD";

/// The worker to run, and its flags.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say what a script says, in JSON lines, to ExecuTorch's LLM server
    #[command(
        after_help = "Example:\n  stubline worker executorch --model-path fixtures/executorch/scripts.json --tokenizer-path byte --no-sleep"
    )]
    Executorch(Box<ExecutorchArgs>),
}

/// Flags of `worker executorch`; each goes before what the script file says.
#[derive(Args, Debug)]
pub struct ExecutorchArgs {
    /// A script file as for `serve`, or {"replay":"CASE.worker.jsonl"}
    #[arg(long, alias = "model_path", value_name = "FILE")]
    model_path: String,
    /// char, byte, word, a Hugging Face tokenizer.json or its folder
    #[arg(long, alias = "tokenizer_path", value_name = "NAME|PATH")]
    tokenizer_path: String,
    #[command(flatten)]
    behaviour: Behaviour,
    /// Tell the times without letting them pass
    #[arg(long)]
    no_sleep: bool,
}

/// How a worker behaves; each flag goes before what the script file says.
#[derive(Args, Clone, Debug)]
pub(crate) struct Behaviour {
    /// Where prefill ends in the times told: at once, or as in the real worker behind its bookkeeping
    #[arg(long, default_value = "strict", value_name = "HOW")]
    timing: TimingArg,
    /// Milliseconds of prefill for each token that is not reused
    #[arg(long, value_name = "MS")]
    prefill_ms_per_token: Option<f64>,
    /// Milliseconds of each decoding step
    #[arg(long, value_name = "MS")]
    decode_ms_per_token: Option<f64>,
    /// Make every time longer or shorter by up to this share
    #[arg(long, value_name = "SHARE")]
    jitter: Option<f64>,
    /// Seed of the jitter
    #[arg(long)]
    seed: Option<u64>,
    /// Sessions, the one of requests without a name included
    #[arg(long, value_name = "NUMBER")]
    max_sessions: Option<u64>,
    /// Most tokens of prompt and answer together, 0 for no limit
    #[arg(long, value_name = "TOKENS")]
    window: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TimingArg {
    Strict,
    Upstream,
}

impl From<TimingArg> for Timing {
    fn from(timing: TimingArg) -> Self {
        match timing {
            TimingArg::Strict => Self::Strict,
            TimingArg::Upstream => Self::Upstream,
        }
    }
}

/// A worker that has not said anything yet.
#[derive(Debug)]
pub struct Prepared {
    /// What it says.
    pub model: Model,
    /// How it cuts prompts.
    pub tokenizer: Arc<Tokenizer>,
    /// Where its times begin and end.
    pub timing: Timing,
}

/// Reads what a worker is to say and how it cuts prompts; what is wrong is said in one line.
/// Both come with the flag that named them.
pub(crate) fn prepare(model: (&str, &str), tokenizer: (&str, &str)) -> anyhow::Result<Prepared> {
    let (flag, tokenizer_path) = tokenizer;
    let tokenizer = Tokenizer::find(tokenizer_path, |path| std::fs::read_to_string(path).ok())
        .with_context(|| format!("{flag} {tokenizer_path}"))?;
    let (flag, model_path) = model;
    let named = || format!("{flag} {model_path}");
    let model_path = Path::new(model_path);
    let json = std::fs::read_to_string(model_path).with_context(named)?;
    let beside = |name: &str| {
        let path = model_path.parent().map(|folder| folder.join(name))?;
        std::fs::read_to_string(path).ok()
    };
    let model = Model::from_json(&json, &tokenizer, beside).with_context(named)?;
    Ok(Prepared {
        model,
        tokenizer: Arc::new(tokenizer),
        timing: Timing::Strict,
    })
}

impl Command {
    /// Checks the flags.
    pub fn prepared(self) -> anyhow::Result<Prepared> {
        let Self::Executorch(args) = self;
        args.prepared()
    }
}

impl ExecutorchArgs {
    fn prepared(&self) -> anyhow::Result<Prepared> {
        let mut prepared = prepare(
            ("--model-path", &self.model_path),
            ("--tokenizer-path", &self.tokenizer_path),
        )?;
        prepared.model.settings.sleep &= !self.no_sleep;
        self.behaviour.apply(&mut prepared)?;
        Ok(prepared)
    }
}

impl Behaviour {
    /// Whether any of its flags was given.
    pub(crate) fn says_anything(&self) -> bool {
        let times = [
            self.prefill_ms_per_token,
            self.decode_ms_per_token,
            self.jitter,
        ];
        let counts = [self.seed, self.max_sessions, self.window];
        times.iter().any(Option::is_some)
            || counts.iter().any(Option::is_some)
            || matches!(self.timing, TimingArg::Upstream)
    }

    /// Makes a worker behave so.
    pub(crate) fn apply(&self, prepared: &mut Prepared) -> anyhow::Result<()> {
        prepared.timing = self.timing.into();
        let settings = &mut prepared.model.settings;
        if let Some(ms) = self.prefill_ms_per_token {
            settings.prefill_ms_per_token = ms;
        }
        if let Some(ms) = self.decode_ms_per_token {
            settings.decode_ms_per_token = ms;
        }
        settings.jitter = self.jitter.unwrap_or(settings.jitter);
        settings.seed = self.seed.unwrap_or(settings.seed);
        settings.max_sessions = self.max_sessions.unwrap_or(settings.max_sessions);
        match self.window {
            Some(0) => settings.window = None,
            Some(window) => settings.window = Some(window),
            None => {}
        }
        settings.check().map_err(|reason| anyhow!(reason))
    }
}

/// Reads the four words that the real server calls a worker with.
pub fn four_words(words: &[String]) -> anyhow::Result<Prepared> {
    let usage = "use stubline-worker --model_path FILE --tokenizer_path NAME|PATH and nothing else; \
                 `stubline worker executorch` takes more";
    let [first, model, second, tokenizer] = words else {
        return Err(anyhow!(usage));
    };
    ensure!(
        first == "--model_path" && second == "--tokenizer_path",
        usage
    );
    prepare(("--model_path", model), ("--tokenizer_path", tokenizer))
}

/// Serves stdin until it is closed or the script ends the worker; the exit code.
pub fn run(prepared: Prepared) -> u8 {
    let number = std::env::var(CONTROL).ok();
    let control = number.and_then(|number| Control::open(&number));
    let control = control.map(|mut control| -> Frames { Box::new(move || control.read()) });
    let (stdin, stdout) = (std::io::stdin().lock(), std::io::stdout().lock());
    attend(prepared, stdin, stdout, control)
}

/// Serves whoever writes to `lines` and reads `out`, until either is closed or the script ends the
/// worker; the exit code. Cancellations are offered if there is a `control`.
pub fn attend(
    prepared: Prepared,
    mut lines: impl BufRead,
    out: impl Write,
    control: Option<Frames>,
) -> u8 {
    let Prepared {
        model,
        tokenizer,
        timing,
    } = prepared;
    let offered = control.is_some();
    let mut host = Pipes::new(out, control, model.settings.sleep);
    let mut worker = Worker::new(model, tokenizer, timing, offered);
    let mut ended = worker.start(&mut host);
    let mut line = Vec::new();
    while ended.is_ok() {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return 0,
            Ok(_) => {}
        }
        ended = worker.line(line.strip_suffix(b"\n").unwrap_or(&line), &mut host);
    }
    ended.map_or_else(|stop| stop.0, |()| 0)
}
