//! A worker's surroundings: what it writes to, who cancels, and time.

use std::io::Write;
use std::time::Duration;

use plan::model_worker::{Host, Stop};
use tokio::time::Instant;

/// Gives the bytes of cancellations that have come since it was last asked.
pub type Frames = Box<dyn FnMut() -> Vec<u8>>;

/// The worker's end of its pipes, and time.
pub(super) struct Pipes<W> {
    control: Option<Frames>,
    /// Until when time has been spent; none if it does not pass for real.
    due: Option<Instant>,
    out: W,
}

/// A worker that is later than this has not been working, but waiting for its next request.
const IDLE: Duration = Duration::from_millis(50);

impl<W: Write> Pipes<W> {
    pub(super) fn new(out: W, control: Option<Frames>, sleep: bool) -> Self {
        Self {
            control,
            due: sleep.then(Instant::now),
            out,
        }
    }
}

impl<W: Write> Host for Pipes<W> {
    fn control(&mut self) -> Vec<u8> {
        self.control.as_mut().map_or_else(Vec::new, |read| read())
    }

    fn pass(&mut self, time: Duration) {
        let Some(due) = &mut self.due else {
            return;
        };
        let now = Instant::now();
        // Lateness does not add up within a turn.
        let is_idle = now.saturating_duration_since(*due) > IDLE;
        *due = if is_idle { now } else { *due } + time;
        std::thread::sleep(due.saturating_duration_since(now));
    }

    fn write(&mut self, line: &[u8]) -> Result<(), Stop> {
        let out = &mut self.out;
        let written = out.write_all(line).and_then(|()| out.write_all(b"\n"));
        // Nobody is left to work for.
        written.and_then(|()| out.flush()).map_err(|_| Stop(0))
    }
}
