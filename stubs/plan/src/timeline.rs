//! An answer as timed bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wire::chunk::{Choice, Chunk, Delta, TokenLogprob};
use wire::dialect::{Encoder, Field};
use wire::http1;
use wire::request::{Endpoint, UsagePolicy};
use wire::sse;
use wire::usage::{CachedTokens, Usage};

use crate::generate::{Output, Said};
use crate::layout::Laid;
use crate::pace::Pace;
use crate::script::CutKind;
use crate::voice::Voice;

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
    /// The role.
    Role,
    /// Tool calls.
    Tool,
    /// Usage alone.
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
    Chunks {
        encoder: Encoder,
        events: Peekable<Events>,
    },
    /// Events of a layout of its own.
    Laid(Laid),
}

impl Timeline {
    pub(crate) fn new(encoder: Encoder, events: Events) -> Self {
        Self(Form::Chunks {
            encoder,
            events: events.peekable(),
        })
    }

    /// A stream of a layout of its own.
    pub(crate) fn laid(events: Laid) -> Self {
        Self(Form::Laid(events))
    }

    /// When the next event is due; `None` behind the last.
    pub fn due(&mut self) -> Option<Duration> {
        match &mut self.0 {
            Form::Chunks { events, .. } => events.peek().map(|event| event.due),
            Form::Laid(events) => events.due(),
        }
    }

    /// The body ends without its end: the server gives up, and the connection with it.
    pub fn is_cut(&self) -> bool {
        matches!(&self.0, Form::Laid(events) if events.is_cut())
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
                Payload::Text { index, said, range } => {
                    encoder.text(*index, Field::Content, &said.text[range.clone()], out);
                }
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

/// What an event writes.
#[derive(Debug)]
enum Payload {
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
    due: Duration,
    kind: Kind,
    index: Option<u32>,
    tokens: u32,
    payload: Payload,
}

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
    pub(crate) pace: Pace,
    pub(crate) pauses: BTreeMap<u64, Duration>,
    pub(crate) prompt_tokens: u64,
    pub(crate) returns_token_ids: bool,
    pub(crate) role: Cow<'static, str>,
    pub(crate) usage: UsagePolicy,
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
    tokens: u64,
    /// Tokens of steps that made no chunk.
    untold: u32,
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

    /// Where the text of a step stands, if its chunk has nothing but content that no parser touches.
    fn plain(&mut self, step: usize, plan: &Plan) -> Option<Range<usize>> {
        let output = *self.said.outputs.get(step)?;
        let is_plain = step + 1 < self.said.outputs.len()
            && self.voice.is_plain()
            && self.logprobs.is_none()
            && self.opening.is_none()
            && !plan.returns_token_ids
            && plan.usage != UsagePolicy::Continuous;
        is_plain.then(|| self.show(output).text_end..output.text_end)
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
        let text = &self.said.text[before.text_end..output.text_end];
        let ids = before.ids_end..output.ids_end;
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

    /// When a step is due by which a choice has so many tokens.
    fn due(&self, step: usize, tokens: u64) -> Duration {
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        self.plan.pace.due(step) + pause(&self.plan.pauses, tokens)
    }

    /// An event behind all text so far.
    fn event(&self, step: usize, kind: Kind, payload: Payload) -> Event {
        let tokens = self.tracks.iter().map(|track| track.tokens).max();
        Event {
            due: self.due(step, tokens.unwrap_or(0)),
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
            due: self.due(0, 1),
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
                due: self.due(step, total),
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
            due: self.due(step, total),
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

impl CutKind {
    /// What a client is told of it.
    pub(crate) fn message(self, dead: &'static str) -> &'static str {
        match self {
            Self::Dead => dead,
            Self::Raise => "",
            Self::Abort | Self::Error | Self::Repetition => "Internal server error",
        }
    }
}

/// The waits before the first so many tokens.
pub(crate) fn pause(pauses: &BTreeMap<u64, Duration>, tokens: u64) -> Duration {
    pauses.range(..tokens).map(|(_, wait)| *wait).sum()
}

/// When a whole answer is due.
pub(crate) fn whole_due(plan: &Plan, tracks: &[Track]) -> Duration {
    let steps = tracks.iter().map(|track| track.said.outputs.len()).max();
    let last = steps.unwrap_or(1).saturating_sub(1);
    let tokens = tracks.iter().map(|track| track.said.tokens()).max();
    let step = u32::try_from(last).unwrap_or(u32::MAX);
    plan.pace.due(step) + pause(&plan.pauses, tokens.unwrap_or(0))
}

/// The usage of all choices together.
pub(crate) fn total_usage(plan: &Plan, tracks: &[Track]) -> Usage {
    let tokens = tracks.iter().map(|track| track.said.tokens()).sum();
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
