//! What is on its way to a client: the worker goes on though the client may be slow to take it.

use std::collections::VecDeque;
use std::time::Duration;

use plan::Step;
use plan::control_plane::Event;
use wire::http1;

use crate::truth::{Chunk, Record};

/// Bytes that are not written yet, and what they are.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// Of them.
    written: usize,
    parts: VecDeque<Part>,
}

/// An event, told of when its last byte is written.
#[derive(Debug)]
struct Part {
    /// Where it ends in the bytes.
    end: usize,
    step: Step,
}

impl Outbox {
    /// Bytes that are told of by nobody.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An event, as a chunk of its own if the answer has chunks.
    pub(super) fn put_event(&mut self, event: &Event, is_framed: bool, due: Duration, tokens: u32) {
        if is_framed {
            http1::write_chunk(&mut self.bytes, |out| out.extend_from_slice(&event.bytes));
        } else {
            self.bytes.extend_from_slice(&event.bytes);
        }
        self.parts.push_back(Part {
            end: self.bytes.len(),
            step: Step {
                due,
                kind: event.kind,
                index: Some(0),
                tokens,
                bytes: u32::try_from(event.bytes.len()).unwrap_or(u32::MAX),
            },
        });
    }

    /// What is not written.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Takes notice that so many bytes were written by `now_ns`.
    pub(super) fn wrote(&mut self, count: usize, now_ns: u64, record: &mut Record) {
        self.written += count;
        record.bytes += count as u64;
        while let Some(part) = self.parts.pop_front_if(|part| part.end <= self.written) {
            let received = record.received_ns;
            record.chunks.push(Chunk::new(&part.step, received, now_ns));
        }
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        }
    }
}
