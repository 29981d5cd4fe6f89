//! What `stubline serve` serves: a stub, or a folder of recordings.

use clap::Subcommand;

use crate::cli::{self, Running};
use crate::{control_plane, replay};

/// The word behind `stubline serve`, and its flags.
#[derive(Debug, Subcommand)]
pub enum Serve {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as help")]
    Stub(Box<cli::Command>),
    /// Answer as ExecuTorch's LLM server does, with a model worker behind it
    #[command(
        after_help = "Example:\n  stubline serve executorch --model-path fixtures/executorch/scripts.json --tokenizer-path byte --allow-chatml-fallback"
    )]
    Executorch(Box<control_plane::Args>),
    /// Play a fixture folder: each recorded request gets its recorded bytes
    #[command(
        after_help = "Example:\n  stubline serve replay fixtures/wire/vllm-0.33.0/default --port 8000"
    )]
    Replay(Box<replay::Args>),
}

/// Starts it; whatever is wrong is wrong usage, and nothing has been served.
pub fn start(serve: Serve) -> anyhow::Result<Running> {
    match serve {
        Serve::Executorch(args) => control_plane::start(&args, std::io::stderr()),
        Serve::Replay(args) => replay::start(*args),
        Serve::Stub(command) => cli::start(*command),
    }
}
