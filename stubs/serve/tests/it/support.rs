//! A server in this process and a blocking client that looks at every byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serve::server::{Server, Stopped};
use wire::chunk::Chunk;
use wire::http1::{BodyDecoder, ResponseHead};
use wire::sse;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: serve::cli::Command,
}

/// A running stub.
pub(crate) struct Stub {
    server: Server,
    drain: Duration,
}

impl Stub {
    /// Starts what `stubline serve` would start with these words, on a free port.
    pub(crate) fn start<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        Self::start_with(words, |_| None)
    }

    /// The same with environment variables.
    pub(crate) fn start_with<'a>(
        words: impl IntoIterator<Item = &'a str>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let words = ["stubline"].into_iter().chain(words);
        let checked = Cli::parse_from(words.chain(["--port", "0"]));
        let checked = checked.command.checked(&env).unwrap();
        let server = Server::start(&checked.config, Arc::new(checked.stub)).unwrap();
        Self {
            server,
            drain: checked.drain,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    pub(crate) fn stop(self) -> Stopped {
        self.server.stop(self.drain).unwrap()
    }
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// A connection.
pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

/// A response taken apart.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).unwrap();
        Self {
            stream,
            input: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Response {
        self.send(post(path, body).as_bytes());
        self.response().expect("an answer")
    }

    /// The next response; `None` if the server closed the connection instead.
    pub(crate) fn response(&mut self) -> Option<Response> {
        let (head, length) = loop {
            if let Some(found) = ResponseHead::parse(&self.input).unwrap() {
                break found;
            }
            if !self.read() {
                return None;
            }
        };
        let text = String::from_utf8(self.input.drain(..length).collect()).unwrap();
        let mut decoder = BodyDecoder::new(head.framing);
        let mut body = Vec::new();
        loop {
            let taken = decoder.feed(&self.input, |part| body.extend_from_slice(part));
            self.input.drain(..taken.unwrap());
            if decoder.is_complete() || !self.read() {
                break;
            }
        }
        Some(Response {
            status: head.status,
            head: text,
            body,
        })
    }

    /// What was read and not taken.
    pub(crate) fn input(&self) -> &[u8] {
        &self.input
    }

    /// Waits for some bytes; `false` at the connection's end.
    pub(crate) fn read(&mut self) -> bool {
        let mut buffer = vec![0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                true
            }
        }
    }
}

pub(crate) fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

impl Response {
    /// The text of all chunks or of the whole answer, and the data of the last event but `[DONE]`.
    pub(crate) fn content(&self) -> String {
        let mut text = String::new();
        let mut add = |data: &[u8]| {
            if data != b"[DONE]" {
                for choice in Chunk::decode(data).unwrap().choices {
                    text.extend(choice.delta.content.as_deref());
                }
            }
        };
        if self.head.contains("text/event-stream") {
            let mut decoder = sse::Decoder::default();
            decoder.feed(&self.body, &mut add);
            decoder.finish(&mut add);
        } else {
            add(&self.body);
        }
        text
    }
}
