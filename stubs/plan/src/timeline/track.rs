//! One choice on its way: step by step what its chunks say.

use std::sync::Arc;

use wire::chunk::{Choice, Delta, Progress, TokenLogprob};
use wire::finish::FinishReason;
use wire::request::Endpoint;
use wire::usage::{CachedTokens, Usage};

use super::{Kind, Plan};
use crate::generate::{Output, Said};
use crate::script::CutKind;
use crate::voice::Voice;

/// What stands before the answer in a completion's first chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    /// The prompt's logprobs, if it is echoed with them.
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
    /// The prompt's logprobs, if they are told beside the answer's.
    pub(crate) prompt_logprobs: Option<Vec<Option<TokenLogprob>>>,
    /// The prompt, if it is echoed.
    pub(crate) text: String,
}

impl Opening {
    /// Says the prompt before what is said first.
    pub(crate) fn put_before(
        &self,
        delta: &mut Delta<'static>,
        logprobs: Option<&mut Vec<TokenLogprob>>,
    ) {
        if !self.text.is_empty() {
            let said = delta.content.take().unwrap_or_default();
            delta.content = Some(format!("{}{said}", self.text).into());
        }
        if let Some(logprobs) = logprobs {
            logprobs.splice(0..0, self.logprobs.iter().cloned());
        }
    }
}

/// One choice on its way. Choices that say the same share what is said.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    pub(crate) said: Arc<Said>,
    pub(crate) voice: Voice,
    /// One for each id.
    pub(crate) logprobs: Option<Arc<[TokenLogprob]>>,
    pub(crate) opening: Option<Arc<Opening>>,
    pub(crate) prompt_tokens: u64,
    /// Tokens of reasoning by each step, where a parser counts them.
    pub(crate) reasoning_tokens: Option<Arc<[u64]>>,
    /// Prompt tokens that the cache had, where there is one.
    pub(crate) cached: Option<u64>,
    /// The prompt's ids, where each of its chunks repeats them.
    pub(crate) prompt_ids: Option<Arc<[u32]>>,
    /// Logprobs of a step without text are told all the same, in a chunk of their own.
    pub(crate) told_without_text: bool,
    /// Probabilities of tokens that made no chunk yet.
    held: Vec<TokenLogprob>,
    /// It has made a chunk.
    pub(super) has_begun: bool,
    /// Its request had its turn.
    pub(crate) has_run: bool,
    shown: Output,
    pub(crate) tokens: u64,
    /// Tokens of steps that made no chunk.
    pub(super) untold: u32,
}

impl Track {
    pub(crate) fn new(said: Said, voice: Voice) -> Self {
        Self {
            said: Arc::new(said),
            voice,
            logprobs: None,
            opening: None,
            prompt_tokens: 0,
            reasoning_tokens: None,
            cached: None,
            prompt_ids: None,
            told_without_text: false,
            held: Vec::new(),
            has_begun: false,
            has_run: true,
            shown: Output::default(),
            tokens: 0,
            untold: 0,
        }
    }

    /// Whether the chunk of a step has nothing but content that no parser touches.
    pub(super) fn is_plain(&self, step: usize, plan: &Plan) -> bool {
        step + 1 < self.said.outputs.len()
            && self.voice.is_plain()
            && self.logprobs.is_none()
            && self.opening.is_none()
            && !plan.returns_token_ids
            && !plan.usage.is_running()
            && (!plan.begins_late() || self.has_begun)
            && (!plan.skips_empty() || self.says_something(step))
    }

    /// Whether a step behind those that were taken adds text.
    pub(super) fn says_something(&self, step: usize) -> bool {
        let before = step.checked_sub(1).map(|before| self.said.outputs[before]);
        before.map_or(0, Output::text_end) < self.said.outputs[step].text_end()
    }

    /// Takes a plain step: its text and the tokens that its chunk tells of.
    pub(super) fn plain(&mut self, step: usize) -> (&str, u32) {
        let output = self.said.outputs[step];
        let before = self.show(output);
        let tokens = std::mem::take(&mut self.untold);
        (
            &self.said.text[before.text_end()..output.text_end()],
            tokens,
        )
    }

    /// Takes a step and gives what had been shown before it.
    fn show(&mut self, output: Output) -> Output {
        self.tokens += u64::from(output.tokens);
        self.untold += output.tokens;
        std::mem::replace(&mut self.shown, output)
    }

    /// Gives the chunks of a step, mostly one, and what kind each is.
    pub(crate) fn chunks(
        &mut self,
        step: usize,
        plan: &Plan,
        mut give: impl FnMut(Choice<'static>, Kind),
    ) {
        let Some(output) = self.said.outputs.get(step).copied() else {
            return;
        };
        let before = self.show(output);
        let is_last = step + 1 == self.said.outputs.len();
        let said = Arc::clone(&self.said);
        let text = &said.text[before.text_end()..output.text_end()];
        let ids = before.ids_end()..output.ids_end();
        let logprobs = self.logprobs.as_ref().map(|all| all[ids.clone()].to_vec());
        let ids = &said.ids[ids];
        if plan.begins_late() {
            // Parsers that hold something back keep it when the answer is given up.
            let is_last = is_last && said.finish.reason != FinishReason::Abort;
            return self.chat_chunks(text, ids, is_last, logprobs, give);
        }
        if self.voice.reader.is_some() && plan.endpoint == Endpoint::Chat {
            return self.typed_chunks(text, ids, is_last, logprobs, give);
        }
        let mut delta = self.voice.feed(text, ids, is_last);
        if delta.is_none() && (plan.returns_token_ids || logprobs.is_some()) {
            delta = Some(Delta::default());
        }
        let Some(delta) = delta else {
            return;
        };
        let mut choice = Choice {
            delta,
            finish: is_last.then(|| self.voice.finish(&said.finish)),
            logprobs,
            token_ids: plan.returns_token_ids.then(|| ids.to_vec()),
            ..Choice::default()
        };
        if plan.endpoint == Endpoint::Generate {
            choice.progress = Some(self.progress(plan, step));
            choice.prompt_token_ids = self.prompt_ids.as_ref().map(|ids| ids.to_vec());
        }
        self.has_begun = true;
        if let Some(opening) = self.opening.take() {
            opening.put_before(&mut choice.delta, choice.logprobs.as_mut());
            if opening.prompt_token_ids.is_some() {
                choice
                    .prompt_token_ids
                    .clone_from(&opening.prompt_token_ids);
            }
            choice.prompt_logprobs.clone_from(&opening.prompt_logprobs);
        }
        let kind = if is_last {
            Kind::Finish
        } else {
            kind(&choice.delta)
        };
        give(choice, kind);
    }

    /// The chunks of a chat's step where the finish comes later, and nothing without text.
    fn chat_chunks(
        &mut self,
        text: &str,
        ids: &[u32],
        is_last: bool,
        mut logprobs: Option<Vec<TokenLogprob>>,
        mut give: impl FnMut(Choice<'static>, Kind),
    ) {
        let mut deltas = self.voice.deltas(text, ids, is_last);
        // What went through a tool parser has no logprobs.
        let takes = |delta: &Delta<'_>| !delta.nulls.tool_parser;
        let has_taker = deltas.iter().any(takes);
        if !has_taker && logprobs.is_some() && self.told_without_text {
            deltas.push(Delta::default());
        }
        for delta in deltas {
            let kind = kind(&delta);
            let choice = Choice {
                logprobs: takes(&delta).then(|| logprobs.take()).flatten(),
                delta,
                ..Choice::default()
            };
            give(choice, kind);
        }
    }

    /// The chunks of a typed chat's step: the finish stands in the last, and what was held back has its
    /// probabilities with it.
    fn typed_chunks(
        &mut self,
        text: &str,
        ids: &[u32],
        is_last: bool,
        logprobs: Option<Vec<TokenLogprob>>,
        mut give: impl FnMut(Choice<'static>, Kind),
    ) {
        if !(is_last && text.is_empty()) {
            self.held.extend(logprobs.into_iter().flatten());
        }
        let mut deltas = self.voice.deltas(text, ids, is_last);
        if is_last && deltas.is_empty() {
            deltas.push(Delta::default());
        }
        let count = deltas.len();
        for (number, delta) in deltas.into_iter().enumerate() {
            let is_end = is_last && number + 1 == count;
            let kind = if is_end { Kind::Finish } else { kind(&delta) };
            let held = std::mem::take(&mut self.held);
            let choice = Choice {
                delta,
                finish: is_end.then(|| self.voice.finish(&self.said.finish)),
                logprobs: (!held.is_empty()).then_some(held),
                ..Choice::default()
            };
            give(choice, kind);
        }
    }

    /// How far the choice has come with a step.
    fn progress(&self, plan: &Plan, step: usize) -> Progress {
        Progress {
            is_first: !self.has_begun,
            seconds: plan.due(step, self.tokens).as_secs_f64().max(1e-6),
            usage: self.usage(plan, step),
        }
    }

    /// How far the choice has come with its end.
    pub(crate) fn progress_at_end(&self, plan: &Plan) -> Progress {
        let step = self.said.outputs.len().saturating_sub(1);
        Progress {
            is_first: true,
            seconds: plan.due(step, self.said.tokens).as_secs_f64().max(1e-6),
            usage: Usage {
                completion_tokens: Some(self.said.tokens),
                ..self.usage(plan, step)
            },
        }
    }

    /// The choice's own counts by a step.
    pub(super) fn usage(&self, plan: &Plan, step: usize) -> Usage {
        let is_told = plan.endpoint == Endpoint::Generate || plan.cache.is_some();
        let cached = self.cached.filter(|_| plan.manner.tells_choices && is_told);
        let counts = self.reasoning_tokens.as_ref();
        Usage {
            cache: cached.map(|cached| CachedTokens {
                cached,
                created: None,
            }),
            prompt_tokens: self.has_run.then_some(self.prompt_tokens),
            reasoning_tokens: counts.and_then(|counts| counts.get(step).copied()),
            completion_tokens: Some(self.tokens),
        }
    }

    /// What fails before its first output has no role either, unless that output is the error.
    pub(crate) fn fails_at_once(&self) -> bool {
        self.fault(0).is_some_and(|fault| fault != CutKind::Error)
    }

    /// How the engine gives up at a step, if it does.
    pub(crate) fn fault(&self, step: usize) -> Option<CutKind> {
        let is_last = step + 1 == self.said.outputs.len();
        self.said.fault.filter(|_| is_last)
    }
}

/// What a chunk in the midst of a choice is.
fn kind(delta: &Delta<'_>) -> Kind {
    if !delta.tool_calls.is_empty() {
        Kind::Tool
    } else if delta.reasoning.is_some() && delta.content.is_none() {
        Kind::Reasoning
    } else {
        Kind::Content
    }
}
