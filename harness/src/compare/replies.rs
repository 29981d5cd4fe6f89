//! The replies of two servers that play the same scripts, held against each other.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value as Json};
use vocab::Tokenizer;

use super::ledger::Row;
use super::play::{Audit, TOKENIZER};
use super::quantity::{Key, Quantity};
use super::scenario::Scenario;
use super::stage::{Stage, Upstream};
use super::stated::Speech;
use super::value::Value;
use crate::arrival::Arrival;
use crate::bench::{self, Config, Limit};
use crate::dataset::{Prompt, Sample};
use crate::gap::{self, Folders};
use crate::record::Record;
use crate::stats::float;

/// What came of a request, as far as it does not depend on how a server spells it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Reply {
    content: String,
    reasoning: String,
    has_tool_calls: bool,
    has_failed: bool,
}

/// Asks `upstream` and `against` the same, scenario by scenario, and adds what came of it to `audits`.
///
/// # Errors
/// A server fails, or somebody interrupts; nothing that was started is left.
pub(super) fn hold(
    upstream: &Upstream,
    against: &Upstream,
    scenarios: &[Scenario],
    interrupt: &Arc<AtomicBool>,
    audits: &mut Vec<Audit>,
) -> anyhow::Result<()> {
    let folders = Folders::new()?;
    let tokenizer = Arc::new(gap::tokenizer(TOKENIZER)?);
    for scenario in scenarios {
        let blank = Audit {
            client: format!("replies of {}", upstream.name()),
            server: against.name().to_owned(),
            scenario: scenario.name.clone(),
            title: scenario.title.clone(),
            right: "says what the other says, and fails where it fails".into(),
            ..Audit::default()
        };
        let [other, own] = [against, upstream].map(|upstream| Stage { upstream, scenario });
        let bodies = bodies(other).and_then(|of_other| Ok((of_other, bodies(own)?)));
        let (of_other, of_own) = match bodies {
            Ok(bodies) => bodies,
            Err(reason) => {
                let skipped = Some(reason);
                audits.push(Audit { skipped, ..blank });
                continue;
            }
        };
        let ask = |stage: Stage<'_>, bodies, side| {
            let dir = folders.path(format!("{}-{side}", scenario.name));
            let replies = replies(stage, bodies, &tokenizer, (&folders, &dir), interrupt);
            replies.with_context(|| format!("{} {}", stage.upstream.name(), scenario.name))
        };
        let expected = ask(other, of_other, "against");
        let row = expected.and_then(|expected| {
            let found = ask(own, of_own, "own")?;
            Ok(row(scenario, &expected, &found))
        });
        let failure = |error: &anyhow::Error| Row::run(Some(format!("{error:#}")));
        let rows = vec![row.as_ref().map_or_else(failure, Row::clone)];
        audits.push(Audit { rows, ..blank });
        row?;
    }
    Ok(())
}

/// What a scenario's requests have beside their prompts to make the server say its answers, one for each answer
/// or one for all, or why it cannot say them.
fn bodies(stage: Stage<'_>) -> Result<Vec<Map<String, Json>>, String> {
    match (stage.speech(), stage.pins()) {
        (Ok(Speech::Script), _) => Ok(vec![stage.scenario.extra_body()]),
        (_, Some((member, grammars))) => {
            let pinned = |grammar: String| {
                let mut body = stage.scenario.extra_body();
                body.insert(member.to_owned(), grammar.into());
                body
            };
            Ok(grammars.into_iter().map(pinned).collect())
        }
        (Ok(_), None) => Err(format!("{} plays no scripts", stage.upstream.name())),
        (Err(reason), None) => Err(reason),
    }
}

/// What a server replies to a scenario's prompts, in their order.
fn replies(
    stage: Stage<'_>,
    bodies: Vec<Map<String, Json>>,
    tokenizer: &Arc<Tokenizer>,
    (folders, dir): (&Folders, &Path),
    interrupt: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<Reply>> {
    ensure!(!interrupt.load(Ordering::Relaxed), "interrupted");
    tracing::info!("{} {}", stage.upstream.name(), stage.scenario.name);
    std::fs::create_dir_all(dir)?;
    let path = folders.path(TOKENIZER).display().to_string();
    let target = stage.start(dir, &path, interrupt)?;
    let sample = |prompt: String| Sample {
        id: prompt.clone(),
        prompt: Prompt::Text(prompt),
        max_tokens: Some(stage.scenario.max_tokens),
    };
    let samples: Vec<Sample> = stage.scenario.prompts().into_iter().map(sample).collect();
    let mut replies = vec![None; samples.len()];
    let each = bodies.len();
    for (first, extra_body) in bodies.into_iter().enumerate() {
        // Those that get the same body are asked together.
        let asked: Vec<Sample> = samples.iter().skip(first).step_by(each).cloned().collect();
        let config = Config {
            dialect: stage.upstream.dialect(),
            load: Arrival::Concurrency(stage.scenario.ask.concurrency.unwrap_or(1) as usize),
            limit: Limit::Requests(asked.len() as u64),
            extra_body,
            interrupt: Arc::clone(interrupt),
            ..Config::new(target.url.clone(), Arc::new(asked), Arc::clone(tokenizer))
        };
        let run = bench::run(&config)?;
        ensure!(!run.interrupted, "interrupted");
        let places = replies.iter_mut().skip(first).step_by(each);
        for (place, record) in places.zip(&run.records) {
            *place = Some(Reply::of(record));
        }
    }
    target.end()?;
    let replies: Option<Vec<Reply>> = replies.into_iter().collect();
    replies.context("a request has no record")
}

impl Reply {
    fn of(record: &Record) -> Self {
        Self {
            content: record.content.to_string(),
            reasoning: record.reasoning.to_string(),
            has_tool_calls: record.tool_calls,
            has_failed: !record.is_completed(),
        }
    }
}

/// How many replies are the same and fail where the scenario says so, and the first that is not.
fn row(scenario: &Scenario, expected: &[Reply], found: &[Reply]) -> Row {
    let pairs = || expected.iter().zip(found).enumerate();
    let is_same = |(number, (expected, found)): &(usize, (&Reply, &Reply))| {
        expected == found && found.has_failed == scenario.answer(*number).failed
    };
    let same = pairs().filter(is_same).count();
    let count = |count: usize| Value::number(float(count as u64));
    let key = Key::of(Quantity::Replies, None);
    let mut row = Row::new(key, count(expected.len()), count(same), 0.0);
    let first = pairs().find(|pair| !is_same(pair));
    row.reason = first.map(|(at, (expected, found))| {
        if expected == found {
            format!("request {at} gets {found:?} of both, which is not the scenario's")
        } else {
            format!("request {at} gets {found:?}, not {expected:?}")
        }
    });
    row
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Verdict;
    use super::super::scenario;
    use super::*;

    #[test]
    fn the_first_reply_that_is_another_is_told() {
        let reply = |content: &str| Reply {
            content: content.into(),
            reasoning: String::new(),
            has_tool_calls: false,
            has_failed: false,
        };
        let expected = [reply("a"), reply("b")];
        let scenario = scenario::find(Some("plain")).unwrap().remove(0);
        let same = row(&scenario, &expected, &expected);
        assert_eq!((same.verdict, same.reason), (Verdict::Agree, None));
        let other = row(&scenario, &expected, &[reply("a"), reply("c")]);
        assert_eq!(
            (other.verdict, other.difference),
            (Verdict::Differ, Some(-1.0))
        );
        let reason = other.reason.unwrap();
        assert!(
            reason.starts_with("request 1 gets Reply { content: \"c\""),
            "{reason}"
        );
        assert_eq!(
            row(&scenario, &expected, &expected[..1]).verdict,
            Verdict::Differ
        );
        let failed = [Reply {
            has_failed: true,
            ..reply("")
        }];
        let both = row(&scenario, &failed, &failed);
        assert_eq!(both.verdict, Verdict::Differ);
    }
}
