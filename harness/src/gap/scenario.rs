//! A cause of a count gap as a TOML file: what is said, how, and what each basis makes of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::basis::{Basis, Count, Term, word};
use crate::conform::cli::matches;
use crate::error::UsageError;

/// Names and texts, listed by `build.rs`.
static EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/gaps.rs"));

/// One way in which counts come to differ, and the counts that it leads to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// The file's name; also that of its script.
    #[serde(skip)]
    pub(super) name: String,
    /// What the gap comes from, in some words.
    pub(super) cause: String,
    /// Whose way it is.
    pub(super) server: String,
    /// A sentence that explains it.
    pub(super) why: String,
    /// Who does this in reality.
    pub(super) who: String,
    /// Where that can be read.
    pub(super) reference: String,
    /// The words after `stubline serve`, with `{script}` and `{tokenizer}` in them.
    pub(super) serve: Option<String>,
    /// In place of a stub, the bytes that a server sends.
    pub(super) replay: Option<Replay>,
    /// What the model says, in the form of script files.
    pub(super) script: Option<Value>,
    /// The model's tokenizer: `bpe`, `bpe-bos`, `stub-model` or `char`.
    pub(super) tokenizer: String,
    /// The client's, if it is another.
    pub(super) client_tokenizer: Option<String>,
    /// What is asked.
    pub(super) request: Request,
    /// The two bases whose difference is explained, by default `retokenized` and `usage`.
    #[serde(default = "default_pair")]
    pub(super) compare: [Basis; 2],
    /// What comes of it.
    pub(super) expect: Expect,
}

/// A request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// The path.
    pub(super) endpoint: String,
    /// JSON.
    pub(super) body: String,
}

/// A response as it is on the wire, its head apart.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replay {
    /// The data of each event.
    pub(super) events: Vec<String>,
    /// What stands behind the last.
    #[serde(default)]
    pub(super) end: StreamEnd,
    /// Tokens that the model said, its end token included.
    pub(super) tokens: u64,
    /// Tokens that the model was asked with.
    pub(super) prompt_tokens: u64,
}

/// How a replayed stream ends.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamEnd {
    /// `[DONE]`, as it should.
    #[default]
    Done,
    /// The body ends without it.
    NoDone,
    /// The connection ends within the body.
    Cut,
}

/// What a scenario comes to.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Expect {
    /// Tokens of the content, read as a whole.
    pub(super) content: i64,
    /// Tokens of the reasoning.
    pub(super) reasoning: i64,
    /// Tokens of the names and arguments of tool calls.
    pub(super) tool: i64,
    /// How the request fails, where it does.
    pub(super) failure: Option<String>,
    /// `completion_tokens` as it stands on the wire, where that is no count.
    pub(super) usage_as_sent: Option<String>,
    /// Whether returned ids decode to the text, where there are ids.
    pub(super) ids_decode: Option<bool>,
    /// The first basis of the pair less the second.
    pub(super) difference: Count,
    /// What adds up to the difference.
    pub(super) explained_by: Vec<Term>,
    /// A count for each of [`Basis::ALWAYS`], and for others.
    #[serde(flatten)]
    pub(super) bases: BTreeMap<Basis, Count>,
}

fn default_pair() -> [Basis; 2] {
    [Basis::Retokenized, Basis::Usage]
}

impl Scenario {
    /// Reads a scenario and looks whether it makes sense in itself.
    pub(super) fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut scenario: Self = toml::from_str(text)?;
        name.clone_into(&mut scenario.name);
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> anyhow::Result<()> {
        let is_either = self.serve.is_some() != self.replay.is_some();
        ensure!(is_either, "expected one of `serve` and `replay`");
        let is_public = self.reference.starts_with("https://");
        ensure!(is_public, "`reference` is no https:// address");
        let body: Value = serde_json::from_str(&self.request.body).context("`request.body`")?;
        let marker = format!("[[{}]]", self.name);
        let needs_marker = self.script.is_some() && self.serve.is_some();
        ensure!(
            !needs_marker || body.to_string().contains(&marker),
            "`request.body` does not say {marker}"
        );
        let [first, second] = self.compare;
        let told = Basis::ALWAYS.into_iter().chain(self.compare);
        for basis in told {
            let is_told = self.expect.bases.contains_key(&basis);
            ensure!(is_told, "`expect` says nothing of {}", word(basis));
        }
        let is_alike = first.is_of_prompt() == second.is_of_prompt();
        ensure!(is_alike, "`compare` names an output and a prompt");
        let total: i64 = self
            .expect
            .explained_by
            .iter()
            .map(|term| term.tokens)
            .sum();
        let difference = self.expect.difference.0;
        ensure!(
            difference.is_none_or(|difference| difference == total),
            "`explained_by` adds up to {total}, not to the difference"
        );
        Ok(())
    }
}

/// The scenarios of this program whose names fit, or that of a file.
pub(super) fn find(spec: Option<&str>) -> anyhow::Result<Vec<Scenario>> {
    let wrong = |spec: &str, reason: &dyn std::fmt::Display| {
        UsageError(format!("--scenario {spec}: {reason}"))
    };
    let is_file = |spec: &&str| Path::new(spec).extension() == Some(OsStr::new("toml"));
    if let Some(path) = spec.filter(is_file) {
        let text = std::fs::read_to_string(path).map_err(|error| wrong(path, &error))?;
        let name = Path::new(path).file_stem().and_then(OsStr::to_str);
        let scenario = Scenario::parse(name.unwrap_or_default(), &text);
        let told = |error: anyhow::Error| wrong(path, &format!("{error:#}").replace('\n', " "));
        return Ok(vec![scenario.map_err(told)?]);
    }
    let glob = spec.unwrap_or("*");
    let names = EMBEDDED.iter().filter(|(name, _)| matches(glob, name));
    let found: Vec<Scenario> = names
        .map(|(name, text)| Scenario::parse(name, text).with_context(|| (*name).to_owned()))
        .collect::<anyhow::Result<_>>()?;
    if found.is_empty() {
        let reason = "no scenario has such a name; see --list";
        return Err(wrong(glob, &reason).into());
    }
    Ok(found)
}
