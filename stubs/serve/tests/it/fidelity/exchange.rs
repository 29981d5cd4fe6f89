//! One recorded exchange, again.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use wire::http1::{WholeRequest, WholeResponse};

use super::corpus::Case;

/// What is added to a response whose connection should have been closed.
const STAYS_OPEN: &[u8] = b"[the connection stays open]";

/// A connection that keeps all that it read.
pub(crate) struct Socket {
    stream: TcpStream,
    pub(crate) received: Vec<u8>,
    is_closed: bool,
}

impl Socket {
    pub(crate) fn send(address: SocketAddr, request: &[u8], patience: Duration) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(patience)).unwrap();
        let mut socket = Self {
            stream,
            received: Vec::new(),
            is_closed: false,
        };
        socket.write(request);
        socket
    }

    /// Sends more; a server that is gone shows in what is read.
    fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Reads until `is_enough`, the connection's end or the end of patience.
    pub(crate) fn read_until(&mut self, is_enough: impl Fn(&[u8], bool) -> bool) {
        let mut buffer = vec![0; 65536];
        while !self.is_closed && !is_enough(&self.received, false) {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.is_closed = true,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(_) => break,
            }
        }
    }

    /// Reads until the response to a request is complete, or nothing comes any more.
    pub(crate) fn read_whole(mut self, request: &[u8]) -> Vec<u8> {
        let to_head = request.starts_with(b"HEAD ");
        self.read_until(|bytes, closed| whole(bytes, to_head, closed) > 0);
        self.received
    }

    /// Reads until a response to `case` is complete.
    pub(crate) fn finish(mut self, case: &Case) -> Vec<u8> {
        let to_head = case.method() == "HEAD";
        let count = whole(&case.response, to_head, true).max(1);
        self.read_until(|bytes, closed| whole(bytes, to_head, closed) >= count);
        if case.exchange.contains("until the server closed") {
            self.read_until(|_, _| false);
            if !self.is_closed {
                self.received.extend_from_slice(STAYS_OPEN);
            }
        }
        self.received
    }
}

/// Responses that are complete.
fn whole(mut bytes: &[u8], to_head: bool, closed: bool) -> usize {
    let mut count = 0;
    while let Ok(Some(response)) = WholeResponse::parse(bytes, to_head, closed) {
        count += 1;
        bytes = &bytes[response.length..];
        if bytes.is_empty() {
            break;
        }
    }
    count
}

/// Sends a recorded request as it was sent and reads what comes.
pub(crate) fn exchange(address: SocketAddr, case: &Case) -> Vec<u8> {
    let patience = Duration::from_secs(3);
    if case.name.starts_with("session-") || case.name.starts_with("get-metrics") {
        return session(address, case);
    }
    let first = WholeRequest::parse(&case.request).ok().flatten();
    let length = first.map_or(case.request.len(), |first| first.length);
    if case.exchange.contains("after the first response") {
        let (first, second) = case.request.split_at(length);
        let mut socket = Socket::send(address, first, patience);
        socket.read_until(|bytes, closed| whole(bytes, false, closed) == 1);
        socket.write(second);
        return socket.finish(case);
    }
    if case.exchange.contains("after 100 Continue") {
        let (head, body) = case.request.split_at(body_start(&case.request));
        let mut socket = Socket::send(address, head, patience);
        socket.read_until(|bytes, _| bytes.ends_with(b"\r\n\r\n"));
        socket.write(body);
        return socket.finish(case);
    }
    Socket::send(address, &case.request, patience).finish(case)
}

pub(crate) fn body_start(request: &[u8]) -> usize {
    let end = request.windows(4).position(|part| part == b"\r\n\r\n");
    end.map_or(request.len(), |end| end + 4)
}

/// A session whose end nothing tells: reads as much as was recorded, or until nothing comes any more.
fn session(address: SocketAddr, case: &Case) -> Vec<u8> {
    let is_slow = case.name.contains("slow");
    let patience = Duration::from_millis(if is_slow { 4000 } else { 300 });
    let mut socket = Socket::send(address, &case.request, patience);
    if case.name.starts_with("session-half-close") {
        socket.stream.shutdown(Shutdown::Write).unwrap();
    }
    let is_page = case.name.starts_with("get-metrics");
    socket.read_until(|bytes, _| !is_page && bytes.len() >= case.response.len());
    socket.received
}
