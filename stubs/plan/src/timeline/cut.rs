//! Answers that are given up: choices that end with the step under way, or before their first.

use std::sync::Arc;
use std::time::Duration;

use wire::chunk::Extension;
use wire::finish::Finish;
use wire::usage::{CachedTokens, Usage};

use super::track::Track;
use super::{Plan, index, total_usage};
use crate::generate::Said;
use crate::pace::Pace;

/// What is left of an answer that was given up, or some of its choices.
#[derive(Clone, Debug, PartialEq)]
pub struct Remains {
    /// The choices that were, by their numbers.
    pub choices: Vec<Remain>,
    /// The status of an answer that has become a failure.
    pub status: Option<u16>,
    /// Usage of all choices.
    pub usage: Usage,
}

/// What is left of a choice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Remain {
    /// Its number.
    pub index: usize,
    /// When it ends, from the request's turn.
    pub last_due: Duration,
    /// Steps of the engine.
    pub steps: u64,
    /// Tokens.
    pub tokens: u64,
}

/// Ends choices with the step that is under way at a moment. If none goes on, the step comes at once.
pub(crate) fn abort(
    plan: &mut Plan,
    tracks: &mut [Track],
    now: Duration,
    choices: &[u32],
) -> Option<Remains> {
    let mut cut = Vec::new();
    let mut goes_on = false;
    for (number, track) in tracks.iter_mut().enumerate() {
        match track.step_under_way(plan, now) {
            Some(step) if choices.contains(&index(number)) => {
                track.cut(step, plan.manner.fails_given_up);
                cut.push(number);
            }
            step => goes_on |= step.is_some(),
        }
    }
    if !goes_on {
        plan.latest = Some(now);
    }
    remains(plan, tracks, cut)
}

/// Ends choices that never ran.
pub(crate) fn silence(
    plan: &mut Plan,
    tracks: &mut [Track],
    now: Duration,
    finish: &Finish<'static>,
) -> Option<Remains> {
    plan.cache = plan.cache.map(|_| CachedTokens::default());
    plan.echo = None;
    plan.pace = Pace::Steady {
        ttft: now,
        itl: Duration::ZERO,
    };
    plan.pauses.clear();
    plan.prompt_tokens = 0;
    for track in tracks.iter_mut() {
        track.silence(finish.clone());
    }
    remains(plan, tracks, (0..tracks.len()).collect())
}

/// What is left of an answer of which these choices were given up.
pub(crate) fn remains(plan: &Plan, tracks: &[Track], cut: Vec<usize>) -> Option<Remains> {
    let remain = |number: usize| {
        let said = &tracks[number].said;
        Remain {
            index: number,
            last_due: plan.due(said.outputs.len() - 1, said.tokens),
            steps: said.outputs.len() as u64,
            tokens: said.tokens,
        }
    };
    (!cut.is_empty()).then(|| Remains {
        choices: cut.into_iter().map(remain).collect(),
        status: None,
        usage: total_usage(plan, tracks),
    })
}

/// Makes what is told of an answer as a whole fit to what is left of it.
pub(crate) fn retell(extension: &mut Option<Box<Extension>>, tracks: &[Track]) {
    let ids = extension.as_mut().and_then(|all| all.output_ids.as_mut());
    if let Some(ids) = ids {
        *ids = tracks.iter().map(|track| track.said.ids.clone()).collect();
    }
}

impl Track {
    /// The first step that is not due at a moment.
    pub(crate) fn step_under_way(&self, plan: &Plan, now: Duration) -> Option<usize> {
        let mut tokens = 0;
        self.said
            .outputs
            .iter()
            .enumerate()
            .position(|(step, output)| {
                tokens += u64::from(output.tokens);
                plan.due(step, tokens) > now
            })
    }

    /// Ends with a step.
    pub(crate) fn cut(&mut self, step: usize, fails: bool) {
        Arc::make_mut(&mut self.said).cut(step, fails);
        let counts = self.reasoning_tokens.as_mut();
        if let Some(counts) = counts.filter(|counts| counts.len() > step + 1) {
            *counts = counts[..=step].into();
        }
    }

    /// Says nothing, having never run.
    pub(crate) fn silence(&mut self, finish: Finish<'static>) {
        let said = Said::nothing(finish);
        let mut silent = Self::new(said, self.voice.clone());
        silent.has_run = false;
        *self = silent;
    }
}
