//! Cancellations: 8-byte frames, and which of them concern the turn that runs.

/// What has come over the control descriptor.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    /// Bytes of a frame that is not whole.
    partial: Vec<u8>,
    /// The turn that runs was cancelled.
    cancelled: bool,
    /// A frame that came before its turn.
    early: Option<u64>,
    /// The number of the last turn that is over.
    last: u64,
    running: Option<u64>,
}

impl Cancels {
    /// Takes in bytes as they came. Frames for 0, for turns that are over and, while one runs, for any
    /// other are ignored.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let whole = self.partial.len() / 8 * 8;
        let frames: Vec<u8> = self.partial.drain(..whole).collect();
        for frame in frames.chunks_exact(8) {
            self.obey(u64::from_le_bytes(
                frame.try_into().expect("a frame has 8 bytes"),
            ));
        }
    }

    fn obey(&mut self, id: u64) {
        match self.running {
            Some(running) => self.cancelled |= id == running,
            // The first one keeps the only place.
            None if id > self.last => self.early = self.early.or(Some(id)),
            None => {}
        }
    }

    /// Whether a turn may have that number: one higher than those of all turns that are over.
    pub(super) fn allows(&self, id: u64) -> bool {
        id > self.last
    }

    /// A turn begins.
    pub(super) fn begin(&mut self, id: u64) {
        self.cancelled = self.early.take() == Some(id);
        self.running = Some(id);
    }

    /// The turn that runs, if any, was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// The turn is over.
    pub(super) fn finish(&mut self) {
        self.cancelled = false;
        if let Some(id) = self.running.take() {
            self.last = id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: u64) -> [u8; 8] {
        id.to_le_bytes()
    }

    #[test]
    fn only_the_turn_that_runs_is_cancelled() {
        let mut cancels = Cancels::default();
        cancels.begin(5);
        for id in [0, 4, 6] {
            cancels.hear(&frame(id));
            assert!(!cancels.is_cancelled(), "{id}");
        }
        cancels.hear(&frame(5)[..3]);
        assert!(!cancels.is_cancelled());
        cancels.hear(&frame(5)[3..]);
        assert!(cancels.is_cancelled());
        cancels.finish();
        assert!(!cancels.is_cancelled());
        assert!(!cancels.allows(5) && cancels.allows(6));
        cancels.begin(6);
        assert!(!cancels.is_cancelled());
    }

    #[test]
    fn the_first_frame_may_come_before_its_turn() {
        let mut cancels = Cancels::default();
        cancels.hear(&[frame(1), frame(2)].concat());
        cancels.begin(1);
        assert!(cancels.is_cancelled());
        cancels.finish();
        cancels.begin(2);
        assert!(!cancels.is_cancelled());
        cancels.finish();
        cancels.hear(&frame(2));
        cancels.begin(3);
        assert!(!cancels.is_cancelled());
    }
}
