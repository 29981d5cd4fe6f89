//! An answer that is not streamed and may be given up before it is due.

use std::time::Duration;

use wire::chunk::Chunk;
use wire::dialect::Encoder;
use wire::finish::Finish;

use crate::reply::Whole;
use crate::timeline::{self, Plan, Remains, Track};

/// What such an answer is made of.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(super) answer: Chunk<'static>,
    pub(super) encoder: Encoder,
    pub(super) plan: Plan,
    pub(super) tracks: Vec<Track>,
}

impl Whole {
    /// Ends choices with the step that is under way at a moment.
    pub(crate) fn abort(&mut self, now: Duration, choices: &[u32]) -> Option<Remains> {
        self.renewed(|kept| timeline::abort(&mut kept.plan, &mut kept.tracks, now, choices))
    }

    /// Says that the request never ran.
    pub(crate) fn silence(&mut self, now: Duration, finish: &Finish<'static>) -> Option<Remains> {
        self.renewed(|kept| timeline::silence(&mut kept.plan, &mut kept.tracks, now, finish))
    }

    fn renewed(&mut self, cut: impl FnOnce(&mut Kept) -> Option<Remains>) -> Option<Remains> {
        let kept = self.kept.as_mut()?;
        let ids = |track: &Track| track.said.ids.len();
        let before: Vec<usize> = kept.tracks.iter().map(ids).collect();
        let mut remains = cut(kept)?;
        for remain in &remains.choices {
            kept.renew(remain.index, before[remain.index]);
        }
        kept.answer.usage = Some(remains.usage);
        timeline::retell(&mut kept.answer.extension, &kept.tracks);
        self.bytes.clear();
        let (dialect, endpoint) = (kept.encoder.dialect(), kept.plan.endpoint);
        match dialect.given_up(endpoint) {
            None => kept.encoder.whole(&kept.answer, &mut self.bytes),
            Some(failure) => {
                remains.status = Some(failure.status());
                dialect.encode_failure(Some(endpoint), &failure, &mut self.bytes);
            }
        }
        self.due = timeline::whole_due(&kept.plan, &kept.tracks);
        let tokens = remains.usage.completion_tokens.unwrap_or(0);
        self.tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        Some(remains)
    }
}

impl Kept {
    /// Makes a choice anew from what it has said, which had so many ids before.
    fn renew(&mut self, number: usize, ids: usize) {
        let mut track = self.tracks[number].clone();
        let choice = &mut self.answer.choices[number];
        let mut delta = track.voice.whole(&track.said.text);
        if let Some(opening) = &track.opening {
            opening.put_before(&mut delta, None);
        }
        delta.role = choice.delta.role.take();
        choice.delta = delta;
        choice.finish = Some(track.voice.finish(&track.said.finish));
        if let Some(logprobs) = &mut choice.logprobs {
            let left = track.said.ids.len();
            logprobs.truncate(logprobs.len().saturating_sub(ids - left));
        }
        if let Some(token_ids) = &mut choice.token_ids {
            token_ids.clone_from(&track.said.ids);
        }
        if choice.progress.is_some() {
            choice.progress = Some(track.progress_at_end(&self.plan));
        }
        if !track.has_run {
            choice.logprobs = None;
            choice.prompt_logprobs = None;
            choice.prompt_token_ids = None;
        }
    }
}
