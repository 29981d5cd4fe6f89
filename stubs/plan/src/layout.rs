//! Streams of a layout of their own, those of `/v1/messages` and `/v1/responses`, laid out as they are
//! asked for. Signs of life (`--sse-keep-alive-interval`) are for chunks alone.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use wire::chunk::Choice;
use wire::finish::Finish;
use wire::http1;

use crate::script::CutKind;
use crate::timeline::{self, Kind, Plan, Remains, Step, Track};

/// How an answer's moments become events.
pub(crate) trait Layout: fmt::Debug + Send {
    /// The events before the answer.
    fn start(&mut self, events: &mut Queue);

    /// The events of a step of the engine; the last one's choice says how it ends.
    fn moment(&mut self, choice: Choice<'static>, events: &mut Queue);

    /// The events behind the answer.
    fn end(&mut self, end: End, events: &mut Queue);
}

/// How an answer ends: why, or by what fault.
pub(crate) type End = Result<Finish<'static>, CutKind>;

/// Events that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// When the next one is due.
    pub(crate) due: Duration,
    events: VecDeque<(Step, Vec<u8>)>,
    cut: Option<CutKind>,
    /// Tokens that no event has told of.
    untold: u32,
}

impl Queue {
    /// Adds an event. What frames the text tells of no tokens; the text's own events do.
    pub(crate) fn push(&mut self, kind: Kind, bytes: Vec<u8>) {
        let tokens = match kind {
            Kind::Finish | Kind::Role => 0,
            _ => std::mem::take(&mut self.untold),
        };
        let step = Step {
            due: self.due,
            kind,
            index: None,
            tokens,
            bytes: u32::try_from(bytes.len()).expect("an event is shorter than 4 GiB"),
        };
        self.events.push_back((step, bytes));
    }

    /// Sends all by a moment.
    fn hurry(&mut self, now: Duration) {
        self.due = self.due.min(now);
        for (step, _) in &mut self.events {
            step.due = step.due.min(now);
        }
    }

    /// Ends the body without its last chunk.
    pub(crate) fn cut(&mut self, fault: CutKind) {
        self.cut = Some(fault);
    }
}

/// The events of one stream.
#[derive(Debug)]
pub(crate) struct Laid {
    layout: Box<dyn Layout>,
    moments: Moments,
    is_over: bool,
    queue: Queue,
}

impl Laid {
    pub(crate) fn new(mut layout: Box<dyn Layout>, moments: Moments) -> Self {
        let mut queue = Queue {
            due: moments.start(),
            ..Queue::default()
        };
        layout.start(&mut queue);
        Self {
            layout,
            moments,
            is_over: false,
            queue,
        }
    }

    /// When the next event is due; `None` behind the last.
    pub(crate) fn due(&mut self) -> Option<Duration> {
        self.fill();
        self.queue.events.front().map(|(step, _)| step.due)
    }

    /// The fault by which the body has no end.
    pub(crate) fn cut(&self) -> Option<CutKind> {
        self.queue.cut
    }

    /// Appends the next event as one HTTP chunk, the last with the end of the body.
    pub(crate) fn step(&mut self, out: &mut Vec<u8>) -> Option<Step> {
        self.fill();
        let (step, bytes) = self.queue.events.pop_front()?;
        http1::write_chunk(out, |out| out.extend_from_slice(&bytes));
        self.fill();
        if self.queue.events.is_empty() && self.queue.cut.is_none() {
            out.extend_from_slice(http1::LAST_CHUNK);
        }
        Some(step)
    }

    /// Ends the answer with the step that is under way at a moment.
    pub(crate) fn abort(&mut self, now: Duration, choices: &[u32]) -> Option<Remains> {
        if self.is_over || !choices.contains(&0) {
            return None;
        }
        let is_ahead = self.queue.events.iter().any(|(step, _)| step.due > now);
        let remains = self.moments.abort(now, is_ahead)?;
        self.queue.hurry(now);
        Some(remains)
    }

    /// Says that the request never ran.
    pub(crate) fn silence(&mut self, now: Duration, finish: &Finish<'static>) -> Option<Remains> {
        let Moments {
            plan, track, step, ..
        } = &mut self.moments;
        if *step > 0 {
            return None;
        }
        self.queue.hurry(now);
        timeline::silence(plan, std::slice::from_mut(track), now, finish)
    }

    fn fill(&mut self) {
        while self.queue.events.is_empty() && !self.is_over {
            self.is_over = self.moments.step(&mut *self.layout, &mut self.queue);
        }
    }
}

/// An answer on its way, step by step of the engine.
#[derive(Clone, Debug)]
pub(crate) struct Moments {
    plan: Plan,
    track: Track,
    step: usize,
}

impl Moments {
    pub(crate) fn new(plan: Plan, track: Track) -> Self {
        Self {
            plan,
            track,
            step: 0,
        }
    }

    /// When the first is due.
    fn start(&self) -> Duration {
        self.plan.due(0, 1)
    }

    /// The engine fails before its first output.
    pub(crate) fn fails_at_once(&self) -> bool {
        self.track.fails_at_once()
    }

    /// Ends with the step that is under way at a moment, which may have been laid out ahead of it.
    fn abort(&mut self, now: Duration, is_ahead: bool) -> Option<Remains> {
        let laid_out = self.step.saturating_sub(usize::from(is_ahead));
        let step = self.track.step_under_way(&self.plan, now)?.max(laid_out);
        self.track.cut(step, false);
        self.plan.latest = Some(now);
        timeline::remains(&self.plan, std::slice::from_ref(&self.track), vec![0])
    }

    /// Runs to the end, the events going nowhere.
    pub(crate) fn run(mut self, layout: &mut dyn Layout) {
        let mut queue = Queue::default();
        while !self.step(layout, &mut queue) {
            queue.events.clear();
        }
    }

    /// Lays the next step out; true behind the last.
    fn step(&mut self, layout: &mut dyn Layout, events: &mut Queue) -> bool {
        let step = self.step;
        let Some(output) = self.track.said.outputs.get(step).copied() else {
            let finish = self.track.voice.finish(&self.track.said.finish);
            layout.end(Ok(finish), events);
            return true;
        };
        if let Some(fault) = self.track.fault(step) {
            events.due = self.plan.due(step, self.track.tokens);
            layout.end(Err(fault), events);
            return true;
        }
        self.step += 1;
        let tokens = self.track.tokens + u64::from(output.tokens);
        events.due = self.plan.due(step, tokens);
        events.untold += output.tokens;
        self.track.chunks(step, &self.plan, |choice, _| {
            layout.moment(choice, events);
        });
        false
    }
}
