//! The JSON lines between ExecuTorch's LLM server and its model worker, both ways.
//!
//! The worker writes keys in alphabetical order without spaces, and doubles as its JSON library does.

mod answer;
mod float;
mod parse;
mod request;

pub use answer::{Done, DoneChanges, Refusal, acknowledged, failed, ready, reset_failed, token};
pub use float::float;
pub use request::{Frame, Generate, LineError, Operation, Segment, Wishes};
