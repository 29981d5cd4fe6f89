//! All rows of a scenario, in interleaved rounds.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use harness::UsageError;
use serde::Serialize;

use crate::external::Client;
use crate::limit::Limit;
use crate::order;
use crate::place::Places;
use crate::scenario::{Load, Mode, Row, Scenario, Start};
use crate::search::{Found, Search, Trial};
use crate::server::{self, Server};
use crate::stats::FEWEST;
use crate::window::{Asker, Window, count};

/// Responses whose lengths differ by no more than this share have a bare loop in common.
const ALIKE: f64 = 0.02;
/// The bare loop takes a request for whole when so many bytes are missing at most.
const SLACK: usize = 32;
/// Windows of slow rows are at most so many times longer.
const LONGER: u32 = 64;
/// A Poisson search ends when its bounds are so near.
const PRECISION: f64 = 1.04;
/// Most trials of a rate.
const TRIALS: u32 = 3;
/// How much more than a closed loop's rate is certainly too much, and how much less is certainly not.
const BEYOND: f64 = 1.3;
const BELOW: f64 = 50.0;

/// How rows are measured.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Somebody else's client, in place of the load loop.
    pub(crate) client: Option<Client>,
    /// The model to ask for, of servers that are not stubs.
    pub(crate) model: Option<String>,
    /// How long a server may take to start.
    pub(crate) patience: Duration,
    /// Where both sides run.
    pub(crate) places: Places,
    /// Of arrival times and bootstraps.
    pub(crate) seed: u64,
    /// How long a rate is tried.
    pub(crate) trial: Duration,
    /// How long all rounds take together, in place of the scenario's number of rounds.
    pub(crate) duration: Option<Duration>,
}

/// What a line of the report is measured for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// The same as another one, under a second name.
    Again(usize),
    /// The bare loop of another one, and of those that are alike.
    Bare,
    /// Itself.
    Subject,
}

/// A row and all that was measured of it.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The row; of the bare loop, the one whose bytes it sends.
    pub(crate) row: Row,
    /// What it is measured for.
    pub(crate) role: Role,
    /// Its bare loop.
    pub(crate) ceiling: Option<usize>,
    /// Bytes of its shortest request.
    pub(crate) request_bytes: usize,
    /// Bytes of a response; none if it was not asked.
    pub(crate) response_bytes: usize,
    /// In the rounds' order; of a Poisson row, those at the highest sustained rate.
    pub(crate) windows: Vec<Window>,
    /// Of a Poisson row.
    pub(crate) found: Option<Found>,
    /// Of a Poisson row: who was the limit at the lowest rate that was not sustained.
    pub(crate) beyond: Option<Limit>,
}

/// What is said while it takes its time.
pub(crate) type Progress<'p> = &'p mut dyn FnMut(&str);

/// A scenario that has been measured.
#[derive(Clone, Debug)]
pub(crate) struct Roofline {
    /// Every row, with the null tests and the bare loops.
    pub(crate) rows: Vec<Measured>,
    /// Rounds that were measured.
    pub(crate) rounds: usize,
    /// Servers of rows that this build does not have.
    pub(crate) absent: Vec<String>,
}

/// A row with its server.
struct Entry {
    asker: Asker,
    /// How long its windows are.
    length: Duration,
    measured: Measured,
    server: usize,
}

struct Run<'s> {
    entries: Vec<Entry>,
    servers: Vec<(Start, Server)>,
    settings: &'s Settings,
}

/// Starts the servers, measures every row once a round, and searches for rates after that.
///
/// # Errors
/// [`UsageError`] if a server or the client does not start, others if one fails.
pub(crate) fn measure(
    scenario: &Scenario,
    settings: &Settings,
    progress: Progress<'_>,
) -> anyhow::Result<Roofline> {
    let mut run = Run {
        entries: Vec::new(),
        servers: Vec::new(),
        settings,
    };
    progress("starting servers");
    let absent = run.add_rows(scenario)?;
    if settings.client.is_none() {
        run.add_ceilings()?;
    }
    if settings.client.is_none() {
        progress("warming up");
        run.settle()?;
    }
    run.add_null_tests();
    let has_rounds = run
        .entries
        .iter()
        .any(|entry| entry.measured.row.load != Load::Poisson);
    let started = Instant::now();
    let mut rounds = 0;
    while has_rounds && !is_over(rounds, started, scenario, settings) {
        progress(&match settings.duration {
            Some(duration) => format!("round {}, {duration:?} in all", rounds + 1),
            None => format!("round {} of {}", rounds + 1, scenario.rounds),
        });
        run.round(rounds)?;
        rounds += 1;
    }
    for index in 0..run.entries.len() {
        if run.entries[index].measured.row.load == Load::Poisson {
            progress(&format!(
                "searching the rate of {}",
                run.entries[index].measured.row.name()
            ));
            run.search(index, scenario.window)?;
        }
    }
    Ok(Roofline {
        rows: run
            .entries
            .into_iter()
            .map(|entry| entry.measured)
            .collect(),
        rounds,
        absent,
    })
}

fn is_over(rounds: usize, started: Instant, scenario: &Scenario, settings: &Settings) -> bool {
    match settings.duration {
        Some(duration) => rounds >= FEWEST && started.elapsed() >= duration,
        None => rounds >= scenario.rounds,
    }
}

impl Run<'_> {
    fn add_rows(&mut self, scenario: &Scenario) -> anyhow::Result<Vec<String>> {
        let mut absent = Vec::new();
        let mut unknown: Vec<&str> = Vec::new();
        for row in &scenario.rows {
            if unknown.contains(&&*row.server) || self.is_the_same_to_client(row) {
                continue;
            }
            if let Start::Stub(words) = &row.start
                && !self.has_server(&row.start)
                && !server::is_known(words)
            {
                unknown.push(&row.server);
                absent.push(row.server.clone());
                continue;
            }
            let server = self.server(&row.start)?;
            let model = self.settings.model.as_deref();
            let asker = Asker::new(row, &self.servers[server].1, model, &self.settings.places);
            let mut measured = Measured {
                row: row.clone(),
                role: Role::Subject,
                ceiling: None,
                request_bytes: 0,
                response_bytes: 0,
                windows: Vec::new(),
                found: None,
                beyond: None,
            };
            match asker.probe() {
                Ok(probe) => {
                    measured.request_bytes = probe.request.len();
                    measured.response_bytes = probe.response.len();
                }
                // Somebody else's client may ask for what ours does not.
                Err(_) if self.settings.client.is_some() => {}
                Err(error) => return Err(error.context(row.name())),
            }
            self.entries.push(Entry {
                asker,
                length: scenario.window,
                measured,
                server,
            });
        }
        if self.entries.is_empty() {
            let names = absent.join(", ");
            return Err(UsageError(format!("this build cannot serve {names} yet")).into());
        }
        Ok(absent)
    }

    /// A client that does not tell modes or loads apart is run once for all of them.
    fn is_the_same_to_client(&self, row: &Row) -> bool {
        let Some(client) = &self.settings.client else {
            return false;
        };
        let mut rows = self.entries.iter().map(|entry| &entry.measured.row);
        rows.any(|known| {
            known.server == row.server
                && (known.length, known.interval) == (row.length, row.interval)
                && (known.mode == row.mode || !client.tells_modes())
                && (known.load == row.load || !client.tells_loads())
        })
    }

    fn has_server(&self, start: &Start) -> bool {
        self.servers.iter().any(|(known, _)| known == start)
    }

    fn server(&mut self, start: &Start) -> anyhow::Result<usize> {
        if let Some(index) = self.servers.iter().position(|(known, _)| known == start) {
            return Ok(index);
        }
        let server = Server::start(start, &self.settings.places.server, self.settings.patience)?;
        self.servers.push((start.clone(), server));
        Ok(self.servers.len() - 1)
    }

    fn add_ceilings(&mut self) -> anyhow::Result<()> {
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            if !entry.measured.row.against_ceiling || entry.measured.row.load == Load::Poisson {
                continue;
            }
            let measured = entry.measured.clone();
            let alike = |known: &Entry| {
                let known = &known.measured;
                let ratio =
                    count(known.response_bytes as u64) / count(measured.response_bytes as u64);
                let same_load = known.row.load == measured.row.load;
                let same_form = (known.row.mode == Mode::Json) == (measured.row.mode == Mode::Json);
                known.role == Role::Bare
                    && same_load
                    && same_form
                    && known.request_bytes == measured.request_bytes
                    && (ratio.ln().abs() < ALIKE)
            };
            let known = self.entries.iter().position(alike);
            let ceiling = match known {
                Some(known) => known,
                None => self.add_ceiling(index)?,
            };
            self.entries[index].measured.ceiling = Some(ceiling);
        }
        Ok(())
    }

    fn add_ceiling(&mut self, index: usize) -> anyhow::Result<usize> {
        let entry = &self.entries[index];
        let probe = entry.asker.probe()?;
        // Ids of requests are of other lengths now and then.
        let request = probe.request.len() - probe.request.len().min(SLACK);
        let place = &self.settings.places.server;
        let server = Server::ceiling(request, probe.response, place)?;
        let entry = Entry {
            asker: entry.asker.clone().at(&server.url),
            length: entry.length,
            measured: Measured {
                role: Role::Bare,
                ..entry.measured.clone()
            },
            server: self.servers.len(),
        };
        let start = Start::Url(server.url.clone());
        self.servers.push((start, server));
        self.entries.push(entry);
        Ok(self.entries.len() - 1)
    }

    /// Measures the first row of each load once more under a second name, half a round away.
    fn add_null_tests(&mut self) {
        let mut loads: Vec<Load> = Vec::new();
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            let load = entry.measured.row.load;
            let is_null = entry.measured.role != Role::Subject || load == Load::Poisson;
            if is_null || loads.contains(&load) {
                continue;
            }
            loads.push(load);
            let again = Entry {
                asker: entry.asker.clone(),
                length: entry.length,
                measured: Measured {
                    role: Role::Again(index),
                    ..entry.measured.clone()
                },
                server: entry.server,
            };
            self.entries.push(again);
        }
    }

    /// Measures each row once without keeping it, and makes the windows of slow rows longer.
    fn settle(&mut self) -> anyhow::Result<()> {
        for entry in &mut self.entries {
            let (row, server) = (&entry.measured.row, &self.servers[entry.server].1);
            let longest = entry.length * LONGER;
            if row.load == Load::Poisson {
                continue;
            }
            loop {
                let window = entry.asker.closed(server, entry.length);
                if window.with_context(|| row.name())?.is_enough(row) {
                    break;
                }
                entry.length *= 2;
                let (name, length) = (row.name(), entry.length);
                ensure!(
                    length <= longest,
                    "{name}: hardly an answer within {length:?}"
                );
            }
        }
        Ok(())
    }

    fn round(&mut self, round: usize) -> anyhow::Result<()> {
        let rows = self.entries.len();
        for turn in order(round, rows) {
            let index = self.turn(turn);
            let Entry {
                asker,
                length,
                measured,
                server,
            } = &mut self.entries[index];
            if measured.row.load == Load::Poisson {
                continue;
            }
            let server = &self.servers[*server].1;
            let window = match &self.settings.client {
                None => asker.closed(server, *length),
                Some(client) => client.measure(&measured.row, server, &self.settings.places),
            };
            let shape = measured.row.shape();
            measured
                .windows
                .push(window.with_context(|| format!("{}, {shape}", measured.row.name()))?);
        }
        Ok(())
    }

    /// The row of a turn: null tests stand at the end of the list, but not next to their rows.
    fn turn(&self, turn: usize) -> usize {
        let rows = self.entries.len();
        let is_again = |entry: &&Entry| matches!(entry.measured.role, Role::Again(_));
        let again = self.entries.iter().filter(is_again).count();
        let half = (rows - again) / 2;
        match turn {
            _ if turn < half => turn,
            _ if turn < half + again => rows - again + (turn - half),
            _ => turn - again,
        }
    }

    fn search(&mut self, index: usize, window: Duration) -> anyhow::Result<()> {
        let (settings, trial) = (self.settings, self.settings.trial);
        let Entry {
            asker,
            measured,
            server,
            ..
        } = &mut self.entries[index];
        let server = &self.servers[*server].1;
        let closed = asker.closed(server, window * 2)?.qps();
        ensure!(closed > 0.0, "{}: hardly an answer", measured.row.name());
        let search = Search {
            low: closed / BELOW,
            high: closed * BEYOND,
            precision: PRECISION,
            trials: TRIALS,
        };
        let mut windows: Vec<(f64, Window)> = Vec::new();
        let mut seed = settings.seed;
        let found = search.run(|target| {
            seed = seed.wrapping_add(1);
            let window = asker.at_rate(server, target, trial, seed)?;
            let tried = Trial {
                target,
                offered: window.evidence.offered.unwrap_or(target),
                achieved: window.qps(),
                failed: window.failed,
            };
            windows.push((target, window));
            anyhow::Ok(tried)
        })?;
        let too_much = windows.iter().rev().find(|(target, window)| {
            Some(*target) == found.too_many && window.limit != Some(Limit::Rate)
        });
        measured.beyond = too_much.and_then(|(_, window)| window.limit);
        let at = |(target, _): &(f64, Window)| Some(*target) == found.sustained;
        measured.windows = windows
            .into_iter()
            .filter(at)
            .map(|(_, window)| window)
            .collect();
        measured.found = Some(found);
        Ok(())
    }
}
