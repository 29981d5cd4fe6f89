//! Clients run against servers, scenario by scenario.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Serialize;
use tokio::time::Instant;
use vocab::Tokenizer;

use super::client::Client;
use super::known::Known;
use super::ledger::{self, Noise, Row};
use super::quantity::Key;
use super::reported::Reported;
use super::scenario::Scenario;
use super::stage::{Stage, Upstream};
use super::stated::Stated;
use super::truth::Truth;
use super::witness::Witness;
use crate::gap::{self, Folders};
use crate::group::{Group, POLL};
use crate::http::Target;
use crate::words::Values;

/// The tokenizer of all sides: a file that every client can read, and one that the stubs know.
pub(super) const TOKENIZER: &str = "bpe";

/// A client to run.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) client: Client,
    pub(super) programs: Values,
    pub(super) version: String,
}

/// What is run, and how long each client may take.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) runners: Vec<Runner>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) scenarios: Vec<Scenario>,
    pub(super) time_limit: Duration,
    /// What a server of a URL is asked for, the first that it lists by default.
    pub(super) model: Option<String>,
    /// Where the files of each run stay, if they are to.
    pub(super) keep: Option<PathBuf>,
}

/// One client, one server, one scenario.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Audit {
    pub(super) client: String,
    pub(super) version: String,
    pub(super) server: String,
    pub(super) scenario: String,
    pub(super) title: String,
    pub(super) right: String,
    /// Why it was not played.
    pub(super) skipped: Option<String>,
    /// It is the client that cannot play it, against any server.
    #[serde(skip)]
    pub(super) client_lacks: bool,
    /// What is left out, and why.
    pub(super) unjudged: Option<String>,
    /// What the client reports and the server does not tell.
    pub(super) untold: Vec<Key>,
    pub(super) noise: Noise,
    /// How often it was run until its times were not odd, or had been too often.
    pub(super) tries: u32,
    pub(super) rows: Vec<Row>,
}

impl Plan {
    /// Plays all, and adds what came of each to `audits`.
    ///
    /// # Errors
    /// A server fails, or somebody interrupts; nothing that was started is left.
    pub(super) fn play(
        &self,
        known: &Known,
        interrupt: &AtomicBool,
        audits: &mut Vec<Audit>,
    ) -> anyhow::Result<()> {
        let folders = Folders::new()?;
        let tokenizer = gap::tokenizer(TOKENIZER)?;
        for runner in &self.runners {
            for upstream in &self.upstreams {
                for scenario in &self.scenarios {
                    let bout = Bout {
                        plan: self,
                        runner,
                        upstream,
                        scenario,
                    };
                    let dir = self.keep.as_deref();
                    let dir = dir.map_or_else(|| folders.path("runs"), Path::to_owned);
                    let dir = dir.join(bout.name().replace(['/', ':'], "-"));
                    let dirs = (folders.path(TOKENIZER), dir);
                    let audit = || bout.audit(&tokenizer, &dirs, interrupt);
                    let audit = repeated(audit, |audit| known.has_odd_times(audit));
                    let audit = audit.with_context(|| bout.name());
                    // Reports that are written have the failure, too.
                    audits.push(match &audit {
                        Ok(audit) => audit.clone(),
                        Err(error) => Audit {
                            rows: vec![Row::run(Some(format!("{error:#}")))],
                            ..bout.blank()
                        },
                    });
                    audit?;
                }
            }
        }
        Ok(())
    }
}

/// Most times that a run is made: what a busy machine does to one of them it does not do to each.
const TRIES: u32 = 3;

/// Makes a run again while its times are odd.
fn repeated(
    audit: impl Fn() -> anyhow::Result<Audit>,
    is_odd: impl Fn(&Audit) -> bool,
) -> anyhow::Result<Audit> {
    let mut tries = 1;
    loop {
        let made = audit()?;
        if tries == TRIES || !is_odd(&made) {
            return Ok(Audit { tries, ..made });
        }
        tries += 1;
    }
}

/// One run to be made.
struct Bout<'a> {
    plan: &'a Plan,
    runner: &'a Runner,
    upstream: &'a Upstream,
    scenario: &'a Scenario,
}

impl Bout<'_> {
    fn name(&self) -> String {
        let (client, server) = (&self.runner.client.name, self.upstream.name());
        format!("{client} {server} {}", self.scenario.name)
    }

    fn audit(
        &self,
        tokenizer: &Tokenizer,
        (tokenizer_dir, dir): &(PathBuf, PathBuf),
        interrupt: &AtomicBool,
    ) -> anyhow::Result<Audit> {
        let mut audit = self.blank();
        let client = &self.runner.client;
        let lacking = client.lacks(self.scenario);
        audit.client_lacks = lacking.is_some();
        let speech = match lacking {
            Some(need) => Err(format!("{} has no words for {need}", client.name)),
            None => self.stage().speech(),
        };
        let speech = match speech {
            Ok(speech) => speech,
            Err(reason) => {
                audit.skipped = Some(reason);
                return Ok(audit);
            }
        };
        tracing::info!("{}", self.name());
        // A report of a run before would be taken for this one's.
        let _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir)
            .with_context(|| format!("failed to make {}", dir.display()))?;
        let tokenizer_dir = tokenizer_dir.display().to_string();
        let target = self.stage().start(dir, &tokenizer_dir, interrupt)?;
        let values = self.values(&target.url, &tokenizer_dir)?;
        let command = client.prepare(self.scenario, values, dir)?;
        let witness = Witness::start();
        let failure = self.run(command, dir, interrupt);
        let naps = witness.end();
        let failure = failure?;
        let truth = target.end()?;
        let echoed = |prompt: &str| Scenario::echoed(prompt, tokenizer);
        let uncounted = self.stage().uncounted();
        let stated = Stated::new(self.scenario, speech, uncounted, echoed);
        let truth = match truth {
            Some(path) => Truth::read(&path, &stated)?,
            None => Truth::stated(&stated),
        };
        audit.noise = Noise {
            pacing_ns: truth.late_ns(),
            timer_ns: naps.latest_ns(truth.window().as_ref()),
        };
        self.hold(&mut audit, failure, dir, &truth);
        Ok(audit)
    }

    /// What is known before a run is made.
    fn blank(&self) -> Audit {
        let (runner, scenario) = (self.runner, self.scenario);
        let unjudged = scenario.unjudged.as_ref();
        Audit {
            client: runner.client.name.clone(),
            version: runner.version.clone(),
            server: self.upstream.name().to_owned(),
            scenario: scenario.name.clone(),
            title: scenario.title.clone(),
            right: scenario.right.clone(),
            unjudged: unjudged.map(|known| known.reason.clone()),
            ..Audit::default()
        }
    }

    /// Holds the client's report against the truth.
    fn hold(&self, audit: &mut Audit, failure: Option<String>, dir: &Path, truth: &Truth) {
        let client = &self.runner.client;
        let reported = match failure {
            Some(failure) => Err(failure),
            None => Reported::read(client, dir).map_err(|error| {
                let said = std::fs::read(dir.join("client.log")).unwrap_or_default();
                let said = crate::group::last_lines(&String::from_utf8_lossy(&said));
                format!("{error:#}; its last words: {said}")
            }),
        };
        match reported {
            Err(failure) => audit.rows = vec![Row::run(Some(failure))],
            Ok(reported) => {
                let rows = ledger::rows(client, self.scenario, truth, &reported, audit.noise);
                audit.rows = std::iter::once(Row::run(None)).chain(rows).collect();
                audit.untold = ledger::untold(truth, &reported);
            }
        }
    }

    fn stage(&self) -> Stage<'_> {
        Stage {
            upstream: self.upstream,
            scenario: self.scenario,
        }
    }

    /// What stands for the names in the client's words.
    fn values(&self, url: &str, tokenizer: &str) -> anyhow::Result<Values> {
        let dialect = serde_json::to_value(self.upstream.dialect())?;
        let model = match (self.upstream, &self.plan.model) {
            (Upstream::Url(_), Some(model)) => model.clone(),
            _ => Target::parse(url)?.first_model(None)?,
        };
        let mut values = self.runner.programs.clone();
        values.extend([
            ("url", url.to_owned()),
            ("model", model),
            ("dialect", dialect.as_str().unwrap_or_default().to_owned()),
            ("requests", self.scenario.requests.to_string()),
            ("max_tokens", self.scenario.max_tokens.to_string()),
            ("tokenizer", tokenizer.to_owned()),
        ]);
        Ok(values)
    }

    /// Runs the client to its end or its limit; says how it failed to come to one.
    fn run(
        &self,
        mut command: Command,
        dir: &Path,
        interrupt: &AtomicBool,
    ) -> anyhow::Result<Option<String>> {
        let mut group = Group::start(&mut command, &dir.join("client.log"))?;
        let until = Instant::now() + self.plan.time_limit;
        while group.ended()?.is_none() {
            ensure!(!interrupt.load(Ordering::Relaxed), "interrupted");
            if Instant::now() >= until {
                group.kill();
                let limit = humantime::format_duration(self.plan.time_limit);
                let said = group.last_lines();
                return Ok(Some(format!(
                    "no end within {limit}; its last words: {said}"
                )));
            }
            std::thread::sleep(POLL);
        }
        // Nothing that it started may go on beside the next run.
        group.kill();
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_run_is_made_again_while_it_is_odd() {
        for (odd, expected) in [(0, 1), (1, 2), (9, 3)] {
            let made = Cell::new(0);
            let audit = || {
                made.set(made.get() + 1);
                Ok(Audit::default())
            };
            let audit = repeated(audit, |_| made.get() <= odd).unwrap();
            assert_eq!((audit.tries, made.get()), (expected, expected));
        }
    }
}
