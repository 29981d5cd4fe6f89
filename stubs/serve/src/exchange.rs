//! One request and its answer: decided, then sent as it falls due.

mod attend;
mod begin;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use plan::reply::{Body, Rendered};
use plan::script::CutKind;
use plan::{Step, Timeline};
use tokio::time::Instant;
use wire::dialect::Content;
use wire::http1::Chunking;

use crate::connection::Connection;
use crate::local::Phase;
use crate::metrics::{Asked, Progress, nanoseconds};
use crate::truth::{Chunk, Ended, Record};
use crate::worker::Worker;

pub(crate) use begin::Arrived;

use attend::Watch;

/// Bytes that are gathered before they are written although more is due.
const WRITE: usize = 256 << 10;
/// A rendered body up to this is copied behind the head, which costs less than a second part of a write;
/// near 32 KiB both cost the same.
const COPY: usize = 32 << 10;
/// Bytes up to which an answer waits for others that are decided, to be written with them.
const SHORT: usize = 8 << 10;
/// A wait that is as good as endless.
const NEVER: Duration = Duration::from_secs(1 << 31);
/// A buffer above this is given back after the exchange that needed it.
const KEEP: usize = 2 * WRITE;

/// Whether the connection serves another request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// It does not.
    Close,
    /// It may.
    KeepAlive,
}

/// What an exchange waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Next {
    /// Nothing: all is sent.
    Over,
    /// More is due, but others shall have their turn.
    Turn,
    /// The moment when more is due.
    Wait(Instant),
    /// The client, which takes no more for now.
    Write,
}

/// Bytes to be written, and what they are.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    steps: Vec<Step>,
    written: usize,
}

/// An answer on its way.
pub(crate) struct Exchange {
    /// What the server's own counters are told, unless the bytes were no HTTP.
    asked: Option<Asked>,
    /// What follows what was put into the output already.
    body: Body,
    /// The fault that leaves the answer without its end.
    cut: Option<CutKind>,
    /// How the chunks of a stream are framed.
    chunking: Chunking,
    /// From the request's turn to when the clock was last read.
    elapsed: Duration,
    is_blocked: bool,
    is_head: bool,
    outcome: Outcome,
    output: Output,
    progress: Progress,
    /// When the request had its turn, which most have as they come: moments are counted from here.
    begun: Instant,
    /// How long it waited for that.
    waited: Duration,
    /// A body that is written behind the output from where it lies, and how far it is.
    rendered: Option<(Arc<Rendered>, usize)>,
    truth: Option<Box<Record>>,
    /// What others may do to the request, until it is over.
    watch: Option<Box<Watch>>,
}

impl Exchange {
    /// Sends what is due, as far as the client takes it at once.
    pub(crate) fn advance(&mut self, connection: &Connection<'_>) -> io::Result<Next> {
        let worker = connection.worker;
        if self.is_blocked {
            self.write(connection)?;
            if self.settle(worker, Next::Turn) == Next::Write {
                return Ok(Next::Write);
            }
        }
        if self.output.bytes.is_empty() {
            self.output = worker.take_output();
        }
        let next = loop {
            let next = self.fill(worker);
            self.write(connection)?;
            match self.settle(worker, next) {
                Next::Wait(until) if until <= self.begun + self.elapsed => {}
                next => break next,
            }
        };
        if next != Next::Over {
            self.rest(worker);
        }
        Ok(next)
    }

    /// Keeps no more room than it needs while it waits.
    pub(crate) fn rest(&mut self, worker: &Worker) {
        let waiting = self.output.rest();
        worker.give_output(std::mem::replace(&mut self.output, waiting));
    }

    /// When it ended.
    pub(crate) fn ended(&self) -> Instant {
        self.begun + self.elapsed
    }

    /// Files the record of an exchange that is over, however it ended.
    pub(crate) fn end(
        &mut self,
        connection: &Connection<'_>,
        sent: io::Result<()>,
    ) -> io::Result<Outcome> {
        let worker = connection.worker;
        worker.give_output(std::mem::take(&mut self.output));
        self.progress.end(&worker.counters);
        if sent.is_err() {
            self.elapsed = self.begun.elapsed();
        }
        if let Some(asked) = &self.asked {
            let elapsed = nanoseconds(self.waited + self.elapsed);
            worker.counters.count_http(asked, elapsed);
        }
        if let (Some(truth), Some(mut record)) = (&worker.shared.truth, self.truth.take()) {
            record.ended = match sent {
                Ok(()) => self.cut.map_or(Ended::Done, Ended::Fault),
                Err(_) if connection.local.phase() == Phase::Stopping => Ended::Drain,
                Err(_) => Ended::ClientAbort,
            };
            truth.put(*record);
        }
        sent.map(|()| self.outcome)
    }

    /// Puts what is due into the output; says what comes behind it.
    pub(crate) fn fill(&mut self, worker: &Worker) -> Next {
        if self.watch.is_some() && !self.attend(worker) {
            return Next::Wait(self.begun + NEVER);
        }
        let next = self.fill_body(worker);
        if next == Next::Over {
            // Its name is free and the next has its turn before the client can tell.
            self.watch = None;
        }
        next
    }

    fn fill_body(&mut self, worker: &Worker) -> Next {
        match std::mem::replace(&mut self.body, Body::Empty) {
            Body::Empty | Body::HeadAlone(_) => Next::Over,
            Body::Rendered(mut rendered) => {
                let mut written = 0;
                let is_stream = rendered.content == Content::Stream;
                let reframes = is_stream && self.chunking != Chunking::Lower;
                if rendered.bytes.len() <= COPY || reframes {
                    let start = self.output.bytes.len();
                    self.output.bytes.extend_from_slice(&rendered.bytes);
                    written = rendered.bytes.len();
                    if reframes {
                        self.chunking.apply(&mut self.output.bytes, start);
                    }
                    if let Some(own) = Arc::get_mut(&mut rendered) {
                        std::mem::swap(&mut own.steps, &mut self.output.steps);
                        worker.context.borrow_mut().give_back(rendered);
                        return Next::Over;
                    }
                }
                self.rendered = Some((rendered, written));
                Next::Over
            }
            Body::Stream(timeline) => self.fill_from(timeline),
            Body::Whole(whole) if !self.is_due(whole.due) => {
                let until = self.moment(whole.due);
                self.body = Body::Whole(whole);
                Next::Wait(until)
            }
            Body::Whole(whole) => {
                if !self.is_head {
                    self.output.bytes.extend_from_slice(&whole.bytes);
                }
                self.output.steps.push(whole.step());
                Next::Over
            }
        }
    }

    fn fill_from(&mut self, mut timeline: Box<Timeline>) -> Next {
        while let Some(due) = timeline.due() {
            let next = if !self.is_due(due) {
                Next::Wait(self.moment(due))
            } else if self.output.bytes.len() >= WRITE {
                Next::Turn
            } else {
                let output = &mut self.output;
                let start = output.bytes.len();
                timeline.steps(self.elapsed, WRITE, &mut output.bytes, &mut output.steps);
                self.chunking.apply(&mut output.bytes, start);
                continue;
            };
            self.body = Body::Stream(timeline);
            return next;
        }
        self.cut = timeline.cut();
        if self.cut.is_some() {
            self.outcome = Outcome::Close;
        }
        Next::Over
    }

    fn is_due(&mut self, due: Duration) -> bool {
        if due > self.elapsed {
            self.elapsed = self.begun.elapsed();
        }
        due <= self.elapsed
    }

    fn moment(&self, due: Duration) -> Instant {
        let moment = self.begun.checked_add(due);
        moment.unwrap_or_else(|| self.begun + NEVER)
    }

    /// Writes what stands in the output, as far as the client takes it, and notes when that was.
    pub(crate) fn write(&mut self, connection: &Connection<'_>) -> io::Result<()> {
        if self.is_early() {
            return Ok(());
        }
        self.is_blocked = false;
        loop {
            let front = &self.output.bytes[self.output.written..];
            let back = self.rendered.as_ref();
            let back = back.map_or(&[][..], |(rendered, written)| &rendered.bytes[*written..]);
            if front.is_empty() && back.is_empty() {
                break;
            }
            let count = match connection.stream.try_write(front, back) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    break;
                }
                Err(error) => return Err(error),
            };
            let in_front = count.min(front.len());
            self.output.written += in_front;
            if let Some((_, written)) = &mut self.rendered {
                *written += count - in_front;
            }
            if let Some(record) = &mut self.truth {
                record.bytes += count as u64;
            }
        }
        if self.has_output() {
            self.elapsed = self.begun.elapsed();
        }
        Ok(())
    }

    /// What is sent whole waits for its moment with its head.
    fn is_early(&self) -> bool {
        match &self.body {
            Body::Whole(_) => true,
            Body::Stream(timeline) => timeline.holds_head() && self.output.steps.is_empty(),
            Body::Rendered(rendered) => rendered.content != Content::Stream,
            Body::Empty | Body::HeadAlone(_) => false,
        }
    }

    /// Whether little is to be written.
    pub(crate) fn is_short(&self) -> bool {
        let rendered = self.rendered.as_ref();
        let rendered = rendered.map_or(0, |(rendered, written)| rendered.bytes.len() - written);
        self.output.bytes.len() + rendered <= SHORT
    }

    fn has_output(&self) -> bool {
        self.rendered.is_some() || !self.output.bytes.is_empty()
    }

    /// Counts what was written; says what is to be waited for where `next` comes behind it.
    pub(crate) fn settle(&mut self, worker: &Worker, next: Next) -> Next {
        if self.is_blocked {
            return Next::Write;
        }
        if self.has_output() && !self.is_early() {
            self.wrote(worker);
        }
        next
    }

    fn wrote(&mut self, worker: &Worker) {
        let rendered = self.rendered.take();
        let steps = match &rendered {
            None => &self.output.steps,
            Some((rendered, _)) => &rendered.steps,
        };
        let timed = steps.iter().filter(|step| !step.due.is_zero());
        for step in timed {
            let late = self.elapsed.saturating_sub(step.due);
            worker.counters.count_late(late);
        }
        self.progress.wrote(&worker.counters, steps, self.elapsed);
        if let Some(record) = &mut self.truth {
            let written = worker.shared.ns(self.begun + self.elapsed);
            let begun = worker.shared.ns(self.begun);
            let chunk = |step: &Step| Chunk::new(step, begun, written);
            record.chunks.extend(steps.iter().map(chunk));
        }
        self.output.clear();
        if let Some((rendered, _)) = rendered {
            worker.context.borrow_mut().give_back(rendered);
        }
    }
}

impl Output {
    fn clear(&mut self) {
        self.bytes.clear();
        self.steps.clear();
        self.written = 0;
    }

    /// What is not written, in no more room than it needs.
    fn rest(&self) -> Self {
        Self {
            bytes: self.bytes[self.written..].to_vec(),
            steps: self.steps.clone(),
            written: 0,
        }
    }

    /// Room for another exchange.
    pub(crate) fn emptied(mut self) -> Self {
        if self.bytes.capacity() > KEEP {
            return Self::default();
        }
        self.clear();
        self
    }
}
