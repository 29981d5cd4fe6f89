//! The highest rate that is sustained, by bisection.

use serde::Serialize;

use crate::limit::SUSTAINED;

/// How often an upper bound is doubled that turns out to be sustained.
const DOUBLINGS: u32 = 4;

/// Where to search, and how sure to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Search {
    /// Requests/s that are taken as sustained.
    pub(crate) low: f64,
    /// Requests/s that are most likely too many.
    pub(crate) high: f64,
    /// Ratio of the bounds at which the search ends.
    pub(crate) precision: f64,
    /// Most trials of a rate, of which the most have to be sustained: a hiccup of the machine is no
    /// limit.
    pub(crate) trials: u32,
}

/// One rate, tried once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Trial {
    /// Requests/s that were asked for.
    pub(crate) target: f64,
    /// Requests/s that fell due: what chance made of the target.
    pub(crate) offered: f64,
    /// Requests/s that were answered.
    pub(crate) achieved: f64,
    /// Requests that failed.
    pub(crate) failed: u64,
}

impl Trial {
    /// Nothing failed, and what fell due was answered in its time but for a twentieth.
    pub(crate) fn is_sustained(&self) -> bool {
        self.failed == 0 && self.achieved >= SUSTAINED * self.offered
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Found {
    /// Highest sustained requests/s; none if even the lower bound was not.
    pub(crate) sustained: Option<f64>,
    /// Lowest requests/s that was not sustained; none if all were.
    pub(crate) too_many: Option<f64>,
    /// All that was tried, in order.
    pub(crate) trials: Vec<Trial>,
}

impl Search {
    /// Bisects on a logarithmic scale; a rate counts if most of its trials were sustained.
    pub(crate) fn run<E>(
        self,
        mut measure: impl FnMut(f64) -> Result<Trial, E>,
    ) -> Result<Found, E> {
        let mut found = Found {
            sustained: None,
            too_many: None,
            trials: Vec::new(),
        };
        let mut holds = |rate: f64, found: &mut Found| -> Result<bool, E> {
            let (mut sustained, mut not) = (0, 0);
            while sustained.max(not) <= self.trials / 2 {
                let trial = measure(rate)?;
                found.trials.push(trial);
                if trial.is_sustained() {
                    sustained += 1;
                } else {
                    not += 1;
                }
            }
            let holds = sustained > not;
            *if holds {
                &mut found.sustained
            } else {
                &mut found.too_many
            } = Some(rate);
            Ok(holds)
        };
        if !holds(self.low, &mut found)? {
            return Ok(found);
        }
        let (mut low, mut high) = (self.low, self.high);
        for _ in 0..DOUBLINGS {
            if !holds(high, &mut found)? {
                break;
            }
            (low, high) = (high, high * 2.0);
        }
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
        trials: 3,
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
        assert_eq!((low.sustained, low.trials.len()), (None, 2));
        let high = found(1e6);
        let edge = 1e6 / SUSTAINED;
        assert!(high.sustained.unwrap() <= edge && edge < high.too_many.unwrap());
        let higher = found(1e9);
        assert_eq!(higher.too_many, None);
        assert!(higher.sustained.unwrap() >= 800_000.0);
    }

    #[test]
    fn most_trials_decide_and_a_failure_is_not_sustained() {
        let fails_in = |times: &[usize]| {
            let mut tried = 0;
            let found = SEARCH.run(|target| {
                tried += 1;
                Ok::<_, Infallible>(Trial {
                    target,
                    offered: target,
                    achieved: target,
                    failed: u64::from(times.contains(&tried)),
                })
            });
            found.unwrap()
        };
        assert!(fails_in(&[2]).sustained > Some(90_000.0));
        let found = fails_in(&[1, 3]);
        assert_eq!((found.sustained, found.trials.len()), (None, 3));
    }
}
