//! One row measured once: the only place that drives the load loop.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harness::arrival::Arrival;
use harness::bench::{self, Config, Keep, Limit as Ends, Run};
use harness::cpu::Cpu;
use harness::dataset::{Prompt, Sample};
use harness::probe::{self, Probe};
use harness::stats::Histogram;
use serde::Serialize;
use vocab::Tokenizer;

use crate::limit::{self, Evidence, Limit, Load as Busy};
use crate::place::{Place, Places};
use crate::scenario::{Load, Mode, Row, filler};
use crate::server::{Reading, Server};
use crate::usage::Ticks;

/// Shares of the requests at which latencies are told.
pub(crate) const QUANTILES: [f64; 16] = [
    0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999,
];
/// Connections of a burst.
const BURST: usize = 64;
const WARM_UP: Duration = Duration::from_millis(40);
/// What each connection takes to be warm.
const WARM_UP_EACH: Duration = Duration::from_micros(50);
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a window measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Window {
    /// How long it took.
    pub(crate) seconds: f64,
    /// Good answers.
    pub(crate) requests: u64,
    /// All others.
    pub(crate) failed: u64,
    /// SSE events, or bodies, of all answers.
    pub(crate) events: u64,
    /// What the client took of the cores.
    pub(crate) client: Option<Side>,
    /// What the server took of the cores.
    pub(crate) server: Option<Side>,
    /// At each of the quantiles, in nanoseconds.
    pub(crate) latency_ns: Vec<u64>,
    /// At each of the quantiles, in nanoseconds: the first event that said something.
    pub(crate) ttft_ns: Vec<u64>,
    /// What the limit was told by.
    pub(crate) evidence: Evidence,
    /// Who was the limit.
    pub(crate) limit: Option<Limit>,
}

/// What a side took of the cores in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Side {
    /// On a core, in seconds.
    pub(crate) cpu: f64,
    /// Ready to run but not on a core, in seconds.
    pub(crate) wait: Option<f64>,
    /// Share of the CPU time that was spent in the kernel.
    pub(crate) kernel: Option<f64>,
}

impl Window {
    /// Good answers a second.
    pub(crate) fn qps(&self) -> f64 {
        count(self.requests) / self.seconds
    }

    /// Events a second.
    pub(crate) fn events_per_second(&self) -> f64 {
        count(self.events) / self.seconds
    }

    /// CPU time of the server per request, in microseconds.
    pub(crate) fn server_us(&self) -> Option<f64> {
        self.server
            .map(|side| side.cpu * 1e6 / count(self.requests))
    }

    /// CPU time of the client per request, in microseconds.
    pub(crate) fn client_us(&self) -> Option<f64> {
        self.client
            .map(|side| side.cpu * 1e6 / count(self.requests))
    }

    /// Answers enough to tell a rate by: more than those that had been asked for before it began.
    pub(crate) fn is_enough(&self, row: &Row) -> bool {
        let connections = match row.load {
            Load::Concurrency(connections) => connections,
            Load::Burst | Load::Poisson => BURST,
        };
        self.requests >= 2 * connections as u64
    }

    /// Names the limit by the evidence.
    #[must_use]
    pub(crate) fn judged(mut self) -> Self {
        self.limit = Some(limit::limit(&self.evidence));
        self
    }
}

impl Side {
    /// A side that took so much of the cores.
    pub(crate) fn new(cpu: Cpu, ticks: Option<Ticks>) -> Self {
        let total = ticks.map(|ticks| ticks.kernel + ticks.user);
        let kernel = ticks.zip(total.filter(|total| *total > 0));
        Self {
            cpu: cpu.time.as_secs_f64(),
            wait: cpu.wait.map(|wait| wait.as_secs_f64()),
            kernel: kernel.map(|(ticks, total)| count(ticks.kernel) / count(total)),
        }
    }

    /// How busy it was, with so many threads that could run at once.
    pub(crate) fn load(&self, seconds: f64, lanes: usize) -> Busy {
        let whole = seconds * count(lanes as u64);
        Busy {
            busy: self.cpu / whole,
            waits: self.wait.unwrap_or(0.0) / whole,
        }
    }
}

/// The nearest `f64`.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(crate) fn count(number: u64) -> f64 {
    number as f64
}

/// How a row is asked.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    config: Config,
    client: Place,
    server: Place,
}

impl Asker {
    /// Asks a server as a row wants it.
    pub(crate) fn new(row: &Row, server: &Server, model: Option<&str>, places: &Places) -> Self {
        let sample = Sample {
            id: row.name(),
            prompt: Prompt::Messages(messages(row.body, row.length)),
            max_tokens: None,
        };
        let tokenizer = Tokenizer::named("char").expect("a built-in vocabulary");
        let defaults = Config::new(
            server.url.clone(),
            Arc::new(vec![sample]),
            Arc::new(tokenizer),
        );
        let config = Config {
            model: server.model(model).map(Into::into),
            stream: row.mode != Mode::Json,
            include_usage: row.mode.wants_usage(),
            continuous_usage: row.mode == Mode::Continuous,
            keep: Keep::Totals,
            timeout: TIMEOUT,
            workers: places.client.workers,
            cores: places.client.cores.clone(),
            load: closed(row.load),
            ..defaults
        };
        Self {
            config,
            client: places.client.clone(),
            server: places.server.clone(),
        }
    }

    /// Sends one request.
    ///
    /// # Errors
    /// There is no good answer.
    pub(crate) fn probe(&self) -> anyhow::Result<Probe> {
        probe::exchange(&self.config)
    }

    /// Asks a server that listens elsewhere the same.
    #[must_use]
    pub(crate) fn at(mut self, url: &str) -> Self {
        self.config.url = url.into();
        self.config
            .model
            .get_or_insert_with(|| crate::server::MODEL.into());
        self
    }

    /// Measures a server in a closed loop.
    ///
    /// # Errors
    /// No answer was good.
    pub(crate) fn closed(&self, server: &Server, length: Duration) -> anyhow::Result<Window> {
        self.measure(server, self.config.load, length)
    }

    /// Measures a server at a rate, in requests a second.
    ///
    /// # Errors
    /// No answer was good.
    pub(crate) fn at_rate(
        &self,
        server: &Server,
        rate: f64,
        length: Duration,
        seed: u64,
    ) -> anyhow::Result<Window> {
        let mut asker = self.clone();
        asker.config.seed = seed;
        let mut window = asker.measure(server, Arrival::Poisson(rate), length)?;
        let offered = count(window.requests + window.failed) / length.as_secs_f64();
        window.evidence.offered = Some(offered);
        window.evidence.of_target = Some(window.qps() / offered);
        Ok(window.judged())
    }

    fn measure(&self, server: &Server, load: Arrival, length: Duration) -> anyhow::Result<Window> {
        let connections = match load {
            Arrival::Concurrency(connections) => connections,
            _ => BURST,
        };
        let config = Config {
            load,
            limit: Ends::Duration(length),
            warm_up: warm_up(connections),
            ..self.config.clone()
        };
        let readings = RefCell::new(Vec::<Reading>::new());
        let read = || {
            let reading = server.reading()?;
            let cpu = reading.cpu();
            readings.borrow_mut().push(reading);
            Some(cpu)
        };
        let (counters, ticks) = (server.counters(), Ticks::own());
        let run = bench::run_beside(&config, read)?;
        let (ticks, after) = (Ticks::own().since(ticks), server.counters());
        let totals = &run.totals;
        ensure!(
            totals.completed > 0 || totals.failed.is_empty(),
            "{} gave no good answer: {:?}",
            config.url,
            totals.failed
        );
        let inside = counters.zip(after).map(|(before, after)| {
            let counted = after.since(before).inside;
            counted / (count(run.duration_ns) / 1e9 + config.warm_up.as_secs_f64())
        });
        let mut window = self.window(&run, &readings.borrow(), ticks);
        window.evidence.in_server = inside;
        Ok(window.judged())
    }

    fn window(&self, run: &Run, readings: &[Reading], ticks: Ticks) -> Window {
        let totals = &run.totals;
        let seconds = count(run.duration_ns) / 1e9;
        let client = Side::new(run.client, Some(ticks));
        let server = run.server.map(|cpu| Side::new(cpu, kernel(readings)));
        let latency = totals
            .latency
            .distribution()
            .map_or(0.0, |all| all.mean / 1e9);
        let lanes = self.server.lanes(self.server.workers);
        let evidence = Evidence {
            client: Some(client.load(seconds, self.client.lanes(self.client.workers))),
            server: server.map(|side| {
                let mut load = side.load(seconds, lanes);
                // One thread may be all that a server has.
                let busiest = busiest(readings).as_secs_f64() / seconds;
                load.busy = load.busy.max(busiest - load.waits);
                load
            }),
            open: Some(count(totals.completed) * latency / seconds),
            ..Evidence::default()
        };
        Window {
            seconds,
            requests: totals.completed,
            failed: totals.failed.values().sum(),
            events: totals.events,
            client: Some(client),
            server,
            latency_ns: quantiles(&totals.latency),
            ttft_ns: quantiles(&totals.ttft),
            evidence,
            limit: None,
        }
    }
}

fn warm_up(connections: usize) -> Duration {
    let each = WARM_UP_EACH * u32::try_from(connections).unwrap_or(u32::MAX);
    WARM_UP.max(each)
}

fn closed(load: Load) -> Arrival {
    match load {
        Load::Burst => Arrival::Burst,
        Load::Concurrency(count) => Arrival::Concurrency(count),
        Load::Poisson => Arrival::Concurrency(BURST),
    }
}

fn quantiles(histogram: &Histogram) -> Vec<u64> {
    let is_some = histogram.count() > 0;
    let values = QUANTILES
        .iter()
        .map(|quantile| histogram.quantile(*quantile));
    if is_some {
        values.collect()
    } else {
        Vec::new()
    }
}

fn busiest(readings: &[Reading]) -> Duration {
    match readings {
        [Reading::Kernel(before), .., Reading::Kernel(after)] => after.busiest_since(before),
        _ => Duration::ZERO,
    }
}

fn kernel(readings: &[Reading]) -> Option<Ticks> {
    match readings {
        [Reading::Kernel(before), .., Reading::Kernel(after)] => {
            Some(after.ticks.since(before.ticks))
        }
        _ => None,
    }
}

/// Messages that make an unstreamed request of so many bytes, where it has room for more than the last
/// message's text.
fn messages(body: usize, length: usize) -> Box<serde_json::value::RawValue> {
    #[derive(Serialize)]
    struct Message {
        role: &'static str,
        content: String,
    }
    let user = Message {
        role: "user",
        content: filler(length),
    };
    let system = |length| Message {
        role: "system",
        content: filler(length),
    };
    let bytes = |messages: &[&Message]| {
        let messages = serde_json::value::to_raw_value(messages).expect("strings encode");
        let around = r#"{"model":"stub","messages":}"#.len();
        (messages.get().len() + around, messages)
    };
    let (least, _) = bytes(&[&system(0), &user]);
    match body.checked_sub(least) {
        Some(rest) => bytes(&[&system(rest), &user]).1,
        None => bytes(&[&user]).1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_long_as_asked() {
        for (body, length) in [(600, 160), (600, 256), (4096, 1)] {
            let text = format!(
                r#"{{"model":"stub","messages":{}}}"#,
                messages(body, length)
            );
            assert_eq!(text.len(), body);
            assert!(text.contains(&format!(r#""content":"{}"}}]"#, filler(length))));
        }
        assert!(!messages(100, 160).get().contains("system"));
    }

    #[test]
    fn a_side_is_as_busy_as_its_lanes() {
        let cpu = Cpu {
            time: Duration::from_millis(150),
            wait: Some(Duration::from_millis(30)),
        };
        let ticks = Ticks {
            kernel: 12,
            user: 4,
        };
        let side = Side::new(cpu, Some(ticks));
        assert_eq!(side.kernel, Some(0.75));
        let load = side.load(0.1, 2);
        assert!((load.busy - 0.75).abs() < 1e-9 && (load.waits - 0.15).abs() < 1e-9);
    }
}
