//! A limit to how long a thread waits for its sockets, where the kernel has no timer to wait for.

use std::cell::{Cell, RefCell};
use std::io;
use std::task::Waker;
use std::time::Duration;

use mio::{Registry, Token};
use tokio::time::Instant;

use crate::tasks::News;

/// Goes off once each time it is set.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    at: Cell<Option<Instant>>,
    waker: RefCell<Option<Waker>>,
}

#[expect(clippy::unnecessary_wraps, reason = "the other can fail")]
impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    /// The thread's own wait ends in time.
    pub(super) fn register(&self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    /// Lets it go off at a moment, and at none that was set before.
    pub(super) fn set(&self, at: Instant) -> io::Result<()> {
        self.at.set(Some(at));
        Ok(())
    }

    /// Whether it has gone off.
    pub(super) fn went_off(&self, _: &News, waker: &Waker) -> bool {
        let has = self.at.get().is_some_and(|at| at <= Instant::now());
        if has {
            self.at.set(None);
        }
        self.waker.replace(Some(waker.clone()));
        has
    }

    /// How long the thread may wait.
    pub(super) fn patience(&self) -> Option<Duration> {
        let left = self.at.get()?.saturating_duration_since(Instant::now());
        if left.is_zero()
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
        Some(left)
    }
}
