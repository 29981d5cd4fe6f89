//! The chunks of a chat or completion in order.

use std::collections::VecDeque;
use std::time::Duration;

use wire::chunk::{Choice, Chunk, Delta, Extension};
use wire::dialect::{Encoder, Field};
use wire::request::Endpoint;
use wire::usage::Usage;

use super::track::Track;
use super::{Kind, Plan, Remains, Step, Taking, index, retell};
use crate::script::CutKind;

/// What an event writes.
#[derive(Debug)]
pub(super) enum Payload {
    Chunk(Box<Chunk<'static>>),
    Done,
    KeepAlive,
}

/// A payload with its time.
#[derive(Debug)]
pub(crate) struct Event {
    pub(super) due: Duration,
    pub(super) kind: Kind,
    pub(super) index: Option<u32>,
    pub(super) tokens: u32,
    pub(super) payload: Payload,
}

/// The chunks of a stream in order: roles, the prompt's echo, then step by step one for each choice,
/// usage, `[DONE]`. An engine that gives up has an error there in place of what is left.
#[derive(Debug)]
pub(crate) struct Events {
    pub(super) plan: Plan,
    /// Of the longest choice.
    steps: usize,
    pub(super) tracks: Vec<Track>,
    pub(super) stage: Stage,
    /// When the stream last said something.
    last: Duration,
    /// An event that waits behind signs of life.
    waiting: Option<Event>,
    /// The next event, where it has been looked at.
    next: Option<Event>,
    /// Events of a step that come next.
    rest: VecDeque<Event>,
    /// Room for the chunks of a step.
    chunks: Vec<(Choice<'static>, Kind)>,
    /// Choices in the order of their ends, where these are told behind all text.
    pub(super) ended: Vec<usize>,
    /// The choices as they were at first, where they may be given up.
    origin: Option<Vec<Track>>,
    /// Events that were taken, signs of life not counted.
    taken: usize,
    /// What is told of the answer as a whole.
    pub(crate) extension: Option<Box<Extension>>,
}

/// A text with nothing beside it: the next of a choice.
#[derive(Clone, Copy, Debug)]
struct PlainText {
    due: Duration,
    step: usize,
    track: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Role(usize),
    Echo(usize),
    Text { step: usize, track: usize },
    Error { step: usize, fault: CutKind },
    Finish { step: usize, number: usize },
    Usage { step: usize },
    Done { step: usize },
    Over,
}

impl Events {
    pub(crate) fn new(plan: Plan, tracks: Vec<Track>) -> Self {
        let stage = match plan.endpoint {
            Endpoint::Chat if plan.begins_late() => Stage::Text { step: 0, track: 0 },
            Endpoint::Chat if !tracks.iter().any(Track::fails_at_once) => Stage::Role(0),
            _ => Stage::Text { step: 0, track: 0 },
        };
        let steps = tracks.iter().map(|track| track.said.outputs.len()).max();
        let mut ended = Vec::new();
        if plan.begins_late() {
            ended.extend(0..tracks.len());
            ended.sort_by_key(|track| tracks[*track].said.outputs.len());
        }
        Self {
            plan,
            steps: steps.unwrap_or(0),
            tracks,
            stage,
            last: Duration::ZERO,
            waiting: None,
            next: None,
            rest: VecDeque::new(),
            chunks: Vec::new(),
            ended,
            origin: None,
            taken: 0,
            extension: None,
        }
    }

    /// Lets the answer be given up while it is told.
    pub(crate) fn keep(&mut self) {
        self.origin = Some(self.tracks.clone());
    }

    /// Goes on with what is left of the answer, behind what was taken of it before that moment.
    pub(super) fn renewed(
        &mut self,
        now: Duration,
        cut: impl FnOnce(&mut Plan, &mut [Track]) -> Option<Remains>,
    ) -> Option<Remains> {
        let (mut plan, mut tracks) = (self.plan.clone(), self.origin.clone()?);
        let remains = cut(&mut plan, &mut tracks)?;
        let mut renewed = Self::new(plan, tracks);
        renewed.keep();
        renewed.extension = self.extension.take();
        retell(&mut renewed.extension, &renewed.tracks);
        renewed.taken = self.taken;
        for _ in 0..self.taken {
            renewed.advance();
        }
        renewed.last = self.last.min(now);
        *self = renewed;
        Some(remains)
    }

    /// The head of the stream is sent with its first event.
    pub(super) fn holds_head(&self) -> bool {
        self.plan.manner.waits_with_head && self.plan.endpoint != Endpoint::Generate
    }

    /// When the next event is due; `None` behind the last.
    pub(super) fn due(&mut self) -> Option<Duration> {
        if let Some(text) = self.plain_text() {
            return Some(text.due);
        }
        if self.next.is_none() {
            self.next = self.produce();
        }
        self.next.as_ref().map(|event| event.due)
    }

    /// The next event, if it is a plain text and no sign of life comes before it.
    fn plain_text(&mut self) -> Option<PlainText> {
        if self.next.is_some() || self.waiting.is_some() || !self.rest.is_empty() {
            return None;
        }
        let (step, track) = match self.stage {
            Stage::Text { step, track } if track < self.tracks.len() => (step, track),
            Stage::Text { step, .. } if step + 1 < self.steps => (step + 1, 0),
            _ => return None,
        };
        let own = &self.tracks[track];
        if !own.is_plain(step, &self.plan) {
            return None;
        }
        let tokens = own.tokens + u64::from(own.said.outputs[step].tokens);
        let due = self.plan.due(step, tokens);
        let is_silent = |interval| self.last + interval < due;
        (!self.plan.keep_alive.is_some_and(is_silent)).then_some(PlainText { due, step, track })
    }

    /// Takes the plain texts that come next and are due. They are most of a stream.
    pub(super) fn texts(&mut self, encoder: &mut Encoder, taking: &mut Taking<'_>) {
        let before = taking.steps.len();
        while taking.has_room()
            && let Some(text) = self.plain_text()
            && text.due <= taking.now
        {
            let is_alone = self.tracks.len() == 1;
            let own = &mut self.tracks[text.track];
            let index = index(text.track);
            let template = encoder.template(index, Field::Content);
            // A choice that is alone goes on, plain as it is, while nothing has to be waited for.
            let last = if is_alone {
                own.said.outputs.len() - 2
            } else {
                text.step
            };
            let mut step = text.step;
            taking.expect(last - step, template);
            loop {
                let (said, tokens) = own.plain(step);
                let bytes = template.write_chunk(said, taking.out);
                taking.steps.push(Step {
                    due: text.due,
                    kind: Kind::Content,
                    index: Some(index),
                    tokens,
                    bytes: u32::try_from(bytes).expect("an event is shorter than 4 GiB"),
                });
                if step == last || !taking.has_room() {
                    break;
                }
                let tokens = own.tokens + u64::from(own.said.outputs[step + 1].tokens);
                let is_silent = self.plan.skips_empty() && !own.says_something(step + 1);
                if is_silent || self.plan.due(step + 1, tokens) > text.due {
                    break;
                }
                step += 1;
            }
            self.last = text.due;
            let track = text.track + 1;
            self.stage = Stage::Text { step, track };
        }
        self.taken += taking.steps.len() - before;
    }

    /// An event behind all text so far.
    pub(super) fn event(&self, step: usize, kind: Kind, payload: Payload) -> Event {
        let tokens = self.tracks.iter().map(|track| track.tokens).max();
        Event {
            due: self.plan.due(step, tokens.unwrap_or(0)),
            kind,
            index: None,
            tokens: 0,
            payload,
        }
    }

    /// An event of a choice that tells of no token yet.
    fn early(&self, track: usize, kind: Kind, delta: Delta<'static>) -> Event {
        let details = self.tracks[track].reasoning_tokens.as_ref().map(|_| 0);
        let chunk = Chunk {
            choices: vec![Choice {
                delta,
                index: index(track),
                is_echo: kind != Kind::Role,
                ..Choice::default()
            }],
            usage: self.running_usage(track, details),
            origin: index(track),
            ..Chunk::default()
        };
        Event {
            due: self.plan.due(0, 1),
            kind,
            index: Some(index(track)),
            tokens: 0,
            payload: Payload::Chunk(chunk.into()),
        }
    }

    fn role(&self, track: usize) -> Event {
        let delta = Delta {
            role: Some(self.plan.role.clone()),
            content: (!self.plan.manner.bare_roles).then(|| "".into()),
            ..Delta::default()
        };
        self.early(track, Kind::Role, delta)
    }

    fn echo(&self, track: usize, text: String) -> Event {
        let delta = Delta {
            content: Some(text.into()),
            ..Delta::default()
        };
        self.early(track, Kind::Content, delta)
    }

    /// A choice's usage so far, where every chunk carries it.
    fn running_usage(&self, track: usize, reasoning_tokens: Option<u64>) -> Option<Usage> {
        let track = &self.tracks[track];
        self.plan.usage.is_running().then(|| Usage {
            reasoning_tokens,
            ..Usage::new(track.prompt_tokens, track.tokens)
        })
    }

    /// Lines up the chunks of one choice's step.
    fn text(&mut self, step: usize, number: usize) {
        if self.plan.begins_late() && step < self.tracks[number].said.outputs.len() {
            let has_begun = std::mem::replace(&mut self.tracks[number].has_begun, true);
            if !has_begun {
                let role = self.late_role(number, step);
                self.rest.push_back(role);
            }
        }
        let (plan, track) = (&self.plan, &mut self.tracks[number]);
        let usage = plan.usage.is_running() && plan.endpoint != Endpoint::Generate;
        let mut chunks = std::mem::take(&mut self.chunks);
        track.chunks(step, plan, |choice, kind| chunks.push((choice, kind)));
        let due = plan.due(step, track.tokens);
        for (choice, kind) in chunks.drain(..) {
            let chunk = Chunk {
                choices: vec![Choice {
                    index: index(number),
                    ..choice
                }],
                usage: usage.then(|| track.usage(plan, step)),
                origin: index(number),
                ..Chunk::default()
            };
            self.rest.push_back(Event {
                due,
                kind,
                index: Some(index(number)),
                tokens: std::mem::take(&mut track.untold),
                payload: Payload::Chunk(chunk.into()),
            });
        }
        self.chunks = chunks;
    }

    /// The role of a choice that begins with a step.
    fn late_role(&self, number: usize, step: usize) -> Event {
        let mut event = self.role(number);
        let tokens = u64::from(self.tracks[number].said.outputs[step].tokens);
        event.due = self.plan.due(step, tokens);
        if let Payload::Chunk(chunk) = &mut event.payload {
            chunk.usage = None;
        }
        event
    }

    /// The next event, whatever the silence before it.
    fn advance(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.rest.pop_front() {
                return Some(event);
            }
            match self.stage {
                Stage::Role(track) if track < self.tracks.len() => {
                    self.stage = Stage::Role(track + 1);
                    return Some(self.role(track));
                }
                Stage::Role(_) => self.stage = Stage::Echo(0),
                Stage::Echo(track) => match self.plan.echo.clone() {
                    Some(text) if track < self.tracks.len() => {
                        self.stage = Stage::Echo(track + 1);
                        return Some(self.echo(track, text));
                    }
                    _ => self.stage = Stage::Text { step: 0, track: 0 },
                },
                Stage::Text { step, track } if track < self.tracks.len() => {
                    if let Some(fault) = self.tracks[track].fault(step) {
                        self.stage = Stage::Error { step, fault };
                        continue;
                    }
                    let track_after = track + 1;
                    self.stage = Stage::Text {
                        step,
                        track: track_after,
                    };
                    self.text(step, track);
                }
                Stage::Text { step, .. } if step + 1 < self.steps => {
                    let step = step + 1;
                    self.stage = Stage::Text { step, track: 0 };
                }
                Stage::Text { step, .. } => self.stage = Stage::Finish { step, number: 0 },
                _ => return self.behind_texts(),
            }
        }
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let next = self.next.take();
        let event = next.or_else(|| self.produce())?;
        self.taken += usize::from(event.kind != Kind::Comment);
        Some(event)
    }
}

impl Events {
    /// The next event, or a sign of life before it.
    fn produce(&mut self) -> Option<Event> {
        let event = match self.waiting.take() {
            Some(event) => event,
            None => self.advance()?,
        };
        if let Some(interval) = self.plan.keep_alive
            && self.last + interval < event.due
        {
            self.last += interval;
            self.waiting = Some(event);
            return Some(Event {
                due: self.last,
                kind: Kind::Comment,
                index: None,
                tokens: 0,
                payload: Payload::KeepAlive,
            });
        }
        self.last = event.due;
        Some(event)
    }
}
