//! Replies without a socket.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod aborts; // answers that are given up
mod control_plane; // what ExecuTorch's server asks of its worker
mod model_worker; // turns of a model worker
mod native; // frames of /generate
mod routes;
mod sglang; // responses and messages
mod support; // tokenizers, and a stub that is asked
mod timelines; // chats and completions
