//! What a scenario states of the requests that it is about.

use std::collections::HashMap;

use super::exchange::sha256;
use super::scenario::Scenario;

/// What the scenario states of each prompt.
pub(super) struct Stated {
    by_sha256: HashMap<String, Statement>,
    all: Vec<Statement>,
    /// The server plays recorded bytes and knows nothing of them.
    pub(super) is_replayed: bool,
}

/// Of one prompt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    /// None of a server that says what it will.
    pub(super) completion_tokens: Option<u64>,
    pub(super) text_tokens: Option<u64>,
    pub(super) failed: bool,
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
    /// What is to be expected of each request; a script's end is `uncounted` tokens that usage leaves out.
    pub(super) fn new(
        scenario: &Scenario,
        speech: Speech,
        uncounted: u64,
        echoed: impl Fn(&str) -> u64,
    ) -> Self {
        let prompts = scenario.prompts();
        let statement = |(number, prompt): (usize, &String)| {
            let answer = scenario.answer(number);
            let (completion_tokens, text_tokens) = match speech {
                Speech::Echo => (Some(echoed(prompt)), Some(echoed(prompt))),
                Speech::Free => (None, None),
                Speech::Replay => (Some(answer.completion_tokens), Some(answer.text_tokens)),
                Speech::Script => {
                    let counted = answer.completion_tokens.saturating_sub(uncounted);
                    (Some(counted), Some(answer.text_tokens))
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

    /// What is known of each request without a truth file.
    pub(super) fn all(&self) -> impl Iterator<Item = Statement> {
        self.all.iter().copied()
    }

    /// What is stated of a prompt with this hash.
    pub(super) fn of(&self, prompt_sha256: Option<&String>) -> Option<Statement> {
        let known = prompt_sha256.map(|hash| self.by_sha256.get(hash));
        match known {
            Some(known) => known.copied(),
            // A replayed server does not look into requests.
            None => self.is_replayed.then(|| self.all[0]),
        }
    }
}
