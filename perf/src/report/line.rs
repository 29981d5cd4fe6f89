//! One row of a report.

use serde::Serialize;

use crate::limit::Limit;
use crate::measure::{Measured, Role, Roofline};
use crate::scenario::Mode;
use crate::search::Found;
use crate::stats;
use crate::window::{QUANTILES, Side, Window, count};

/// A median, with its 95% interval where there were rounds enough.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Median {
    /// The median.
    pub(crate) estimate: f64,
    /// Lower end of the interval.
    pub(crate) low: Option<f64>,
    /// Upper end of the interval.
    pub(crate) high: Option<f64>,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// Server and mode, and what tells it from rows of that name.
    pub(crate) name: String,
    /// Its server.
    pub(crate) server: String,
    /// What it was measured for.
    pub(crate) role: Role,
    /// How answers were asked for.
    pub(crate) mode: Mode,
    /// When requests were sent, in words.
    pub(crate) load: String,
    /// Text events of an answer.
    pub(crate) events: Option<usize>,
    /// Bytes of a request.
    pub(crate) request_bytes: usize,
    /// Bytes of a response.
    pub(crate) response_bytes: usize,
    /// Answers a second.
    pub(crate) qps: Option<Median>,
    /// CPU time of the server per request, in microseconds.
    pub(crate) server_us: Option<Median>,
    /// CPU time of the client per request, in microseconds.
    pub(crate) client_us: Option<Median>,
    /// Server CPU per request as a multiple of the bare loop's, paired by round.
    pub(crate) to_ceiling: Option<Median>,
    /// Answers per second of the server's CPU time.
    pub(crate) requests_per_server_cpu_second: Option<f64>,
    /// SSE events a second.
    pub(crate) events_per_second: Option<f64>,
    /// Quantiles and nanoseconds, each the median of the rounds.
    pub(crate) latency_ns: Vec<(f64, f64)>,
    /// The same of the first event that said something.
    pub(crate) ttft_ns: Vec<(f64, f64)>,
    /// Where the CPU time went, per request.
    pub(crate) spent: Spent,
    /// Requests without a good answer.
    pub(crate) failed: u64,
    /// The side that was the limit in most rounds; of a Poisson row, beyond the rate that is sustained.
    pub(crate) limit: Option<Limit>,
    /// Of a Poisson row: the search.
    pub(crate) found: Option<Found>,
    /// Every round's own values.
    pub(crate) windows: Vec<Window>,
}

/// Microseconds per request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Spent {
    /// On the client's side.
    pub(crate) client: Option<Parts>,
    /// On the server's side.
    pub(crate) server: Option<Parts>,
}

/// What a side spent per request, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Parts {
    /// In the program.
    pub(crate) user: f64,
    /// In the kernel.
    pub(crate) kernel: f64,
    /// Ready to run, but not on a core.
    pub(crate) wait: f64,
}

impl Median {
    fn of(values: &[f64], seed: u64) -> Option<Self> {
        let interval = stats::median_interval(values, seed);
        let is_number = |value: &&f64| value.is_finite();
        let values: Vec<f64> = values.iter().filter(is_number).copied().collect();
        (!values.is_empty()).then(|| Self {
            estimate: stats::median(&values),
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
        })
    }
}

/// All rows of a run, named so that no two are called the same.
pub(super) fn lines(roofline: &Roofline, seed: u64) -> Vec<Line> {
    let subjects = || roofline.rows.iter().filter(|row| row.role == Role::Subject);
    let is_common = |same: fn(&Measured, &Measured) -> bool| {
        subjects().all(|row| subjects().next().is_some_and(|first| same(row, first)))
    };
    let one_load = is_common(|row, first| row.row.load == first.row.load);
    let one_length = is_common(|row, first| {
        (row.row.length, row.row.interval) == (first.row.length, first.row.interval)
    });
    let name = |row: &Measured| {
        let mut name = match row.role {
            Role::Subject => row.row.name(),
            Role::Again(_) => format!("{}, again", row.row.name()),
            Role::Bare => format!("bare loop, {}", row.row.mode.name()),
        };
        if let Some(events) = row.row.events().filter(|_| !one_length) {
            name.extend([", ", &events.to_string(), " events"]);
        }
        if row.role == Role::Bare {
            name.extend([", ", &row.response_bytes.to_string(), " B"]);
        }
        if !one_load {
            name.extend([", ", &row.row.load.to_string()]);
        }
        name
    };
    let line = |row: &Measured| line(row, name(row), roofline, seed);
    roofline.rows.iter().map(line).collect()
}

fn line(row: &Measured, name: String, roofline: &Roofline, seed: u64) -> Line {
    let all = |value: fn(&Window) -> Option<f64>| -> Vec<f64> {
        row.windows.iter().filter_map(value).collect()
    };
    let estimate = |value| Median::of(&all(value), seed);
    let server_us = estimate(Window::server_us);
    let ceiling = row.ceiling.map(|index| &roofline.rows[index]);
    let ratio = ceiling.and_then(|ceiling| {
        let us = |window: &Window| window.server_us().unwrap_or(f64::NAN);
        let pairs = row.windows.iter().zip(&ceiling.windows);
        let ratios: Vec<f64> = pairs.map(|(own, bare)| us(own) / us(bare)).collect();
        Median::of(&ratios, seed)
    });
    let events = stats::median(&all(|window| Some(window.events_per_second())));
    Line {
        name,
        server: row.row.server.clone(),
        role: row.role,
        mode: row.row.mode,
        load: row.row.load.to_string(),
        events: row.row.events(),
        request_bytes: row.request_bytes,
        response_bytes: row.response_bytes,
        qps: estimate(|window| Some(window.qps())),
        server_us,
        client_us: estimate(Window::client_us),
        to_ceiling: ratio,
        requests_per_server_cpu_second: server_us.map(|us| 1e6 / us.estimate),
        events_per_second: Some(events).filter(|events| {
            row.row.mode != Mode::Json && row.role != Role::Bare && events.is_finite()
        }),
        latency_ns: curve(row, |window| &window.latency_ns),
        ttft_ns: curve(row, |window| &window.ttft_ns),
        spent: Spent {
            client: parts(row, |window| window.client),
            server: parts(row, |window| window.server),
        },
        failed: row.windows.iter().map(|window| window.failed).sum(),
        limit: row.beyond.or_else(|| limit(row)),
        found: row.found.clone(),
        windows: row.windows.clone(),
    }
}

fn curve(row: &Measured, values: fn(&Window) -> &Vec<u64>) -> Vec<(f64, f64)> {
    let at = |(index, quantile): (usize, f64)| {
        let of = |window: &Window| values(window).get(index).copied().map(count);
        let values: Vec<f64> = row.windows.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| (quantile, stats::median(&values)))
    };
    QUANTILES.into_iter().enumerate().filter_map(at).collect()
}

fn parts(row: &Measured, side: fn(&Window) -> Option<Side>) -> Option<Parts> {
    let sides: Vec<(Side, f64)> = row
        .windows
        .iter()
        .filter_map(|window| Some((side(window)?, count(window.requests))))
        .collect();
    let all = |value: fn(&Side) -> f64| {
        let values: Vec<f64> = sides
            .iter()
            .map(|(side, requests)| value(side) * 1e6 / requests)
            .collect();
        stats::median(&values)
    };
    (!sides.is_empty()).then(|| {
        let cpu = all(|side| side.cpu);
        // The kernel splits time in hundredths of a second: only all rounds together tell.
        let kernel: f64 = sides
            .iter()
            .map(|(side, _)| side.kernel.unwrap_or(0.0))
            .sum();
        let kernel = kernel / count(sides.len() as u64);
        Parts {
            user: cpu * (1.0 - kernel),
            kernel: cpu * kernel,
            wait: all(|side| side.wait.unwrap_or(0.0)),
        }
    })
}

/// The limit of most rounds.
fn limit(row: &Measured) -> Option<Limit> {
    let limits = || row.windows.iter().filter_map(|window| window.limit);
    let times = |limit: Limit| limits().filter(|other| *other == limit).count();
    limits().max_by_key(|limit| times(*limit))
}
