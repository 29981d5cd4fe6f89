//! The highest rate that is sustained, by bisection.

use serde::Serialize;

use crate::limit::SUSTAINED;

/// Where to search, and how sure to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// Requests/s that are taken as sustained.
    pub low: f64,
    /// Requests/s that are taken as too many.
    pub high: f64,
    /// Ratio of the bounds at which the search ends.
    pub precision: f64,
    /// Trials of a rate that all have to be sustained.
    pub confirm: u32,
}

/// One rate, tried once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// Requests/s that were asked for.
    pub target: f64,
    /// Requests/s that fell due: what chance made of the target.
    pub offered: f64,
    /// Requests/s that were answered.
    pub achieved: f64,
    /// Requests that failed.
    pub failed: u64,
}

impl Trial {
    /// Nothing failed, and what fell due was answered in its time but for a twentieth.
    pub fn is_sustained(&self) -> bool {
        self.failed == 0 && self.achieved >= SUSTAINED * self.offered
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Highest sustained requests/s; none if even the lower bound was not.
    pub sustained: Option<f64>,
    /// Lowest requests/s that was not sustained; none if all were.
    pub too_many: Option<f64>,
    /// All that was tried, in order.
    pub trials: Vec<Trial>,
}

impl Search {
    /// Bisects on a logarithmic scale; a rate counts once it has been sustained `confirm` times.
    pub fn run<E>(self, mut measure: impl FnMut(f64) -> Result<Trial, E>) -> Result<Found, E> {
        let mut found = Found {
            sustained: None,
            too_many: None,
            trials: Vec::new(),
        };
        let mut holds = |rate: f64, found: &mut Found| -> Result<bool, E> {
            for _ in 0..self.confirm.max(1) {
                let trial = measure(rate)?;
                found.trials.push(trial);
                if !trial.is_sustained() {
                    found.too_many = Some(rate);
                    return Ok(false);
                }
            }
            found.sustained = Some(rate);
            Ok(true)
        };
        if !holds(self.low, &mut found)? {
            return Ok(found);
        }
        let (mut low, mut high) = (self.low, self.high);
        while high / low > self.precision.max(1.001) {
            let middle = (low * high).sqrt();
            if holds(middle, &mut found)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const SEARCH: Search = Search {
        low: 1000.0,
        high: 100_000.0,
        precision: 1.03,
        confirm: 2,
    };

    /// A server that answers so many requests/s at most.
    fn found(capacity: f64) -> Found {
        let measured = SEARCH.run(|target| {
            Ok::<_, Infallible>(Trial {
                target,
                offered: target,
                achieved: target.min(capacity),
                failed: 0,
            })
        });
        measured.unwrap()
    }

    #[test]
    fn bisection_ends_around_the_capacity() {
        for capacity in [1500.0, 23_000.0, 80_000.0] {
            let found = found(capacity);
            let edge = capacity / SUSTAINED;
            let (sustained, too_many) = (found.sustained.unwrap(), found.too_many.unwrap());
            assert!(sustained <= edge && edge < too_many, "{found:?}");
            assert!(too_many / sustained <= 1.03, "{found:?}");
            assert!(found.trials.len() < 25, "{found:?}");
        }
    }

    #[test]
    fn bounds_that_do_not_hold_are_told() {
        let low = found(500.0);
        assert_eq!((low.sustained, low.trials.len()), (None, 1));
        let high = found(1e6);
        assert_eq!(high.too_many, None);
        assert!(high.sustained.unwrap() > 95_000.0);
    }

    #[test]
    fn a_rate_that_holds_only_once_or_with_failures_is_not_sustained() {
        let mut times = 0;
        let flaky = SEARCH.run(|target| {
            times += 1;
            Ok::<_, Infallible>(Trial {
                target,
                offered: target,
                achieved: target,
                failed: u64::from(times % 2 == 0),
            })
        });
        assert_eq!(flaky.unwrap().sustained, None);
    }
}
