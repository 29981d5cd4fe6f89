//! Sleep that ends within microseconds of its time, where tokio's is a millisecond late.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Clock;

pub(super) struct Timer {
    file: AsyncFd<OwnedFd>,
}

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let file = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types other than OwnedFd"
        )]
        let file = AsyncFd::with_interest(file, Interest::READABLE)?;
        Ok(Self { file })
    }

    /// Waits until the clock has reached a time, in nanoseconds from its start, and gives the time.
    pub(super) async fn wait_until(&mut self, clock: Clock, at: u64) -> io::Result<u64> {
        loop {
            let now = clock.now();
            let left = at.saturating_sub(now);
            if left == 0 {
                return Ok(now);
            }
            let once = Itimerspec {
                it_interval: Timespec::default(),
                it_value: Timespec::try_from(Duration::from_nanos(left))
                    .map_err(|_| io::ErrorKind::InvalidInput)?,
            };
            timerfd_settime(self.file.get_ref(), TimerfdTimerFlags::empty(), &once)?;
            // It need not be read: to set it again makes it unreadable, and the next time is news.
            self.file.readable().await?.clear_ready();
        }
    }
}
