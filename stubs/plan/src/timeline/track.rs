//! One choice on its way: step by step what its chunks say.

use std::sync::Arc;

use wire::chunk::{Choice, Delta, TokenLogprob};
use wire::request::UsagePolicy;

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
            && plan.usage != UsagePolicy::Continuous
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

    /// The chunk of a step, if it makes one, and what kind it is.
    pub(crate) fn choice(&mut self, step: usize, plan: &Plan) -> Option<(Choice<'static>, Kind)> {
        let output = *self.said.outputs.get(step)?;
        let before = self.show(output);
        let is_last = step + 1 == self.said.outputs.len();
        let text = &self.said.text[before.text_end()..output.text_end()];
        let ids = before.ids_end()..output.ids_end();
        let mut delta = self.voice.feed(text, &self.said.ids[ids.clone()], is_last);
        if delta.is_none() && (plan.returns_token_ids || self.logprobs.is_some()) {
            delta = Some(Delta::default());
        }
        let mut delta = delta?;
        let mut logprobs = self.logprobs.as_ref().map(|all| all[ids.clone()].to_vec());
        let mut prompt_token_ids = None;
        if let Some(opening) = self.opening.take() {
            opening.put_before(&mut delta, logprobs.as_mut());
            prompt_token_ids.clone_from(&opening.prompt_token_ids);
        }
        let kind = if is_last {
            Kind::Finish
        } else if !delta.tool_calls.is_empty() {
            Kind::Tool
        } else if delta.reasoning.is_some() && delta.content.is_none() {
            Kind::Reasoning
        } else {
            Kind::Content
        };
        let choice = Choice {
            delta,
            finish: is_last.then(|| self.voice.finish(&self.said.finish)),
            logprobs,
            prompt_token_ids,
            token_ids: plan.returns_token_ids.then(|| self.said.ids[ids].to_vec()),
            ..Choice::default()
        };
        Some((choice, kind))
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
