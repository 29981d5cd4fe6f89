//! Which request is next, for all workers together.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::arrival::Arrival;
use crate::bench::Limit;
use crate::record::Failure;

/// Refused connections in a row after which a server counts as gone.
const REFUSALS: u32 = 8;

#[derive(Debug)]
pub(super) struct Tickets {
    next: AtomicU64,
    /// Number of requests, without limit in a closed loop that ends by time.
    end: u64,
    /// From then on no request is sent, in nanoseconds.
    deadline_ns: u64,
    /// Intended times of an open loop.
    schedule: Option<Vec<u64>>,
    /// Requests that timed out in a row after which a server counts as gone.
    silences: u32,
    /// Requests in a row that the server did not answer.
    unanswered: AtomicU32,
    gone: AtomicBool,
}

impl Tickets {
    pub(super) fn new(load: Arrival, limit: Limit, connections: usize, seed: u64) -> Self {
        let schedule = load.schedule(limit, seed);
        let (end, deadline_ns) = match (&schedule, limit) {
            (Some(schedule), _) => (schedule.len() as u64, u64::MAX),
            (None, Limit::Requests(requests)) => (requests, u64::MAX),
            (None, Limit::Duration(duration)) => {
                let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
                (u64::MAX, nanoseconds)
            }
        };
        Self {
            next: AtomicU64::new(0),
            end,
            deadline_ns,
            schedule,
            silences: u32::try_from(connections).unwrap_or(u32::MAX).max(REFUSALS),
            unanswered: AtomicU32::new(0),
            gone: AtomicBool::new(false),
        }
    }

    /// The next request's number, if there is to be one.
    pub(super) fn take(&self, now: u64) -> Option<u64> {
        if now >= self.deadline_ns || self.is_over() {
            return None;
        }
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        (ticket < self.end).then_some(ticket)
    }

    /// When a request is to be sent, in an open loop.
    pub(super) fn intended(&self, ticket: u64) -> Option<u64> {
        let schedule = self.schedule.as_ref()?;
        schedule.get(usize::try_from(ticket).ok()?).copied()
    }

    pub(super) fn is_open(&self) -> bool {
        self.schedule.is_some()
    }

    /// The server is gone; nothing more is to be sent.
    pub(super) fn is_over(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Learns from a request's outcome whether the server is still there.
    pub(super) fn learn(&self, failure: Option<Failure>) {
        let patience = match failure {
            Some(Failure::Connect) => REFUSALS,
            Some(Failure::Timeout) => self.silences,
            _ => {
                if self.unanswered.load(Ordering::Relaxed) > 0 {
                    self.unanswered.store(0, Ordering::Relaxed);
                }
                return;
            }
        };
        let unanswered = self.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        if unanswered >= patience && !self.gone.swap(true, Ordering::Relaxed) {
            tracing::warn!("the server is gone, the rest of the load is not sent");
        }
    }

    pub(super) fn taken(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.end)
    }

    /// How much of the load has been sent, in thousandths.
    pub(super) fn progress(&self, now: u64) -> u64 {
        let (done, all) = match self.deadline_ns {
            u64::MAX => (self.taken(), self.end),
            deadline => (now.min(deadline), deadline),
        };
        done.saturating_mul(1000) / all.max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn tickets_end_by_number_time_or_schedule() {
        let three = Tickets::new(Arrival::Burst, Limit::Requests(3), 4, 0);
        let taken: Vec<_> = (0..5).map(|now| three.take(now)).collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2), None, None]);
        assert_eq!((three.intended(0), three.taken()), (None, 3));
        let second = Limit::Duration(Duration::from_secs(1));
        let timed = Tickets::new(Arrival::Burst, second, 4, 0);
        assert_eq!(timed.take(999_999_999), Some(0));
        assert_eq!(timed.take(1_000_000_000), None);
        let open = Tickets::new(Arrival::Constant(2.0), second, 4, 0);
        assert_eq!(
            [open.take(0), open.take(0), open.take(0)],
            [Some(0), Some(1), None]
        );
        assert_eq!(open.intended(1), Some(500_000_000));
    }

    #[test]
    fn a_server_is_gone_after_enough_silence_in_a_row() {
        let tickets = Tickets::new(Arrival::Burst, Limit::Requests(99), 16, 0);
        for _ in 0..7 {
            tickets.learn(Some(Failure::Connect));
        }
        tickets.learn(Some(Failure::Http(500)));
        for _ in 0..15 {
            tickets.learn(Some(Failure::Timeout));
        }
        assert!(tickets.take(0).is_some());
        tickets.learn(Some(Failure::Timeout));
        assert_eq!(tickets.take(0), None);
    }
}
