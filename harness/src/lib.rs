//! Measures inference servers over HTTP and counts what they say, without knowing how they work.
//!
//! [`mod@bench`] runs a load and keeps a [`record`] of each request, [`count`] turns the recorded texts
//! into tokens after the run, [`report`] turns both into numbers. [`cli`] is the `bench` command
//! around them; nothing below it sees clap. [`capture`] records a server's bytes, [`conform`] holds a
//! server against recorded ones, [`gap`] tells why two sides' token counts differ,
//! [`compare`] audits benchmark clients. [`real`] installs and
//! starts servers to do that with.

pub mod arrival;
pub mod bench;
pub mod capture;
pub mod cli;
pub mod compare;
pub mod conform;
pub mod count;
pub mod cpu;
pub mod dataset;
mod error;
pub mod files;
pub mod gap;
mod group;
mod http;
mod install;
mod load;
mod malformed;
pub mod probe;
mod raw;
pub mod real;
pub mod record;
pub mod report;
pub mod stats;
pub mod stub;
pub mod totals;
mod words;

pub use error::UsageError;
