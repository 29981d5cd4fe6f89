//! `conform` and `record` against servers in this process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/folders.rs"]
mod folders;
#[path = "../common/stub.rs"]
mod stub;

mod exact; // record, replay, byte for byte
mod live; // structure, against our stub and against one that errs
mod sglang; // the same for SGLang, against its recordings
mod support; // players, commands, changed recordings
