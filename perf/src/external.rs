//! Somebody else's client: its requests counted by the server, its CPU time by the kernel.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use harness::UsageError;

use crate::counters::Counters;
use crate::group::Group;
use crate::limit::{Evidence, Load as Busy};
use crate::place::Places;
use crate::scenario::{Load, Row};
use crate::server::{MODEL, Reading, Server};
use crate::usage::{Tree, Usage};
use crate::window::{Side, Window};

/// How often everybody is asked while the client runs.
const EVERY: Duration = Duration::from_millis(40);

/// A command with `{url}` in it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// What is run.
    pub(crate) command: String,
    /// The model to ask for.
    pub(crate) model: Option<String>,
    /// How long it should take, if it wants to know.
    pub(crate) window: Duration,
    /// How long it may take.
    pub(crate) patience: Duration,
}

/// Everybody's state at one moment.
struct Sample {
    at: Instant,
    client: Usage,
    counters: Counters,
    server: Option<Reading>,
}

impl Client {
    /// Whether the command tells streamed answers from others, and usage from none.
    pub(crate) fn tells_modes(&self) -> bool {
        self.command.contains("{stream}") || self.command.contains("{usage}")
    }

    /// Whether the command tells numbers of requests in flight apart.
    pub(crate) fn tells_loads(&self) -> bool {
        self.command.contains("{concurrency}")
    }

    /// Runs the command against a server and tells what it achieved while requests came.
    ///
    /// # Errors
    /// The command fails, takes too long or sends nothing.
    pub(crate) fn measure(
        &self,
        row: &Row,
        server: &Server,
        places: &Places,
    ) -> anyhow::Result<Window> {
        let model = server.model(self.model.as_deref()).unwrap_or(MODEL);
        let command = self.filled(row, &server.url, model);
        let wrong = |reason: String| UsageError(format!("--client-cmd {command:?}: {reason}"));
        let Some(counters) = server.counters() else {
            let name = &row.server;
            return Err(wrong(format!(
                "{name} tells no counters at /metrics to count the client's requests by"
            ))
            .into());
        };
        let mut samples = vec![Sample {
            at: Instant::now(),
            client: Usage::default(),
            counters,
            server: server.reading(),
        }];
        let mut group = Group::start(&command, places.client.cores.as_deref())?;
        let started = Instant::now();
        let status = loop {
            std::thread::sleep(EVERY);
            let status = group.ended();
            let mut client = samples
                .last()
                .map(|sample| sample.client.clone())
                .unwrap_or_default();
            client.renew(&Tree(group.pid()).usage());
            samples.push(Sample {
                at: Instant::now(),
                client,
                counters: server.counters().unwrap_or(counters),
                server: server.reading(),
            });
            if let Some(status) = status {
                break status;
            }
            if started.elapsed() > self.patience {
                return Err(wrong(format!("still running after {:?}", self.patience)).into());
            }
        };
        ensure!(
            status.success(),
            wrong(format!("it ended with {status}: {}", group.said()))
        );
        match between(&samples) {
            Some((first, last)) => Ok(window(first, last, places)),
            None => bail!(wrong(format!("it sent no request; {}", group.said()))),
        }
    }

    fn filled(&self, row: &Row, url: &str, model: &str) -> String {
        let authority = url.trim_start_matches("http://");
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
        let concurrency = match row.load {
            Load::Concurrency(count) => count,
            Load::Burst | Load::Poisson => 64,
        };
        let is_streamed = row.mode != crate::scenario::Mode::Json;
        self.command
            .replace("{url}", url)
            .replace("{host}", host)
            .replace("{port}", port)
            .replace("{model}", model)
            .replace("{stream}", if is_streamed { "true" } else { "false" })
            .replace(
                "{usage}",
                if row.mode.wants_usage() {
                    "true"
                } else {
                    "false"
                },
            )
            .replace("{concurrency}", &concurrency.to_string())
            .replace("{duration}", &self.window.as_secs_f64().to_string())
    }
}

/// The last sample before requests came, and the first after the last of them.
fn between(samples: &[Sample]) -> Option<(&Sample, &Sample)> {
    let (start, end) = (samples.first()?, samples.last()?);
    let rises = |sample: &&Sample| sample.counters.requests > start.counters.requests;
    let first = samples.iter().position(|sample| rises(&sample))?;
    let is_done = |sample: &&Sample| sample.counters.requests >= end.counters.requests;
    let last = samples.iter().find(is_done)?;
    Some((&samples[first - 1], last))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers as a server counted them"
)]
fn window(first: &Sample, last: &Sample, places: &Places) -> Window {
    let seconds = (last.at - first.at).as_secs_f64();
    let counted = last.counters.since(first.counters);
    let client = Side::new(
        last.client.cpu().since(first.client.cpu()),
        Some(last.client.ticks.since(first.client.ticks)),
    );
    let server = first.server.as_ref().zip(last.server.as_ref());
    let server_side = server.map(|(before, after)| {
        let ticks = match (before, after) {
            (Reading::Kernel(before), Reading::Kernel(after)) => {
                Some(after.ticks.since(before.ticks))
            }
            _ => None,
        };
        Side::new(after.cpu().since(before.cpu()), ticks)
    });
    // Nobody knows how many threads it has at work: all cores, or the one that does the most.
    let client_load = client.load(seconds, places.client.lanes(usize::MAX));
    let busiest = last.client.busiest_since(&first.client).as_secs_f64() / seconds;
    let server_lanes = places.server.lanes(places.server.workers);
    Window {
        seconds,
        requests: counted.requests as u64,
        events: counted.chunks as u64,
        client: Some(client),
        server: server_side,
        evidence: Evidence {
            client: Some(Busy {
                busy: client_load.busy.max(busiest - client_load.waits),
                waits: client_load.waits,
            }),
            server: server_side.map(|side| side.load(seconds, server_lanes)),
            open: None,
            in_server: Some(counted.inside / seconds),
            ..Evidence::default()
        },
        ..Window::default()
    }
    .judged()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant, milliseconds: u64, requests: f64) -> Sample {
        Sample {
            at: at + Duration::from_millis(milliseconds),
            client: Usage::default(),
            counters: Counters {
                requests,
                ..Counters::default()
            },
            server: None,
        }
    }

    #[test]
    fn what_is_measured_begins_and_ends_with_the_requests() {
        let start = Instant::now();
        let counts = [5.0, 5.0, 5.0, 9.0, 20.0, 25.0, 25.0, 25.0];
        let times = (0..).map(|index| index * 40);
        let samples: Vec<Sample> = times
            .zip(counts)
            .map(|(at, requests)| sample(start, at, requests))
            .collect();
        let (first, last) = between(&samples).unwrap();
        let window = window(first, last, &Places::new(false, None, None));
        assert_eq!(window.requests, 20);
        assert!((window.seconds - 0.12).abs() < 1e-9);
        assert!(between(&samples[..3]).is_none());
    }

    #[test]
    fn placeholders_tell_the_row() {
        let client = Client {
            command: "{url} {host} {port} {model} {stream} {usage} {concurrency} {duration}".into(),
            model: None,
            window: Duration::from_millis(1500),
            patience: Duration::from_secs(1),
        };
        assert!(client.tells_modes());
        let scenario = crate::scenario::find("usage", &crate::scenario::Changes::default());
        let row = &scenario.unwrap().rows[1];
        let filled = client.filled(row, "http://127.0.0.1:80", "stub");
        assert_eq!(
            filled,
            "http://127.0.0.1:80 127.0.0.1 80 stub true true 64 1.5"
        );
    }
}
