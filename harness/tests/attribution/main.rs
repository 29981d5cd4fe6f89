//! Attributions over mixed answers of our stubs, and what the commands say of servers and folders.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpus;
mod explained;
mod from_run;
mod live;
mod stub;
