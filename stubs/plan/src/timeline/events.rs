//! The chunks of a chat or completion in order.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wire::chunk::{Choice, Chunk, Delta};
use wire::request::{Endpoint, UsagePolicy};
use wire::usage::Usage;

use super::track::Track;
use super::{Kind, Plan, index, total_usage};
use crate::generate::Said;
use crate::script::CutKind;

/// What an event writes.
#[derive(Debug)]
pub(super) enum Payload {
    Chunk(Box<Chunk<'static>>),
    Done,
    KeepAlive,
    /// Content and nothing else, which is most of a stream.
    Text {
        index: u32,
        said: Arc<Said>,
        range: Range<usize>,
    },
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
    plan: Plan,
    tracks: Vec<Track>,
    stage: Stage,
    /// When the stream last said something.
    last: Duration,
    /// An event that waits behind signs of life.
    waiting: Option<Event>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Role(usize),
    Echo(usize),
    Text { step: usize, track: usize },
    Error { step: usize, fault: CutKind },
    Usage { step: usize },
    Done { step: usize },
    Over,
}

impl Events {
    pub(crate) fn new(plan: Plan, tracks: Vec<Track>) -> Self {
        let stage = match plan.endpoint {
            Endpoint::Chat if !tracks.iter().any(Track::fails_at_once) => Stage::Role(0),
            _ => Stage::Text { step: 0, track: 0 },
        };
        Self {
            plan,
            tracks,
            stage,
            last: Duration::ZERO,
            waiting: None,
        }
    }

    /// Steps of the longest choice.
    fn steps(&self) -> usize {
        let steps = self.tracks.iter().map(|track| track.said.outputs.len());
        steps.max().unwrap_or(0)
    }

    /// An event behind all text so far.
    fn event(&self, step: usize, kind: Kind, payload: Payload) -> Event {
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
            error: None,
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
            content: Some("".into()),
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
        (self.plan.usage == UsagePolicy::Continuous).then(|| Usage {
            reasoning_tokens,
            ..Usage::new(track.prompt_tokens, track.tokens)
        })
    }

    /// The chunk of one choice's step, if it makes one.
    fn text(&mut self, step: usize, number: usize) -> Option<Event> {
        let track = &mut self.tracks[number];
        if let Some(range) = track.plain(step, &self.plan) {
            let tokens = std::mem::take(&mut track.untold);
            let (said, total) = (Arc::clone(&track.said), track.tokens);
            let index = index(number);
            return Some(Event {
                due: self.plan.due(step, total),
                kind: Kind::Content,
                index: Some(index),
                tokens,
                payload: Payload::Text { index, said, range },
            });
        }
        let (choice, kind) = track.choice(step, &self.plan)?;
        let tokens = std::mem::take(&mut track.untold);
        let total = track.tokens;
        let reasoning_tokens = track.reasoning_tokens.as_ref().map(|counts| counts[step]);
        let chunk = Chunk {
            choices: vec![Choice {
                index: index(number),
                ..choice
            }],
            usage: self.running_usage(number, reasoning_tokens),
            error: None,
        };
        Some(Event {
            due: self.plan.due(step, total),
            kind,
            index: Some(index(number)),
            tokens,
            payload: Payload::Chunk(chunk.into()),
        })
    }

    fn error(&self, step: usize, fault: CutKind) -> Event {
        let chunk = Chunk {
            error: Some(fault.message(self.plan.dead).into()),
            ..Chunk::default()
        };
        self.event(step, Kind::Error, Payload::Chunk(chunk.into()))
    }

    fn usage(&self, step: usize) -> Event {
        let chunk = Chunk {
            usage: Some(total_usage(&self.plan, &self.tracks)),
            ..Chunk::default()
        };
        self.event(step, Kind::Usage, Payload::Chunk(chunk.into()))
    }

    /// The next event, whatever the silence before it.
    fn advance(&mut self) -> Option<Event> {
        loop {
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
                    if let Some(event) = self.text(step, track) {
                        return Some(event);
                    }
                }
                Stage::Text { step, .. } if step + 1 < self.steps() => {
                    let step = step + 1;
                    self.stage = Stage::Text { step, track: 0 };
                }
                Stage::Text { step, .. } => self.stage = Stage::Usage { step },
                Stage::Error { step, fault } => {
                    self.stage = Stage::Done { step };
                    return Some(self.error(step, fault));
                }
                Stage::Usage { step } => {
                    self.stage = Stage::Done { step };
                    if self.plan.usage != UsagePolicy::Omit {
                        return Some(self.usage(step));
                    }
                }
                Stage::Done { step } => {
                    self.stage = Stage::Over;
                    return Some(self.event(step, Kind::Done, Payload::Done));
                }
                Stage::Over => return None,
            }
        }
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
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
