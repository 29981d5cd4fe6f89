//! Bytes sent on a connection of their own, and every byte that comes back, with its time.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tokio::time::Instant;
use wire::http1::{WholeRequest, WholeResponse};
use wire::recording::{Arrival, Times};

const CONNECT: Duration = Duration::from_secs(5);

/// What came back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: End,
    /// When it came, from the moment the request had been written.
    pub(crate) times: Times,
}

/// Why reading ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// The server closed the connection.
    Closed,
    /// As many responses as requests are there.
    Complete,
    /// Nothing more came in time.
    TimedOut,
}

/// Sends bytes and reads until each request in them has its response.
pub(crate) fn exchange(
    address: SocketAddr,
    sent: &[u8],
    timeout: Duration,
) -> io::Result<Received> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(timeout))?;
    let mut wanted = Wanted::new(sent);
    stream.write_all(sent)?;
    let written = Instant::now();
    let mut received = Received {
        bytes: Vec::new(),
        end: End::Complete,
        times: Times::default(),
    };
    let mut buffer = vec![0; 64 << 10];
    while !wanted.are_there(&received.bytes) {
        let left = timeout.saturating_sub(written.elapsed());
        if left.is_zero() {
            received.end = End::TimedOut;
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => {
                received.end = End::Closed;
                break;
            }
            Ok(count) => {
                let offset = u64::try_from(written.elapsed().as_nanos()).unwrap_or(u64::MAX);
                received.times.0.push(Arrival(offset, count));
                received.bytes.extend_from_slice(&buffer[..count]);
            }
            Err(error) if is_timeout(&error) => {}
            Err(_) => {
                received.end = End::Closed;
                break;
            }
        }
    }
    Ok(received)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// The responses that are waited for.
struct Wanted {
    /// Whether each answers a HEAD request, in order.
    to_head: Vec<bool>,
    /// Those that are there.
    count: usize,
    /// Their bytes.
    length: usize,
}

impl Wanted {
    fn new(mut sent: &[u8]) -> Self {
        let mut to_head = Vec::new();
        while let Ok(Some(request)) = WholeRequest::parse(sent) {
            to_head.push(request.head.method == "HEAD");
            sent = &sent[request.length..];
        }
        if to_head.is_empty() {
            to_head.push(false);
        }
        Self {
            to_head,
            count: 0,
            length: 0,
        }
    }

    fn are_there(&mut self, bytes: &[u8]) -> bool {
        while let Some(&to_head) = self.to_head.get(self.count) {
            match WholeResponse::parse(&bytes[self.length..], to_head, false) {
                Ok(Some(whole)) => {
                    self.length += whole.length;
                    self.count += 1;
                }
                _ => return false,
            }
        }
        true
    }
}
