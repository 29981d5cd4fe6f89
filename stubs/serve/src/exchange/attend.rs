//! What others do to a request while it is answered: it gets its turn, or is given up.

use std::task::Waker;
use std::time::Duration;

use plan::Remains;
use plan::reply::Body;
use plan::under_way::{Ticket, Turn};
use tokio::time::Instant;
use wire::dialect::Content;
use wire::finish::FinishReason;

use super::Exchange;
use super::begin::Saved;
use crate::worker::Worker;

/// A request that others can see.
pub(super) struct Watch {
    /// Choices that were given up, as far as notice was taken.
    aborted: usize,
    /// To be written again if what is sent whole changes.
    head: Saved,
    is_waiting: bool,
    ticket: Ticket,
}

impl Watch {
    pub(super) fn new(ticket: Ticket, head: Saved) -> Self {
        Self {
            aborted: 0,
            head,
            is_waiting: false,
            ticket,
        }
    }
}

impl Exchange {
    /// Whether something happened to the request that has to be attended to; if not, what happens wakes.
    pub(crate) fn has_news(&self, waker: &Waker) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| watch.ticket.has_news(waker))
    }

    /// Takes notice of what happened; false while the request waits for its turn.
    pub(super) fn attend(&mut self, worker: &Worker) -> bool {
        let Some(watch) = &mut self.watch else {
            return true;
        };
        let (turn, aborted) = watch.ticket.look();
        let now = Instant::now();
        match turn {
            Turn::Waiting => {
                watch.is_waiting = true;
                self.progress.wait(&worker.counters);
                return false;
            }
            Turn::Now if std::mem::take(&mut watch.is_waiting) => {
                self.waited = now - self.begun;
                self.begun = now;
                self.progress.begin(&worker.counters, self.waited);
            }
            Turn::Never => self.progress.begin(&worker.counters, Duration::ZERO),
            Turn::Now => {}
        }
        if aborted.len() == watch.aborted {
            return true;
        }
        watch.aborted = aborted.len();
        self.elapsed = now - self.begun;
        let remains = match turn {
            Turn::Never => self.body.give_up(worker.stub.dialect, self.elapsed),
            Turn::Now | Turn::Waiting => self.body.abort(self.elapsed, &aborted),
        };
        if let Some(remains) = remains {
            self.cut_to(worker, &remains);
        }
        true
    }

    /// What was decided of the answer is so no more.
    fn cut_to(&mut self, worker: &Worker, remains: &Remains) {
        self.progress.cut(remains);
        if let (Some(watch), Body::Whole(whole)) = (&mut self.watch, &self.body) {
            let content = Content::Json(whole.bytes.len());
            let (_, date) = worker.date(Instant::now());
            self.output.bytes.clear();
            if let Some(status) = remains.status {
                watch.head.status = status;
            }
            watch
                .head
                .write(worker, content, &date, &mut self.output.bytes);
            if let Some(asked) = &mut self.asked {
                asked.response_bytes = whole.bytes.len() as u64;
                asked.status = remains.status.unwrap_or(asked.status);
            }
        }
        let Some(record) = &mut self.truth else {
            return;
        };
        record.status = remains.status.unwrap_or(record.status);
        let facts = &mut record.facts;
        if worker.stub.dialect.manner().fails_given_up {
            facts.finish_reason = None;
            facts.usage = None;
            return;
        }
        if remains.choices.iter().any(|choice| choice.index == 0) {
            facts.finish_reason = Some(FinishReason::Abort.as_str());
        }
        facts.usage = facts.usage.and(Some(remains.usage));
        facts.reasoning_tokens = facts.reasoning_tokens.and(remains.usage.reasoning_tokens);
    }
}
