//! What clients report and the truth knows.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number of a run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Quantity {
    /// The client ended in time and left a report.
    Run,
    /// Requests that were sent.
    Requests,
    /// Those without a whole and well-formed answer.
    Failures,
    /// Streams were asked for usage.
    IncludeUsage,
    /// Mean prompt tokens of completed requests.
    Isl,
    /// Mean output tokens of completed requests.
    Osl,
    /// Output tokens of all completed requests.
    OutputTokens,
    /// Completed requests a second.
    Qps,
    /// Mean time to the first chunk that says something.
    Ttft,
    /// Mean time per output token behind the first.
    Tpot,
    /// Mean gap between chunks that say something.
    Itl,
    /// Most requests in flight.
    Concurrency,
    /// Requests of the report that were found in the truth.
    Joined,
    /// Replies that are those of the other server.
    Replies,
}

impl Quantity {
    /// It is a time, kept in nanoseconds.
    pub(super) fn is_time(self) -> bool {
        matches!(self, Self::Itl | Self::Tpot | Self::Ttft)
    }
}

/// How a count of output tokens was reached.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Basis {
    /// The texts through the client's tokenizer.
    Retokenized,
    /// What the server says.
    Usage,
}

/// A quantity on a basis, of the whole run or of each of its requests.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Key {
    pub(super) quantity: Quantity,
    pub(super) basis: Option<Basis>,
    pub(super) each: bool,
}

impl Key {
    /// That of a whole run.
    pub(super) fn of(quantity: Quantity, basis: Option<Basis>) -> Self {
        Self {
            quantity,
            basis,
            each: false,
        }
    }

    /// How exactly it is known depends on how well a run could be timed.
    pub(super) fn is_timed(self) -> bool {
        self.quantity.is_time() || self.quantity == Quantity::Qps
    }
}

/// As `known.toml` names it: `osl.retokenized.each`.
impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.quantity {
            Quantity::Run => "run",
            Quantity::Requests => "requests",
            Quantity::Failures => "failures",
            Quantity::IncludeUsage => "include_usage",
            Quantity::Isl => "isl",
            Quantity::Osl => "osl",
            Quantity::OutputTokens => "output_tokens",
            Quantity::Qps => "qps",
            Quantity::Ttft => "ttft",
            Quantity::Tpot => "tpot",
            Quantity::Itl => "itl",
            Quantity::Concurrency => "concurrency",
            Quantity::Joined => "joined",
            Quantity::Replies => "replies",
        };
        formatter.write_str(word)?;
        match self.basis {
            Some(Basis::Retokenized) => formatter.write_str(".retokenized")?,
            Some(Basis::Usage) => formatter.write_str(".usage")?,
            None => {}
        }
        formatter.write_str(if self.each { ".each" } else { "" })
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
