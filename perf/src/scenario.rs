//! Sets of rows as files: servers, modes and loads, crossed.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use harness::UsageError;
use serde::{Deserialize, Serialize};

/// Sets that are built in, the default first.
const SETS: [(&str, &str); 5] = [
    ("quick", include_str!("../scenarios/quick.toml")),
    ("usage", include_str!("../scenarios/usage.toml")),
    ("ceiling", include_str!("../scenarios/ceiling.toml")),
    ("poisson", include_str!("../scenarios/poisson.toml")),
    ("full", include_str!("../scenarios/full.toml")),
];
const SERVERS: &str = include_str!("../servers.toml");
/// What stands among the servers of rows that are measured against the bare loop.
const CEILING: &str = "ceiling";

/// A set of rows, and how they are measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    /// What it is for.
    pub(crate) about: String,
    /// How long a row is measured in a round.
    pub(crate) window: Duration,
    /// How often each row is measured.
    pub(crate) rounds: usize,
    /// Rows in the file's order, each once.
    pub(crate) rows: Vec<Row>,
}

/// What is measured in one window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Its server's name.
    pub(crate) server: String,
    /// How to start that.
    pub(crate) start: Start,
    /// How answers are asked for.
    pub(crate) mode: Mode,
    /// When requests are sent.
    pub(crate) load: Load,
    /// Bytes of an unstreamed request's body.
    pub(crate) body: usize,
    /// Characters of the last message, and of the answer.
    pub(crate) length: usize,
    /// Characters of a chunk.
    pub(crate) interval: usize,
    /// It is measured against the bare loop.
    pub(crate) against_ceiling: bool,
}

/// How to come by a server.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Start {
    /// A command of its own, with `{port}` in it.
    Command(String),
    /// The words after `stubline serve`.
    Stub(String),
    /// It runs already.
    Url(String),
}

/// How answers are asked for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(crate) enum Mode {
    /// One body.
    #[serde(rename = "json")]
    Json,
    /// Events without usage.
    #[serde(rename = "stream")]
    Stream,
    /// Events, the last with usage.
    #[serde(rename = "stream+usage")]
    Usage,
    /// Events, each with usage.
    #[serde(rename = "stream+continuous")]
    Continuous,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(try_from = "String")]
pub(crate) enum Load {
    /// All at once over 64 connections.
    Burst,
    /// So many in flight.
    Concurrency(usize),
    /// At random times, at the highest rate that is sustained.
    Poisson,
}

/// What the command line changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Other numbers of requests in flight.
    pub(crate) concurrency: Vec<usize>,
    /// Other length of the answer.
    pub(crate) length: Option<usize>,
    /// Other length of a chunk.
    pub(crate) interval: Option<usize>,
    /// Leave out rows that ask for usage.
    pub(crate) no_usage: bool,
    /// More servers by their names.
    pub(crate) commands: Vec<(String, String)>,
    /// The one server in place of all.
    pub(crate) url: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
    window: String,
    rounds: usize,
    #[serde(default)]
    servers: BTreeMap<String, String>,
    rows: Vec<Grid>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Grid {
    servers: Vec<String>,
    modes: Vec<Mode>,
    loads: Vec<Load>,
    #[serde(default = "body")]
    body: usize,
    #[serde(default = "length")]
    length: usize,
    #[serde(default = "interval")]
    interval: usize,
}

const fn body() -> usize {
    600
}

const fn length() -> usize {
    160
}

const fn interval() -> usize {
    10
}

/// Names of the built-in sets and what they are for.
pub(crate) fn list() -> Vec<(&'static str, String)> {
    let about = |text| toml::from_str::<File>(text).expect("a test reads it").about;
    SETS.map(|(name, text)| (name, about(text))).to_vec()
}

/// A built-in set or a file.
pub(crate) fn find(name: &str, changes: &Changes) -> Result<Scenario, UsageError> {
    let set = SETS.iter().find(|(known, _)| *known == name);
    let text = match set {
        Some((_, text)) => (*text).to_owned(),
        None => std::fs::read_to_string(name).map_err(|error| {
            let known: Vec<&str> = SETS.iter().map(|(known, _)| *known).collect();
            let known = known.join(", ");
            UsageError(format!("--scenario {name}: {error}; built in are {known}"))
        })?,
    };
    parse(&text, changes).map_err(|reason| UsageError(format!("--scenario {name}: {reason}")))
}

fn parse(text: &str, changes: &Changes) -> Result<Scenario, String> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        format!("line {line}: {}", error.message())
    })?;
    let mut servers: BTreeMap<String, String> = toml::from_str(SERVERS).expect("a test reads it");
    servers.extend(file.servers);
    let window = humantime::parse_duration(&file.window).map_err(|error| error.to_string())?;
    let mut rows: Vec<Row> = Vec::new();
    for grid in &file.rows {
        for row in grid.rows(&servers, changes)? {
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    if rows.is_empty() {
        return Err("no row is left".into());
    }
    Ok(Scenario {
        about: file.about,
        window,
        rounds: file.rounds,
        rows,
    })
}

impl Grid {
    fn rows(
        &self,
        known: &BTreeMap<String, String>,
        changes: &Changes,
    ) -> Result<Vec<Row>, String> {
        let length = changes.length.unwrap_or(self.length);
        let interval = changes.interval.unwrap_or(self.interval);
        if length == 0 || interval == 0 {
            return Err("length and interval must be at least 1".into());
        }
        let mut rows = Vec::new();
        for (server, start) in self.starts(known, changes)? {
            let modes = self.modes.iter().copied();
            for mode in modes.filter(|mode| !(changes.no_usage && mode.wants_usage())) {
                for load in self.loads(changes) {
                    rows.push(Row {
                        server: server.clone(),
                        start: start.filled(length, interval, mode),
                        mode,
                        load,
                        body: self.body,
                        length,
                        interval,
                        against_ceiling: self.servers.iter().any(|name| name == CEILING),
                    });
                }
            }
        }
        Ok(rows)
    }

    fn starts(
        &self,
        known: &BTreeMap<String, String>,
        changes: &Changes,
    ) -> Result<Vec<(String, Start)>, String> {
        if let Some(url) = &changes.url {
            return Ok(vec![("live".into(), Start::Url(url.clone()))]);
        }
        let names = self.servers.iter().filter(|name| *name != CEILING);
        let stubs = names.map(|name| match known.get(name) {
            Some(words) => Ok((name.clone(), Start::Stub(words.clone()))),
            None => Err(format!(
                "server {name:?} is not known: describe it under [servers]"
            )),
        });
        let commands = changes.commands.iter().cloned();
        let commands = commands.map(|(name, command)| Ok((name, Start::Command(command))));
        stubs.chain(commands).collect()
    }

    fn loads(&self, changes: &Changes) -> Vec<Load> {
        if changes.concurrency.is_empty() {
            return self.loads.clone();
        }
        let is_other = |load: &&Load| !matches!(load, Load::Concurrency(_));
        let others = self.loads.iter().filter(is_other).copied();
        let counts = changes.concurrency.iter().copied().map(Load::Concurrency);
        counts.chain(others).collect()
    }
}

impl Row {
    /// Text events of an answer; none if it is not streamed.
    pub(crate) fn events(&self) -> Option<usize> {
        let is_streamed = self.mode != Mode::Json;
        is_streamed.then(|| self.length.div_ceil(self.interval))
    }

    /// Server and mode.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.server, self.mode.name())
    }

    /// What the answer is like, and when requests are sent.
    pub(crate) fn shape(&self) -> String {
        match self.events() {
            Some(events) => format!("{events} events, {}", self.load),
            None => format!("{} characters, {}", self.length, self.load),
        }
    }
}

impl Start {
    fn filled(&self, length: usize, interval: usize, mode: Mode) -> Self {
        let fill = |text: &str| {
            text.replace("{length}", &length.to_string())
                .replace("{interval}", &interval.to_string())
                .replace(
                    "{stream}",
                    if mode == Mode::Json { "false" } else { "true" },
                )
                .replace("{text}", &filler(length))
        };
        match self {
            Self::Command(command) => Self::Command(fill(command)),
            Self::Stub(words) => Self::Stub(fill(words)),
            Self::Url(url) => Self::Url(url.clone()),
        }
    }
}

/// A readable text of so many characters.
pub(crate) fn filler(characters: usize) -> String {
    let words = "The quick brown fox jumps over the lazy dog. ";
    words.chars().cycle().take(characters).collect()
}

impl Mode {
    /// The mode in words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Stream => "stream",
            Self::Usage => "stream + usage",
            Self::Continuous => "stream + continuous usage",
        }
    }

    /// Usage is asked for.
    pub(crate) fn wants_usage(self) -> bool {
        matches!(self, Self::Usage | Self::Continuous)
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = text.strip_prefix("concurrency:");
        match (text, count.and_then(|count| count.parse().ok())) {
            (_, Some(count @ 1..)) => Ok(Self::Concurrency(count)),
            ("burst", _) => Ok(Self::Burst),
            ("poisson", _) => Ok(Self::Poisson),
            _ => Err(format!(
                "load {text:?}: expected burst, concurrency:N or poisson"
            )),
        }
    }
}

impl TryFrom<String> for Load {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Burst => formatter.write_str("burst"),
            Self::Concurrency(count) => write!(formatter, "{count} in flight"),
            Self::Poisson => formatter.write_str("poisson"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
about = "two"
window = "100ms"
rounds = 3
[servers]
slow = "max --pace steady:ttft=5ms,itl=0ms --output-length {length}"
[[rows]]
servers = ["ceiling", "slow"]
modes = ["json", "stream+usage"]
loads = ["concurrency:64", "poisson"]
"#;

    #[test]
    fn every_built_in_set_is_read() {
        for (name, about) in list() {
            let scenario = find(name, &Changes::default()).unwrap();
            assert_eq!(scenario.about, about);
            assert!(!scenario.rows.is_empty() && scenario.rounds >= crate::stats::FEWEST);
        }
        let full = find("full", &Changes::default()).unwrap();
        assert_eq!(full.rows.len(), 4 * 4 * 5);
    }

    #[test]
    fn a_grid_is_crossed_and_its_placeholders_filled() {
        let scenario = parse(SMALL, &Changes::default()).unwrap();
        assert_eq!((scenario.rounds, scenario.rows.len()), (3, 4));
        let row = &scenario.rows[2];
        assert_eq!(
            (row.name(), row.events()),
            ("slow stream + usage".into(), Some(16))
        );
        assert_eq!(row.shape(), "16 events, 64 in flight");
        let words = "max --pace steady:ttft=5ms,itl=0ms --output-length 160";
        assert_eq!(row.start, Start::Stub(words.into()));
        assert!(row.against_ceiling);
    }

    #[test]
    fn the_command_line_changes_rows() {
        let changes = Changes {
            concurrency: vec![2, 8],
            length: Some(50),
            interval: Some(5),
            no_usage: true,
            commands: vec![("other".into(), "serve {port} {stream} {interval}".into())],
            url: None,
        };
        let rows = parse(SMALL, &changes).unwrap().rows;
        assert_eq!(rows.len(), 2 * 3);
        assert!(
            rows.iter()
                .all(|row| row.mode == Mode::Json && row.length == 50)
        );
        assert_eq!(rows[3].start, Start::Command("serve {port} false 5".into()));
        let live = Changes {
            url: Some("http://h:1".into()),
            ..Changes::default()
        };
        let rows = parse(SMALL, &live).unwrap().rows;
        assert_eq!((rows.len(), &*rows[0].server), (4, "live"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let error = |from, to| parse(&SMALL.replace(from, to), &Changes::default()).unwrap_err();
        assert!(error("rounds", "round").starts_with("line 4: unknown field `round`"));
        assert!(error("\"poisson\"", "\"fast\"").contains("load \"fast\": expected burst"));
        assert!(
            error("\"ceiling\", \"slow\"", "\"fast\"").contains("server \"fast\" is not known")
        );
        assert!(error("100ms", "soon").contains("expected number"));
        let missing = find("nowhere.toml", &Changes::default()).unwrap_err();
        assert!(missing.0.contains("built in are quick, usage"), "{missing}");
    }
}
