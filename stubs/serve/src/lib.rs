//! Stub servers on sockets: own HTTP/1.1 connections, pacing, the truth file.
//!
//! Everything that is said was decided by `plan`; this crate reads requests, waits, writes, and keeps
//! the record of what was written when. One thread with a current-thread runtime per worker.

pub mod cli;
pub mod command;
mod connection;
pub mod control_plane;
mod cpu;
mod exchange;
mod listen;
mod local;
mod metrics;
pub mod model_worker;
mod pacer;
pub mod replay;
pub mod server;
mod socket;
mod stream;
mod tasks;
pub mod truth;
mod worker;
