//! What a server knows of a run: its truth file, or, where it writes none, what the scenario states.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::client::Join;
use super::quantity::{Basis, Key, Quantity};
use super::scenario::Scenario;
use super::value::Value;
use crate::stats::float;

/// The paths that answers come from.
const ROUTES: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/generate"];

/// A record of a truth file, as far as it is looked at.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    request_id: String,
    response_id: Option<String>,
    route: Option<String>,
    method: Option<String>,
    status: u16,
    include_usage: Option<bool>,
    prompt_sha256: Option<String>,
    connection: u64,
    started_unix_ns: u64,
    received_ns: u64,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    finish_reason: Option<String>,
    usage_sent: Option<serde_json::Value>,
    chunks: Vec<Chunk>,
    ended: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Chunk {
    kind: String,
    due_ns: u64,
    written_ns: u64,
}

/// A request and what is true of it.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) request_id: String,
    pub(super) response_id: Option<String>,
    pub(super) prompt_sha256: Option<String>,
    pub(super) failed: bool,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) usage_tokens: Option<u64>,
    pub(super) text_tokens: Option<u64>,
    include_usage: bool,
    connection: u64,
    received_ns: u64,
    ended_ns: u64,
    /// When the last write was due.
    end_due_ns: u64,
    /// When each chunk that says something was written.
    texts_ns: Vec<u64>,
    /// By how much the latest write was late.
    late_ns: u64,
}

/// What is true of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    pub(super) exchanges: Vec<Exchange>,
    /// The wall clock when the server started.
    started_unix_ns: u64,
    /// What the server itself knows.
    pub(super) source: Source,
}

/// How much a server knows of its run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Source {
    /// All that a truth file says.
    Measured,
    /// When recorded bytes were asked for and sent, and nothing of what they are.
    Replayed,
    /// Nothing: what is known is what the scenario states.
    #[default]
    Stated,
}

/// What the scenario states of each prompt.
pub(super) struct Stated {
    by_sha256: HashMap<String, Statement>,
    all: Vec<Statement>,
    /// The server plays recorded bytes and knows nothing of them.
    is_replayed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Statement {
    /// None of a server that says what it will.
    completion_tokens: Option<u64>,
    text_tokens: Option<u64>,
    failed: bool,
}

/// Who says what is said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Speech {
    /// The prompt again.
    Echo,
    /// What a model will.
    Free,
    /// Recorded bytes.
    Replay,
    /// The scenario's scripts.
    Script,
}

impl Stated {
    /// What is to be expected of each request.
    pub(super) fn new(scenario: &Scenario, speech: Speech, echoed: impl Fn(&str) -> u64) -> Self {
        let prompts = scenario.prompts();
        let statement = |(number, prompt): (usize, &String)| {
            let answer = scenario.answer(number);
            let (completion_tokens, text_tokens) = match speech {
                Speech::Echo => (Some(echoed(prompt)), Some(echoed(prompt))),
                Speech::Free => (None, None),
                Speech::Replay | Speech::Script => {
                    (Some(answer.completion_tokens), Some(answer.text_tokens))
                }
            };
            Statement {
                completion_tokens,
                text_tokens,
                failed: answer.failed && matches!(speech, Speech::Replay | Speech::Script),
            }
        };
        let all: Vec<Statement> = prompts.iter().enumerate().map(statement).collect();
        let hashes = prompts.iter().map(|prompt| sha256(prompt));
        Self {
            by_sha256: hashes.zip(all.iter().copied()).collect(),
            all,
            is_replayed: speech == Speech::Replay,
        }
    }

    /// What is known without a truth file: how many fail, and their lengths where a script says them.
    pub(super) fn truth(&self) -> Truth {
        let exchange = |statement: &Statement| Exchange {
            request_id: String::new(),
            response_id: None,
            prompt_sha256: None,
            failed: statement.failed,
            prompt_tokens: None,
            // A real server's tokens are its own.
            usage_tokens: None,
            text_tokens: statement.text_tokens,
            include_usage: false,
            connection: 0,
            received_ns: 0,
            ended_ns: 0,
            end_due_ns: 0,
            texts_ns: Vec::new(),
            late_ns: 0,
        };
        Truth {
            exchanges: self.all.iter().map(exchange).collect(),
            started_unix_ns: 0,
            source: Source::Stated,
        }
    }

    fn of(&self, line: &Line) -> Option<Statement> {
        let known = line
            .prompt_sha256
            .as_ref()
            .map(|hash| self.by_sha256.get(hash));
        match known {
            Some(known) => known.copied(),
            // A replayed server does not look into requests.
            None => self.is_replayed.then(|| self.all[0]),
        }
    }
}

impl Truth {
    /// Reads a truth file.
    ///
    /// # Errors
    /// It cannot be read, or the server did not do what the scenario states.
    pub(super) fn read(path: &Path, stated: &Stated) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the truth file {}", path.display()))?;
        let (mut exchanges, mut started_unix_ns) = (Vec::new(), 0);
        for line in text.lines() {
            let line: Line = serde_json::from_str(line).context("a line of the truth file")?;
            started_unix_ns = line.started_unix_ns;
            let is_asked = line.method.as_deref() == Some("POST");
            let route = line.route.as_deref().unwrap_or_default();
            if is_asked && ROUTES.contains(&route) {
                exchanges.push(Exchange::new(line, stated)?);
            }
        }
        exchanges.sort_by_key(|exchange| exchange.received_ns);
        Ok(Self {
            exchanges,
            started_unix_ns,
            source: if stated.is_replayed {
                Source::Replayed
            } else {
                Source::Measured
            },
        })
    }

    pub(super) fn completed(&self) -> impl Iterator<Item = &Exchange> + Clone {
        self.exchanges.iter().filter(|exchange| !exchange.failed)
    }

    /// By how much the server was late at most.
    pub(super) fn late_ns(&self) -> u64 {
        let late = self.exchanges.iter().map(|exchange| exchange.late_ns);
        late.max().unwrap_or(0)
    }

    /// From the first request that came to the last byte, by the wall clock.
    pub(super) fn window(&self) -> Option<Range<u64>> {
        let first = self.exchanges.iter().map(|one| one.received_ns).min()?;
        let begin = self.started_unix_ns + first;
        (self.source != Source::Stated).then(|| begin..begin + self.span_ns())
    }

    /// Its requests can be found by this.
    pub(super) fn knows(&self, by: Join) -> bool {
        match self.source {
            Source::Measured => true,
            Source::Replayed => by == Join::RequestId,
            Source::Stated => false,
        }
    }

    /// Some answers are not the whole text that the scenario has, so that nobody knows its tokens.
    fn lacks_texts(&self) -> bool {
        self.completed().any(|one| one.text_tokens.is_none())
    }

    /// What is true of a quantity; `None` where the truth does not tell.
    pub(super) fn value(&self, key: Key) -> Option<Value> {
        let basis = key.basis;
        let told = match key.quantity {
            Quantity::Requests => Value::number(float(self.exchanges.len() as u64)),
            Quantity::Failures => {
                let failed = self.exchanges.len() - self.completed().count();
                Value::number(float(failed as u64))
            }
            Quantity::Osl | Quantity::OutputTokens | Quantity::Tpot
                if basis == Some(Basis::Retokenized) && self.lacks_texts() =>
            {
                return None;
            }
            Quantity::Osl | Quantity::OutputTokens
                if basis != Some(Basis::Retokenized) && self.source == Source::Stated =>
            {
                return None;
            }
            Quantity::Osl => Value::of(mean(self.outputs(basis))),
            Quantity::OutputTokens => {
                let any = self.outputs(basis).next();
                Value::of(any.map(|_| float(self.outputs(basis).sum())))
            }
            _ if self.source == Source::Stated => return None,
            Quantity::Concurrency => Value::number(float(self.concurrency())),
            _ if self.source == Source::Replayed => return None,
            Quantity::Qps => Value::of(self.qps()),
            Quantity::Isl => Value::of(mean(self.completed().filter_map(|one| one.prompt_tokens))),
            Quantity::IncludeUsage => {
                let all = self.exchanges.iter().all(|exchange| exchange.include_usage);
                Value::Flag(all && !self.exchanges.is_empty())
            }
            Quantity::Ttft => Value::of(mean(self.completed().filter_map(Exchange::ttft_ns))),
            Quantity::Tpot => {
                let tpots = self.completed().filter_map(|one| one.tpot_ns(basis));
                Value::of(mean_float(tpots))
            }
            Quantity::Itl => Value::of(mean(self.completed().flat_map(Exchange::gaps_ns))),
            Quantity::Joined | Quantity::Run => return None,
        };
        Some(told)
    }

    fn outputs(&self, basis: Option<Basis>) -> impl Iterator<Item = u64> {
        self.completed().filter_map(move |one| one.output(basis))
    }

    /// From the first request that came to the last byte, in nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        let first = self.exchanges.iter().map(|one| one.received_ns).min();
        let last = self.exchanges.iter().map(|one| one.ended_ns).max();
        last.unwrap_or(0).saturating_sub(first.unwrap_or(0))
    }

    fn qps(&self) -> Option<f64> {
        let span = float(self.span_ns());
        let completed = self.completed().count() as u64;
        (span > 0.0).then(|| float(completed) / (span / 1e9))
    }

    /// Most requests in flight.
    fn concurrency(&self) -> u64 {
        self.most_in_flight(|one| one.ended_ns)
    }

    /// By how much that may be too many: a client may have had an answer's end since it was due.
    pub(super) fn concurrency_too_many(&self) -> u64 {
        let least = self.most_in_flight(|one| one.end_due_ns.max(one.received_ns + 1));
        self.concurrency().saturating_sub(least)
    }

    /// A connection's next request shows that the one before was over, however late its last write returned.
    fn most_in_flight(&self, end: impl Fn(&Exchange) -> u64) -> u64 {
        let mut ends: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for one in &self.exchanges {
            let own = ends.entry(one.connection).or_default();
            if let Some((_, end)) = own.last_mut() {
                *end = (*end).min(one.received_ns);
            }
            own.push((one.received_ns, end(one)));
        }
        let spans = ends.into_values().flatten();
        let mut steps: Vec<(u64, i64)> =
            spans.flat_map(|(from, to)| [(from, 1), (to, -1)]).collect();
        // Ends before beginnings of the same moment.
        steps.sort_unstable();
        let (mut now, mut most) = (0_i64, 0);
        for (_, step) in steps {
            now += step;
            most = most.max(now);
        }
        most.unsigned_abs()
    }
}

impl Exchange {
    fn new(line: Line, stated: &Stated) -> anyhow::Result<Self> {
        let says_error = line.chunks.iter().any(|chunk| chunk.kind == "error");
        let mut failed = !(200..300).contains(&line.status) || line.ended != "done" || says_error;
        let statement = stated.of(&line);
        // A client may ask for fewer tokens than the scenario has.
        let is_cut = line.finish_reason.as_deref() == Some("length");
        let usage = line.usage_sent.as_ref();
        let usage = usage.and_then(|usage| usage["completion_tokens"].as_u64());
        if let Some(statement) = statement {
            failed |= stated.is_replayed && statement.failed;
            let is_left = line.ended == "client_abort";
            ensure!(
                is_left || failed == statement.failed,
                "the server did not play the scenario: a request ended as {}, status {}",
                line.ended,
                line.status
            );
            let said = line.completion_tokens.filter(|_| !failed && !is_cut);
            let expected = statement.completion_tokens;
            ensure!(
                said.is_none() || expected.is_none() || said == expected,
                "the server did not play the scenario: it said {said:?} tokens, not {expected:?}"
            );
        }
        let says = |chunk: &&Chunk| matches!(&*chunk.kind, "content" | "reasoning" | "tool");
        let late = line.chunks.iter();
        let late = late.map(|chunk| chunk.written_ns.saturating_sub(chunk.due_ns));
        let texts = line
            .chunks
            .iter()
            .filter(says)
            .map(|chunk| chunk.written_ns);
        Ok(Self {
            request_id: line.request_id,
            response_id: line.response_id,
            prompt_sha256: line.prompt_sha256,
            failed,
            prompt_tokens: line.prompt_tokens,
            usage_tokens: usage,
            text_tokens: statement
                .filter(|_| !is_cut)
                .and_then(|known| known.text_tokens),
            include_usage: line.include_usage == Some(true),
            connection: line.connection,
            received_ns: line.received_ns,
            end_due_ns: line
                .chunks
                .last()
                .map_or(line.received_ns, |chunk| chunk.due_ns),
            ended_ns: line
                .chunks
                .last()
                .map_or(line.received_ns, |chunk| chunk.written_ns),
            texts_ns: texts.collect(),
            late_ns: late.max().unwrap_or(0),
        })
    }

    /// Output tokens on a basis, by default the server's.
    pub(super) fn output(&self, basis: Option<Basis>) -> Option<u64> {
        match basis {
            Some(Basis::Retokenized) => self.text_tokens,
            Some(Basis::Usage) | None => self.usage_tokens,
        }
    }

    fn ttft_ns(&self) -> Option<u64> {
        Some(self.texts_ns.first()?.saturating_sub(self.received_ns))
    }

    /// Tokens behind the first, where there are some.
    pub(super) fn behind_first(&self, basis: Option<Basis>) -> Option<u64> {
        self.texts_ns.first()?;
        self.output(basis)?
            .checked_sub(1)
            .filter(|&count| count > 0)
    }

    fn tpot_ns(&self, basis: Option<Basis>) -> Option<f64> {
        let behind = self.behind_first(basis)?;
        let time = self.ended_ns.saturating_sub(*self.texts_ns.first()?);
        Some(float(time) / float(behind))
    }

    /// Number of gaps between chunks that say something.
    pub(super) fn gap_count(&self) -> u64 {
        (self.texts_ns.len() as u64).saturating_sub(1)
    }

    fn gaps_ns(&self) -> impl Iterator<Item = u64> + Clone {
        let pairs = self.texts_ns.windows(2);
        pairs.map(|pair| pair[1].saturating_sub(pair[0]))
    }
}

/// As truth files have it.
pub(super) fn sha256(text: &str) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text) {
        write!(hex, "{byte:02x}").expect("a String takes all");
    }
    hex
}

fn mean(values: impl Iterator<Item = u64>) -> Option<f64> {
    mean_float(values.map(float))
}

fn mean_float(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / float(count))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two requests of a connection and one of another, the last of them failed; times in milliseconds.
    pub(in crate::compare) fn three() -> Truth {
        let exchange = |connection, received: u64, texts: &[u64], ended: u64| Exchange {
            request_id: format!("r{received}"),
            response_id: None,
            prompt_sha256: Some(sha256(&received.to_string())),
            failed: texts.is_empty(),
            prompt_tokens: Some(10),
            usage_tokens: Some(4),
            text_tokens: Some(3),
            include_usage: true,
            connection,
            received_ns: received * 1_000_000,
            ended_ns: ended * 1_000_000,
            end_due_ns: ended * 1_000_000 - 500_000,
            texts_ns: texts.iter().map(|at| at * 1_000_000).collect(),
            late_ns: received * 1000,
        };
        Truth {
            exchanges: vec![
                exchange(1, 0, &[10, 12, 14], 16),
                exchange(2, 5, &[25, 29], 31),
                exchange(1, 15, &[], 35),
            ],
            started_unix_ns: 0,
            source: Source::Measured,
        }
    }

    #[test]
    fn quantities_are_those_of_completed_requests() {
        let truth = three();
        for (quantity, basis, expected) in [
            (Quantity::Requests, None, 3.0),
            (Quantity::Failures, None, 1.0),
            (Quantity::Isl, None, 10.0),
            (Quantity::Osl, Some(Basis::Retokenized), 3.0),
            (Quantity::Osl, Some(Basis::Usage), 4.0),
            (Quantity::OutputTokens, None, 8.0),
            (Quantity::Ttft, None, 15e6),
            (Quantity::Itl, None, 8e6 / 3.0),
            (Quantity::Tpot, Some(Basis::Retokenized), 3e6),
            (Quantity::Tpot, Some(Basis::Usage), 2e6),
            (Quantity::Qps, None, 2.0 / 0.035),
            (Quantity::Concurrency, None, 2.0),
        ] {
            let value = truth.value(Key::of(quantity, basis));
            assert_eq!(
                value,
                Some(Value::number(expected)),
                "{quantity:?} {basis:?}"
            );
        }
        assert_eq!((truth.late_ns(), truth.concurrency_too_many()), (15_000, 0));
        let mut late = three();
        late.exchanges[1].received_ns = 15_800_000;
        late.exchanges[2].connection = 3;
        late.exchanges[2].received_ns = 15_900_000;
        assert_eq!((late.concurrency(), late.concurrency_too_many()), (3, 1));
        let asked = truth.value(Key::of(Quantity::IncludeUsage, None));
        assert_eq!(asked, Some(Value::Flag(true)));
    }

    #[test]
    fn without_a_truth_file_times_are_unknown() {
        let truth = Truth {
            source: Source::Stated,
            ..three()
        };
        assert_eq!(truth.value(Key::of(Quantity::Ttft, None)), None);
        assert!(truth.value(Key::of(Quantity::Failures, None)).is_some());
    }
}
