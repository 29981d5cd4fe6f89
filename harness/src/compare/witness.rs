//! How late this machine wakes who waits for a time, while something else runs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Short beside the times that are measured, and long beside what a look costs.
const NAP: Duration = Duration::from_millis(1);

/// A thread that waits over and over.
#[derive(Debug)]
pub(super) struct Witness {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Naps>,
}

/// When each wait ended by the wall clock, and by how much too late, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Naps(Vec<(u64, u64)>);

impl Witness {
    /// Begins to look.
    pub(super) fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut naps = Vec::new();
            while !seen.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(NAP);
                let late = before.elapsed().saturating_sub(NAP);
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                naps.push((nanoseconds(now.unwrap_or_default()), nanoseconds(late)));
            }
            Naps(naps)
        });
        Self { over, thread }
    }

    /// Ends and tells what it saw.
    pub(super) fn end(self) -> Naps {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

impl Naps {
    /// By how much a wait that touched this time was too long at most; of any time if none is named.
    pub(super) fn latest_ns(&self, during: Option<&Range<u64>>) -> u64 {
        let touches = |&&(end, late): &&(u64, u64)| {
            let begin = end.saturating_sub(late).saturating_sub(nanoseconds(NAP));
            during.is_none_or(|during| begin <= during.end && end >= during.start)
        };
        let naps = self.0.iter().filter(touches);
        naps.map(|(_, late)| *late).max().unwrap_or(0)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_within_the_time_count() {
        let naps = Naps(vec![
            (10_000_000, 900),
            (20_000_000, 50),
            (21_500_000, 70),
            (40_000_000, 800),
        ]);
        assert_eq!(naps.latest_ns(None), 900);
        assert_eq!(naps.latest_ns(Some(&(20_000_000..21_000_000))), 70);
        assert_eq!(naps.latest_ns(Some(&(39_100_000..39_200_000))), 800);
        assert_eq!(naps.latest_ns(Some(&(50_000_000..60_000_000))), 0);
    }
}
