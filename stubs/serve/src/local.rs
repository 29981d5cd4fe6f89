//! What the connections of one thread share.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::task::Poll;

use tokio::sync::watch;

use crate::pacer::Pacer;
use crate::tasks::{self, Tasks};

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
    pub(crate) tasks: Tasks,
    /// For what was read and is not used yet.
    buffers: RefCell<Vec<Vec<u8>>>,
    phase: Cell<Phase>,
}

impl Local {
    /// One for a thread, and what it waits with.
    pub(crate) fn new() -> io::Result<(Self, mio::Poll)> {
        let (tasks, poll) = Tasks::new()?;
        let local = Self {
            pacer: Pacer::new()?,
            input: RefCell::new(vec![0; READ].into()),
            buffers: RefCell::default(),
            tasks,
            phase: Cell::default(),
        };
        Ok((local, poll))
    }

    /// An empty buffer.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives a buffer back.
    pub(crate) fn give_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if (1..=READ).contains(&buffer.capacity()) && buffers.len() < tasks::BATCH {
            buffer.clear();
            buffers.push(buffer);
        }
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

    /// Follows the server's phase until the tasks of all connections have ended, and then ends the thread's.
    pub(crate) async fn end(&self, mut phase: watch::Receiver<Phase>) {
        self.turn(*phase.borrow_and_update());
        while !self.tasks.is_empty() {
            tokio::select! {
                () = self.tasks.ended() => {}
                changed = phase.changed(), if self.phase() < Phase::Stopping => {
                    // A server that was dropped waits for nothing.
                    let now = *phase.borrow_and_update();
                    self.turn(if changed.is_ok() { now } else { Phase::Stopping });
                }
            }
        }
        self.tasks.finish();
    }

    fn turn(&self, phase: Phase) {
        self.phase.set(phase);
        self.tasks.wake();
    }
}
