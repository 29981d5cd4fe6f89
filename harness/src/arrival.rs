//! When requests are sent: as answers come back, or at times chosen before the run.

use std::str::FromStr;
use std::time::Duration;

use crate::bench::Limit;
use crate::error::UsageError;
use crate::stats::float;

/// The load's shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// Closed loop: all connections busy.
    Burst,
    /// Closed loop: this many requests in flight.
    Concurrency(usize),
    /// Open loop: requests at equal distances, this many a second.
    Constant(f64),
    /// Open loop: requests at exponentially distributed distances, this many a second on average.
    Poisson(f64),
}

const BURST_CONNECTIONS: usize = 64;
const OPEN_CONNECTIONS: usize = 256;

impl Arrival {
    /// Intended send times of an open loop, in nanoseconds from the run's start.
    pub(crate) fn schedule(self, limit: Limit, seed: u64) -> Option<Vec<u64>> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut clock = 0.0;
        let mut times = (0_u64..).map(|index| match self {
            Self::Constant(rate) => Some(float(index) / rate),
            Self::Poisson(rate) => {
                clock -= (1.0 - random.f64()).ln() / rate;
                Some(clock)
            }
            Self::Burst | Self::Concurrency(_) => None,
        });
        let mut schedule = Vec::new();
        let more = |count: usize, seconds: f64| match limit {
            Limit::Duration(duration) => seconds < duration.as_secs_f64(),
            Limit::Requests(requests) => (count as u64) < requests,
        };
        while let Some(seconds) = times.next()?.filter(|&at| more(schedule.len(), at)) {
            let at = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
            schedule.push(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        }
        (!self.is_closed()).then_some(schedule)
    }

    /// The next request waits for an answer, not for its time.
    pub(crate) fn is_closed(self) -> bool {
        matches!(self, Self::Burst | Self::Concurrency(_))
    }

    /// Most connections that the load may use, `asked` being the user's wish: never more than there
    /// are requests.
    pub(crate) fn connections(
        self,
        asked: Option<usize>,
        limit: Limit,
    ) -> Result<usize, UsageError> {
        let connections = match (self, asked) {
            (_, Some(0)) => Err(UsageError("--connections must be at least 1".into())),
            (Self::Concurrency(count), Some(fewer)) if fewer < count => Err(UsageError(format!(
                "--load concurrency:{count} needs {count} connections, --connections allows {fewer}"
            ))),
            (Self::Concurrency(count), _) => Ok(count),
            (Self::Burst, asked) => Ok(asked.unwrap_or(BURST_CONNECTIONS)),
            (Self::Constant(_) | Self::Poisson(_), asked) => Ok(asked.unwrap_or(OPEN_CONNECTIONS)),
        }?;
        Ok(match limit {
            Limit::Duration(_) => connections,
            Limit::Requests(requests) => {
                connections.min(usize::try_from(requests).unwrap_or(usize::MAX))
            }
        })
    }
}

impl FromStr for Arrival {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = |number: &str| {
            let rate = number.parse().ok();
            rate.filter(|&rate: &f64| rate.is_finite() && rate > 0.0)
                .ok_or_else(|| format!("{number:?} is not a rate above 0"))
        };
        match text.split_once(':') {
            None if text == "burst" => Ok(Self::Burst),
            Some(("concurrency", number)) => match number.parse() {
                Ok(count @ 1..) => Ok(Self::Concurrency(count)),
                _ => Err(format!("{number:?} is not a number of at least 1")),
            },
            Some(("constant", number)) => rate(number).map(Self::Constant),
            Some(("poisson", number)) => rate(number).map(Self::Poisson),
            _ => Err("expected burst, concurrency:N, poisson:QPS or constant:QPS".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, arrival) in [
            ("burst", Arrival::Burst),
            ("concurrency:7", Arrival::Concurrency(7)),
            ("poisson:2.5", Arrival::Poisson(2.5)),
            ("constant:100", Arrival::Constant(100.0)),
        ] {
            assert_eq!(text.parse(), Ok(arrival));
        }
        for bad in [
            "",
            "fast",
            "burst:1",
            "concurrency:0",
            "poisson:-1",
            "constant:nan",
            "poisson:0",
        ] {
            assert!(bad.parse::<Arrival>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_constant_schedule_has_equal_distances() {
        let half = Limit::Duration(Duration::from_millis(500));
        let schedule = Arrival::Constant(10.0).schedule(half, 0).unwrap();
        assert_eq!(
            schedule,
            [0, 100_000_000, 200_000_000, 300_000_000, 400_000_000]
        );
    }

    #[test]
    fn a_poisson_schedule_is_seeded_and_has_its_mean_rate() {
        let poisson = |seed| {
            let limit = Limit::Requests(100_000);
            Arrival::Poisson(1000.0).schedule(limit, seed).unwrap()
        };
        let schedule = poisson(1);
        assert_eq!(schedule, poisson(1));
        assert_ne!(schedule, poisson(2));
        assert_eq!(schedule.len(), 100_000);
        assert!(schedule.is_sorted());
        let rate = 100_000.0 / (float(schedule[99_999]) / 1e9);
        assert!((rate - 1000.0).abs() < 15.0, "{rate}");
        let gaps: Vec<u64> = schedule.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let gaps = crate::stats::Distribution::new(gaps).unwrap();
        assert!((gaps.std / gaps.mean - 1.0).abs() < 0.03, "{gaps:?}");
    }

    #[test]
    fn closed_loops_have_no_schedule() {
        assert_eq!(Arrival::Burst.schedule(Limit::Requests(3), 0), None);
        let limit = Limit::Requests(5);
        assert_eq!(Arrival::Concurrency(1).connections(Some(4), limit), Ok(1));
        assert_eq!(Arrival::Concurrency(8).connections(None, limit), Ok(5));
        assert!(Arrival::Concurrency(8).connections(Some(4), limit).is_err());
    }
}
