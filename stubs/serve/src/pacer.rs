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
use std::time::Duration;

use mio::{Registry, Token};
use tokio::time::Instant;

use deadlines::{Deadlines, Key};
#[cfg(not(target_os = "linux"))]
use sleep::Alarm;
#[cfg(target_os = "linux")]
use timerfd::Alarm;

use crate::tasks::News;

/// A worker's deadlines.
#[derive(Debug)]
pub(crate) struct Pacer {
    alarm: Alarm,
    deadlines: RefCell<Deadlines<Waker>>,
    watch: Cell<Watch>,
}

/// How the earliest deadline is looked out for.
#[derive(Clone, Copy, Debug)]
enum Watch {
    /// There is none.
    Off,
    /// The alarm goes off then or before.
    Set(Instant),
    /// Those who were woken have their turn, and then the clock is looked at again.
    Turn,
}

impl Pacer {
    /// One without deadlines.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            alarm: Alarm::new()?,
            deadlines: RefCell::default(),
            watch: Cell::new(Watch::Off),
        })
    }

    /// Lets the task that runs it be told of its alarm.
    pub(crate) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        self.alarm.register(registry, token)
    }

    /// How long the thread may wait for anything else.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.alarm.patience()
    }

    /// Wakes whoever's moment has come, for ever.
    pub(crate) async fn run(&self, news: &News) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            // An alarm that is out of date does no harm: the clock says who is due.
            while self.alarm.went_off(news, cx.waker()) || matches!(self.watch.get(), Watch::Turn) {
                if self.wake_due() {
                    self.watch.set(Watch::Turn);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                self.watch.set(Watch::Off);
                let next = self.deadlines.borrow().next();
                if let Some(next) = next {
                    self.set(next)?;
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Whether there were any.
    fn wake_due(&self) -> bool {
        let now = Instant::now();
        let due = || self.deadlines.borrow_mut().pop_due(now);
        let mut were_any = false;
        while let Some(waker) = due() {
            waker.wake();
            were_any = true;
        }
        were_any
    }

    fn set(&self, at: Instant) -> io::Result<()> {
        self.alarm.set(at)?;
        self.watch.set(Watch::Set(at));
        Ok(())
    }

    fn insert(&self, at: Instant, waker: Waker) -> io::Result<Key> {
        let key = self.deadlines.borrow_mut().insert(at, waker);
        match self.watch.get() {
            Watch::Turn => {}
            Watch::Set(earlier) if earlier <= at => {}
            Watch::Off | Watch::Set(_) => self.set(at)?,
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

    /// Whether the task will be woken, where `now` has just been: spares a look at the clock.
    pub(crate) fn is_set(&self, now: Instant) -> bool {
        self.key.is_some_and(|key| key.at() > now)
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
