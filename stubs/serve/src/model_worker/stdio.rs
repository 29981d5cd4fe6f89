//! A worker's surroundings in a process of its own.

use std::io::Write as _;
use std::time::Duration;

use plan::model_worker::{Host, Stop};
use tokio::time::Instant;

use super::control::Control;

/// stdout, the control pipe and time.
#[derive(Debug)]
pub(super) struct Stdio {
    control: Option<Control>,
    /// Until when time has been spent; none if it does not pass for real.
    due: Option<Instant>,
}

/// A worker that is later than this has not been working, but waiting for its next request.
const IDLE: Duration = Duration::from_millis(50);

impl Stdio {
    pub(super) fn new(control: Option<Control>, sleep: bool) -> Self {
        let due = sleep.then(Instant::now);
        Self { control, due }
    }

    pub(super) fn is_cancellable(&self) -> bool {
        self.control.is_some()
    }
}

impl Host for Stdio {
    fn control(&mut self) -> Vec<u8> {
        self.control.as_mut().map_or_else(Vec::new, Control::read)
    }

    fn pass(&mut self, time: Duration) {
        let Some(due) = &mut self.due else {
            return;
        };
        let now = Instant::now();
        // Lateness does not add up within a turn.
        let from = if now.saturating_duration_since(*due) > IDLE {
            now
        } else {
            *due
        };
        *due = from + time;
        std::thread::sleep(due.saturating_duration_since(now));
    }

    fn write(&mut self, line: &[u8]) -> Result<(), Stop> {
        let mut out = std::io::stdout().lock();
        let written = out
            .write_all(line)
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush());
        // Nobody is left to work for.
        written.map_err(|_| Stop(0))
    }
}
