//! What stands behind all text of a stream: finishes, usage, `[DONE]`, or the error in their place.

use wire::chunk::{Choice, Chunk};

use super::events::{Event, Events, Payload, Stage};
use super::track::Track;
use super::{Kind, index, total_usage};
use crate::script::CutKind;

impl Events {
    /// The next event, all text being told.
    pub(super) fn behind_texts(&mut self) -> Option<Event> {
        loop {
            match self.stage {
                Stage::Finish { step, number } if number < self.ended.len() => {
                    self.stage = Stage::Finish {
                        step,
                        number: number + 1,
                    };
                    return Some(self.finish(step, number));
                }
                Stage::Finish { step, .. } => {
                    self.stage = Stage::Usage { step };
                    if let Some(extension) = self.extension(step) {
                        return Some(extension);
                    }
                }
                Stage::Error { step, fault } => {
                    self.stage = Stage::Done { step };
                    return Some(self.error(step, fault));
                }
                Stage::Usage { step } => {
                    self.stage = Stage::Done { step };
                    if self.plan.usage.is_told_at_end() {
                        return Some(self.usage(step));
                    }
                }
                Stage::Done { step } => {
                    self.stage = Stage::Over;
                    return Some(self.event(step, Kind::Done, Payload::Done));
                }
                _ => return None,
            }
        }
    }

    fn extension(&mut self, step: usize) -> Option<Event> {
        let chunk = Chunk {
            extension: Some(self.extension.take()?),
            origin: self.last_to_end(),
            ..Chunk::default()
        };
        Some(self.event(step, Kind::Usage, Payload::Chunk(chunk.into())))
    }

    /// The end of the choice that is number so and so to end.
    fn finish(&mut self, step: usize, number: usize) -> Event {
        let track = &mut self.tracks[self.ended[number]];
        let tokens = std::mem::take(&mut track.untold);
        let finish = track.voice.finish(&track.said.finish);
        let own = index(self.ended[number]);
        let chunk = Chunk {
            choices: vec![Choice {
                finish: Some(finish),
                index: own,
                ..Choice::default()
            }],
            origin: self.last_to_end(),
            ..Chunk::default()
        };
        let event = self.event(step, Kind::Finish, Payload::Chunk(chunk.into()));
        Event {
            index: Some(own),
            tokens,
            ..event
        }
    }

    /// The choice whose id the chunks behind all text have.
    fn last_to_end(&self) -> u32 {
        let steps = |track: &Track| track.said.outputs.len();
        let tracks = self.tracks.iter().enumerate();
        let last = tracks.max_by_key(|(_, track)| steps(track));
        last.map_or(0, |(number, _)| index(number))
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
            origin: self.last_to_end(),
            ..Chunk::default()
        };
        self.event(step, Kind::Usage, Payload::Chunk(chunk.into()))
    }
}
