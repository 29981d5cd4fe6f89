//! Requests per second with and without usage, in interleaved rounds.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use comfy_table::{CellAlignment, Table, presets};
use harness::arrival::Arrival;
use harness::bench::{self, Config, Limit};
use harness::dataset::{Prompt, Sample};
use vocab::Tokenizer;

/// How a row asks for its answers.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    stream: bool,
    include_usage: bool,
}

const ROWS: [Row; 3] = [
    Row {
        name: "not streamed",
        stream: false,
        include_usage: false,
    },
    Row {
        name: "stream",
        stream: true,
        include_usage: false,
    },
    Row {
        name: "stream + usage",
        stream: true,
        include_usage: true,
    },
];

/// Requests in flight.
const CONCURRENCY: usize = 32;
/// How long one row runs in one round.
const WINDOW: Duration = Duration::from_millis(400);

/// What one window measured.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    qps: f64,
    client_us: f64,
    server_us: Option<f64>,
}

/// A finished roofline.
#[derive(Debug)]
pub struct Roofline {
    /// By row, by round.
    sightings: [Vec<Sighting>; ROWS.len()],
}

/// Measures a server for about `time`, each round with every row in rotating order.
pub fn measure(url: &str, time: Duration) -> anyhow::Result<Roofline> {
    let rounds = (time.as_secs_f64() / (WINDOW.as_secs_f64() * 3.0)).floor();
    let tokenizer = Tokenizer::named("char").expect("a built-in vocabulary");
    let sample = Sample {
        id: "roofline".into(),
        prompt: Prompt::Text("How fast is this client before any GPU is involved?".into()),
        max_tokens: None,
    };
    let base = Config {
        load: Arrival::Concurrency(CONCURRENCY),
        limit: Limit::Duration(WINDOW),
        ..Config::new(url.to_owned(), Arc::new(vec![sample]), Arc::new(tokenizer))
    };
    let mut sightings: [Vec<Sighting>; ROWS.len()] = Default::default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few rounds"
    )]
    for round in 0..(rounds as usize).max(1) {
        for turn in 0..ROWS.len() {
            let row = (round + turn) % ROWS.len();
            let config = Config {
                stream: ROWS[row].stream,
                include_usage: ROWS[row].include_usage,
                ..base.clone()
            };
            sightings[row].push(sighting(&config)?);
        }
    }
    Ok(Roofline { sightings })
}

#[expect(clippy::cast_precision_loss, reason = "counts of a short run")]
fn sighting(config: &Config) -> anyhow::Result<Sighting> {
    let run = bench::run(config)?;
    let failed = run.records.iter().find_map(|record| record.failure);
    if let Some(failure) = failed {
        anyhow::bail!("a request of the roofline failed: {failure}");
    }
    ensure!(!run.records.is_empty(), "the roofline sent no request");
    let requests = run.records.len() as f64;
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / requests;
    Ok(Sighting {
        qps: requests / (run.duration_ns as f64 / 1e9),
        client_us: each(run.client.time),
        server_us: run.server.map(|server| each(server.time)),
    })
}

impl Roofline {
    /// The rows, the ratio of usage on to off, and how far that ratio swings between rounds.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header(["", "requests/s", "server CPU", "client CPU"]);
        for (row, sightings) in ROWS.iter().zip(&self.sightings) {
            let of = |value: fn(&Sighting) -> f64| median(sightings.iter().map(value));
            let server = sightings.iter().filter_map(|sighting| sighting.server_us);
            table.add_row([
                row.name.to_owned(),
                format!("{:.0}", of(|sighting| sighting.qps)),
                format!("{:.1} µs", median(server)),
                format!("{:.1} µs", of(|sighting| sighting.client_us)),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let [_, stream, usage] = &self.sightings;
        let pairs = stream.iter().zip(usage);
        let ratios: Vec<f64> = pairs.map(|(off, on)| on.qps / off.qps).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        format!(
            "{}\nrequests/s with usage / without: {:.3}, the median of {} rounds' own ratios (from {least:.3} to {most:.3}); the speed drifts\nfrom round to round, so the ratio of the medians above may differ\n",
            table.trim_fmt(),
            median(ratios.iter().copied()),
            ratios.len(),
        )
    }
}

/// The middle value; NaN of nothing.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_middle_values() {
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < 1e-12);
        assert!((median([4.0, 1.0].into_iter()) - 2.5).abs() < 1e-12);
        assert!(median(std::iter::empty()).is_nan());
    }
}
