//! An answer as timed bytes.

mod cut;
mod ending;
mod events;
mod track;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use wire::dialect::{Encoder, Manner, Roles, Template};
use wire::finish::Finish;
use wire::http1;
use wire::request::{Endpoint, UsagePolicy};
use wire::sse;
use wire::usage::{CachedTokens, Usage};

use crate::layout::Laid;
use crate::pace::Pace;
use crate::script::CutKind;

pub use cut::{Remain, Remains};
pub(crate) use cut::{abort, remains, retell, silence};
pub(crate) use events::Events;
pub(crate) use track::{Opening, Track};

use events::Payload;

/// What an event is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An answer that is not streamed.
    Body,
    /// A comment that keeps the connection alive.
    Comment,
    /// Text.
    Content,
    /// `[DONE]`
    Done,
    /// An error inside a stream.
    Error,
    /// The end of a choice.
    Finish,
    /// Reasoning.
    Reasoning,
    /// The role, or what frames a part of an answer.
    Role,
    /// Tool calls.
    Tool,
    /// Usage, with no text beside it.
    Usage,
}

/// An event of a stream, described; its bytes go to the caller's buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    /// When it is due, from the request's arrival.
    pub due: Duration,
    /// What it is.
    pub kind: Kind,
    /// The choice that it belongs to.
    pub index: Option<u32>,
    /// Tokens that it tells of.
    pub tokens: u32,
    /// Bytes of the event, without HTTP chunk framing.
    pub bytes: u32,
}

/// vLLM's sign of life in a silent stream.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The events of one stream, encoded as they are asked for.
#[derive(Debug)]
pub struct Timeline(Form);

/// How a stream's events are kept.
#[derive(Debug)]
enum Form {
    /// Chunks of a chat or a completion.
    Chunks { encoder: Encoder, events: Events },
    /// Events of a layout of its own.
    Laid(Laid),
}

impl Timeline {
    pub(crate) fn new(encoder: Encoder, events: Events) -> Self {
        Self(Form::Chunks { encoder, events })
    }

    /// A stream of a layout of its own.
    pub(crate) fn laid(events: Laid) -> Self {
        Self(Form::Laid(events))
    }

    /// When the next event is due; `None` behind the last.
    pub fn due(&mut self) -> Option<Duration> {
        match &mut self.0 {
            Form::Chunks { events, .. } => events.due(),
            Form::Laid(events) => events.due(),
        }
    }

    /// Its head is sent with its first event, not before.
    pub fn holds_head(&self) -> bool {
        match &self.0 {
            Form::Chunks { events, .. } => events.holds_head(),
            Form::Laid(_) => false,
        }
    }

    /// The fault by which the body ends without its end: the server gives up, and the connection with it.
    pub fn cut(&self) -> Option<CutKind> {
        match &self.0 {
            Form::Chunks { .. } => None,
            Form::Laid(events) => events.cut(),
        }
    }

    /// Ends choices with the step that is under way at a moment; nothing if they are over by then.
    pub(crate) fn abort(&mut self, now: Duration, choices: &[u32]) -> Option<Remains> {
        match &mut self.0 {
            Form::Chunks { events, .. } => {
                events.renewed(now, |plan, tracks| abort(plan, tracks, now, choices))
            }
            Form::Laid(events) => events.abort(now, choices),
        }
    }

    /// Says that the request never ran.
    pub(crate) fn silence(&mut self, now: Duration, finish: &Finish<'static>) -> Option<Remains> {
        match &mut self.0 {
            Form::Chunks { events, .. } => {
                events.renewed(now, |plan, tracks| silence(plan, tracks, now, finish))
            }
            Form::Laid(events) => events.silence(now, finish),
        }
    }

    /// Appends the events that are due by `now`, each as one HTTP chunk, until there are `room` bytes in
    /// all, and tells of each in `steps`.
    pub fn steps(&mut self, now: Duration, room: usize, out: &mut Vec<u8>, steps: &mut Vec<Step>) {
        let mut taking = Taking {
            now,
            out,
            room,
            steps,
        };
        while taking.has_room() {
            if let Form::Chunks { encoder, events } = &mut self.0 {
                events.texts(encoder, &mut taking);
            }
            if self.due().is_none_or(|due| due > now) {
                return;
            }
            taking.steps.extend(self.step(taking.out));
        }
    }

    /// Appends the next event as one HTTP chunk, the last with the end of the body.
    pub fn step(&mut self, out: &mut Vec<u8>) -> Option<Step> {
        let (encoder, events) = match &mut self.0 {
            Form::Chunks { encoder, events } => (encoder, events),
            Form::Laid(events) => return events.step(out),
        };
        let event = events.next()?;
        let mut bytes = 0;
        http1::write_chunk(out, |out| {
            let start = out.len();
            match &event.payload {
                Payload::Chunk(chunk) => encoder.event(chunk, out),
                Payload::Done => out.extend_from_slice(sse::DONE),
                Payload::KeepAlive => out.extend_from_slice(KEEP_ALIVE),
            }
            bytes = out.len() - start;
        });
        if event.kind == Kind::Done {
            out.extend_from_slice(http1::LAST_CHUNK);
        }
        Some(Step {
            due: event.due,
            kind: event.kind,
            index: event.index,
            tokens: event.tokens,
            bytes: u32::try_from(bytes).expect("an event is shorter than 4 GiB"),
        })
    }
}

/// Events that are taken together.
#[derive(Debug)]
struct Taking<'t> {
    now: Duration,
    out: &'t mut Vec<u8>,
    /// Bytes of the output that are enough.
    room: usize,
    steps: &'t mut Vec<Step>,
}

impl Taking<'_> {
    fn has_room(&self) -> bool {
        self.out.len() < self.room
    }

    /// Makes room for about so many more texts of a few bytes each.
    fn expect(&mut self, texts: usize, template: &Template) {
        let bytes = texts.saturating_mul(template.chunk_bytes(8));
        self.out.reserve(bytes.min(self.room - self.out.len()));
        self.steps.reserve(texts.min(MOST_EXPECTED));
    }
}

/// Steps that memory is taken for at once.
const MOST_EXPECTED: usize = 1 << 10;

/// What the layout of a stream depends on.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cache: Option<CachedTokens>,
    /// What an engine that died has said.
    pub(crate) dead: &'static str,
    /// The final message, said again before the answer to a chat.
    pub(crate) echo: Option<String>,
    pub(crate) endpoint: Endpoint,
    pub(crate) keep_alive: Option<Duration>,
    /// When all of it is due, whatever the pace, if it was given up.
    pub(crate) latest: Option<Duration>,
    /// The server's habits.
    pub(crate) manner: &'static Manner,
    pub(crate) pace: Pace,
    pub(crate) pauses: BTreeMap<u64, Duration>,
    pub(crate) prompt_tokens: u64,
    pub(crate) returns_token_ids: bool,
    pub(crate) role: Cow<'static, str>,
    pub(crate) usage: UsagePolicy,
}

impl CutKind {
    /// What a client is told of it.
    pub(crate) fn message(self, dead: &'static str) -> &'static str {
        match self {
            Self::Dead => dead,
            Self::GivenUp => "client disconnected",
            Self::Raise => "",
            Self::Abort | Self::Error | Self::Repetition => "Internal server error",
        }
    }
}

impl Plan {
    /// A chat's roles come with its text, and its finishes behind it.
    pub(crate) fn begins_late(&self) -> bool {
        self.endpoint == Endpoint::Chat && self.manner.roles == Roles::WithText
    }

    /// Steps without text make no chunk.
    pub(crate) fn skips_empty(&self) -> bool {
        self.begins_late()
    }

    /// When a step is due by which a choice has so many tokens.
    pub(crate) fn due(&self, step: usize, tokens: u64) -> Duration {
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        if self.pauses.is_empty() && self.latest.is_none() {
            return self.pace.due(step);
        }
        let waits = self.pauses.range(..tokens).map(|(_, wait)| *wait);
        let due = self.pace.due(step).saturating_add(waits.sum());
        self.latest.map_or(due, |latest| latest.min(due))
    }
}

/// When a whole answer is due.
pub(crate) fn whole_due(plan: &Plan, tracks: &[Track]) -> Duration {
    let steps = tracks.iter().map(|track| track.said.outputs.len()).max();
    let last = steps.unwrap_or(1).saturating_sub(1);
    let tokens = tracks.iter().map(|track| track.said.tokens).max();
    plan.due(last, tokens.unwrap_or(0))
}

/// The usage of all choices together.
pub(crate) fn total_usage(plan: &Plan, tracks: &[Track]) -> Usage {
    let tokens = tracks.iter().map(|track| track.said.tokens).sum();
    let reasoning = tracks
        .iter()
        .map(|track| track.reasoning_tokens.as_ref()?.last().copied());
    Usage {
        cache: plan.cache,
        reasoning_tokens: reasoning.sum(),
        ..Usage::new(plan.prompt_tokens, tokens)
    }
}

pub(crate) fn index(track: usize) -> u32 {
    u32::try_from(track).expect("choices are few")
}
