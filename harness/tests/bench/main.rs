//! The client against servers that say exactly what a test wants.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod counts;
mod echo;
mod failures;
mod fake;
mod load;
mod native;
mod reports;
#[path = "../common/stub.rs"]
mod stub;
mod totals;
mod usage;
