//! A timer of the kernel that a thread waits for as it does for a socket.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::task::Waker;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::time::Instant;

use crate::tasks::News;

/// Goes off once each time it is set.
#[derive(Debug)]
pub(super) struct Alarm(OwnedFd);

#[expect(clippy::unused_self, reason = "the other needs it")]
impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Lets a task be told when it goes off.
    pub(super) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(
            &mut SourceFd(&self.0.as_raw_fd()),
            token,
            Interest::READABLE,
        )
    }

    /// Lets it go off at a moment, and at none that was set before.
    pub(super) fn set(&self, at: Instant) -> io::Result<()> {
        // A time of nothing would switch it off.
        let left = at.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_or(FAR, |left| left);
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: left.max(SOON),
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Whether it has gone off. Its count is not read: to set it starts it anew.
    pub(super) fn went_off(&self, news: &News, _: &Waker) -> bool {
        let has = news.is_readable();
        news.was_drained();
        has
    }

    /// Waiting needs no limit.
    pub(super) fn patience(&self) -> Option<Duration> {
        None
    }
}

const SOON: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1,
};
/// A year, far behind the end of any wait.
const FAR: Timespec = Timespec {
    tv_sec: 31_536_000,
    tv_nsec: 0,
};
