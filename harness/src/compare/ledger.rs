//! Truth and report side by side, each quantity with its verdict.

use std::collections::HashMap;

use serde::Serialize;

use super::client::{Client, Join};
use super::exchange::Exchange;
use super::quantity::{Key, Quantity};
use super::reported::{Reported, Sample};
use super::scenario::Scenario;
use super::truth::Truth;
use super::value::Value;
use crate::stats::float;

/// Wake-ups between a client's clock and the server's: the server's for the request, the client's for
/// the answer.
const WAKES: u32 = 2;
/// Those of a first request, or of one that is sent on a schedule: the client's own to begin, and one on
/// each side to connect.
const FIRST_WAKES: u32 = 5;
/// Floats of both sides may be added up in another order.
const ROUNDING: f64 = 1e-9;

/// A quantity and what each side says of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) quantity: Key,
    /// Of what is held request by request: how many were compared, and on the client's side how many agree.
    pub(super) truth: Value,
    pub(super) client: Value,
    /// Client less truth.
    pub(super) difference: Option<f64>,
    /// What a difference may be.
    pub(super) tolerance: f64,
    pub(super) verdict: Verdict,
    /// Of a known difference, and of one that is no more.
    pub(super) reason: Option<String>,
}

/// What is held of a quantity.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Agree,
    Differ,
    Known,
}

/// What times cannot be more exact than, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Noise {
    /// By how much the server's latest write was late: a client may have had the bytes since they were due.
    pub(super) pacing_ns: u64,
    /// By how much a thread that waited for a time beside the run was woken late at most.
    pub(super) timer_ns: u64,
}

impl Row {
    /// Two values, compared.
    pub(super) fn new(quantity: Key, truth: Value, client: Value, tolerance: f64) -> Self {
        let (mut difference, mut allowed) = (None, tolerance);
        let agrees = match (&truth, &client) {
            (
                Value::Number { value: truth, .. },
                Value::Number {
                    value: client,
                    resolution,
                },
            ) => {
                allowed += resolution + ROUNDING * truth.abs();
                difference = Some(client - truth);
                (client - truth).abs() <= allowed
            }
            (truth, client) => truth == client,
        };
        Self {
            quantity,
            truth,
            client,
            difference,
            tolerance: allowed,
            verdict: if agrees {
                Verdict::Agree
            } else {
                Verdict::Differ
            },
            reason: None,
        }
    }

    /// Whether the client came to an end, and in what way it did not.
    pub(super) fn run(failure: Option<String>) -> Self {
        let ended = || Value::Text("ended and reported".into());
        let client = failure.map_or_else(ended, Value::Text);
        Self::new(Key::of(Quantity::Run, None), ended(), client, 0.0)
    }
}

/// Everything that both sides know of a run, by quantity.
pub(super) fn rows(
    client: &Client,
    scenario: &Scenario,
    truth: &Truth,
    reported: &Reported,
    noise: Noise,
) -> Vec<Row> {
    let mut told = reported.values.clone();
    let asked = Key::of(Quantity::IncludeUsage, None);
    told.push((
        asked,
        Value::Flag(client.include_usage && scenario.ask.usage),
    ));
    let concurrency = Key::of(Quantity::Concurrency, None);
    let is_told = told.iter().any(|(key, _)| *key == concurrency);
    if let Some(wanted) = scenario.ask.concurrency.filter(|_| !is_told) {
        told.push((concurrency, Value::number(f64::from(wanted))));
    }
    told.sort_by_key(|(key, _)| *key);
    let unjudged = scenario.unjudged.as_ref();
    let is_judged =
        |key: &Key| unjudged.is_none_or(|known| !known.quantities.contains(&key.quantity));
    let judged = told.into_iter().filter(|(key, _)| is_judged(key));
    let row = |(key, value)| {
        let tolerance = tolerance(key, scenario, truth, noise);
        Some(Row::new(key, truth.value(key)?, value, tolerance))
    };
    let mut rows: Vec<Row> = judged.filter_map(row).collect();
    if let Some((by, samples)) = &reported.samples
        && truth.knows(*by)
    {
        let each = each(*by, samples, truth).into_iter();
        rows.extend(each.filter(|row| is_judged(&row.quantity)));
    }
    rows
}

/// What the client reports and the truth does not tell.
pub(super) fn untold(truth: &Truth, reported: &Reported) -> Vec<Key> {
    let keys = reported.values.iter().map(|(key, _)| *key);
    keys.filter(|key| truth.value(*key).is_none()).collect()
}

/// What a difference of a quantity may be, from how exactly this run could be timed.
fn tolerance(key: Key, scenario: &Scenario, truth: &Truth, noise: Noise) -> f64 {
    let is_open = scenario.ask.concurrency.is_none();
    let wakes = f64::from(if is_open { FIRST_WAKES } else { WAKES });
    let (pacing, timer) = (float(noise.pacing_ns), float(noise.timer_ns));
    let once = pacing + wakes * timer;
    match key.quantity {
        Quantity::Ttft => once,
        // First and last chunk of an answer are off by a wake-up each, its tokens share that.
        Quantity::Tpot => {
            let behind = truth
                .completed()
                .filter_map(|one| one.behind_first(key.basis));
            (pacing + timer) * mean_inverse(behind)
        }
        Quantity::Itl => {
            let gaps: u64 = truth.completed().map(Exchange::gap_count).sum();
            let answers = truth.completed().filter(|one| one.gap_count() > 0).count() as u64;
            (pacing + timer) * float(answers) / float(gaps.max(1))
        }
        // The run begins with a first request and ends with an answer.
        Quantity::Qps => {
            let ends = 2.0 * pacing + f64::from(FIRST_WAKES + WAKES) * timer;
            let span = float(truth.span_ns().max(1));
            let qps = float(truth.completed().count() as u64) / (span / 1e9);
            qps * ends / span
        }
        Quantity::Concurrency => float(truth.concurrency_too_many()),
        _ => 0.0,
    }
}

/// The mean of what each of some parts is of its whole.
fn mean_inverse(parts: impl Iterator<Item = u64>) -> f64 {
    let (sum, count) = parts.fold((0.0, 0_u64), |(sum, count), part| {
        (sum + 1.0 / float(part), count + 1)
    });
    sum / float(count.max(1))
}

/// Requests found in both, and for each quantity how many of them agree.
fn each(by: Join, samples: &[Sample], truth: &Truth) -> Vec<Row> {
    let key = |one: &Exchange| match by {
        Join::Prompt => one.prompt_sha256.clone(),
        Join::RequestId => Some(one.request_id.clone()),
        Join::ResponseId => one.response_id.clone(),
    };
    let known: HashMap<String, &Exchange> = truth
        .exchanges
        .iter()
        .filter_map(|one| Some((key(one)?, one)))
        .collect();
    let completed = || samples.iter().filter(|sample| !sample.failed);
    let found: Vec<(&Sample, &Exchange)> = completed()
        .filter_map(|sample| Some((sample, *known.get(sample.key.as_ref()?)?)))
        .collect();
    let count = |count: usize| Value::number(float(count as u64));
    let key = Key::of(Quantity::Joined, None);
    // A client that reports no request at all is to have reported those that were answered.
    let expected = match completed().count() {
        0 => truth.completed().count(),
        reported => reported,
    };
    let mut rows = vec![Row::new(key, count(expected), count(found.len()), 0.0)];
    let answered: Vec<_> = found.iter().filter(|(_, one)| !one.failed).collect();
    let keys = samples.first().map_or(&[][..], |sample| &sample.values);
    for (at, (key, _)) in keys.iter().enumerate() {
        if truth.value(*key).is_none() || answered.is_empty() {
            continue;
        }
        let of = |(sample, one): &&(&Sample, &Exchange)| {
            let truth = match key.quantity {
                Quantity::Isl => one.prompt_tokens,
                _ => one.output(key.basis),
            };
            let truth = Value::of(truth.map(float));
            Row::new(*key, truth, sample.values[at].1.clone(), 0.0)
        };
        let compared: Vec<Row> = answered.iter().map(of).collect();
        let agreeing = compared
            .iter()
            .filter(|row| row.verdict == Verdict::Agree)
            .count();
        let mut row = Row::new(*key, count(compared.len()), count(agreeing), 0.0);
        let differences = compared.iter().filter_map(|row| row.difference);
        row.difference = differences.max_by(|one, other| one.abs().total_cmp(&other.abs()));
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::exchange::sha256;
    use super::super::quantity::Basis;
    use super::super::scenario::find;
    use super::super::truth::tests::three;
    use super::*;

    fn plain() -> (Client, Scenario) {
        let scenario = find(Some("plain")).unwrap().remove(0);
        (Client::named("native").unwrap(), scenario)
    }

    #[test]
    fn numbers_agree_within_their_tolerance_and_the_digits_of_the_report() {
        let key = Key::of(Quantity::Ttft, None);
        for (client, resolution, tolerance, verdict) in [
            (10.0, 0.0, 0.0, Verdict::Agree),
            (10.4, 0.0, 0.3, Verdict::Differ),
            (10.4, 0.2, 0.3, Verdict::Agree),
            (9.6, 0.0, 0.5, Verdict::Agree),
        ] {
            let client = Value::Number {
                value: client,
                resolution,
            };
            let row = Row::new(key, Value::number(10.0), client, tolerance);
            assert_eq!(row.verdict, verdict, "{row:?}");
        }
        let row = Row::new(key, Value::number(10.0), Value::None, 9.0);
        assert_eq!((row.verdict, row.difference), (Verdict::Differ, None));
        let row = Row::new(key, Value::None, Value::None, 0.0);
        assert_eq!(row.verdict, Verdict::Agree);
    }

    #[test]
    fn tolerances_come_from_pacing_and_wake_ups() {
        let (_, scenario) = plain();
        let noise = Noise {
            pacing_ns: 100,
            timer_ns: 10,
        };
        let of = |quantity, basis| tolerance(Key::of(quantity, basis), &scenario, &three(), noise);
        let is = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-6, "{value}");
        is(of(Quantity::Ttft, None), 120.0);
        // Two answers with three tokens behind the first each, with two gaps and one.
        is(of(Quantity::Tpot, Some(Basis::Usage)), 110.0 / 3.0);
        is(of(Quantity::Itl, None), 110.0 * 2.0 / 3.0);
        is(of(Quantity::Osl, None), 0.0);
    }

    #[test]
    fn requests_are_joined_and_compared_one_by_one() {
        let (client, scenario) = plain();
        let key = Key {
            each: true,
            ..Key::of(Quantity::Osl, Some(Basis::Retokenized))
        };
        let sample = |key_of: &str, failed, osl| Sample {
            key: Some(sha256(key_of)),
            failed,
            values: vec![(key, Value::number(osl))],
        };
        let reported = Reported {
            values: Vec::new(),
            samples: Some((
                Join::Prompt,
                vec![
                    sample("0", false, 3.0),
                    sample("5", false, 7.0),
                    sample("6", false, 3.0),
                    sample("15", true, 0.0),
                ],
            )),
        };
        let rows = rows(&client, &scenario, &three(), &reported, Noise::default());
        let [.., joined, osl] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!(
            (&joined.truth, &joined.client),
            (&Value::number(3.0), &Value::number(2.0))
        );
        assert_eq!(
            (&osl.truth, &osl.client),
            (&Value::number(2.0), &Value::number(1.0))
        );
        assert_eq!((osl.difference, osl.verdict), (Some(4.0), Verdict::Differ));
        assert_eq!(osl.quantity.to_string(), "osl.retokenized.each");
    }
}
