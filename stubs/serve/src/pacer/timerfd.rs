//! A timer of the kernel that a runtime waits for as it does for a socket.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Goes off once each time it is set.
#[derive(Debug)]
pub(super) struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let file = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types other than OwnedFd"
        )]
        let file = AsyncFd::with_interest(file, Interest::READABLE)?;
        Ok(Self(file))
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
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Whether it has gone off. Its count is not read: to set it starts it anew.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_read_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
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
