//! Both directions of one connection, cut into exchanges.

use wire::http1::{WholeRequest, WholeResponse};
use wire::recording::{Arrival, Times};

/// The bytes of one direction and when they came.
#[derive(Clone, Debug, Default)]
struct Track {
    bytes: Vec<u8>,
    /// Time in nanoseconds, and all bytes that had come then.
    marks: Vec<(u64, usize)>,
    /// Bytes that became part of an exchange.
    used: usize,
}

/// What passed on one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Tape {
    client: Track,
    server: Track,
}

/// One request and its response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Exchange {
    pub(super) request: Vec<u8>,
    pub(super) response: Vec<u8>,
    pub(super) times: Times,
    /// It is not a whole request with a whole response.
    pub(super) is_cut: bool,
}

impl Track {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        if self.used == self.bytes.len() {
            self.bytes.clear();
            self.marks.clear();
            self.used = 0;
        }
        self.bytes.extend_from_slice(bytes);
        self.marks.push((at, self.bytes.len()));
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let start = self.used;
        self.used += length;
        self.bytes[start..self.used].to_vec()
    }

    fn left(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// When the first `length` bytes had come.
    fn reached(&self, length: usize) -> u64 {
        let mark = self.marks.iter().find(|(_, all)| *all >= length);
        mark.map_or(0, |(at, _)| *at)
    }

    /// The reads that brought the bytes of a range, as offsets from `origin`.
    fn arrivals(&self, start: usize, end: usize, origin: u64) -> Times {
        let mut at = 0;
        let mut arrivals = Vec::new();
        for &(time, all) in &self.marks {
            let bytes = all.min(end).saturating_sub(at.max(start));
            if bytes > 0 {
                arrivals.push(Arrival(time.saturating_sub(origin), bytes));
            }
            at = all;
        }
        Times(arrivals)
    }
}

impl Tape {
    /// The client's bytes had been passed on at `at`.
    pub(super) fn sent(&mut self, at: u64, bytes: &[u8]) {
        self.client.put(at, bytes);
    }

    /// The server's bytes came at `at`.
    pub(super) fn received(&mut self, at: u64, bytes: &[u8]) {
        self.server.put(at, bytes);
    }

    /// The next exchange that is whole.
    pub(super) fn next(&mut self, closed: bool) -> Option<Exchange> {
        let sent = self.client.left();
        let request = WholeRequest::parse(sent).ok().flatten()?;
        let (length, to_head) = (request.length, request.head.method == "HEAD");
        let response = WholeResponse::parse(self.server.left(), to_head, closed);
        let response = response.ok().flatten()?.length;
        Some(self.cut(length, response, false))
    }

    /// What is left when the connection has ended, whole or not.
    pub(super) fn rest(&mut self) -> Option<Exchange> {
        let (sent, received) = (self.client.left().len(), self.server.left().len());
        (sent + received > 0).then(|| self.cut(sent, received, true))
    }

    fn cut(&mut self, request: usize, response: usize, is_cut: bool) -> Exchange {
        let request = self.client.take(request);
        let origin = self.client.reached(self.client.used);
        let start = self.server.used;
        let response = self.server.take(response);
        Exchange {
            times: self.server.arrivals(start, self.server.used, origin),
            request,
            response,
            is_cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"GET /a HTTP/1.1\r\n\r\n";
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab";

    #[test]
    fn a_connection_is_cut_where_its_messages_end() {
        let mut tape = Tape::default();
        tape.sent(5, &GET[..4]);
        tape.sent(10, &[&GET[4..], GET].concat());
        assert_eq!(tape.next(false), None);
        tape.received(30, &[OK, &OK[..7]].concat());
        let first = tape.next(false).unwrap();
        assert_eq!((&*first.request, &*first.response), (GET, OK));
        assert_eq!(first.times, Times(vec![Arrival(20, OK.len())]));
        assert_eq!(tape.next(false), None);
        tape.received(40, &OK[7..]);
        let second = tape.next(false).unwrap();
        let expected = Times(vec![Arrival(20, 7), Arrival(30, OK.len() - 7)]);
        assert_eq!((second.times, second.is_cut), (expected, false));
        assert_eq!(tape.rest(), None);
    }

    #[test]
    fn what_is_cut_or_no_http_is_kept_too() {
        let mut tape = Tape::default();
        tape.sent(0, GET);
        tape.received(1, &OK[..9]);
        assert_eq!(tape.next(true), None);
        let rest = tape.rest().unwrap();
        assert_eq!((&*rest.response, rest.is_cut), (&OK[..9], true));
        tape.sent(2, GET);
        tape.received(3, b"HTTP/1.1 200 OK\r\n\r\nto the end");
        assert_eq!(tape.next(false), None);
        assert!(tape.next(true).unwrap().response.ends_with(b"the end"));
    }
}
