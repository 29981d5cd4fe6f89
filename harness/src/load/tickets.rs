//! Which request is next, for all workers together.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::bench::{Config, Limit};
use crate::record::Failure;

/// Refused connections in a row after which a server counts as gone.
const REFUSALS: u32 = 8;

/// A request that is to be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Ticket {
    /// From 0, of the warm-up and behind it.
    pub(super) number: u64,
    /// It warms up, and counts in no figure.
    pub(super) warms_up: bool,
    /// When it is to be sent in an open loop, in nanoseconds.
    pub(super) intended_ns: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Tickets {
    warm: AtomicU64,
    next: AtomicU64,
    /// Number of requests behind the warm-up, without limit in a closed loop that ends by time.
    end: u64,
    /// Before it, requests warm up, in nanoseconds.
    warm_up_ns: u64,
    /// From then on no request is sent, in nanoseconds.
    deadline_ns: u64,
    /// Intended times of an open loop.
    schedule: Option<Schedule>,
    /// Requests that timed out in a row after which a server counts as gone.
    silences: u32,
    /// Requests in a row that the server did not answer.
    unanswered: AtomicU32,
    /// Nothing more is to be sent: the server is gone, or enough is known.
    over: AtomicBool,
    /// Not even answers are waited for.
    interrupted: AtomicBool,
}

/// Intended times of an open loop, those behind the warm-up from its end.
#[derive(Debug)]
struct Schedule {
    warm: Vec<u64>,
    rest: Vec<u64>,
}

impl Schedule {
    fn new(config: &Config) -> Option<Self> {
        let warm_up = Limit::Duration(config.warm_up);
        Some(Self {
            // Not the same as what follows, which does not depend on the warm-up.
            warm: config.load.schedule(warm_up, !config.seed)?,
            rest: config.load.schedule(config.limit, config.seed)?,
        })
    }
}

impl Tickets {
    pub(super) fn new(config: &Config, connections: usize) -> Self {
        let schedule = Schedule::new(config);
        let warm_up_ns = nanoseconds(config.warm_up);
        let (end, deadline_ns) = match (&schedule, config.limit) {
            (Some(schedule), _) => (schedule.rest.len() as u64, u64::MAX),
            (None, Limit::Requests(requests)) => (requests, u64::MAX),
            (None, Limit::Duration(duration)) => {
                (u64::MAX, warm_up_ns.saturating_add(nanoseconds(duration)))
            }
        };
        Self {
            warm: AtomicU64::new(0),
            next: AtomicU64::new(0),
            end,
            warm_up_ns,
            deadline_ns,
            schedule,
            silences: u32::try_from(connections).unwrap_or(u32::MAX).max(REFUSALS),
            unanswered: AtomicU32::new(0),
            over: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
        }
    }

    /// The next request, if there is to be one.
    pub(super) fn take(&self, now: u64) -> Option<Ticket> {
        if self.is_over(now) {
            return None;
        }
        match &self.schedule {
            None if now < self.warm_up_ns => Some(Ticket {
                number: self.warm.fetch_add(1, Ordering::Relaxed),
                warms_up: true,
                intended_ns: None,
            }),
            None => self.take_counted(|_| None),
            Some(schedule) => self.take_warm(schedule).or_else(|| {
                let intended = |number| self.warm_up_ns.saturating_add(schedule.rest[number]);
                self.take_counted(|number| Some(intended(number)))
            }),
        }
    }

    fn take_counted(&self, intended_ns: impl Fn(usize) -> Option<u64>) -> Option<Ticket> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.end).then(|| Ticket {
            number,
            warms_up: false,
            intended_ns: intended_ns(usize::try_from(number).expect("64 bits")),
        })
    }

    fn take_warm(&self, schedule: &Schedule) -> Option<Ticket> {
        let left = self.warm.load(Ordering::Relaxed) < schedule.warm.len() as u64;
        let number = left.then(|| self.warm.fetch_add(1, Ordering::Relaxed))?;
        let intended = schedule.warm.get(usize::try_from(number).ok()?);
        intended.map(|&at| Ticket {
            number,
            warms_up: true,
            intended_ns: Some(at),
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.schedule.is_some()
    }

    /// Nothing more is to be sent.
    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.deadline_ns || self.over.load(Ordering::Relaxed)
    }

    /// Ends the load; answers under way are read to their end.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Ends the load, and soon the waiting for answers.
    pub(super) fn interrupt(&self) {
        self.end();
        self.interrupted.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
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
        if unanswered >= patience && !self.over.swap(true, Ordering::Relaxed) {
            tracing::warn!("the server is gone, the rest of the load is not sent");
        }
    }

    /// Requests behind the warm-up that have been taken.
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

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vocab::Tokenizer;

    use super::*;
    use crate::arrival::Arrival;

    fn config(load: Arrival, limit: Limit) -> Config {
        let tokenizer = Tokenizer::named("char").unwrap();
        Config {
            load,
            limit,
            ..Config::new(String::new(), Arc::default(), Arc::new(tokenizer))
        }
    }

    const SECOND: Limit = Limit::Duration(Duration::from_secs(1));

    fn numbers<const N: usize>(tickets: &Tickets, times: [u64; N]) -> [Option<u64>; N] {
        times.map(|now| Some(tickets.take(now)?.number))
    }

    #[test]
    fn tickets_end_by_number_time_or_schedule() {
        let three = Tickets::new(&config(Arrival::Burst, Limit::Requests(3)), 4);
        assert_eq!(
            numbers(&three, [0, 1, 2, 3, 4]),
            [Some(0), Some(1), Some(2), None, None]
        );
        assert_eq!(three.taken(), 3);
        let timed = Tickets::new(&config(Arrival::Burst, SECOND), 4);
        assert_eq!(
            numbers(&timed, [999_999_999, 1_000_000_000]),
            [Some(0), None]
        );
        let open = Tickets::new(&config(Arrival::Constant(2.0), SECOND), 4);
        let intended = [0, 0, 0].map(|now| open.take(now)?.intended_ns);
        assert_eq!(intended, [Some(0), Some(500_000_000), None]);
    }

    #[test]
    fn a_warm_up_takes_nothing_from_what_follows() {
        let warm = |load, limit| {
            let config = Config {
                warm_up: Duration::from_secs(1),
                ..config(load, limit)
            };
            Tickets::new(&config, 4)
        };
        let taken = |tickets: &Tickets, now| {
            let ticket = tickets.take(now)?;
            Some((ticket.number, ticket.warms_up, ticket.intended_ns))
        };
        let one = warm(Arrival::Burst, Limit::Requests(1));
        let times = [0, 999_999_999, 1_000_000_000, 1_000_000_001];
        assert_eq!(
            times.map(|now| taken(&one, now)),
            [
                Some((0, true, None)),
                Some((1, true, None)),
                Some((0, false, None)),
                None
            ]
        );
        let second = warm(Arrival::Burst, SECOND);
        assert!(second.take(1_999_999_999).is_some());
        assert_eq!(second.take(2_000_000_000), None);
        let open = warm(Arrival::Constant(2.0), SECOND);
        assert_eq!(
            [0; 5].map(|now| taken(&open, now)),
            [
                Some((0, true, Some(0))),
                Some((1, true, Some(500_000_000))),
                Some((0, false, Some(1_000_000_000))),
                Some((1, false, Some(1_500_000_000))),
                None
            ]
        );
    }

    #[test]
    fn a_server_is_gone_after_enough_silence_in_a_row() {
        let tickets = Tickets::new(&config(Arrival::Burst, Limit::Requests(99)), 16);
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
