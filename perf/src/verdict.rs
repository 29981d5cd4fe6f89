//! What a run can say about differences, and what it cannot.

use serde::Serialize;

use crate::extra::{Extra, costs};
use crate::measure::{Measured, Role, Roofline};
use crate::scenario::{Mode, Start};
use crate::stats::{self, Interval};
use crate::window::{Window, count};

/// A difference that is so many half-widths of its interval is seen in four of five runs:
/// (1.96 + 0.84) / 1.96.
const POWER: f64 = 1.43;

/// What is compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    /// Answers a second.
    RequestsPerSecond,
    /// Of the server, per request.
    ServerCpu,
}

/// Why two rows are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    /// The same row under two names: does the run see differences where there are none?
    Null,
    /// Somebody else's server against each stub in the same mode.
    Server,
    /// The same server, asked for usage.
    Usage,
}

/// Two rows of one run, paired by round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// Why.
    pub(crate) question: Question,
    /// What.
    pub(crate) quantity: Quantity,
    /// The row that is told about.
    pub(crate) row: String,
    /// The row that it is measured by.
    pub(crate) base: String,
    /// When requests are sent, and what answers are like.
    pub(crate) shape: String,
    /// Row to base; none if there are too few rounds.
    pub(crate) ratio: Option<Interval>,
    /// Smallest difference that the run would have seen, as a share.
    pub(crate) resolution: Option<f64>,
    /// The ratio is not 1, and further from it than the smallest difference that can be seen.
    pub(crate) differs: bool,
    /// What the bytes that the row sends beyond the base cost.
    pub(crate) extra: Option<Extra>,
}

/// All comparisons of a run, null tests first.
pub(crate) fn comparisons(roofline: &Roofline, seed: u64) -> Vec<Comparison> {
    let rows = &roofline.rows;
    let quantities = [Quantity::RequestsPerSecond, Quantity::ServerCpu];
    let mut all: Vec<Comparison> = Vec::new();
    for (row, base, question) in pairs(rows) {
        for quantity in quantities {
            let pair = Pair {
                rows,
                row,
                base,
                quantity,
                seed,
            };
            all.extend(pair.compared(question, &all));
        }
    }
    all
}

/// Rows and their bases.
fn pairs(rows: &[Measured]) -> Vec<(&Measured, &Measured, Question)> {
    let again = rows.iter().filter_map(|row| match row.role {
        Role::Again(base) => Some((row, &rows[base], Question::Null)),
        _ => None,
    });
    let subjects = move || {
        rows.iter()
            .filter(|row| row.role == Role::Subject && row.found.is_none())
    };
    let usage = subjects()
        .filter(|row| row.row.mode.wants_usage())
        .filter_map(|row| {
            let is_base = |base: &&Measured| {
                base.row.mode == Mode::Stream
                    && base.row.server == row.row.server
                    && base.row.shape() == row.row.shape()
            };
            Some((row, subjects().find(is_base)?, Question::Usage))
        });
    let is_stub = |row: &Measured| matches!(row.row.start, Start::Stub(_));
    let servers = subjects()
        .filter(move |row| !is_stub(row))
        .flat_map(move |row| {
            let is_same = move |base: &&Measured| {
                base.row.mode == row.row.mode
                    && base.row.shape() == row.row.shape()
                    && is_stub(base)
            };
            let bases = subjects().filter(is_same);
            bases.map(move |base| (row, base, Question::Server))
        });
    again.chain(usage).chain(servers).collect()
}

struct Pair<'r> {
    rows: &'r [Measured],
    row: &'r Measured,
    base: &'r Measured,
    quantity: Quantity,
    seed: u64,
}

impl Pair<'_> {
    /// `before`: comparisons so far, the null tests among them.
    fn compared(&self, question: Question, before: &[Comparison]) -> Option<Comparison> {
        let (values, bases) = (self.values(self.row)?, self.values(self.base)?);
        let ratio = stats::ratio(&values, &bases, self.seed);
        let shape = self.row.row.shape();
        let nulls = before
            .iter()
            .filter(|known| known.question == Question::Null && known.quantity == self.quantity);
        let of_load = nulls.clone().find(|known| known.shape == shape);
        let null = of_load
            .or_else(|| nulls.clone().next())
            .and_then(|null| null.ratio);
        let resolution = ratio.map(|ratio| resolution(&ratio, null.as_ref()));
        let differs = ratio.zip(resolution).is_some_and(|(ratio, resolution)| {
            !ratio.contains(1.0) && ratio.estimate.ln().abs() >= resolution.ln_1p()
        });
        let is_usage = question == Question::Usage;
        Some(Comparison {
            question,
            quantity: self.quantity,
            row: self.row.row.name(),
            base: self.base.row.name(),
            shape,
            ratio,
            resolution,
            differs,
            extra: ratio
                .filter(|_| is_usage && self.base.response_bytes > 0)
                .map(|ratio| self.extra(&ratio, &values, &bases)),
        })
    }

    /// By round, not a number where a round has none.
    fn values(&self, row: &Measured) -> Option<Vec<f64>> {
        let value = |window: &Window| match self.quantity {
            Quantity::RequestsPerSecond => window.qps(),
            Quantity::ServerCpu => window.server_us().unwrap_or(f64::NAN),
        };
        let values: Vec<f64> = row.windows.iter().map(value).collect();
        values
            .iter()
            .any(|value| value.is_finite())
            .then_some(values)
    }

    fn extra(&self, ratio: &Interval, values: &[f64], bases: &[f64]) -> Extra {
        let of_ceiling = |row: &Measured| self.values(&self.rows[row.ceiling?]);
        let bare = of_ceiling(self.row).zip(of_ceiling(self.base));
        let (of_bare, beyond) = bare.map_or((None, None), |(row, base)| {
            let of_bare = stats::ratio(&row, &base, self.seed);
            let paired = |values: &[f64], bares: &[f64]| -> Vec<f64> {
                values
                    .iter()
                    .zip(bares)
                    .map(|(value, bare)| value / bare)
                    .collect()
            };
            let beyond = stats::ratio(&paired(values, &row), &paired(bases, &base), self.seed);
            (of_bare, beyond)
        });
        let (row_bytes, base_bytes) = (self.row.response_bytes, self.base.response_bytes);
        let longer = count(row_bytes as u64) / count(base_bytes.max(1) as u64);
        let costs = costs(self.quantity, longer, of_bare.as_ref());
        let is_contained = ratio.low <= costs[1] && costs[0] <= ratio.high;
        Extra {
            base_bytes,
            row_bytes,
            bare: of_bare,
            beyond,
            costs,
            is_contained,
        }
    }
}

/// The smallest difference that a run with such an interval sees, as a share: no smaller than what it
/// saw between a row and itself.
pub(crate) fn resolution(ratio: &Interval, null: Option<&Interval>) -> f64 {
    let own = POWER * ratio.half_width();
    null.map_or(own, |null| own.max(null.reach())).exp_m1()
}

impl Comparison {
    /// The verdict in a sentence, and what it says of extra bytes in another.
    pub(crate) fn sentence(&self) -> String {
        let (Some(ratio), Some(resolution)) = (&self.ratio, self.resolution) else {
            let fewest = stats::FEWEST;
            return format!("no verdicts: intervals need {fewest} rounds, and CPU times of both");
        };
        let numbers = numbers(ratio);
        if self.question == Question::Null {
            let verdict = if ratio.contains(1.0) {
                "contains 1.000, as it has to"
            } else {
                "does not contain 1.000: something disturbed this run"
            };
            return format!("{}: {numbers} {verdict}", self.subject());
        }
        let seen = if resolution < 1.0 {
            percent(resolution)
        } else {
            format!("a factor of {:.1}", 1.0 + resolution)
        };
        let verdict = if self.differs {
            let (times, size) = (ratio.estimate, percent((ratio.estimate - 1.0).abs()));
            let change = match self.quantity {
                _ if times >= 2.0 => format!("{times:.2} times as much"),
                _ if times > 1.0 => format!("{size} more"),
                Quantity::RequestsPerSecond => format!("{size} fewer"),
                Quantity::ServerCpu => format!("{size} less"),
            };
            format!("{change}, {numbers}; this run resolves {seen}")
        } else {
            format!(
                "no difference that this run could resolve, {numbers}; it would have seen {seen}"
            )
        };
        let extra = self
            .extra
            .as_ref()
            .map_or_else(String::new, Extra::sentence);
        format!("{}: {verdict}{extra}", self.subject())
    }

    fn subject(&self) -> String {
        let quantity = match self.quantity {
            Quantity::RequestsPerSecond => "requests/s",
            Quantity::ServerCpu => "server CPU per request",
        };
        let base = match self.question {
            Question::Null => "itself".to_owned(),
            Question::Server | Question::Usage => self.base.clone(),
        };
        format!("{} against {base} ({}), {quantity}", self.row, self.shape)
    }
}

pub(crate) fn numbers(ratio: &Interval) -> String {
    format!(
        "{:.3} ({:.3} to {:.3})",
        ratio.estimate, ratio.low, ratio.high
    )
}

/// A share with two significant digits.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = usize::from(percent.abs() < 9.95);
    format!("{percent:.digits$}%")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scenario::{self, Changes};
    use crate::window::Side;

    /// A row whose windows have this rate and this CPU time, with a slow drift that all rows share and
    /// a little noise of their own.
    fn measured(name: &str, us: f64, noise: u64) -> Measured {
        let scenario = scenario::find("usage", &Changes::default()).unwrap();
        let row = scenario
            .rows
            .into_iter()
            .find(|row| row.name() == name)
            .unwrap();
        let mut random = fastrand::Rng::with_seed(noise);
        let windows = (0..20).map(|round| {
            let drift = 1.0 + 0.2 * f64::from(round) / 20.0;
            let noise = 1.0 + 0.01 * (random.f64() - 0.5);
            let cpu = us * drift * noise / 1e6 * 10_000.0;
            Window {
                seconds: cpu,
                requests: 10_000,
                server: Some(Side {
                    cpu,
                    ..Side::default()
                }),
                ..Window::default()
            }
        });
        Measured {
            row,
            role: Role::Subject,
            ceiling: None,
            request_bytes: 800,
            response_bytes: if name.ends_with("usage") { 4200 } else { 4000 },
            windows: windows.collect(),
            found: None,
            beyond: None,
        }
    }

    /// A run of `usage` with bare loops and a null test.
    pub(crate) fn roofline(usage_us: f64) -> Roofline {
        let mut rows = vec![
            measured("max stream", 12.0, 1),
            measured("max stream + usage", usage_us, 2),
            measured("max stream", 10.0, 3),
            measured("max stream + usage", 10.1, 4),
            measured("max stream", 12.0, 5),
        ];
        (rows[0].ceiling, rows[1].ceiling) = (Some(2), Some(3));
        (rows[2].role, rows[3].role, rows[4].role) = (Role::Bare, Role::Bare, Role::Again(0));
        Roofline {
            rows,
            rounds: 20,
            absent: vec!["sglang".into()],
        }
    }

    fn run(usage_us: f64) -> Vec<Comparison> {
        comparisons(&roofline(usage_us), 7)
    }

    #[test]
    fn a_difference_below_the_resolution_is_not_claimed() {
        let all = run(12.01);
        assert_eq!(all.len(), 4);
        let (null, cpu) = (&all[1], &all[3]);
        assert_eq!(
            (null.question, cpu.question),
            (Question::Null, Question::Usage)
        );
        assert!(
            null.sentence().ends_with("contains 1.000, as it has to"),
            "{null:?}"
        );
        assert!(!cpu.differs && cpu.resolution.unwrap() < 0.01, "{cpu:?}");
        let sentence = cpu.sentence();
        assert!(
            sentence.contains("no difference that this run could resolve"),
            "{sentence}"
        );
        assert!(sentence.contains("it would have seen 0."), "{sentence}");
    }

    #[test]
    fn a_difference_is_told_with_its_size_and_the_cost_of_its_bytes() {
        let all = run(12.8);
        let (qps, cpu) = (&all[2], &all[3]);
        assert!(qps.differs && cpu.differs);
        assert!((cpu.ratio.unwrap().estimate - 1.067).abs() < 0.005);
        let extra = cpu.extra.as_ref().unwrap();
        assert!((extra.bare.unwrap().estimate - 1.01).abs() < 0.005);
        assert!(!extra.is_contained);
        let (less, more) = (qps.sentence(), cpu.sentence());
        assert!(less.contains("% fewer, 0.93"), "{less}");
        assert!(
            more.contains("Its answers are 5.0% longer (4200 bytes, not 4000)"),
            "{more}"
        );
        assert!(run(12.12)[3].extra.as_ref().unwrap().is_contained);
    }

    #[test]
    fn the_resolution_is_no_better_than_the_null_test() {
        let narrow = Interval {
            low: 0.999,
            estimate: 1.0,
            high: 1.001,
        };
        let wide = Interval {
            low: 0.97,
            estimate: 0.99,
            high: 1.01,
        };
        assert!(resolution(&narrow, None) < 0.002);
        assert!((resolution(&narrow, Some(&wide)) - (1.0 / 0.97 - 1.0)).abs() < 1e-9);
        assert!(resolution(&wide, Some(&narrow)) > 0.02);
    }
}
