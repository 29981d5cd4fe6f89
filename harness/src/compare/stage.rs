//! A server that is to play a scenario.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use serde_json::Value;

use super::scenario::{Answer, Need, Scenario};
use super::stated::Speech;
use crate::bench::Dialect;
use crate::real::{Recipe, Server};
use crate::words::{Values, fill};

/// A server to run it against.
#[derive(Debug)]
pub(super) enum Upstream {
    /// One that is started for each run.
    Recipe {
        name: String,
        recipe: Box<Recipe>,
        values: Values,
    },
    /// One that runs already.
    Url(String),
}

/// A server and what it is to play.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) scenario: &'a Scenario,
}

impl Stage<'_> {
    /// Who says what, or why this cannot be played.
    pub(super) fn speech(&self) -> Result<Speech, String> {
        let Upstream::Recipe { name, recipe, .. } = self.upstream else {
            return self.free("a server of a URL");
        };
        let plays = |need: &str| recipe.plays.contains_key(need);
        let scenario = self.scenario;
        let speech = match (scenario.replay.is_some(), scenario.echo) {
            (true, _) if plays("replay") => Speech::Replay,
            (false, _) if plays("script") => Speech::Script,
            (false, true) if plays("echo") => Speech::Echo,
            _ if !recipe.truth => return self.free(name),
            (true, _) => return Err(format!("{name} plays no recorded bytes")),
            (false, _) => return Err(format!("{name} plays no scripts")),
        };
        // Who has no truth of times needs no pace.
        let is_needed = |need: &&Need| need.0 != "pace" || recipe.truth;
        let needs = scenario.server_needs();
        let mut needs = needs.iter().filter(is_needed);
        match needs.find(|(need, _)| !plays(need)) {
            Some((need, _)) => Err(format!("{name} has no flag for {need}")),
            None => Ok(speech),
        }
    }

    /// The member of a request that makes the server say each answer of the scenario, and the grammars that
    /// do so, in the answers' order; none if it takes none, or the scenario is about more than texts.
    pub(super) fn pins(&self) -> Option<(&str, Vec<String>)> {
        let Upstream::Recipe { recipe, .. } = self.upstream else {
            return None;
        };
        let plays = |need: &str| recipe.plays.contains_key(need);
        let needs = self.scenario.server_needs();
        let mut needs = needs.iter();
        if !needs.all(|(need, _)| *need == "pace" || plays(need)) {
            return None;
        }
        let grammar = |answer: &Answer| {
            // GBNF's texts are written as JSON's.
            let text = Value::from(answer.text()?);
            Some(format!("root ::= {text}"))
        };
        let grammars = self.scenario.answers.iter().map(grammar);
        Some((recipe.pins.as_deref()?, grammars.collect::<Option<_>>()?))
    }

    /// Tokens at the end of a script that the server's usage leaves out.
    pub(super) fn uncounted(&self) -> u64 {
        let Upstream::Recipe { recipe, .. } = self.upstream else {
            return 0;
        };
        u64::from(recipe.ends_uncounted)
    }

    /// A server that says what it will can play what says nothing of its answers.
    fn free(&self, name: &str) -> Result<Speech, String> {
        // Whoever names a URL knows how many answers it gives at a time.
        let is_met = |need: &str| match self.upstream {
            _ if need == "pace" => true,
            Upstream::Recipe { recipe, .. } => recipe.plays.contains_key(need),
            Upstream::Url(_) => need == "parallel",
        };
        let needs = self.scenario.server_needs();
        match needs.iter().find(|(need, _)| !is_met(need)) {
            Some((need, _)) => Err(format!("{name} has no flag for {need}")),
            None if self.scenario.echo => Ok(Speech::Free),
            None => Err(format!("{name} says what it will")),
        }
    }

    /// Starts the server with the scenario's files in a folder, if it does not run already.
    pub(super) fn start(
        &self,
        dir: &Path,
        tokenizer: &str,
        interrupt: &AtomicBool,
    ) -> anyhow::Result<Started> {
        let (recipe, values) = match self.upstream {
            Upstream::Url(url) => {
                return Ok(Started {
                    server: None,
                    truth: None,
                    url: url.clone(),
                });
            }
            Upstream::Recipe { recipe, values, .. } => (recipe, values),
        };
        let file = |name: &str| dir.join(name);
        std::fs::write(file("script.json"), self.scenario.script().to_string())?;
        if let Some(replay) = &self.scenario.replay {
            replay.record(&file("replay"), "/v1/chat/completions")?;
        }
        let mut values = values.clone();
        values.insert("tokenizer", tokenizer.to_owned());
        for (name, path) in [
            ("script", "script.json"),
            ("truth", "truth.jsonl"),
            ("replay", "replay"),
        ] {
            values.insert(name, file(path).display().to_string());
        }
        if let Some(model) = &recipe.model {
            values.insert("model", fill(model, &values)?);
        }
        let needs = self.scenario.server_needs();
        let speech = if self.scenario.replay.is_some() {
            "replay"
        } else {
            "script"
        };
        let needed = needs.iter().map(|(need, _)| *need).chain([speech]);
        let more: Vec<String> = needed
            .filter_map(|need| recipe.plays.get(need))
            .flatten()
            .cloned()
            .collect();
        values.extend(needs);
        let server = recipe.launch(&more, values, &file("server.log"), interrupt)?;
        Ok(Started {
            url: server.url.clone(),
            server: Some(server),
            truth: recipe.truth.then(|| file("truth.jsonl")),
        })
    }
}

/// A server that a client can be pointed at.
pub(super) struct Started {
    pub(super) url: String,
    server: Option<Server>,
    /// Its truth file.
    truth: Option<PathBuf>,
}

impl Started {
    /// Stops it, if it was started here, and gives its truth file.
    ///
    /// # Errors
    /// It failed, or its truth file lacks something.
    pub(super) fn end(self) -> anyhow::Result<Option<PathBuf>> {
        if let Some(mut server) = self.server {
            let is_whole = server.stop()?;
            ensure!(
                is_whole || self.truth.is_none(),
                "the server's truth file is not whole: {}",
                server.last_lines()
            );
        }
        Ok(self.truth)
    }
}

impl Upstream {
    /// Which server it is like.
    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::Recipe { recipe, .. } => recipe.dialect,
            Self::Url(_) => Dialect::Openai,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Recipe { name, .. } => name,
            Self::Url(url) => url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::find;
    use super::*;

    fn pins(server: &str, scenario: &str) -> Option<(String, Vec<String>)> {
        let upstream = Upstream::Recipe {
            name: server.to_owned(),
            recipe: Box::new(Recipe::named(server).unwrap()),
            values: Values::new(),
        };
        let scenario = find(Some(scenario)).unwrap().remove(0);
        let stage = Stage {
            upstream: &upstream,
            scenario: &scenario,
        };
        let (member, grammars) = stage.pins()?;
        Some((member.to_owned(), grammars))
    }

    #[test]
    fn a_grammar_pins_what_is_a_text_alone() {
        let plain = [
            r#"root ::= "Hello, world! How are you?""#,
            r#"root ::= "I am a stub, and I know what I say.""#,
        ];
        let expected = ("grammar".to_owned(), plain.map(str::to_owned).into());
        assert_eq!(pins("llama.cpp", "plain"), Some(expected));
        for scenario in ["error-mid", "reasoning", "tools", "cut"] {
            assert_eq!(pins("llama.cpp", scenario), None, "{scenario}");
        }
        assert_eq!(pins("stub:vllm", "plain"), None);
    }
}
