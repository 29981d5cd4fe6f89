//! What ExecuTorch's LLM server reads and writes over HTTP.
//!
//! Its answers are not decided before they are sent: a model worker says them line by line (see
//! [`crate::worker_lines`]), so it stands beside the dialects whose plans are made ahead.

mod answer;
mod request;
mod route;

pub use answer::{
    Chunk, Completion, Delta, Error, ToolCall, Usage, encode_failure_event, encode_models,
};
pub use request::{ChatRequest, Message, parse};
pub use route::{Route, Unrouted, route};

/// The server at a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// It cancels turns over a pipe, takes a worker that fails for lost, and says so in `/health`. Before,
    /// a turn that was left ran to its end, and lines that nobody had read answered the next turn.
    pub gives_up_workers: bool,
}

/// The profiles, the newest first.
pub const PROFILES: [Profile; 2] = [
    Profile {
        name: "executorch-1.5.1",
        gives_up_workers: true,
    },
    Profile {
        name: "executorch-cff6f4dd32e6",
        gives_up_workers: false,
    },
];
