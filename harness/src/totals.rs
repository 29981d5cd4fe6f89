//! A run's sums, in memory that does not grow with it.

use std::collections::BTreeMap;

use crate::record::Failure;
use crate::stats::Histogram;

/// What all requests of a run come to; times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Complete and well-formed answers.
    pub completed: u64,
    /// All others by kind.
    pub failed: BTreeMap<Failure, u64>,
    /// SSE events other than `[DONE]`, or whole bodies, of all requests.
    pub events: u64,
    /// Events that carried text, reasoning or a tool call.
    pub text_chunks: u64,
    /// Bytes that were read, heads included.
    pub bytes: u64,
    /// Completed answers: from the intended time to the end.
    pub latency: Histogram,
    /// Completed answers: from the intended time to the first event that said something.
    pub ttft: Histogram,
    /// Open loop: from the intended time to the write of the request.
    pub send_late: Histogram,
    /// Requests that had to open a connection.
    pub connections: u64,
    /// Requests that were sent again since an idle connection had closed without a word.
    pub resent: u64,
    /// When the last answer ended, from the run's start.
    pub(crate) ended_ns: u64,
}

impl Totals {
    /// All requests.
    pub fn issued(&self) -> u64 {
        self.completed + self.failed.values().sum::<u64>()
    }

    /// Adds what another worker counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.completed += other.completed;
        for (&failure, count) in &other.failed {
            *self.failed.entry(failure).or_default() += count;
        }
        self.events += other.events;
        self.text_chunks += other.text_chunks;
        self.bytes += other.bytes;
        self.latency.add(&other.latency);
        self.ttft.add(&other.ttft);
        self.send_late.add(&other.send_late);
        self.connections += other.connections;
        self.resent += other.resent;
        self.ended_ns = self.ended_ns.max(other.ended_ns);
    }
}
