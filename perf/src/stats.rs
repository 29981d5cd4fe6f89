//! Medians, ratios paired by round, and their bootstrap intervals. Randomness is a seed.

use serde::Serialize;

/// Fewest values that have an interval: of five, not even the whole range holds the median with 95%.
pub(crate) const FEWEST: usize = 6;

const RESAMPLES: usize = if cfg!(test) { 400 } else { 2000 };

/// An estimate and its 95% confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    /// Its lower end.
    pub(crate) low: f64,
    /// The median.
    pub(crate) estimate: f64,
    /// Its upper end.
    pub(crate) high: f64,
}

impl Interval {
    /// The value is within, ends included.
    pub(crate) fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Of positive values: half the distance of the ends' logarithms.
    pub(crate) fn half_width(&self) -> f64 {
        (self.high.ln() - self.low.ln()) / 2.0
    }

    /// Of a ratio: the larger distance of an end's logarithm from zero.
    pub(crate) fn reach(&self) -> f64 {
        self.low.ln().abs().max(self.high.ln().abs())
    }

    fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            low: change(self.low),
            estimate: change(self.estimate),
            high: change(self.high),
        }
    }
}

/// The middle value; NaN of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    median_of(&mut values.to_vec())
}

fn median_of(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let middle = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if is_even {
        let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        f64::midpoint(lower, upper)
    } else {
        upper
    }
}

/// The median with its interval, if there are values enough; what is not finite is none.
///
/// The percentile bootstrap of few values is too narrow, so its levels are moved out as Hesterberg
/// ("What Teachers Should Know About the Bootstrap", 2015, section 5.3) does; and it is no narrower than
/// the interval of the sign test, which holds whatever the distribution.
pub(crate) fn median_interval(values: &[f64], seed: u64) -> Option<Interval> {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.retain(|value| value.is_finite());
    if sorted.len() < FEWEST {
        return None;
    }
    sorted.sort_unstable_by(f64::total_cmp);
    let values = &*sorted;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = std::iter::repeat_with(|| {
        for value in &mut sample {
            *value = values[random.usize(..values.len())];
        }
        median_of(&mut sample)
    })
    .take(RESAMPLES)
    .collect();
    medians.sort_unstable_by(f64::total_cmp);
    let outside = rank(tail(values.len()));
    let beyond = beyond(values.len());
    Some(Interval {
        low: medians[outside].min(values[beyond]),
        estimate: median(values),
        high: medians[RESAMPLES - 1 - outside].max(values[values.len() - 1 - beyond]),
    })
}

/// How many of so many values, at each end, the sign test's interval leaves out.
#[expect(clippy::cast_precision_loss, reason = "some rounds")]
fn beyond(count: usize) -> usize {
    let mut probability = 0.5_f64.powf(count as f64);
    let mut below = probability;
    let mut left_out = 0;
    loop {
        probability *= (count - left_out) as f64 / (left_out + 1) as f64;
        below += probability;
        if below > 0.025 {
            return left_out;
        }
        left_out += 1;
    }
}

/// How much `values` are of `bases`, both positive: the median of the rounds' ratios, its interval on
/// the logarithms.
pub(crate) fn ratio(values: &[f64], bases: &[f64], seed: u64) -> Option<Interval> {
    let pairs = values.iter().zip(bases);
    let logs: Vec<f64> = pairs.map(|(value, base)| (value / base).ln()).collect();
    Some(median_interval(&logs, seed)?.map(f64::exp))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a small share of the resamples"
)]
fn rank(share: f64) -> usize {
    (share * RESAMPLES as f64) as usize
}

/// Share of the bootstrap distribution that is left out at each end.
#[expect(clippy::cast_precision_loss, reason = "some rounds")]
fn tail(count: usize) -> f64 {
    let (count, freedom) = (count as f64, count as f64 - 1.0);
    normal_below(-(count / freedom).sqrt() * student(freedom))
}

/// The 97.5th percentile of Student's distribution (Abramowitz and Stegun 26.7.5).
fn student(freedom: f64) -> f64 {
    let z = 1.959_963_985_f64;
    let first = z.powi(3) + z;
    let second = 5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z;
    let third = 3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z;
    z + first / (4.0 * freedom)
        + second / (96.0 * freedom.powi(2))
        + third / (384.0 * freedom.powi(3))
}

/// The normal distribution below a negative `z` (Abramowitz and Stegun 26.2.17).
fn normal_below(z: f64) -> f64 {
    let t = 1.0 / (1.0 - 0.231_641_9 * z);
    let factors = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let sum = factors
        .iter()
        .rev()
        .fold(0.0, |sum, factor| (sum + factor) * t);
    (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: u64 = 500;
    const ROUNDS: usize = 12;
    /// Rows of a round, of which two are compared.
    const ROWS: usize = 6;

    /// Noise of one row's windows, in logarithms: what the machine does to each.
    struct Machine {
        random: fastrand::Rng,
        speed: f64,
        /// How much of a window's speed the next one keeps.
        keeps: f64,
        /// Share of windows that something else disturbs.
        disturbed: f64,
    }

    impl Machine {
        fn new(seed: u64, keeps: f64, disturbed: f64) -> Self {
            Self {
                random: fastrand::Rng::with_seed(seed),
                speed: 0.0,
                keeps,
                disturbed,
            }
        }

        fn normal(&mut self) -> f64 {
            let radius = (-2.0 * (1.0 - self.random.f64()).ln()).sqrt();
            radius * (std::f64::consts::TAU * self.random.f64()).cos()
        }

        /// What a window measures whose true value is `value`.
        fn window(&mut self, value: f64) -> f64 {
            self.speed = self.keeps * self.speed + 0.02 * self.normal();
            let mut log = self.speed + 0.01 * self.normal();
            if self.random.f64() < self.disturbed {
                log -= 0.3 * self.random.f64();
            }
            value * log.exp()
        }

        /// Two rows of a run in the order that the roofline uses.
        fn run(&mut self, values: [f64; 2]) -> [Vec<f64>; 2] {
            let mut measured = [Vec::new(), Vec::new()];
            for round in 0..ROUNDS {
                for row in crate::order(round, ROWS) {
                    let value = self.window(if row == 0 { values[0] } else { values[1] });
                    match row {
                        0 => measured[0].push(value),
                        3 => measured[1].push(value),
                        _ => {}
                    }
                }
            }
            measured
        }
    }

    /// Runs whose interval contains the truth.
    fn covered(keeps: f64, disturbed: f64, truth: f64) -> u64 {
        let covers = |seed: &u64| {
            let [bases, values] = Machine::new(*seed, keeps, disturbed).run([1.0, truth]);
            ratio(&values, &bases, *seed).unwrap().contains(truth)
        };
        (0..RUNS).filter(covers).count() as u64
    }

    #[test]
    fn intervals_contain_the_truth_in_nineteen_of_twenty_runs_whatever_the_noise() {
        for (keeps, disturbed) in [(0.0, 0.0), (0.9, 0.0), (0.99, 0.0), (0.5, 0.15), (0.9, 0.3)] {
            let covered = covered(keeps, disturbed, 1.07);
            assert!(
                covered * 20 >= RUNS * 19,
                "{covered} of {RUNS} at {keeps} {disturbed}"
            );
        }
    }

    #[test]
    fn a_null_test_contains_one_in_nine_of_ten_runs() {
        let mut decades = 0;
        for decade in 0..30 {
            let contains = |run: &u64| {
                let [first, again] = Machine::new(decade * 10 + run, 0.9, 0.1).run([50_000.0; 2]);
                ratio(&again, &first, *run).unwrap().contains(1.0)
            };
            decades += u32::from((0..10).filter(contains).count() >= 9);
        }
        assert!(decades >= 28, "{decades} of 30");
    }

    #[test]
    fn intervals_are_seeded_and_narrow_with_more_values() {
        let values: Vec<f64> = (0..48).map(|index| f64::from(index * 7 % 48)).collect();
        let all = median_interval(&values, 1).unwrap();
        assert_eq!(Some(all), median_interval(&values, 1));
        assert!((all.estimate - 23.5).abs() < 1e-12 && all.contains(23.5));
        let few = median_interval(&values[..8], 1).unwrap();
        assert!(few.high - few.low > all.high - all.low, "{few:?} {all:?}");
    }

    #[test]
    fn too_few_or_missing_values_have_no_interval() {
        assert_eq!(median_interval(&[1.0; 5], 0), None);
        assert_eq!(ratio(&[1.0; 6], &[0.0; 6], 0), None);
        let gap = ratio(&[1.0, 2.0, 2.0, f64::NAN, 2.0, 2.0, 2.0, 3.0], &[1.0; 8], 0).unwrap();
        assert!((gap.estimate - 2.0).abs() < 1e-9);
        let same = ratio(&[2.0; 6], &[1.0; 6], 0).unwrap();
        assert!((same.low - 2.0).abs() < 1e-9 && (same.high - 2.0).abs() < 1e-9);
    }

    #[test]
    fn medians_are_middle_values() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0]) - 2.5).abs() < 1e-12);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        assert_eq!([6, 12, 16, 20, 40].map(beyond), [0, 2, 3, 5, 13]);
        assert!((student(11.0) - 2.201).abs() < 1e-3);
        assert!((student(5.0) - 2.571).abs() < 2e-2);
        assert!((normal_below(-1.959_964) - 0.025).abs() < 1e-6);
    }
}
