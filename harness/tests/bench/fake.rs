//! A server that plays canned bytes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::arrival::Arrival;
use harness::bench::{self, Config, Limit, Run};
use harness::dataset::{Prompt, Sample};
use vocab::Tokenizer;

/// What the server does with one request.
#[derive(Clone, Default)]
pub(crate) struct Reply {
    /// Bytes, each part a write of its own.
    pub(crate) parts: Vec<Vec<u8>>,
    /// Close the connection behind them.
    pub(crate) close: bool,
}

/// A request that the server has read.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) connection: usize,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Its threads end with the test's process.
pub(crate) struct Fake {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

type Play = dyn Fn(usize) -> Reply + Send + Sync;

impl Fake {
    /// A server whose answer to its nth POST is `play(n)`.
    pub(crate) fn new(play: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::with_models(
            whole(200, r#"{"data":[{"id":"first"},{"id":"second"}]}"#),
            play,
        )
    }

    /// A server that always gives this answer and does not list its models.
    pub(crate) fn without_models(bytes: Vec<u8>) -> Self {
        Self::with_models(whole(404, "nothing"), move |_| Reply {
            parts: vec![bytes.clone()],
            close: false,
        })
    }

    fn with_models(models: Reply, play: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::default();
        let (play, posts): (Arc<Play>, _) = (Arc::new(play), Arc::new(AtomicUsize::new(0)));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (play, posts, log) = (play.clone(), posts.clone(), Arc::clone(&log));
                let models = models.clone();
                std::thread::spawn(move || {
                    let answer = |post: Option<usize>| match post {
                        Some(post) => play(post),
                        None => models.clone(),
                    };
                    serve(stream?, connection, &answer, &posts, &log)
                });
            }
        });
        Self { url, seen }
    }

    /// A server that always gives this answer.
    pub(crate) fn always(bytes: impl Into<Vec<u8>>) -> Self {
        let parts = vec![bytes.into()];
        Self::new(move |_| Reply {
            parts: parts.clone(),
            close: false,
        })
    }

    /// All POST requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Three requests, one after the other, "hi" each.
    pub(crate) fn config(&self) -> Config {
        let sample = Sample {
            id: "hi".into(),
            prompt: Prompt::Text("hi".into()),
            max_tokens: None,
        };
        let tokenizer = Tokenizer::named("char").unwrap();
        Config {
            model: Some("m".into()),
            load: Arrival::Concurrency(1),
            limit: Limit::Requests(3),
            timeout: Duration::from_secs(20),
            ..Config::new(
                self.url.clone(),
                Arc::new(vec![sample]),
                Arc::new(tokenizer),
            )
        }
    }

    /// Runs [`Self::config`].
    pub(crate) fn run(&self) -> Run {
        bench::run(&self.config()).unwrap()
    }
}

fn serve(
    stream: TcpStream,
    connection: usize,
    answer: &dyn Fn(Option<usize>) -> Reply,
    posts: &AtomicUsize,
    log: &Mutex<Vec<Seen>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    let mut output = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if input.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        input.read_exact(&mut body)?;
        let reply = if head.starts_with("POST") {
            let body = String::from_utf8(body).unwrap();
            log.lock().unwrap().push(Seen {
                connection,
                head,
                body,
            });
            answer(Some(posts.fetch_add(1, Ordering::SeqCst)))
        } else if head.starts_with("GET /v1/models ") {
            answer(None)
        } else {
            whole(404, "nothing")
        };
        for part in reply.parts {
            output.write_all(&part)?;
        }
        if reply.close {
            return Ok(());
        }
    }
}

/// A body of known length.
pub(crate) fn whole(status: u16, body: &str) -> Reply {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    Reply {
        parts: vec![text.into()],
        close: false,
    }
}

/// A chunked event stream of these events.
pub(crate) fn stream(events: &[&str]) -> Vec<u8> {
    let mut bytes = STREAM_HEAD.as_bytes().to_vec();
    for event in events {
        wire::http1::write_chunk(&mut bytes, |out| wire::sse::encode(event.as_bytes(), out));
    }
    bytes.extend_from_slice(wire::http1::LAST_CHUNK);
    bytes
}

pub(crate) const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
pub(crate) const ROLE: &str = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
pub(crate) const TEXT: &str = r#"{"choices":[{"delta":{"content":"héllo"}}]}"#;
pub(crate) const MORE: &str =
    r#"{"choices":[{"delta":{"content":" you"},"finish_reason":"stop"}]}"#;
pub(crate) const USAGE: &str =
    r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":6,"total_tokens":13}}"#;
pub(crate) const GOOD: [&str; 5] = [ROLE, TEXT, MORE, USAGE, "[DONE]"];
