//! What the connections of one thread share.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use tokio::sync::{Notify, watch};

use crate::pacer::Pacer;

/// Bytes asked of the kernel at a time.
const READ: usize = 64 << 10;

/// How far a server is in its life.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Phase {
    /// Accepting.
    #[default]
    Serving,
    /// Finishing what is in flight.
    Draining,
    /// Giving up what is in flight.
    Stopping,
}

/// A thread's pacer and buffer, and the tasks that are woken when the server's phase changes.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) pacer: Pacer,
    /// What is read comes here first, so that none who waits needs a buffer.
    pub(crate) input: RefCell<Box<[u8]>>,
    ended: Notify,
    phase: Cell<Phase>,
    tasks: RefCell<Tasks>,
}

impl Local {
    /// One for the runtime that is entered.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            pacer: Pacer::new()?,
            input: RefCell::new(vec![0; READ].into()),
            ended: Notify::default(),
            phase: Cell::default(),
            tasks: RefCell::default(),
        })
    }

    /// The server's phase; its change wakes all tasks.
    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// What a future gives, unless the server comes to a phase before.
    pub(crate) async fn unless<T>(
        &self,
        phase: Phase,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if self.phase() >= phase => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Follows the server's phase until all tasks have left.
    pub(crate) async fn end(&self, mut phase: watch::Receiver<Phase>) {
        self.turn(*phase.borrow_and_update());
        while !self.tasks.borrow().is_empty() {
            tokio::select! {
                () = self.ended.notified() => {}
                changed = phase.changed(), if self.phase() < Phase::Stopping => {
                    // A server that was dropped waits for nothing.
                    let now = *phase.borrow_and_update();
                    self.turn(if changed.is_ok() { now } else { Phase::Stopping });
                }
            }
        }
    }

    fn turn(&self, phase: Phase) {
        self.phase.set(phase);
        self.tasks.borrow().wake();
    }
}

/// A connection that is served, until it is dropped.
#[derive(Debug)]
pub(crate) struct Task {
    local: Rc<Local>,
    number: usize,
}

impl Task {
    /// One that is about to be spawned.
    pub(crate) fn new(local: &Rc<Local>) -> Self {
        let number = local.tasks.borrow_mut().insert(Waker::noop().clone());
        let local = Rc::clone(local);
        Self { local, number }
    }

    /// What it shares with others.
    pub(crate) fn local(&self) -> &Local {
        &self.local
    }

    /// Lets changes of the phase wake the calling task.
    pub(crate) async fn begin(&self) {
        std::future::poll_fn(|cx| {
            let waker = cx.waker().clone();
            self.local.tasks.borrow_mut().wakers[self.number] = Some(waker);
            Poll::Ready(())
        })
        .await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut tasks = self.local.tasks.borrow_mut();
        tasks.remove(self.number);
        if tasks.is_empty() {
            self.local.ended.notify_one();
        }
    }
}

/// Wakers by number.
#[derive(Debug, Default)]
struct Tasks {
    free: Vec<usize>,
    wakers: Vec<Option<Waker>>,
}

impl Tasks {
    fn insert(&mut self, waker: Waker) -> usize {
        if let Some(number) = self.free.pop() {
            self.wakers[number] = Some(waker);
            return number;
        }
        self.wakers.push(Some(waker));
        self.wakers.len() - 1
    }

    fn remove(&mut self, number: usize) {
        self.wakers[number] = None;
        self.free.push(number);
    }

    fn is_empty(&self) -> bool {
        self.wakers.len() == self.free.len()
    }

    fn wake(&self) {
        for waker in self.wakers.iter().flatten() {
            waker.wake_by_ref();
        }
    }
}
