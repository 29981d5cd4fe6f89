//! One answer on its way, as the engine's counters see it.

use std::sync::Arc;
use std::time::Duration;

use plan::{Kind, Remains, Step, Work};
use wire::finish::FinishReason;
use wire::metrics::{Counter, Series};

use super::counters::Counters;

/// How far the choices of an answer are.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    works: Option<Arc<[Work]>>,
    choices: Choices,
    is_waiting: bool,
    unfinished: u64,
    /// How long it waited for its turn.
    waited_ns: u64,
}

/// The first choice, mostly the only one, apart so that it costs no allocation.
#[derive(Debug, Default)]
struct Choices {
    first: Choice,
    others: Vec<Choice>,
}

impl Choices {
    fn get(&mut self, index: usize) -> Option<&mut Choice> {
        match index.checked_sub(1) {
            None => Some(&mut self.first),
            Some(index) => self.others.get_mut(index),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    /// From the request's arrival, in nanoseconds.
    first_ns: u64,
    last_ns: u64,
    has_begun: bool,
    is_over: bool,
    tokens: u64,
}

impl Progress {
    /// An answer to a request that was just let in.
    pub(crate) fn new(works: Option<Arc<[Work]>>, counters: &Counters) -> Self {
        let count = works.as_ref().map_or(0, |works| works.len());
        counters.running.add(count as u64);
        Self {
            works,
            choices: Choices {
                first: Choice::default(),
                others: vec![Choice::default(); count.saturating_sub(1)],
            },
            is_waiting: false,
            unfinished: count as u64,
            waited_ns: 0,
        }
    }

    /// Choices were given up, and this is left of them.
    pub(crate) fn cut(&mut self, remains: &Remains) {
        let Some(works) = &self.works else {
            return;
        };
        let mut works = works.to_vec();
        for choice in &remains.choices {
            if let Some(work) = works.get_mut(choice.index) {
                *work = Work {
                    finish: Some(FinishReason::Abort),
                    last_due: choice.last_due,
                    steps: choice.steps,
                    tokens: choice.tokens,
                    ..*work
                };
            }
        }
        self.works = Some(works.into());
    }

    /// The request waits for its turn.
    pub(crate) fn wait(&mut self, counters: &Counters) {
        if !std::mem::replace(&mut self.is_waiting, true) {
            counters.running.sub(self.unfinished);
            counters.waiting.add(self.unfinished);
        }
    }

    /// The request waits no more, having waited so long.
    pub(crate) fn begin(&mut self, counters: &Counters, waited: Duration) {
        if std::mem::take(&mut self.is_waiting) {
            counters.waiting.sub(self.unfinished);
            counters.running.add(self.unfinished);
            self.waited_ns = nanoseconds(waited);
        }
    }

    /// These steps were written so long after the request had its turn.
    pub(crate) fn wrote(&mut self, counters: &Counters, steps: &[Step], elapsed: Duration) {
        if self.unfinished == 0 {
            return;
        }
        let now = self.waited_ns + nanoseconds(elapsed);
        let mut steps = steps;
        while let Some(step) = steps.first() {
            // Most steps come in long rows of the same.
            let is_like = |other: &&Step| {
                other.kind == step.kind && other.index == step.index && other.tokens == step.tokens
            };
            let row = steps.iter().take_while(is_like).count();
            steps = &steps[row..];
            match step.kind {
                Kind::Comment | Kind::Done | Kind::Role | Kind::Usage => {}
                Kind::Body => self.whole(counters, now),
                Kind::Error => self.fail(counters, now),
                Kind::Content | Kind::Finish | Kind::Reasoning | Kind::Tool => {
                    self.step(counters, step, row as u64, now);
                }
            }
        }
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self, counters: &Counters) {
        let gauge = if self.is_waiting {
            &counters.waiting
        } else {
            &counters.running
        };
        gauge.sub(self.unfinished);
        self.unfinished = 0;
    }

    fn work(&self, index: usize) -> Option<Work> {
        self.works.as_ref()?.get(index).copied()
    }

    /// So many steps that are alike.
    fn step(&mut self, counters: &Counters, step: &Step, times: u64, now: u64) {
        let index = step.index.unwrap_or(0) as usize;
        let Some(choice) = self.choices.get(index) else {
            return;
        };
        let tokens = u64::from(step.tokens);
        choice.tokens += tokens * times;
        counters.add(Counter::GenerationTokens, tokens * times);
        let mut further = times;
        if !choice.has_begun {
            choice.has_begun = true;
            choice.first_ns = now;
            choice.last_ns = now;
            further -= 1;
            if let Some(work) = self.works.as_ref().and_then(|works| works.get(index)) {
                begin(counters, work, now, tokens);
            }
        }
        if tokens > 0 && further > 0 {
            counters.observe(Series::InterToken, now - choice.last_ns);
            counters.observe_many(Series::InterToken, 0, further - 1);
            counters.observe_many(Series::IterationTokens, tokens, further);
        }
        choice.last_ns = now;
        if step.kind == Kind::Finish {
            self.finish(counters, index, now);
        }
    }

    /// An answer that was not streamed: its steps were not seen and count as planned.
    fn whole(&mut self, counters: &Counters, now: u64) {
        let waited = self.waited_ns;
        for index in 0..=self.choices.others.len() {
            let (Some(work), Some(choice)) = (self.work(index), self.choices.get(index)) else {
                return;
            };
            let gaps = work.steps.saturating_sub(1);
            let each = work.tokens.checked_div(work.steps).unwrap_or(0);
            let first = work.tokens - each * gaps.min(work.tokens);
            choice.tokens = work.tokens;
            choice.first_ns = waited + nanoseconds(work.first_due.min(work.last_due));
            choice.last_ns = waited + nanoseconds(work.last_due);
            let decode = choice.last_ns.saturating_sub(choice.first_ns);
            begin(counters, &work, choice.first_ns, first);
            counters.add(Counter::GenerationTokens, work.tokens);
            if let Some(gap) = decode.checked_div(gaps) {
                counters.observe_many(Series::InterToken, gap, gaps);
                counters.observe_many(Series::IterationTokens, each, gaps);
            }
            self.finish(counters, index, now);
        }
    }

    /// The engine failed; only a choice that it ended itself counts as ended.
    fn fail(&mut self, counters: &Counters, now: u64) {
        for index in 0..=self.choices.others.len() {
            let finish = self.work(index).and_then(|work| work.finish);
            if finish == Some(FinishReason::Error) {
                self.finish(counters, index, now);
            }
        }
    }

    fn finish(&mut self, counters: &Counters, index: usize, now: u64) {
        let (Some(work), Some(choice)) = (self.work(index), self.choices.get(index)) else {
            return;
        };
        if std::mem::replace(&mut choice.is_over, true) {
            return;
        }
        let (choice, waited) = (*choice, self.waited_ns);
        if let Some(ended) = work.finish.and_then(ended_by) {
            counters.add(ended, 1);
        }
        let decode = choice.last_ns.saturating_sub(choice.first_ns);
        let computed = work.prompt_tokens - work.cached_tokens.unwrap_or(0).min(work.prompt_tokens);
        let gaps = choice.tokens.saturating_sub(1);
        for (series, value) in [
            (Series::EndToEnd, now),
            (Series::QueueTime, waited),
            (Series::PrefillTime, choice.first_ns.saturating_sub(waited)),
            (Series::InferenceTime, choice.last_ns.saturating_sub(waited)),
            (Series::DecodeTime, decode),
            (Series::Preemptions, 0),
            (Series::PrefillComputed, computed),
            (Series::PromptTokens, work.prompt_tokens),
            (Series::GenerationTokens, choice.tokens),
            (
                Series::TimePerOutputToken,
                decode.checked_div(gaps).unwrap_or(0),
            ),
        ] {
            counters.observe(series, value);
        }
        if let Some(limit) = work.max_tokens.filter(|limit| *limit > 0) {
            counters.observe(Series::MaxTokens, limit);
        }
        self.finish_prompt(counters, index - index % work.choices, work.choices);
        self.unfinished -= 1;
        counters.running.sub(1);
    }

    /// Counts a prompt whose choices, `count` from `start` on, are all over.
    fn finish_prompt(&mut self, counters: &Counters, start: usize, count: usize) {
        let mut longest = 0;
        for index in start..start + count {
            match self.choices.get(index) {
                Some(choice) if choice.is_over => longest = longest.max(choice.tokens),
                _ => return,
            }
        }
        counters.observe(Series::MaxGenerationTokens, longest);
        counters.observe(Series::N, count as u64);
    }
}

/// A choice's first step of so many tokens, its prompt included.
fn begin(counters: &Counters, work: &Work, now: u64, tokens: u64) {
    let cached = work.cached_tokens.unwrap_or(0).min(work.prompt_tokens);
    counters.observe(Series::TimeToFirstToken, now);
    counters.observe(
        Series::IterationTokens,
        work.prompt_tokens - cached + tokens,
    );
    counters.add(Counter::PromptTokens, work.prompt_tokens);
    counters.add(Counter::CachedTokens, cached);
    if work.cached_tokens.is_some() {
        counters.add(Counter::PrefixCacheQueries, work.prompt_tokens);
    }
}

fn ended_by(finish: FinishReason) -> Option<Counter> {
    match finish {
        FinishReason::Abort => Some(Counter::EndedByAbort),
        FinishReason::Error => Some(Counter::EndedByError),
        FinishReason::Length => Some(Counter::EndedByLength),
        FinishReason::Repetition => Some(Counter::EndedByRepetition),
        FinishReason::Stop | FinishReason::ToolCalls => Some(Counter::EndedByStop),
        FinishReason::Other => None,
    }
}

/// A duration as the counters have it.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
