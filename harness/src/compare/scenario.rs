//! What servers are to say and clients to ask, as a TOML file that states what a right client reports.

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};
use vocab::Tokenizer;

use super::quantity::Quantity;
use crate::conform::cli::matches;
use crate::error::UsageError;
use crate::gap::Replay;

/// Names and texts, listed by `build.rs`.
static EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/compares.rs"));

/// A run of one client against one server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// The file's name.
    #[serde(skip)]
    pub(super) name: String,
    /// In some words.
    pub(super) title: String,
    /// What a right client does, in a sentence.
    pub(super) right: String,
    /// How many are sent; answers are taken in turn.
    pub(super) requests: usize,
    /// Output tokens to ask for.
    pub(super) max_tokens: u32,
    /// A server that says again what it is asked plays this too.
    #[serde(default)]
    pub(super) echo: bool,
    /// How the server is started.
    #[serde(default)]
    pub(super) serve: Serve,
    /// How the client asks.
    pub(super) ask: Ask,
    /// What is asked and said.
    pub(super) answers: Vec<Answer>,
    /// In place of scripts, the bytes that are sent.
    pub(super) replay: Option<Replay>,
    /// What cannot be held against the truth here.
    pub(super) unjudged: Option<Unjudged>,
}

/// What the server's flags are to do.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Serve {
    /// When answers are due.
    pace: Option<String>,
    /// Tokens of a chunk.
    interval: Option<u32>,
    /// Most tokens of prompt and answer together.
    window: Option<u32>,
    /// How long a connection may be idle.
    idle: Option<String>,
    /// Answer all at a time, whatever their number.
    parallel: bool,
    /// Split reasoning from content.
    reasoning: bool,
    /// Find tool calls in the text.
    tools: bool,
}

/// What the client's flags are to do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask {
    /// So many requests in flight.
    pub(super) concurrency: Option<u32>,
    /// In place of that, so many requests a second.
    rate: Option<u32>,
    /// Members that are added to each body, as JSON.
    extra_body: Option<String>,
    /// Ask for usage.
    #[serde(default = "yes")]
    pub(super) usage: bool,
}

fn yes() -> bool {
    true
}

/// A prompt, what is said to it, and what that comes to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    prompt: String,
    /// In the form of script files.
    script: Option<Value>,
    /// Tokens that the model says, its end token included.
    pub(super) completion_tokens: u64,
    /// Tokens of the texts that arrive: content, reasoning, names and arguments of tool calls.
    pub(super) text_tokens: u64,
    /// The answer is not whole, or says that it failed.
    #[serde(default)]
    pub(super) failed: bool,
}

impl Answer {
    /// What is said, if there is nothing more to its script.
    pub(super) fn text(&self) -> Option<&str> {
        let script = self.script.as_ref()?.as_object()?;
        let [choice] = &script.get("choices")?.as_array()?[..] else {
            return None;
        };
        let choice = choice.as_object()?;
        let is_plain = script.len() == 1 && choice.len() == 1;
        choice.get("text")?.as_str().filter(|_| is_plain)
    }
}

/// Quantities that are left out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unjudged {
    pub(super) quantities: Vec<Quantity>,
    pub(super) reason: String,
}

/// Something needed of one side, and its value.
pub(super) type Need = (&'static str, String);

impl Scenario {
    /// Reads a scenario that makes sense in itself.
    fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut scenario: Self = toml::from_str(text)?;
        name.clone_into(&mut scenario.name);
        let ask = &scenario.ask;
        let is_either = ask.concurrency.is_some() != ask.rate.is_some();
        ensure!(is_either, "expected one of `concurrency` and `rate`");
        ensure!(!scenario.answers.is_empty(), "there are no answers");
        let is_scripted = |answer: &Answer| answer.script.is_some();
        let scripted = scenario
            .answers
            .iter()
            .filter(|answer| is_scripted(answer))
            .count();
        let expected = match &scenario.replay {
            Some(_) => 0,
            None => scenario.answers.len(),
        };
        ensure!(
            scripted == expected,
            "expected a script for each answer, or `replay`"
        );
        if let Some(json) = &ask.extra_body {
            let _: Map<String, Value> = serde_json::from_str(json).context("`ask.extra_body`")?;
        }
        Ok(scenario)
    }

    /// What is needed of the server besides the source of its answers.
    pub(super) fn server_needs(&self) -> Vec<Need> {
        let serve = &self.serve;
        let mut needs = Vec::new();
        needs.extend(serve.pace.clone().map(|pace| ("pace", pace)));
        needs.extend(
            serve
                .interval
                .map(|tokens| ("interval", tokens.to_string())),
        );
        needs.extend(serve.window.map(|tokens| ("window", tokens.to_string())));
        needs.extend(serve.idle.clone().map(|time| ("idle", time)));
        needs.extend(serve.parallel.then(|| ("parallel", String::new())));
        needs.extend(serve.reasoning.then(|| ("reasoning", String::new())));
        needs.extend(serve.tools.then(|| ("tools", String::new())));
        needs
    }

    /// What is needed of the client.
    pub(super) fn client_needs(&self) -> Vec<Need> {
        let ask = &self.ask;
        let mut needs = Vec::new();
        needs.extend(
            ask.concurrency
                .map(|count| ("concurrency", count.to_string())),
        );
        needs.extend(ask.rate.map(|rate| ("rate", rate.to_string())));
        needs.extend(ask.extra_body.clone().map(|body| ("extra_body", body)));
        needs.extend((!ask.usage).then(|| ("no_usage", String::new())));
        needs
    }

    /// Members that are added to each body.
    pub(super) fn extra_body(&self) -> Map<String, Value> {
        let json = self.ask.extra_body.as_deref().unwrap_or("{}");
        serde_json::from_str(json).expect("`parse` has read it")
    }

    /// The answer to a request by its number.
    pub(super) fn answer(&self, number: usize) -> &Answer {
        &self.answers[number % self.answers.len()]
    }

    /// The prompts of all requests, no two of them alike; each names its script.
    pub(super) fn prompts(&self) -> Vec<String> {
        let prompt = |number: usize| {
            let at = number % self.answers.len();
            let prompt = &self.answers[at].prompt;
            format!("{number}: {prompt} [[{}-{at}]]", self.name)
        };
        (0..self.requests).map(prompt).collect()
    }

    /// A script file for all answers.
    pub(super) fn script(&self) -> Value {
        let answers = self.answers.iter().enumerate();
        let scripts = answers.filter_map(|(at, answer)| {
            let script = answer.script.clone()?;
            Some((format!("{}-{at}", self.name), script))
        });
        Value::Object(scripts.collect::<Map<_, _>>())
    }

    /// What the texts of an answer come to if it says the prompt again.
    pub(super) fn echoed(prompt: &str, tokenizer: &Tokenizer) -> u64 {
        tokenizer.vocab.count(prompt) as u64
    }
}

/// The scenarios whose names fit, all by default.
pub(super) fn find(glob: Option<&str>) -> anyhow::Result<Vec<Scenario>> {
    let glob = glob.unwrap_or("*");
    let fitting = EMBEDDED.iter().filter(|(name, _)| matches(glob, name));
    let found: Vec<Scenario> = fitting
        .map(|(name, text)| Scenario::parse(name, text).with_context(|| (*name).to_owned()))
        .collect::<anyhow::Result<_>>()?;
    if found.is_empty() {
        let names: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        return Err(
            UsageError(format!("--scenario {glob}: no such scenario, only {names}")).into(),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_scenario_is_read_and_no_two_prompts_are_alike() {
        for scenario in find(None).unwrap() {
            let prompts: BTreeSet<String> = scenario.prompts().into_iter().collect();
            assert_eq!(prompts.len(), scenario.requests, "{}", scenario.name);
        }
        assert_eq!(find(Some("plai?")).unwrap().len(), 1);
        assert!(find(Some("nobody*")).unwrap_err().is::<UsageError>());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = "title = 'a'\nright = 'b'\nrequests = 1\nmax_tokens = 1\nask = { rate = 1 }\n\
            [[answers]]\nprompt = 'p'\ncompletion_tokens = 1\ntext_tokens = 1\nscript = { choices = [] }";
        assert_eq!(
            Scenario::parse("n", good).unwrap().prompts(),
            ["0: p [[n-0]]"]
        );
        for (from, to) in [
            ("rate = 1", "rate = 1, concurrency = 1"),
            ("rate = 1", ""),
            ("rate = 1", "rate = 1, extra_body = '[]'"),
            ("script = { choices = [] }", ""),
            ("title", "name"),
        ] {
            let text = good.replace(from, to);
            assert!(Scenario::parse("n", &text).is_err(), "{text}");
        }
    }
}
