//! The control plane of ExecuTorch's LLM server: what it asks of a model worker, and what it makes of the
//! worker's lines. Whoever talks to the worker hands the lines over one by one.

mod clean;
mod prepare;
mod record;
mod template;
mod tools;
mod transcript;
mod turn;

use std::sync::Mutex;

use wire::executorch::Profile;

pub use prepare::{Refusal, check_session_id};
pub use record::{Detail, TurnLog, TurnRecord};
pub use template::{ChatTemplate, NoTemplate};
pub use tools::ToolFormat;
pub use turn::{Event, Fault, Over, Taken, Turn, Waited};

use transcript::Transcripts;

/// What the server was started with, and what it keeps of its sessions.
#[derive(Debug)]
pub struct ControlPlane {
    /// The model's longest prompt and answer together, where the server checks that.
    pub max_context: Option<u64>,
    /// The name of the one model.
    pub model: String,
    /// Which server is imitated.
    pub profile: &'static Profile,
    /// How messages become a prompt.
    pub template: ChatTemplate,
    /// How answers call tools.
    pub tool_format: ToolFormat,
    transcripts: Mutex<Transcripts>,
}

impl ControlPlane {
    /// One without sessions.
    pub fn new(profile: &'static Profile, model: String, template: ChatTemplate) -> Self {
        Self {
            max_context: None,
            model,
            profile,
            template,
            tool_format: ToolFormat::Hermes,
            transcripts: Mutex::default(),
        }
    }

    /// Forgets what was said in a session, which the worker has closed or reset.
    pub fn forget(&self, session_id: &str) {
        self.transcripts().forget(session_id);
    }

    /// Forgets a session that the worker has not taken, unless something was said in it before.
    pub fn withdraw(&self, session_id: &str) {
        self.transcripts().withdraw(session_id);
    }

    fn transcripts(&self) -> std::sync::MutexGuard<'_, Transcripts> {
        self.transcripts
            .lock()
            .expect("nobody panics with the lock")
    }
}
