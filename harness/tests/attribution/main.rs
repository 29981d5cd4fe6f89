//! Attributions over mixed answers of our stubs, and what the commands say of servers and folders.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpus;
mod explained;
#[path = "../common/folders.rs"]
mod folders;
mod from_run;
mod live;
#[path = "../common/stub.rs"]
mod stub;
