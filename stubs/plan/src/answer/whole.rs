//! An answer that is not streamed.

use std::sync::Arc;

use wire::chunk::{Choice, Chunk, Delta, TokenLogprob};
use wire::dialect::Encoder;
use wire::failure::Failure;
use wire::finish::{Finish, FinishReason};
use wire::request::{Endpoint, ToolChoice};

use super::{Answer, Kept};
use crate::logprobs::{self, Style};
use crate::reply::Whole;
use crate::timeline::{self, Track};
use crate::voice::Voice;

/// Longest answer that is not streamed.
pub(super) const MAX_WHOLE_BYTES: usize = 256 << 20;
/// What stands around the text of an answer, mostly less.
pub(super) const AROUND: usize = 1 << 10;
/// What a listed logprob takes, roughly.
const LOGPROB_BYTES: usize = 100;

impl Answer<'_> {
    /// Refuses an answer that would not fit into memory at once.
    pub(super) fn check_size(&self) -> Result<(), Failure> {
        let top = self.request.sampling.logprobs.map_or(0, |top| top + 1);
        let token_bytes = usize::try_from(top).unwrap_or(0) * LOGPROB_BYTES;
        let top = self
            .request
            .sampling
            .prompt_logprobs
            .map_or(0, |top| top + 1);
        let prompt_token_bytes = usize::try_from(top).unwrap_or(0) * LOGPROB_BYTES;
        let sizes = self.tracks.iter().map(|track| {
            let echo = track
                .opening
                .as_ref()
                .map_or(0, |opening| opening.text.len());
            let prompt_tokens = usize::try_from(track.prompt_tokens).unwrap_or(usize::MAX);
            let prompt = prompt_tokens.saturating_mul(prompt_token_bytes);
            let answer = track.said.text.len() + track.said.ids.len() * token_bytes;
            prompt.saturating_add(echo + answer)
        });
        let bytes = sizes.fold(0_usize, usize::saturating_add);
        if bytes <= MAX_WHOLE_BYTES {
            return Ok(());
        }
        let message = format!(
            "The answer would have {bytes} bytes; this stub sends {MAX_WHOLE_BYTES} at once. Ask for fewer choices, a shorter answer or a stream."
        );
        Err(Failure::bad_request(message, Some("n")))
    }

    /// The answer that is not streamed.
    pub(super) fn whole(mut self) -> Whole {
        let usage = timeline::total_usage(&self.plan, &self.tracks);
        let due = timeline::whole_due(&self.plan, &self.tracks);
        let extension = self.extension();
        let keeps = self.may_be_given_up();
        let tracks = std::mem::take(&mut self.tracks);
        let kept = keeps.then(|| (self.plan.clone(), tracks.clone()));
        let choices = tracks.into_iter().enumerate();
        let choices = choices
            .map(|(index, track)| self.whole_choice(index, track))
            .collect();
        if self.request.endpoint == Endpoint::Chat || self.request.output_mode.is_some() {
            self.envelope.prompt_logprobs = self.prompt_logprobs(0);
        }
        let answer = Chunk {
            choices,
            extension,
            usage: Some(usage),
            ..Chunk::default()
        };
        let said: usize = answer.choices.iter().map(Choice::text_bytes).sum();
        let mut bytes = Vec::with_capacity(said + said / 8 + AROUND);
        let patterns = Arc::clone(&self.stub.patterns);
        let encoder = Encoder::new(self.stub.dialect, self.envelope, patterns);
        encoder.whole(&answer, &mut bytes);
        Whole {
            bytes,
            due,
            is_json: true,
            kept: kept.map(|(plan, tracks)| {
                Box::new(Kept {
                    answer,
                    encoder,
                    plan,
                    tracks,
                })
            }),
            tokens: u32::try_from(usage.completion_tokens.unwrap_or(0)).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn whole_choice(&self, index: usize, mut track: Track) -> Choice<'static> {
        let mut delta = track.voice.whole(&track.said.text);
        if self.has_to_call() {
            delta.content.get_or_insert_default();
        }
        if let Some(echo) = &self.plan.echo {
            let said = delta.content.unwrap_or_default();
            delta.content = Some(format!("{echo}{said}").into());
        }
        let mut logprobs = track.logprobs.as_ref().map(|logprobs| logprobs.to_vec());
        let mut ids = None;
        let mut prompt_logprobs = None;
        if let Some(opening) = track.opening.take() {
            opening.put_before(&mut delta, logprobs.as_mut());
            ids.clone_from(&opening.prompt_token_ids);
            prompt_logprobs.clone_from(&opening.prompt_logprobs);
        }
        let is_completion = self.request.endpoint != Endpoint::Chat;
        let choices = self.request.sampling.choices();
        Choice {
            finish: Some(self.whole_finish(&track.voice, &track.said.finish)),
            delta: Delta {
                role: Some(self.plan.role.clone()),
                ..delta
            },
            index: timeline::index(index),
            is_echo: false,
            logprobs,
            prompt_logprobs: prompt_logprobs.or_else(|| {
                let own = is_completion.then(|| self.prompt_logprobs(index / choices));
                own.flatten()
            }),
            progress: self
                .plan
                .manner
                .tells_choices
                .then(|| track.progress_at_end(&self.plan)),
            prompt_token_ids: ids
                .filter(|_| self.request.return_token_ids)
                .or_else(|| track.prompt_ids.as_ref().map(|ids| ids.to_vec())),
            token_ids: self.plan.returns_token_ids.then(|| track.said.ids.clone()),
        }
    }

    /// The request leaves the model no choice but to call a tool.
    fn has_to_call(&self) -> bool {
        let choice = &self.request.template.tool_choice;
        matches!(choice, Some(ToolChoice::Named(_) | ToolChoice::Required))
    }

    /// The finish of an answer that is not streamed.
    pub(super) fn whole_finish(&self, voice: &Voice, finish: &Finish<'static>) -> Finish<'static> {
        let finish = voice.finish(finish);
        let choice = &self.request.template.tool_choice;
        let missed = matches!(choice, Some(ToolChoice::Required))
            && voice.caller.is_some()
            && finish.reason == FinishReason::Stop;
        if missed && !self.stub.dialect.missing_call_stops() {
            return Finish {
                reason: FinishReason::ToolCalls,
                ..finish
            };
        }
        finish
    }

    /// Logprobs of one prompt, if the request asks for them.
    fn prompt_logprobs(&self, number: usize) -> Option<Vec<Option<TokenLogprob>>> {
        let asked = self.request.sampling.prompt_logprobs?;
        let ids = self.prompt_ids.as_ref()?.get(number)?;
        let style = Style {
            as_ids: false,
            rule: logprobs::Rule::Vllm,
            top: usize::try_from(asked).unwrap_or(0).max(1),
        };
        let tokens = logprobs::of_prompt(&self.stub.engine.tokenizer.vocab, ids, style);
        let known = |token: TokenLogprob| token.logprob.is_some().then_some(token);
        Some(tokens.into_iter().map(known).collect())
    }
}
