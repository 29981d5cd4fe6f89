//! Whether a throughput is known well enough, from windows of a run.

use std::time::Duration;

use crate::bench::Stability;
use crate::stats::float;

/// Long beside the steps of a scheduler, short beside a run.
pub(super) const WINDOW: Duration = Duration::from_millis(500);
/// An interval from fewer windows is no more than a guess.
const MIN_WINDOWS: usize = 6;

/// Watches completed requests until the 95% interval of their mean rate is narrow enough.
#[derive(Debug)]
pub(super) struct Windows {
    /// Half the width allowed, as a share of the mean.
    allowed: f64,
    /// Completed requests a second.
    rates: Vec<f64>,
    /// The last window's end in nanoseconds, and what was complete then.
    last: Option<(u64, u64)>,
}

impl Windows {
    pub(super) fn new(allowed: f64) -> Self {
        Self {
            allowed,
            rates: Vec::new(),
            last: None,
        }
    }

    /// Takes how many requests are complete at a time, and tells whether the rate is stable.
    pub(super) fn look(&mut self, now_ns: u64, completed: u64) -> bool {
        let (last_ns, before) = *self.last.get_or_insert((now_ns, completed));
        let took = Duration::from_nanos(now_ns - last_ns);
        if took >= WINDOW {
            let rate = float(completed - before) / took.as_secs_f64();
            self.rates.push(rate);
            self.last = Some((now_ns, completed));
        }
        self.stability().is_stable
    }

    pub(super) fn stability(&self) -> Stability {
        let windows = self.rates.len();
        let half_width = half_width(&self.rates).filter(|_| windows >= MIN_WINDOWS);
        Stability {
            windows: windows as u64,
            half_width,
            is_stable: half_width.is_some_and(|half_width| half_width <= self.allowed),
        }
    }
}

/// Half the 95% interval of the mean of values, as a share of it.
fn half_width(values: &[f64]) -> Option<f64> {
    let count = float(values.len() as u64);
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let half_width = student(count - 1.0) * error / mean;
    half_width.is_finite().then_some(half_width)
}

/// Student's t that 97.5% stay below, from the normal quantile by its degrees of freedom.
fn student(freedom: f64) -> f64 {
    let z: f64 = 1.959_964;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / freedom + second / freedom.powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_students_distribution() {
        assert!((student(5.0) - 2.571).abs() < 0.03);
        assert!((student(30.0) - 2.042).abs() < 0.002);
        let half_width = half_width(&[98.0, 99.0, 100.0, 100.0, 101.0, 102.0]).unwrap();
        assert!((half_width - 0.0148).abs() < 2e-4, "{half_width}");
        assert_eq!(super::half_width(&[]), None);
        assert_eq!(super::half_width(&[0.0, 0.0]), None);
    }

    fn look(rates: impl IntoIterator<Item = u64>) -> Stability {
        let mut windows = Windows::new(0.01);
        let (mut now, mut completed) = (7, 3);
        assert!(!windows.look(now, completed));
        for rate in rates {
            now += 250_000_000;
            assert_eq!(
                windows.look(now, completed + rate / 2),
                windows.stability().is_stable
            );
            now += 250_000_000;
            completed += rate;
            if windows.look(now, completed) {
                break;
            }
        }
        windows.stability()
    }

    #[test]
    fn a_steady_rate_is_stable_after_a_few_windows_and_a_wild_one_is_not() {
        let steady = look([1000; 60]);
        assert_eq!((steady.windows, steady.is_stable), (6, true));
        assert!(steady.half_width < Some(1e-9));
        let wild = look([500, 1500].repeat(30));
        assert_eq!((wild.windows, wild.is_stable), (60, false));
        let late = look([500].into_iter().chain([1000; 2000]));
        assert!(late.is_stable && late.windows > 50, "{late:?}");
        assert_eq!(look([1000; 3]).half_width, None);
        assert!(!look([0; 60]).is_stable, "nothing is no rate");
    }
}
