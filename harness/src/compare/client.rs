//! Benchmark clients as `clients.toml` tells: installed, run, their reports read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde::Deserialize;

use super::quantity::{Basis, Quantity};
use super::scenario::Scenario;
use crate::error::UsageError;
use crate::group::last_lines;
use crate::install;
use crate::real;
use crate::words::{Values, fill, filled};

const CLIENTS: &str = include_str!("../../clients.toml");

/// How to install, run and understand a client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Client {
    #[serde(skip)]
    pub(super) name: String,
    #[serde(default)]
    install: Vec<Vec<String>>,
    python: Option<String>,
    program: Option<String>,
    version: Vec<String>,
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// A line of its data set, in which `{prompt}` is a JSON string.
    dataset: String,
    /// The data set's name, if it has to have one.
    dataset_file: Option<String>,
    /// A line before the first.
    first_line: Option<String>,
    /// Other files that it needs, by name.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Where its report lies.
    pub(super) report: String,
    /// It asks streams for usage.
    pub(super) include_usage: bool,
    /// The words that scenarios need added, by what is needed.
    #[serde(default)]
    plays: BTreeMap<String, Vec<String>>,
    /// What stands where in the report.
    pub(super) quantities: Vec<Reading>,
    /// What it reports of each request.
    pub(super) samples: Option<Samples>,
}

/// Where a quantity stands.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reading {
    pub(super) is: Quantity,
    /// JSON pointers, in which `*` is every item; what is found is added up.
    pub(super) at: Vec<String>,
    #[serde(default)]
    pub(super) unit: Unit,
    pub(super) basis: Option<Basis>,
    /// The report has it rounded to so many.
    pub(super) decimals: Option<i32>,
    /// What it is if nothing is found.
    pub(super) absent: Option<f64>,
    #[serde(default)]
    pub(super) take: Take,
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    /// Milliseconds.
    Ms,
    /// Nanoseconds, requests, tokens, requests a second.
    #[default]
    Plain,
    /// Seconds.
    S,
    /// A sum over completed requests, of which the mean is wanted.
    Total,
}

/// What is made of the values that are found.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Take {
    /// How many there are.
    All,
    /// How many of them are neither null nor false, zero or empty.
    Filled,
    /// Their sum.
    #[default]
    Sum,
}

/// What a client reports of each request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Samples {
    /// A JSON document or JSON lines.
    pub(super) file: String,
    /// Where in a document or a line the requests are.
    #[serde(default)]
    pub(super) list: String,
    /// What a request is found by in the truth.
    pub(super) by: Join,
    /// Where that stands.
    pub(super) at: String,
    /// A request that has something here failed, and is not compared.
    pub(super) failed: Option<String>,
    pub(super) quantities: Vec<Reading>,
}

/// What is the same in a report and in the truth.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Join {
    /// The last user message's text, or a request body that has it.
    Prompt,
    /// The header `x-request-id`.
    RequestId,
    /// The answer's `id`.
    ResponseId,
}

impl Client {
    /// That of `clients.toml` with this name.
    ///
    /// # Errors
    /// [`UsageError`] if there is none.
    pub(super) fn named(name: &str) -> anyhow::Result<Self> {
        Ok(real::picked(Self::all()?, "client", name)?)
    }

    /// Those of `clients.toml`, by name.
    pub(super) fn all() -> anyhow::Result<BTreeMap<String, Self>> {
        let mut clients: BTreeMap<String, Self> =
            toml::from_str(CLIENTS).context("clients.toml cannot be read")?;
        for (name, client) in &mut clients {
            client.name.clone_from(name);
        }
        Ok(clients)
    }

    /// Installs it, unless it is there already.
    ///
    /// # Errors
    /// [`UsageError`] if there is nothing to install, else what Python or pip said last.
    pub(super) fn install(&self) -> anyhow::Result<PathBuf> {
        let folder = install::cache()?.join(&self.name);
        install::install(&self.name, &self.install, self.python.as_deref(), &folder)
    }

    /// What stands for its programs.
    pub(super) fn programs(&self, given: Option<&Path>) -> anyhow::Result<Values> {
        real::programs(&self.name, &self.install, self.program.as_deref(), given)
    }

    /// What it says of its version: the last word of its last line.
    pub(super) fn version(&self, programs: &Values) -> anyhow::Result<String> {
        let mut command = self.process(&self.version, programs)?;
        let output = command.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{} cannot be started", self.name))?;
        if !output.status.success() {
            let said = last_lines(&String::from_utf8_lossy(&output.stderr));
            let told = format!("{} does not tell its version: {said}", self.name);
            return Err(UsageError(told).into());
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let word = said
            .lines()
            .rev()
            .find_map(|line| line.split_whitespace().last());
        Ok(word.unwrap_or("unknown").to_owned())
    }

    /// What of a scenario it cannot do, if there is such a thing.
    pub(super) fn lacks(&self, scenario: &Scenario) -> Option<&'static str> {
        let mut needs = scenario.client_needs().into_iter();
        needs.find_map(|(need, _)| (!self.plays.contains_key(need)).then_some(need))
    }

    /// Writes its files into a folder and gives the command that runs it there.
    pub(super) fn prepare(
        &self,
        scenario: &Scenario,
        mut values: Values,
        dir: &Path,
    ) -> anyhow::Result<Command> {
        values.extend(scenario.client_needs());
        let dataset = dir.join(self.dataset_file.as_deref().unwrap_or("dataset.jsonl"));
        std::fs::write(&dataset, self.lines(scenario)?)?;
        values.insert("dataset", dataset.display().to_string());
        let mut plays = Vec::new();
        for (need, _) in scenario.client_needs() {
            let words = self.plays.get(need).map_or(&[][..], Vec::as_slice);
            plays.extend(filled(words, &values)?);
        }
        values.insert("plays", plays.join("\n"));
        for (name, text) in &self.files {
            std::fs::write(dir.join(name), fill(text, &values)?)?;
        }
        let mut command = self.process(&self.command, &values)?;
        // A file has them in place of the command line.
        if !self.files.values().any(|text| text.contains("{plays}")) {
            command.args(plays);
        }
        command.current_dir(dir);
        Ok(command)
    }

    fn lines(&self, scenario: &Scenario) -> anyhow::Result<String> {
        let mut lines = String::new();
        let mut values = Values::from([("max_tokens", scenario.max_tokens.to_string())]);
        for prompt in scenario.prompts() {
            values.insert("prompt", serde_json::to_string(&prompt)?);
            if lines.is_empty()
                && let Some(first) = &self.first_line
            {
                lines = fill(first, &values)? + "\n";
            }
            lines += &(fill(&self.dataset, &values)? + "\n");
        }
        Ok(lines)
    }

    fn process(&self, words: &[String], values: &Values) -> anyhow::Result<Command> {
        let words = filled(words, values)?;
        let (program, words) = words.split_first().context("a command names no program")?;
        let mut command = Command::new(program);
        command.args(words).envs(&self.env);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::find;
    use super::*;

    #[test]
    fn every_client_of_the_file_is_read() {
        let all = Client::all().unwrap();
        for (name, client) in &all {
            let read = |quantity| {
                client
                    .quantities
                    .iter()
                    .any(|reading| reading.is == quantity)
            };
            assert!(
                read(Quantity::Requests) && read(Quantity::Failures),
                "{name}"
            );
        }
        assert!(Client::named("nobody").unwrap_err().is::<UsageError>());
        assert!(all["native"].install().unwrap_err().is::<UsageError>());
    }

    #[test]
    fn a_scenario_becomes_files_and_words() {
        let client = Client::named("native").unwrap();
        let scenario = &find(Some("plain")).unwrap()[0];
        let dir = std::env::temp_dir().join(format!("client-{:x}", fastrand::u64(..)));
        std::fs::create_dir_all(&dir).unwrap();
        let mut values = client.programs(None).unwrap();
        for name in [
            "url",
            "model",
            "requests",
            "max_tokens",
            "tokenizer",
            "dialect",
        ] {
            values.insert(name, name.to_uppercase());
        }
        let command = client.prepare(scenario, values, &dir).unwrap();
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.display().to_string())
            .collect();
        assert_eq!(words[..3], ["bench", "--url", "URL"]);
        assert!(words.contains(&"concurrency:2".to_owned()), "{words:?}");
        let lines = std::fs::read_to_string(dir.join("dataset.jsonl")).unwrap();
        assert_eq!(lines.lines().count(), scenario.requests);
        assert!(lines.starts_with("{\"prompt\":\"0: "), "{lines}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
