//! Stub servers over real sockets, each on a free port of its own.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod control_plane; // ExecuTorch's server, recorded and driven
mod fidelity; // recorded cases byte for byte
mod http; // echo, framing, limits
mod metrics; // the metrics page against the truth file
mod model_worker; // recorded conversations with a model worker
mod replay; // recorded folders, played
mod support; // a server in this process and a client that looks at every byte
mod turns; // requests that wait for others or are given up by them
mod waits; // the tests that wait for real
