//! The stub's own record of what it sent and when: JSON lines, one when a request ends.
//!
//! Times are nanoseconds from the server's start. Writing never blocks a response: records go through
//! a bounded queue to a thread of their own, and what does not fit is counted.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use plan::control_plane::TurnRecord;
use plan::reply::Facts;
use plan::script::CutKind;
use plan::{Kind, Step};
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Records that wait to be written.
const QUEUE: usize = 1 << 16;

/// How an exchange ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    /// The client went away.
    ClientAbort,
    /// All was sent.
    Done,
    /// The server stopped before all was sent.
    Drain,
    /// The engine failed, and the answer has no end.
    Fault(CutKind),
}

impl Serialize for Ended {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::ClientAbort => serializer.serialize_str("client_abort"),
            Self::Done => serializer.serialize_str("done"),
            Self::Drain => serializer.serialize_str("drain"),
            Self::Fault(fault) => serializer.collect_str(&format_args!("fault:{}", fault.name())),
        }
    }
}

/// One HTTP request and what became of it.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) bytes: u64,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) connection: u64,
    pub(crate) dialect: &'static str,
    pub(crate) ended: Ended,
    pub(crate) facts: Facts,
    pub(crate) method: Option<String>,
    pub(crate) parsed_ns: u64,
    pub(crate) received_ns: u64,
    pub(crate) request_id: String,
    pub(crate) route: Option<String>,
    pub(crate) started_unix_ns: u64,
    pub(crate) status: u16,
    /// What a model worker told, where one answered.
    pub(crate) turn: Option<Box<TurnRecord>>,
}

/// One event as it was sent.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Chunk {
    kind: Kind,
    due_ns: u64,
    written_ns: u64,
    bytes: u32,
    tokens: u32,
    index: Option<u32>,
}

impl Chunk {
    /// A step whose request arrived at `received_ns` and whose write returned at `written_ns`.
    pub(crate) fn new(step: &Step, received_ns: u64, written_ns: u64) -> Self {
        let due = u64::try_from(step.due.as_nanos()).unwrap_or(u64::MAX);
        Self {
            kind: step.kind,
            due_ns: received_ns.saturating_add(due),
            written_ns,
            bytes: step.bytes,
            tokens: step.tokens,
            index: step.index,
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    request_id: &'a str,
    response_id: Option<&'a str>,
    dialect: &'static str,
    route: Option<&'a str>,
    method: Option<&'a str>,
    status: u16,
    stream: Option<bool>,
    include_usage: Option<bool>,
    prompt_sha256: Option<String>,
    connection: u64,
    started_unix_ns: u64,
    received_ns: u64,
    parsed_ns: u64,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
    finish_reason: Option<&'static str>,
    usage_sent: Option<UsageSent>,
    chunks: &'a [Chunk],
    ended: Ended,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<&'a TurnRecord>,
}

#[derive(Serialize)]
struct UsageSent {
    prompt_tokens: Option<u64>,
    total_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_tokens_details: Option<Details>,
}

#[derive(Serialize)]
struct Details {
    reasoning_tokens: u64,
}

impl Record {
    /// Tokens of what was sent; of an answer that was sent whole, all of them.
    fn completion_tokens(&self) -> Option<u64> {
        self.facts.prompt_tokens?;
        let tokens = self.chunks.iter().map(|chunk| u64::from(chunk.tokens));
        Some(tokens.sum())
    }

    /// Nothing ended that was cut before its end, which has come where there is usage.
    fn finish_reason(&self) -> Option<&'static str> {
        let ends = |chunk: &Chunk| matches!(chunk.kind, Kind::Body | Kind::Finish | Kind::Usage);
        let ended = self.ended == Ended::Done || self.chunks.iter().any(ends);
        self.facts.finish_reason.filter(|_| ended)
    }

    fn usage_sent(&self) -> Option<UsageSent> {
        let usage = self.facts.usage?;
        let carries = |chunk: &Chunk| matches!(chunk.kind, Kind::Body | Kind::Usage);
        self.chunks.iter().any(carries).then(|| UsageSent {
            prompt_tokens: usage.prompt_tokens,
            total_tokens: usage.total_tokens(),
            completion_tokens: usage.completion_tokens,
            completion_tokens_details: usage
                .reasoning_tokens
                .map(|reasoning_tokens| Details { reasoning_tokens }),
        })
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let facts = &self.facts;
        let line = Line {
            request_id: &self.request_id,
            response_id: facts.response_id.as_deref(),
            dialect: self.dialect,
            route: self.route.as_deref(),
            method: self.method.as_deref(),
            status: self.status,
            stream: facts.stream,
            include_usage: facts.include_usage,
            prompt_sha256: facts.prompt.as_deref().map(sha256),
            connection: self.connection,
            started_unix_ns: self.started_unix_ns,
            received_ns: self.received_ns,
            parsed_ns: self.parsed_ns,
            prompt_tokens: facts.prompt_tokens,
            completion_tokens: self.completion_tokens(),
            reasoning_tokens: facts
                .reasoning_tokens
                .filter(|_| self.finish_reason().is_some()),
            finish_reason: self.finish_reason(),
            usage_sent: self.usage_sent(),
            chunks: &self.chunks,
            ended: self.ended,
            bytes: self.bytes,
            turn: self.turn.as_deref(),
        };
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")
    }
}

fn sha256(text: &str) -> String {
    use std::fmt::Write as _;
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text) {
        write!(hex, "{byte:02x}").expect("a String takes all");
    }
    hex
}

/// The workers' end of a truth file.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    queue: SyncSender<Record>,
    dropped: Arc<AtomicU64>,
}

impl Sink {
    /// Hands over a record; counts it if there is no room.
    pub(crate) fn put(&self, record: Record) {
        if self.queue.try_send(record).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread that writes a truth file; it ends when all its sinks are gone.
#[derive(Debug)]
pub(crate) struct Writer {
    dropped: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<()>>,
}

/// Opens a truth file for writing from its start.
pub(crate) fn open(path: &Path) -> io::Result<(Sink, Writer)> {
    let file = std::fs::File::create(path)?;
    let (queue, records) = sync_channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let thread = std::thread::Builder::new()
        .name("truth".into())
        .spawn(move || write_all(&records, BufWriter::new(file)))?;
    let sink = Sink {
        queue,
        dropped: Arc::clone(&dropped),
    };
    Ok((sink, Writer { dropped, thread }))
}

fn write_all(records: &Receiver<Record>, mut out: impl Write) -> io::Result<()> {
    loop {
        let record = match records.try_recv() {
            Ok(record) => record,
            Err(TryRecvError::Empty) => {
                out.flush()?;
                match records.recv() {
                    Ok(record) => record,
                    Err(_) => return Ok(()),
                }
            }
            Err(TryRecvError::Disconnected) => return out.flush(),
        };
        record.write(&mut out)?;
    }
}

impl Writer {
    /// Waits until all is written and gives the number of records that were dropped.
    pub(crate) fn finish(self) -> io::Result<u64> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the truth writer panicked")))?;
        Ok(self.dropped.load(Ordering::Relaxed))
    }
}
