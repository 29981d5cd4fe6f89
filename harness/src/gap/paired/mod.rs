//! Samples by both counts: each pair, the distribution of their differences, and what explains them.

mod text;

use std::io::Write;

use anyhow::Context as _;
use serde::Serialize;

use super::attribution::{Attribution, Basis, Cause};
use crate::cli::Format;
use crate::stats::{float, mean_and_std};

pub use text::text;

/// One sample by both counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Its name in the data set.
    pub id: String,
    /// The `x-request-id` of its request, or what the run calls it.
    pub request_id: String,
    /// Events that carried text, reasoning or a tool call.
    pub chunks: u64,
    /// The difference and its causes.
    #[serde(flatten)]
    pub attribution: Attribution,
}

/// What is known of a set of samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The server, or the folder.
    pub source: String,
    /// How the samples came about.
    pub about: Vec<String>,
    /// What could not be seen.
    pub unseen: Vec<String>,
    /// Samples with a difference.
    pub n_samples: u64,
    /// Answers that were not complete, which are in no other number.
    pub n_failed: u64,
    /// Samples without a usable count from the server.
    pub n_missing_usage: u64,
    /// Of server − client over the samples with both counts.
    pub difference: Option<Differences>,
    /// The sum of all differences.
    pub total: i64,
    /// By cause, largest first.
    pub explained: Vec<CauseSum>,
    /// What is left.
    pub unexplained: Unexplained,
    /// Samples by what their attribution rests on.
    pub bases: Bases,
    /// All of them.
    pub samples: Vec<Sample>,
}

/// A cause over all samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseSum {
    /// Which.
    pub cause: Cause,
    /// The sum of its tokens.
    pub tokens: i64,
    /// They as a share of the sum of all differences; none if that is 0.
    pub share: Option<f64>,
    /// Samples that have it.
    pub samples: u64,
}

/// What no cause explains.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Unexplained {
    /// The sum of its tokens.
    pub tokens: i64,
    /// The sum without signs: samples do not make up for each other.
    pub absolute: u64,
    /// The sum as a share of the sum of all differences; none if that is 0.
    pub share: Option<f64>,
    /// Samples that have any.
    pub samples: u64,
}

/// Samples by what their attribution rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bases {
    /// The ids of the tokens.
    pub token_ids: u64,
    /// The texts of the tokens.
    pub logprobs: u64,
    /// The text rendered again.
    pub inferred: u64,
    /// Counts alone.
    pub counts: u64,
}

/// A distribution of numbers of tokens that may be negative.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Differences {
    /// Number of values.
    pub count: u64,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of these values.
    pub std: f64,
    /// Median, by nearest rank as all percentiles here.
    pub p50: i64,
    /// 90th percentile.
    pub p90: i64,
    /// 99th percentile.
    pub p99: i64,
}

impl Differences {
    /// The distribution of these values, if there are any.
    pub fn new(mut values: Vec<i64>) -> Option<Self> {
        values.sort_unstable();
        let (&min, &max) = (values.first()?, values.last()?);
        let (mean, std) = mean_and_std(values.iter().copied().map(signed_float));
        let ranked = |percent: usize| values[(values.len() * percent).div_ceil(100) - 1];
        Some(Self {
            count: values.len() as u64,
            min,
            max,
            mean,
            std,
            p50: ranked(50),
            p90: ranked(90),
            p99: ranked(99),
        })
    }
}

pub(super) fn signed_float(value: i64) -> f64 {
    let size = float(value.unsigned_abs());
    if value < 0 { -size } else { size }
}

impl Report {
    /// What these samples come to.
    pub fn new(source: String, samples: Vec<Sample>) -> Self {
        let attributions = || samples.iter().map(|sample| &sample.attribution);
        let total = attributions().map(|found| found.difference).sum();
        let share = |tokens| (total != 0).then(|| signed_float(tokens) / signed_float(total));
        let sum = |cause| {
            let tokens = attributions().map(|found| found.of(cause));
            let samples = attributions().filter(|found| found.of(cause) != 0).count();
            let tokens = tokens.sum();
            CauseSum {
                cause,
                tokens,
                share: share(tokens),
                samples: samples as u64,
            }
        };
        let mut explained: Vec<CauseSum> = Cause::ALL.into_iter().map(sum).collect();
        explained.retain(|sum| sum.samples > 0);
        explained.sort_by_key(|sum| std::cmp::Reverse(sum.tokens.unsigned_abs()));
        let rests = || attributions().map(|found| found.unexplained);
        let unexplained = Unexplained {
            tokens: rests().sum(),
            absolute: rests().map(i64::unsigned_abs).sum(),
            share: share(rests().sum()),
            samples: rests().filter(|rest| *rest != 0).count() as u64,
        };
        let both = attributions().filter(|found| found.server.is_some());
        let missing = attributions().filter(|found| found.server.is_none());
        let on = |basis| attributions().filter(|found| found.basis == basis).count() as u64;
        Self {
            source,
            about: Vec::new(),
            unseen: Vec::new(),
            n_samples: samples.len() as u64,
            n_failed: 0,
            n_missing_usage: missing.count() as u64,
            difference: Differences::new(both.map(|found| found.difference).collect()),
            total,
            explained,
            unexplained,
            bases: Bases {
                token_ids: on(Basis::TokenIds),
                logprobs: on(Basis::Logprobs),
                inferred: on(Basis::Inferred),
                counts: on(Basis::Counts),
            },
            samples,
        }
    }

    /// 1 if a sample failed or more tokens than that stay unexplained, else 0.
    pub fn exit_code(&self, tolerance: u64) -> u8 {
        u8::from(self.n_failed > 0 || self.unexplained.absolute > tolerance)
    }

    /// A JSON document that ends in a line feed.
    pub fn json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("numbers and strings encode");
        json + "\n"
    }

    /// Prints it with the worst samples, and gives the exit code.
    pub(super) fn print(
        &self,
        format: Format,
        (tolerance, worst): (u64, usize),
        out: &mut impl Write,
    ) -> anyhow::Result<u8> {
        let printed = match format {
            Format::Json => self.json(),
            Format::Table => text(self, worst),
        };
        out.write_all(printed.as_bytes())
            .context("failed to print the report")?;
        Ok(self.exit_code(tolerance))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn sample(server: Option<u64>, client: u64, rest: i64) -> Sample {
        let difference = server.map_or(0, |count| i64::try_from(count).unwrap())
            - i64::try_from(client).unwrap();
        let cause = if server.is_some() {
            Cause::EndToken
        } else {
            Cause::MissingUsage
        };
        Sample {
            id: "s".into(),
            request_id: "r".into(),
            chunks: 1,
            attribution: Attribution {
                server,
                client,
                difference,
                explained: vec![(cause, difference - rest)],
                unexplained: rest,
                basis: Basis::TokenIds,
            },
        }
    }

    #[test]
    fn sums_shares_and_distribution_are_those_of_the_samples() {
        let samples = vec![
            sample(Some(3), 2, 0),
            sample(Some(7), 2, 4),
            sample(Some(1), 3, -3),
            sample(None, 3, 0),
        ];
        let report = Report::new("u".into(), samples);
        assert_eq!((report.n_samples, report.n_missing_usage), (4, 1));
        assert_eq!(report.total, 1);
        let difference = report.difference.as_ref().unwrap();
        assert_eq!(
            (difference.count, difference.min, difference.max),
            (3, -2, 5)
        );
        assert!((difference.mean - 4.0 / 3.0).abs() < 1e-9);
        assert_eq!((difference.p50, difference.p99), (1, 5));
        let sums: Vec<_> = report
            .explained
            .iter()
            .map(|sum| (sum.cause, sum.tokens))
            .collect();
        assert_eq!(sums, [(Cause::EndToken, 3), (Cause::MissingUsage, -3)]);
        assert_eq!(
            (report.unexplained.tokens, report.unexplained.absolute),
            (1, 7)
        );
        assert_eq!((report.exit_code(6), report.exit_code(7)), (1, 0));
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["samples"][0]["explained"]["end_token"], 1);
        assert_eq!(Report::new("u".into(), Vec::new()).difference, None);
    }
}
