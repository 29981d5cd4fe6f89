//! A turn: from what is asked to its one last line.

use std::sync::Arc;
use std::time::Duration;

use wire::worker_lines::{Done, Generate, LineError, Segment, Wishes, failed, token};

use super::hold::Hold;
use super::settings::{Cost, Timing, milliseconds};
use super::talk::{FailAt, Talk};
use super::{Host, Played, Stop, Worker};

/// Tokens of an answer without a limit, if the model has no window.
const UNLIMITED: u64 = 2048;

/// A turn that does not get to its `done`.
enum Ended {
    /// It ends with this line.
    Line(String),
    /// The worker ends with it.
    Stopped(Stop),
}

impl Ended {
    fn failed(text: &str) -> Self {
        Self::Line(failed(text))
    }
}

impl From<LineError> for Ended {
    fn from(error: LineError) -> Self {
        Self::failed(&error.to_string())
    }
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

/// A prompt and what is said to it.
struct Asked {
    ids: Vec<i64>,
    /// Most tokens to decode.
    limit: u64,
    stop: Vec<String>,
    talk: Arc<Talk>,
}

/// What was decoded.
struct Decoded {
    cancelled: bool,
    finish_reason: &'static str,
    ids: Vec<i64>,
    /// Dropped behind a stop string, so that the ids are not what was said.
    trimmed: bool,
}

/// Time as it passes in a turn.
struct Clock<'h, H> {
    elapsed: Duration,
    host: &'h mut H,
}

impl<H: Host> Clock<'_, H> {
    fn pass(&mut self, time: Duration) {
        self.host.pass(time);
        self.elapsed += time;
    }

    fn write(&mut self, text: &[u8]) -> Result<(), Stop> {
        if text.is_empty() {
            return Ok(());
        }
        self.host.write(token(text).as_bytes())
    }
}

impl Worker {
    /// Plays a turn and writes its last line.
    pub(super) fn generate(&mut self, ask: &Generate, host: &mut impl Host) -> Result<(), Stop> {
        self.cancels.hear(&host.control());
        let ended = self.turn(ask, host);
        self.cancels.finish();
        match ended {
            Ok(line) | Err(Ended::Line(line)) => host.write(line.as_bytes()),
            Err(Ended::Stopped(stop)) => Err(stop),
        }
    }

    fn turn(&mut self, ask: &Generate, host: &mut impl Host) -> Result<String, Ended> {
        let number = self.number(ask)?;
        let id = &ask.session_id()?;
        let admitted = self.sessions.admit(id);
        admitted.map_err(|refusal| Ended::Line(refusal.line(id)))?;
        if let Some(number) = number {
            self.cancels.begin(number);
        }
        let asked = self.asked(ask.wishes()?)?;
        let changes = asked.talk.quirks.done();
        let done = self.run(id, &asked, host);
        if done.is_err() {
            self.sessions.of_turn(id).dirty = true;
        }
        Ok(done?.line(&changes))
    }

    /// The number under which the turn can be cancelled.
    fn number(&self, ask: &Generate) -> Result<Option<u64>, Ended> {
        if ask.is_cancellable() && !self.supports_cancel {
            return Err(Ended::failed("cancel_request_id is not supported"));
        }
        match ask.cancel_request_id()? {
            Some(id) if !self.cancels.allows(id) => {
                Err(Ended::failed("cancel_request_id is stale or duplicate"))
            }
            number => Ok(number),
        }
    }

    fn asked(&self, wishes: Wishes) -> Result<Asked, Ended> {
        let (mut ids, mut text) = (Vec::new(), String::new());
        for segment in wishes.prompt {
            match segment {
                Segment::Ids(more) => ids.extend(more),
                Segment::Text(more) => {
                    let encoded = self.tokenizer.vocab.encode(&more, false);
                    ids.extend(encoded.into_iter().map(i64::from));
                    text.push_str(&more);
                }
            }
        }
        if ids.is_empty() {
            return Err(Ended::failed("empty prompt"));
        }
        let room = match self.settings.window {
            Some(window) => match window.saturating_sub(ids.len() as u64) {
                0 => {
                    let text = "prompt fills the context window; no room to generate";
                    return Err(Ended::failed(text));
                }
                room => Some(room),
            },
            None => None,
        };
        let wanted = u64::try_from(wishes.max_new_tokens).unwrap_or(0);
        let limit = match (wanted, room) {
            (0, room) => room.unwrap_or(UNLIMITED),
            (wanted, room) => wanted.min(room.unwrap_or(wanted)),
        };
        let Played::Talks(talks) = &self.played else {
            unreachable!("a recording reads no turns");
        };
        Ok(Asked {
            ids,
            limit,
            stop: wishes.stop,
            talk: talks.talk(&text),
        })
    }

    /// Whether the engine fails there in this turn.
    fn fails(&mut self, talk: &Talk, at: FailAt) -> Option<u64> {
        let fail = talk.quirks.fail.as_ref().filter(|fail| fail.at == at)?;
        let failures = self.failures.entry(talk.name.clone()).or_default();
        if fail.times.is_some_and(|times| *failures >= times) {
            return None;
        }
        *failures += 1;
        Some(fail.after)
    }

    fn run(&mut self, id: &str, asked: &Asked, host: &mut impl Host) -> Result<Done, Ended> {
        self.turns += 1;
        let settings = self.settings.clone();
        let mut cost = settings.cost(self.turns);
        let mut clock = Clock {
            elapsed: Duration::ZERO,
            host,
        };
        let plan = self.sessions.plan(id, &asked.ids, settings.warm_resume);
        if plan.reused == 0 {
            let fails = self.fails(&asked.talk, FailAt::Reset).is_some();
            if fails || settings.fail_reset {
                return Err(Ended::failed(FailAt::Reset.text()));
            }
            self.sessions.of_turn(id).reset();
        }
        if self.fails(&asked.talk, FailAt::Prefill).is_some() {
            return Err(Ended::failed(FailAt::Prefill.text()));
        }
        let prefilled = asked.ids.len() - plan.reused;
        clock.pass(cost.prefill(prefilled));
        let prefill = clock.elapsed;
        clock.pass(cost.bookkeeping());
        let noted = clock.elapsed;
        let decoded = self.decode(asked, &mut cost, &mut clock)?;
        let session = self.sessions.of_turn(id);
        session.dirty = decoded.cancelled || decoded.trimmed;
        session.resident.clone_from(&asked.ids);
        session.resident.extend(&decoded.ids);
        Ok(Done {
            cancelled: decoded.cancelled,
            completion_tokens: decoded.ids.len() as u64,
            decode_ms: milliseconds(clock.elapsed.saturating_sub(noted)),
            finish_reason: decoded.finish_reason,
            prefill_ms: milliseconds(match self.timing {
                Timing::Strict => prefill,
                Timing::Upstream => noted,
            }),
            // Rates are over these, never over the reused ones.
            prefilled_prompt_tokens: prefilled as u64,
            reused_prompt_tokens: plan.reused as u64,
            session_reset_reason: plan.reason,
            total_ms: milliseconds(clock.elapsed),
            generated_token_ids: (!session.dirty).then_some(decoded.ids),
        })
    }

    /// Decodes until the answer ends; the step that finds its end takes as long as any other.
    fn decode(
        &mut self,
        asked: &Asked,
        cost: &mut Cost<'_>,
        clock: &mut Clock<'_, impl Host>,
    ) -> Result<Decoded, Ended> {
        let talk = &*asked.talk;
        let quirks = &talk.quirks;
        let fails = self.fails(talk, FailAt::Decode);
        let looked_for = if quirks.ignore_stop {
            Vec::new()
        } else {
            asked.stop.clone()
        };
        let mut hold = Hold::new(looked_for);
        let mut decoded = Decoded {
            cancelled: false,
            finish_reason: "stop",
            ids: Vec::new(),
            trimmed: false,
        };
        loop {
            let count = decoded.ids.len() as u64;
            misbehave(talk, count, clock)?;
            decoded.cancelled = self.is_cancelled(talk, clock);
            if decoded.cancelled {
                break;
            }
            clock.pass(talk.pauses.get(&count).copied().unwrap_or_default());
            clock.pass(cost.decode());
            if fails == Some(count) {
                return Err(Ended::failed(FailAt::Decode.text()));
            }
            let Some((piece, id)) = talk.piece(count) else {
                decoded.cancelled = self.is_cancelled(talk, clock);
                break;
            };
            decoded.ids.push(id);
            let released = hold.push(piece);
            let is_last = count + 1 >= asked.limit;
            if is_last || released.stopped {
                // A frame that comes when the end is reached is too late, even for this line.
                decoded.cancelled = self.is_cancelled(talk, clock);
            }
            clock.write(&released.text)?;
            if released.stopped {
                decoded.trimmed = true;
                return Ok(decoded);
            }
            if is_last {
                misbehave(talk, count + 1, clock)?;
                decoded.finish_reason = if decoded.cancelled { "stop" } else { "length" };
                break;
            }
        }
        clock.write(&hold.rest())?;
        Ok(decoded)
    }

    /// Whether the turn has been cancelled by now.
    fn is_cancelled(&mut self, talk: &Talk, clock: &mut Clock<'_, impl Host>) -> bool {
        self.cancels.hear(&clock.host.control());
        self.cancels.is_cancelled() && !talk.quirks.ignore_cancel
    }
}

/// What a script does behind so many tokens beside decoding.
fn misbehave(talk: &Talk, count: u64, clock: &mut Clock<'_, impl Host>) -> Result<(), Stop> {
    for inject in &talk.quirks.inject {
        if inject.after == count {
            clock.host.write(&inject.line.0)?;
        }
    }
    match &talk.quirks.exit {
        Some(exit) if exit.after == count => Err(Stop(exit.code)),
        _ => Ok(()),
    }
}
