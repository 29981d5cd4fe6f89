//! How late paced steps were written: counted by a worker without a lock, read by anybody.

use std::time::Duration;

use super::counters::Number;

/// Buckets of each power of two, so that a bucket is at most a 32nd of its start wide.
const PARTS: usize = 32;
const PARTS_LOG2: u32 = PARTS.ilog2();
/// Buckets for all of a `u64`.
const BUCKETS: usize = (64 - PARTS_LOG2 as usize + 1) * PARTS;

/// How late paced steps were written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lateness {
    /// The latest.
    pub max: Duration,
    /// The mean.
    pub mean: Duration,
    /// Half were no later, to a 32nd.
    pub p50: Duration,
    /// All but a hundredth were no later, to a 32nd.
    pub p99: Duration,
    /// Steps that had a time.
    pub steps: u64,
    /// All of them together.
    pub total: Duration,
}

/// One worker's counts by nanoseconds.
#[derive(Debug)]
pub(super) struct Late {
    buckets: Box<[Number]>,
    max: Number,
    total: Number,
}

impl Default for Late {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| Number::default()).collect(),
            max: Number::default(),
            total: Number::default(),
        }
    }
}

impl Late {
    pub(super) fn add(&self, nanoseconds: u64) {
        self.buckets[bucket(nanoseconds)].add(1);
        self.total.add(nanoseconds);
        self.max.raise(nanoseconds);
    }
}

/// What all workers count together, if they count anything.
pub(super) fn lateness<'l>(workers: impl Iterator<Item = &'l Late>) -> Option<Lateness> {
    let mut buckets = [0; BUCKETS];
    let (mut max, mut total) = (0, 0_u64);
    for late in workers {
        for (sum, count) in buckets.iter_mut().zip(&late.buckets) {
            *sum += count.value();
        }
        max = max.max(late.max.value());
        total = total.wrapping_add(late.total.value());
    }
    let steps: u64 = buckets.iter().sum();
    let quantile = |percent: u64| {
        let rank = (steps * percent).div_ceil(100);
        let mut seen = 0;
        let found = buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        Duration::from_nanos(last_of(found.unwrap_or(BUCKETS - 1)).min(max))
    };
    Some(Lateness {
        max: Duration::from_nanos(max),
        mean: Duration::from_nanos(total.checked_div(steps)?),
        p50: quantile(50),
        p99: quantile(99),
        steps,
        total: Duration::from_nanos(total),
    })
}

/// The bucket of a value: its first bit tells the power of two, the next five the part of it.
fn bucket(value: u64) -> usize {
    let power = (value | 1).ilog2().saturating_sub(PARTS_LOG2);
    let part = usize::try_from(value >> power).expect("a few bits are left");
    power as usize * PARTS + part
}

/// The largest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    let power = (bucket / PARTS).saturating_sub(1);
    let part = (bucket - power * PARTS) as u64;
    (part << power) + ((1 << power) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_those_of_all_workers() {
        let workers = [Late::default(), Late::default()];
        assert_eq!(lateness(workers.iter()), None);
        for nanoseconds in 1..=1000 {
            let worker = usize::from(nanoseconds % 2 == 0);
            workers[worker].add(nanoseconds * 1000);
        }
        let late = lateness(workers.iter()).unwrap();
        assert_eq!((late.steps, late.max), (1000, Duration::from_millis(1)));
        assert_eq!(late.mean, Duration::from_nanos(500_500));
        let micros = |quantile: Duration| quantile.as_micros();
        assert!((500..517).contains(&micros(late.p50)), "{:?}", late.p50);
        assert!((990..=1000).contains(&micros(late.p99)), "{:?}", late.p99);
    }

    proptest! {
        #[test]
        fn a_bucket_ends_a_32nd_behind_its_values(value in any::<u64>(), shift in 0_u32..64) {
            let value = value >> shift;
            let last = last_of(bucket(value));
            prop_assert!(last >= value && last - value <= value / 32);
            prop_assert!(last == u64::MAX || bucket(last + 1) == bucket(value) + 1);
        }
    }
}
