//! CPU time of this process and of single threads.

use std::time::Duration;

use rustix::thread::Pid;
use rustix::time::{ClockId, clock_gettime};

/// CPU time of the whole process.
pub(crate) fn process() -> Duration {
    of(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread.
pub(crate) fn thread() -> Duration {
    of(ClockId::ThreadCPUTime)
}

fn of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

/// A thread whose CPU time can be asked for from anywhere in the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread(Pid);

impl Thread {
    /// The calling thread.
    pub(crate) fn current() -> Self {
        Self(rustix::thread::gettid())
    }

    /// Its CPU time; zero where the kernel tells none.
    pub(crate) fn time(self) -> Duration {
        self.scheduled(0).unwrap_or_default()
    }

    /// How long it could have run but waited for a core; nothing where the kernel tells none.
    pub(crate) fn wait(self) -> Option<Duration> {
        self.scheduled(1)
    }

    /// A field of Linux's scheduler statistics.
    fn scheduled(self, field: usize) -> Option<Duration> {
        let path = format!("/proc/self/task/{}/schedstat", self.0.as_raw_nonzero());
        let text = std::fs::read_to_string(path).ok()?;
        let nanoseconds = text.split_ascii_whitespace().nth(field)?.parse().ok()?;
        Some(Duration::from_nanos(nanoseconds))
    }
}
