//! An answer as timed bytes.

use std::borrow::Cow;
use std::iter::Peekable;
use std::time::Duration;

use wire::chunk::{Choice, Chunk, Delta};
use wire::dialect::Encoder;
use wire::finish::Finish;
use wire::http1;
use wire::request::{Endpoint, UsagePolicy};
use wire::sse;
use wire::usage::Usage;

use crate::generate::Said;
use crate::pace::Pace;
use crate::reasoning::{Split, Splitter};

/// What an event is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An answer that is not streamed.
    Body,
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

/// The events of one stream, encoded as they are asked for.
#[derive(Debug)]
pub struct Timeline {
    encoder: Encoder,
    events: Peekable<Events>,
}

impl Timeline {
    pub(crate) fn new(encoder: Encoder, events: Events) -> Self {
        Self {
            encoder,
            events: events.peekable(),
        }
    }

    /// When the next event is due; `None` behind the last.
    pub fn due(&mut self) -> Option<Duration> {
        self.events.peek().map(|event| event.due)
    }

    /// Appends the next event as one HTTP chunk, the last with the end of the body.
    pub fn step(&mut self, out: &mut Vec<u8>) -> Option<Step> {
        let event = self.events.next()?;
        let mut bytes = 0;
        http1::write_chunk(out, |out| {
            let start = out.len();
            match &event.chunk {
                Some(chunk) => self.encoder.event(chunk, out),
                None => out.extend_from_slice(sse::DONE),
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

/// A chunk with its time.
#[derive(Debug)]
pub(crate) struct Event {
    due: Duration,
    kind: Kind,
    index: Option<u32>,
    tokens: u32,
    /// `None` is `[DONE]`.
    chunk: Option<Chunk<'static>>,
}

/// What the layout of a stream depends on.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) endpoint: Endpoint,
    pub(crate) hides_reasoning: bool,
    pub(crate) pace: Pace,
    pub(crate) prompt_tokens: u64,
    pub(crate) returns_token_ids: bool,
    pub(crate) role: Cow<'static, str>,
    pub(crate) usage: UsagePolicy,
}

/// The chunks of a stream in order: roles, then step by step one for each choice, usage, `[DONE]`.
#[derive(Debug)]
pub(crate) struct Events {
    plan: Plan,
    tracks: Vec<Track>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Role(usize),
    Text { step: usize, track: usize },
    Usage { step: usize },
    Done { step: usize },
    Over,
}

/// One choice on its way.
#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) said: Said,
    pub(crate) splitter: Option<Splitter>,
    /// Tokens of reasoning by each step, where a parser counts them.
    pub(crate) reasoning_tokens: Option<Vec<u64>>,
    text_start: usize,
    ids_start: usize,
    tokens: u64,
    /// Tokens of steps that made no chunk.
    untold: u32,
}

impl Track {
    pub(crate) fn new(
        said: Said,
        splitter: Option<Splitter>,
        reasoning_tokens: Option<Vec<u64>>,
    ) -> Self {
        Self {
            said,
            splitter,
            reasoning_tokens,
            text_start: 0,
            ids_start: 0,
            tokens: 0,
            untold: 0,
        }
    }
}

impl Events {
    pub(crate) fn new(plan: Plan, tracks: Vec<Track>) -> Self {
        let stage = match plan.endpoint {
            Endpoint::Chat => Stage::Role(0),
            Endpoint::Completions => Stage::Text { step: 0, track: 0 },
        };
        Self {
            plan,
            tracks,
            stage,
        }
    }

    /// Steps of the longest choice.
    fn steps(&self) -> usize {
        let steps = self.tracks.iter().map(|track| track.said.outputs.len());
        steps.max().unwrap_or(0)
    }

    fn event(&self, step: usize, kind: Kind, chunk: Option<Chunk<'static>>) -> Event {
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        let choice = chunk.as_ref().and_then(|chunk| chunk.choices.first());
        Event {
            due: self.plan.pace.due(step),
            kind,
            index: choice.map(|choice| choice.index),
            tokens: 0,
            chunk,
        }
    }

    fn role(&self, track: usize) -> Event {
        let details = self.tracks[track].reasoning_tokens.as_ref().map(|_| 0);
        let chunk = Chunk {
            choices: vec![Choice {
                index: index(track),
                delta: Delta {
                    role: Some(self.plan.role.clone()),
                    content: Some("".into()),
                    ..Delta::default()
                },
                ..Choice::default()
            }],
            usage: self.running_usage(0, details),
            error: None,
        };
        self.event(0, Kind::Role, Some(chunk))
    }

    fn running_usage(&self, tokens: u64, reasoning_tokens: Option<u64>) -> Option<Usage> {
        (self.plan.usage == UsagePolicy::Continuous).then(|| Usage {
            reasoning_tokens,
            ..Usage::new(self.plan.prompt_tokens, tokens)
        })
    }

    /// The chunk of one choice's step, if it makes one.
    fn text(&mut self, step: usize, track_index: usize) -> Option<Event> {
        let track = &mut self.tracks[track_index];
        let output = *track.said.outputs.get(step)?;
        let is_last = step + 1 == track.said.outputs.len();
        let text = &track.said.text[track.text_start..output.text_end];
        let ids = &track.said.ids[track.ids_start..output.ids_end];
        let token_ids = self.plan.returns_token_ids.then(|| ids.to_vec());
        track.text_start = output.text_end;
        track.ids_start = output.ids_end;
        track.tokens += u64::from(output.tokens);
        track.untold += output.tokens;
        let split = match &mut track.splitter {
            None => Split {
                reasoning: None,
                content: Some(text.to_owned()),
            },
            Some(splitter) => splitter.feed(text, is_last),
        };
        let split = self.plan.shown(split, is_last);
        let says_nothing = split == Split::default();
        if says_nothing && !is_last && token_ids.is_none() {
            return None;
        }
        let tokens = std::mem::take(&mut track.untold);
        let total = track.tokens;
        let reasoning_tokens = track.reasoning_tokens.as_ref().map(|counts| counts[step]);
        let finish: Option<Finish<'static>> = is_last.then(|| track.said.finish.clone());
        let kind = match (is_last, &split.content) {
            (true, _) => Kind::Finish,
            (false, None) if split.reasoning.is_some() => Kind::Reasoning,
            (false, _) => Kind::Content,
        };
        let chunk = Chunk {
            choices: vec![Choice {
                index: index(track_index),
                delta: Delta {
                    content: split.content.map(Cow::Owned),
                    reasoning: split.reasoning.map(Cow::Owned),
                    ..Delta::default()
                },
                finish,
                token_ids,
            }],
            usage: self.running_usage(total, reasoning_tokens),
            error: None,
        };
        Some(Event {
            tokens,
            ..self.event(step, kind, Some(chunk))
        })
    }

    fn usage(&self, step: usize) -> Event {
        let chunk = Chunk {
            usage: Some(total_usage(self.plan.prompt_tokens, &self.tracks)),
            ..Chunk::default()
        };
        self.event(step, Kind::Usage, Some(chunk))
    }
}

impl Plan {
    /// What of a split shows to a request that may have hidden the reasoning.
    fn shown(&self, split: Split, is_last: bool) -> Split {
        if !self.hides_reasoning {
            return split;
        }
        let bare = |content: &String| is_last && content.is_empty();
        Split {
            reasoning: None,
            content: split.content.filter(|content| !bare(content)),
        }
    }
}

/// The usage of all choices together.
pub(crate) fn total_usage(prompt_tokens: u64, tracks: &[Track]) -> Usage {
    let tokens = tracks.iter().map(|track| track.said.tokens()).sum();
    let reasoning = tracks
        .iter()
        .map(|track| track.reasoning_tokens.as_ref()?.last().copied());
    Usage {
        reasoning_tokens: reasoning.sum(),
        ..Usage::new(prompt_tokens, tokens)
    }
}

fn index(track: usize) -> u32 {
    u32::try_from(track).expect("choices are few")
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            match self.stage {
                Stage::Role(track) if track < self.tracks.len() => {
                    self.stage = Stage::Role(track + 1);
                    return Some(self.role(track));
                }
                Stage::Role(_) => self.stage = Stage::Text { step: 0, track: 0 },
                Stage::Text { step, track } if track < self.tracks.len() => {
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
                Stage::Usage { step } => {
                    self.stage = Stage::Done { step };
                    if self.plan.usage != UsagePolicy::Omit {
                        return Some(self.usage(step));
                    }
                }
                Stage::Done { step } => {
                    self.stage = Stage::Over;
                    return Some(self.event(step, Kind::Done, None));
                }
                Stage::Over => return None,
            }
        }
    }
}
