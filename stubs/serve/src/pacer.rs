//! Waiting for moments: all deadlines of a worker behind one timer of the kernel, since those of tokio
//! are a millisecond late.

mod deadlines;
#[cfg(not(target_os = "linux"))]
mod sleep;
#[cfg(target_os = "linux")]
mod timerfd;

use std::cell::{Cell, RefCell};
use std::io;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use deadlines::{Deadlines, Key};
#[cfg(not(target_os = "linux"))]
use sleep::Alarm;
#[cfg(target_os = "linux")]
use timerfd::Alarm;

/// A worker's deadlines.
#[derive(Debug)]
pub(crate) struct Pacer {
    alarm: Alarm,
    /// When the alarm goes off, if it does.
    armed: Cell<Option<Instant>>,
    deadlines: RefCell<Deadlines<Waker>>,
}

impl Pacer {
    /// One for the runtime that is entered.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            alarm: Alarm::new()?,
            armed: Cell::new(None),
            deadlines: RefCell::default(),
        })
    }

    /// Wakes whoever's moment has come, for ever.
    pub(crate) async fn run(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            while self.alarm.poll(cx)?.is_ready() {
                self.armed.set(None);
                self.wake_due();
                let next = self.deadlines.borrow().next();
                if let Some(next) = next {
                    self.arm(next)?;
                }
            }
            Poll::Pending
        })
        .await
    }

    fn wake_due(&self) {
        let now = Instant::now();
        let due = || self.deadlines.borrow_mut().pop_due(now);
        while let Some(waker) = due() {
            waker.wake();
        }
    }

    fn arm(&self, at: Instant) -> io::Result<()> {
        self.alarm.set(at)?;
        self.armed.set(Some(at));
        Ok(())
    }

    fn insert(&self, at: Instant, waker: Waker) -> io::Result<Key> {
        let key = self.deadlines.borrow_mut().insert(at, waker);
        // One that goes off too early finds nothing due and is set again.
        if self.armed.get().is_none_or(|armed| at < armed) {
            self.arm(at)?;
        }
        Ok(key)
    }
}

/// One who waits; dropped, nobody does any more.
#[derive(Debug)]
pub(crate) struct Wait<'p> {
    key: Option<Key>,
    pacer: &'p Pacer,
}

impl<'p> Wait<'p> {
    /// One who waits for nothing yet.
    pub(crate) fn new(pacer: &'p Pacer) -> Self {
        Self { key: None, pacer }
    }

    /// Whether a moment has come; if not, the task is woken then or before. The moment may be another
    /// each time, but no earlier than one that is still to come.
    pub(crate) fn poll(&mut self, at: Instant, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let now = Instant::now();
        if at <= now {
            self.cancel();
            return Poll::Ready(Ok(()));
        }
        if self.key.is_none_or(|key| key.at() <= now) {
            self.cancel();
            self.key = Some(self.pacer.insert(at, cx.waker().clone())?);
        }
        Poll::Pending
    }

    /// Until a moment has come.
    pub(crate) async fn until(mut self, at: Instant) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll(at, cx)).await
    }

    fn cancel(&mut self) {
        if let Some(key) = self.key.take() {
            self.pacer.deadlines.borrow_mut().remove(key);
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.cancel();
    }
}
