//! Scenarios played: one stub for each different command line, each request sent to it and counted.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};
use vocab::Tokenizer;

use super::exchange::{Exchange, Truth};
use super::files::{self, Folders};
use super::outcome::Outcome;
use super::scenario::{Replay, Scenario, StreamEnd};
use super::seen::Seen;
use crate::http::Target;
use crate::raw;
use crate::stub::Stub;

const TIMEOUT: Duration = Duration::from_secs(20);
/// What `{script}` and `{tokenizer}` of scenarios that share a stub have in common.
type Groups<'a> = BTreeMap<(String, String), Vec<&'a Scenario>>;

/// Plays scenarios and gives their outcomes in the same order.
pub(super) fn play(scenarios: &[Scenario]) -> anyhow::Result<Vec<Outcome>> {
    let folders = Folders::new()?;
    let mut groups = Groups::new();
    for scenario in scenarios {
        let serve = scenario.serve.clone().unwrap_or_default();
        let key = (serve, scenario.tokenizer.clone());
        groups.entry(key).or_default().push(scenario);
    }
    let tokenizers = tokenizers(scenarios)?;
    let groups: Vec<_> = groups.into_iter().enumerate().collect();
    let (left, played) = (Mutex::new(groups), Mutex::new(BTreeMap::new()));
    let worker = || -> anyhow::Result<()> {
        loop {
            let next = left.lock().expect("no worker panics").pop();
            let Some((number, ((serve, tokenizer), group))) = next else {
                return Ok(());
            };
            let group = Group {
                folders: &folders,
                number,
                scenarios: &group,
            };
            let answers = group.answers(&serve, &tokenizer)?;
            let mut played = played.lock().expect("no worker panics");
            for (scenario, answer) in group.scenarios.iter().zip(answers) {
                played.insert(scenario.name.clone(), answer);
            }
        }
    };
    // A stub mostly waits to be started and stopped.
    let workers = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let ends = workers.into_iter().map(ScopedJoinHandle::join);
        let ended = ends.map(|end| end.expect("no worker panics"));
        ended.collect::<anyhow::Result<()>>()
    })?;
    let played = played.into_inner().expect("no worker panics");
    let outcomes = scenarios.iter().map(|scenario| {
        let (truth, response) = &played[&scenario.name];
        outcome(scenario, &tokenizers, truth, response)
            .with_context(|| format!("scenario {}", scenario.name))
    });
    outcomes.collect()
}

/// Each tokenizer that a scenario names.
fn tokenizers(scenarios: &[Scenario]) -> anyhow::Result<BTreeMap<&str, Tokenizer>> {
    let mut known = BTreeMap::new();
    for scenario in scenarios {
        for name in scenario
            .client_tokenizer
            .iter()
            .chain([&scenario.tokenizer])
        {
            if !known.contains_key(name.as_str()) {
                let tokenizer = files::tokenizer(name);
                let tokenizer = tokenizer.with_context(|| scenario.name.clone())?;
                known.insert(name.as_str(), tokenizer);
            }
        }
    }
    Ok(known)
}

fn outcome(
    scenario: &Scenario,
    tokenizers: &BTreeMap<&str, Tokenizer>,
    truth: &Truth,
    response: &[u8],
) -> anyhow::Result<Outcome> {
    let body: Value = serde_json::from_str(&scenario.request.body)?;
    let is_native = scenario.request.endpoint == "/generate";
    let is_stream = body["stream"] == true;
    let client = scenario.client_tokenizer.as_ref();
    Outcome::new(&Exchange {
        scenario,
        tokenizer: &tokenizers[scenario.tokenizer.as_str()],
        client: &tokenizers[client.unwrap_or(&scenario.tokenizer).as_str()],
        body: &body,
        truth,
        seen: &Seen::read(response, is_native, is_stream)?,
    })
}

/// Scenarios of one stub.
struct Group<'a> {
    folders: &'a Folders,
    number: usize,
    scenarios: &'a [&'a Scenario],
}

impl Group<'_> {
    /// What the server knows of each request, and what it answered.
    fn answers(&self, serve: &str, tokenizer: &str) -> anyhow::Result<Vec<(Truth, Vec<u8>)>> {
        let truth = self.folders.path(format!("truth-{}.jsonl", self.number));
        let stub = if serve.is_empty() {
            let dir = self.folders.path("replay");
            self.record(&dir)?;
            Stub::start(&format!("replay {} --workers 1", quoted(&dir)), None)
        } else {
            let script = self.folders.path(format!("script-{}.json", self.number));
            std::fs::write(&script, self.script().to_string())?;
            let words = serve
                .replace("{tokenizer}", &quoted(self.folders.tokenizer(tokenizer)))
                .replace("{script}", &quoted(&script));
            let more = format!("--workers 1 --truth {}", quoted(&truth));
            Stub::start(&format!("{words} {more}"), None)
        };
        let stub = stub.with_context(|| self.scenarios[0].name.clone())?;
        let target = Target::parse(&stub.url)?;
        let mut responses = Vec::new();
        for scenario in self.scenarios {
            let request = request(scenario);
            let received = raw::exchange(target.address, &request, TIMEOUT);
            responses.push(received.with_context(|| scenario.name.clone())?.bytes);
        }
        drop(stub);
        let truths = truths(&truth)?;
        let paired = self
            .scenarios
            .iter()
            .zip(responses)
            .map(|(scenario, response)| {
                let truth = match &scenario.replay {
                    Some(replay) => replay.truth(),
                    None => truths.get(&scenario.name).cloned().unwrap_or_default(),
                };
                (truth, response)
            });
        Ok(paired.collect())
    }

    /// The scripts of all, by the scenarios' names.
    fn script(&self) -> Value {
        let scripts = self.scenarios.iter().filter_map(|scenario| {
            let script = scenario.script.clone()?;
            Some((scenario.name.clone(), script))
        });
        Value::Object(scripts.collect::<Map<_, _>>())
    }

    /// Writes what is replayed, in the form of recordings.
    fn record(&self, dir: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(dir)?;
        for scenario in self.scenarios {
            let Some(replay) = &scenario.replay else {
                continue;
            };
            let name = &scenario.name;
            std::fs::write(dir.join(format!("{name}.request.http")), request(scenario))?;
            std::fs::write(dir.join(format!("{name}.response.http")), replay.response())?;
        }
        Ok(())
    }
}

impl Replay {
    /// Writes what answers requests to `path`, in the form of recordings; what clients look at before they
    /// send any too.
    pub(crate) fn record(&self, dir: &Path, path: &str) -> anyhow::Result<()> {
        let models = json!({"object": "list", "data": [{"id": "replay", "object": "model"}]});
        let get = |path| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let whole = |body: &str| {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
            format!("{head}: {}\r\n\r\n{body}", body.len()).into_bytes()
        };
        let post = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: 2\r\n\r\n{{}}"
        );
        std::fs::create_dir_all(dir)?;
        for (name, request, response) in [
            ("answer", post, self.response()),
            ("health", get("/health"), whole("{}")),
            ("models", get("/v1/models"), whole(&models.to_string())),
        ] {
            std::fs::write(dir.join(format!("{name}.request.http")), request)?;
            std::fs::write(dir.join(format!("{name}.response.http")), response)?;
        }
        Ok(())
    }

    /// The response as it is on the wire.
    fn response(&self) -> Vec<u8> {
        let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
            transfer-encoding: chunked\r\n\r\n"
            .to_vec();
        for event in &self.events {
            wire::http1::write_chunk(&mut bytes, |out| wire::sse::encode(event.as_bytes(), out));
        }
        if self.end == StreamEnd::Done {
            wire::http1::write_chunk(&mut bytes, |out| out.extend_from_slice(wire::sse::DONE));
        }
        if self.end != StreamEnd::Cut {
            bytes.extend_from_slice(wire::http1::LAST_CHUNK);
        }
        bytes
    }

    fn truth(&self) -> Truth {
        Truth {
            prompt_tokens: Some(self.prompt_tokens),
            completion_tokens: Some(self.tokens),
            ..Truth::default()
        }
    }
}

/// A path as one word of a command line.
fn quoted(path: impl AsRef<Path>) -> String {
    format!("'{}'", path.as_ref().display())
}

/// The same bytes wherever the server is, by which it finds a recording.
fn request(scenario: &Scenario) -> Vec<u8> {
    let request = &scenario.request;
    let mut bytes = Vec::new();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-request-id: {}\r\n\
         content-length: {}\r\n\r\n",
        request.endpoint,
        scenario.name,
        request.body.len()
    );
    // A vector takes all.
    let _ = bytes.write_all(head.as_bytes());
    bytes.extend_from_slice(request.body.as_bytes());
    bytes
}

/// The records of a truth file by request; none if there is no such file.
fn truths(path: &Path) -> anyhow::Result<BTreeMap<String, Truth>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let mut known = BTreeMap::new();
    for line in text.lines() {
        let truth: Truth = serde_json::from_str(line)?;
        ensure!(!truth.request_id.is_empty(), "a record has no request id");
        known.insert(truth.request_id.clone(), truth);
    }
    Ok(known)
}
