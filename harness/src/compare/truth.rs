//! What a server knows of a run: its truth file, or, where it writes none, what the scenario states.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;

use super::client::Join;
use super::exchange::{Exchange, Line};
use super::quantity::{Basis, Key, Quantity};
use super::stated::Stated;
use super::value::Value;
use crate::stats::float;

/// The paths that answers come from.
const ROUTES: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/generate"];

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

impl Truth {
    /// What is known without a truth file: how many fail, and their lengths where a script says them.
    pub(super) fn stated(stated: &Stated) -> Self {
        Self {
            exchanges: stated.all().map(Exchange::stated).collect(),
            started_unix_ns: 0,
            source: Source::Stated,
        }
    }

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
                let mut asked = self.exchanges.iter().filter_map(|one| one.include_usage);
                let first = asked.next()?;
                Value::Flag(first && asked.all(|asked| asked))
            }
            Quantity::Ttft => Value::of(mean(self.completed().filter_map(Exchange::ttft_ns))),
            Quantity::Tpot => {
                let tpots = self.completed().filter_map(|one| one.tpot_ns(basis));
                Value::of(mean_float(tpots))
            }
            Quantity::Itl => Value::of(mean(self.completed().flat_map(Exchange::gaps_ns))),
            Quantity::Joined | Quantity::Replies | Quantity::Run => return None,
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

fn mean(values: impl Iterator<Item = u64>) -> Option<f64> {
    mean_float(values.map(float))
}

fn mean_float(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / float(count))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::exchange::sha256;
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
            include_usage: Some(true),
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
