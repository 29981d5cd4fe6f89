//! The log of turns: a line for each that is over.

use std::io::Write;
use std::sync::Mutex;

use plan::control_plane::{Detail, TurnLog, TurnRecord};

/// Where the lines go, and which they are.
pub(crate) struct Log {
    detail: Detail,
    form: TurnLog,
    out: Mutex<Box<dyn Write + Send>>,
}

impl Log {
    pub(super) fn new(form: TurnLog, detail: Detail, out: Box<dyn Write + Send>) -> Self {
        Self {
            detail,
            form,
            out: Mutex::new(out),
        }
    }

    /// Writes a turn's line, whole and before any other's.
    pub(super) fn write(&self, record: &TurnRecord) {
        let lines = record.lines(self.form, self.detail);
        if lines.is_empty() {
            return;
        }
        let mut out = self.out.lock().expect("nobody panics with the lock");
        // Nobody is left to tell if stderr is gone.
        let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    }
}
