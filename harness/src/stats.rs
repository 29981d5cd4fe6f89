//! Distributions: exact from all values, or within a thousandth from a histogram.

/// What is said of a set of values, in the values' own unit.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of these values, not of a population that they were drawn from.
    pub std: f64,
    /// Median, by nearest rank as all percentiles here.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Some completed samples gave no value.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// Arithmetic mean and standard deviation of values of which there is at least one.
pub(crate) fn mean_and_std(values: impl ExactSizeIterator<Item = f64> + Clone) -> (f64, f64) {
    let count = float(values.len() as u64);
    let mean = values.clone().sum::<f64>() / count;
    let squares = values.map(|value| (value - mean).powi(2));
    (mean, (squares.sum::<f64>() / count).sqrt())
}

impl Distribution {
    /// The distribution of these values, if there are any.
    pub fn new(mut values: Vec<u64>) -> Option<Self> {
        values.sort_unstable();
        let (&min, &max) = (values.first()?, values.last()?);
        let (mean, std) = mean_and_std(values.iter().copied().map(float));
        let ranked = |permille: usize| values[(values.len() * permille).div_ceil(1000) - 1];
        Some(Self {
            count: values.len() as u64,
            min,
            max,
            mean,
            std,
            p50: ranked(500),
            p90: ranked(900),
            p95: ranked(950),
            p99: ranked(990),
            p999: ranked(999),
            partial: false,
        })
    }

    /// The same, marked as partial or not.
    #[must_use]
    pub fn with_partial(self, partial: bool) -> Self {
        Self { partial, ..self }
    }
}

/// Counts of values in memory that does not grow with their number; what it says of them is off by
/// less than a thousandth.
#[derive(Clone, Debug)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Histogram {
    /// Three significant digits.
    const DIGITS: u8 = 3;

    /// Counts one more value.
    pub fn record(&mut self, value: u64) {
        self.0.record(value).expect("it grows as needed");
    }

    /// Counts all values of another one too.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("it grows as needed");
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value that the share `quantile`, from 0 to 1, of all values does not exceed; 0 if there
    /// are none.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    /// What is said of the values, if there are any.
    pub fn distribution(&self) -> Option<Distribution> {
        let ranked = |quantile| self.quantile(quantile).min(self.0.max());
        (self.count() > 0).then(|| Distribution {
            count: self.count(),
            min: self.0.min(),
            max: self.0.max(),
            mean: self.0.mean(),
            std: self.0.stdev(),
            p50: ranked(0.5),
            p90: ranked(0.9),
            p95: ranked(0.95),
            p99: ranked(0.99),
            p999: ranked(0.999),
            partial: false,
        })
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self(hdrhistogram::Histogram::new(Self::DIGITS).expect("three digits are possible"))
    }
}

/// The nearest `f64`.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and nanoseconds stay far below 2^53"
)]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_at_their_nearest_rank() {
        let all = Distribution::new((1..=1000).rev().collect()).unwrap();
        assert_eq!((all.count, all.min, all.max), (1000, 1, 1000));
        assert_eq!(
            [all.p50, all.p90, all.p95, all.p99, all.p999],
            [500, 900, 950, 990, 999]
        );
        let few = Distribution::new(vec![30, 10, 20]).unwrap();
        assert_eq!([few.p50, few.p90, few.p999], [20, 30, 30]);
    }

    #[test]
    fn mean_and_deviation_are_those_of_the_values() {
        let values = Distribution::new(vec![2, 4, 4, 4, 5, 5, 7, 9]).unwrap();
        assert!((values.mean - 5.0).abs() < 1e-12);
        assert!((values.std - 2.0).abs() < 1e-12);
    }

    #[test]
    fn no_values_have_no_distribution() {
        assert_eq!(Distribution::new(Vec::new()), None);
        let one = Distribution::new(vec![7]).unwrap();
        assert_eq!([one.min, one.p50, one.p999, one.max], [7; 4]);
    }

    #[test]
    fn partial_is_written_only_where_it_holds() {
        let whole = Distribution::new(vec![7]).unwrap();
        let text = serde_json::to_string(&whole).unwrap();
        assert!(!text.contains("partial"), "{text}");
        let text = serde_json::to_string(&whole.with_partial(true)).unwrap();
        assert!(text.ends_with(r#""partial":true}"#), "{text}");
    }

    #[test]
    fn a_histogram_is_near_the_exact_distribution() {
        let values: Vec<u64> = (1..=5000).map(|value| value * value * 997).collect();
        let (mut histogram, mut rest) = (Histogram::default(), Histogram::default());
        assert_eq!(histogram.distribution(), None);
        let (front, back) = values.split_at(100);
        for (values, histogram) in [(front, &mut histogram), (back, &mut rest)] {
            for &value in values {
                histogram.record(value);
            }
        }
        histogram.add(&rest);
        let (near, exact) = (
            histogram.distribution().unwrap(),
            Distribution::new(values).unwrap(),
        );
        assert_eq!(near.count, exact.count);
        let pairs = [
            (near.mean, exact.mean),
            (near.std, exact.std),
            (float(near.min), float(exact.min)),
            (float(near.p50), float(exact.p50)),
            (float(near.p999), float(exact.p999)),
            (float(near.max), float(exact.max)),
        ];
        for (near, exact) in pairs {
            assert!((near / exact - 1.0).abs() < 1e-3, "{near} {exact}");
        }
    }
}
