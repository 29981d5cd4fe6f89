//! How late this machine wakes who waits for a time, while something else runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::Instant;

/// Short beside the times that are measured, and long beside what a look costs.
const NAP: Duration = Duration::from_millis(1);

/// A thread that waits over and over.
#[derive(Debug)]
pub(super) struct Witness {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Witness {
    /// Begins to look.
    pub(super) fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut latest = Duration::ZERO;
            while !seen.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(NAP);
                latest = latest.max(before.elapsed().saturating_sub(NAP));
            }
            latest
        });
        Self { over, thread }
    }

    /// By how much it was woken late at most, in nanoseconds.
    pub(super) fn latest_ns(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        let latest = self.thread.join().expect("it does not panic");
        u64::try_from(latest.as_nanos()).unwrap_or(u64::MAX)
    }
}
