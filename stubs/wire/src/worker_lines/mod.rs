//! The JSON lines between ExecuTorch's LLM server and its model worker, both ways.
//!
//! The worker writes keys in alphabetical order without spaces, and doubles as its JSON library does; the server
//! writes as Python does.

mod answer;
mod ask;
mod float;
mod heard;
mod parse;
mod request;

pub use answer::{Done, DoneChanges, Refusal, acknowledged, failed, ready, reset_failed, token};
pub use ask::{Ask, Part, Prompted};
pub use float::float;
pub use heard::{Heard, HeardError, Ready, Stats, Token};
pub use request::{Frame, Generate, LineError, Operation, Segment, Wishes};
