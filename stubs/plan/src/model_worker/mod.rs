//! A model worker as ExecuTorch's LLM server drives it: sessions, turns and their times, without a
//! process around it.
//!
//! Times come from a cost model and are exact; whether they pass for real is the [`Host`]'s affair.

mod cancel;
mod hold;
mod replay;
mod session;
mod settings;
mod talk;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use vocab::Tokenizer;
use wire::worker_lines::{Frame, Operation, acknowledged, failed, ready, reset_failed};

pub use settings::{Bytes, Settings, Timing};
pub use talk::ModelError;

use crate::source::Source;
use cancel::Cancels;
use replay::Replay;
use session::Sessions;
use talk::{Sourced, Talks};

/// What is around a worker.
pub trait Host {
    /// Bytes that came over the control descriptor since this was last asked.
    fn control(&mut self) -> Vec<u8>;
    /// The engine works so long, or pretends to.
    fn pass(&mut self, time: Duration);
    /// Writes a line, given without its end.
    fn write(&mut self, line: &[u8]) -> Result<(), Stop>;
}

/// The worker ends, with this exit code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stop(pub u8);

/// What a model file makes a worker do.
#[derive(Debug)]
pub struct Model {
    played: Played,
    /// How it behaves, whatever it says.
    pub settings: Settings,
}

#[derive(Debug)]
enum Played {
    Replay(Replay),
    Talks(Talks),
}

impl Model {
    /// One that says what a source makes of the last user message, cut or repeated to so many tokens.
    pub fn of(source: Box<dyn Source>, tokens: Option<u64>) -> Self {
        Self {
            played: Played::Talks(Talks::Of(Sourced { source, tokens })),
            settings: Settings::default(),
        }
    }

    /// Reads a script file, or `{"replay":FILE}` with the text that `recording` finds for FILE.
    pub fn from_json(
        json: &str,
        tokenizer: &Tokenizer,
        recording: impl FnOnce(&str) -> Option<String>,
    ) -> Result<Self, ModelError> {
        let file: Map<String, Value> = serde_json::from_str(json)?;
        if let (Some(Value::String(name)), true) = (file.get("replay"), file.len() == 1) {
            let found = recording(name).ok_or_else(|| ModelError::Missing(name.clone()))?;
            return Ok(Self {
                played: Played::Replay(Replay::new(&found)?),
                settings: Settings::default(),
            });
        }
        let (talks, settings) = Talks::new(file, tokenizer)?;
        Ok(Self {
            played: Played::Talks(talks),
            settings,
        })
    }
}

/// A worker between its lines.
#[derive(Debug)]
pub struct Worker {
    cancels: Cancels,
    /// How often each script's engine has failed.
    failures: std::collections::BTreeMap<String, u32>,
    played: Played,
    sessions: Sessions,
    settings: Settings,
    /// Cancellations are offered and obeyed.
    supports_cancel: bool,
    timing: Timing,
    tokenizer: Arc<Tokenizer>,
    turns: u64,
}

impl Worker {
    /// A worker that has said nothing; `offered` is whether there is a control descriptor.
    pub fn new(model: Model, tokenizer: Arc<Tokenizer>, timing: Timing, offered: bool) -> Self {
        let Model { played, settings } = model;
        Self {
            cancels: Cancels::default(),
            failures: std::collections::BTreeMap::new(),
            played,
            sessions: Sessions::new(settings.max_sessions),
            supports_cancel: offered && settings.supports_cancel,
            settings,
            timing,
            tokenizer,
            turns: 0,
        }
    }

    /// Gets ready, and says so.
    pub fn start(&mut self, host: &mut impl Host) -> Result<(), Stop> {
        let settings = &self.settings;
        host.pass(settings::time(settings.start_ms));
        for line in &settings.start_lines {
            host.write(&line.0)?;
        }
        if let Some(code) = settings.start_exit {
            return Err(Stop(code));
        }
        match &self.played {
            Played::Replay(replay) => replay.start(host),
            Played::Talks(_) => {
                host.write(ready(settings.max_sessions, self.supports_cancel).as_bytes())
            }
        }
    }

    /// Answers a line, given without its end.
    pub fn line(&mut self, line: &[u8], host: &mut impl Host) -> Result<(), Stop> {
        if line.is_empty() {
            return Ok(());
        }
        if let Played::Replay(replay) = &mut self.played {
            return replay.answer(host);
        }
        match Frame::parse(line) {
            Err(error) => host.write(failed(&error.to_string()).as_bytes()),
            Ok(Frame::Generate(ask)) => self.generate(&ask, host),
            Ok(Frame::Operation(operation, session_id)) => {
                host.write(self.operate(operation, &session_id).as_bytes())
            }
        }
    }

    fn operate(&mut self, operation: Operation, session_id: &str) -> String {
        match operation {
            Operation::Close => {
                self.sessions.close(session_id);
                acknowledged("closed", session_id)
            }
            Operation::Open => match self.sessions.admit(session_id) {
                Ok(()) => acknowledged("opened", session_id),
                Err(refusal) => refusal.line(session_id),
            },
            Operation::Reset => match self.sessions.named(session_id) {
                Some(_) if self.settings.fail_reset => reset_failed(session_id),
                session => {
                    if let Some(session) = session {
                        session.reset();
                    }
                    acknowledged("reset", session_id)
                }
            },
        }
    }
}
