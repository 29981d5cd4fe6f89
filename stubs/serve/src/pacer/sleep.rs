//! Tokio's timer, where the kernel has none that a runtime can wait for.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::time::{Instant, Sleep};

/// Goes off once each time it is set.
#[derive(Debug)]
pub(super) struct Alarm {
    is_set: Cell<bool>,
    sleep: RefCell<Pin<Box<Sleep>>>,
    waker: RefCell<Option<Waker>>,
}

impl Alarm {
    #[expect(clippy::unnecessary_wraps, reason = "the other can fail")]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            is_set: Cell::new(false),
            sleep: RefCell::new(Box::pin(tokio::time::sleep_until(Instant::now()))),
            waker: RefCell::default(),
        })
    }

    /// Lets it go off at a moment, and at none that was set before.
    #[expect(clippy::unnecessary_wraps, reason = "the other can fail")]
    pub(super) fn set(&self, at: Instant) -> io::Result<()> {
        self.is_set.set(true);
        self.sleep.borrow_mut().as_mut().reset(at);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
        Ok(())
    }

    /// Whether it has gone off.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        if !self.is_set.get() {
            return Poll::Pending;
        }
        ready!(self.sleep.borrow_mut().as_mut().poll(cx));
        self.is_set.set(false);
        Poll::Ready(Ok(()))
    }
}
