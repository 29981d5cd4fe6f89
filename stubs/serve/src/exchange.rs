//! One request and its answer: decided, then sent as it falls due.

use std::io;

use plan::reply::{Body, Facts, Reply};
use plan::script::CutKind;
use plan::stub::Call;
use plan::{Route, Step};
use tokio::time::Instant;
use wire::dialect::{Content, Head};
use wire::http1::{Framing, RequestHead};
use wire::metrics;

use crate::connection::Connection;
use crate::metrics::{Asked, Counters, Progress, nanoseconds};
use crate::truth::{Chunk, Ended, Record};
use crate::worker::{Phase, Worker};

/// Bytes that are gathered before they are written although more is due.
const WRITE: usize = 256 << 10;

/// Whether the connection serves another request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// It does not.
    Close,
    /// It may.
    KeepAlive,
}

/// An answer on its way.
pub(crate) struct Exchange {
    /// What follows the head, which stands in the connection's output already.
    body: Body,
    /// The fault that leaves the answer without its end.
    cut: Option<CutKind>,
    is_head: bool,
    outcome: Outcome,
    progress: Progress,
    received: Instant,
    record: Record,
    request_bytes: u64,
    response_bytes: u64,
    route: Option<Route>,
    /// Steps whose bytes stand in the output.
    unwritten: Vec<Step>,
}

impl Exchange {
    /// Decides the answer to a request and puts its head into the output.
    pub(crate) fn new(connection: &mut Connection<'_>, input: &[u8], body: &[u8]) -> Self {
        let received = Instant::now();
        let worker = connection.worker;
        let parsed = RequestHead::parse(input);
        let (head, length) = parsed
            .ok()
            .flatten()
            .expect("the head was parsed when the request was read");
        let call = Call {
            body,
            head: &head,
            wants_prompt: worker.shared.truth.is_some(),
        };
        let (seconds, date) = worker.date();
        let mut context = worker.context.borrow_mut();
        context.created = seconds;
        let stub = &worker.stub;
        let reply = stub.reply(&call, &mut context).unwrap_or_else(|route| {
            let mut reply = of_process(worker, route, &head, &input[..length], body);
            reply.route = Some(route);
            stub.decorate(&call, &mut context, &mut reply);
            reply
        });
        let request_id = match head.header("x-request-id") {
            Some(id) => id.to_owned(),
            None if worker.shared.truth.is_some() => format!("{:032x}", context.random.u128(..)),
            None => String::new(),
        };
        write_head(
            worker,
            &reply,
            !head.keep_alive,
            &date,
            &mut connection.output,
        );
        let progress = Progress::new(reply.facts.works.clone(), &worker.counters);
        let response_bytes = reply.content().length();
        let record = Record {
            method: Some(head.method.to_owned()),
            route: Some(head.path().to_owned()),
            request_id,
            ..record(connection, reply.status, reply.facts, received)
        };
        Self {
            body: reply.body,
            cut: None,
            is_head: head.method == "HEAD",
            outcome: if head.keep_alive {
                Outcome::KeepAlive
            } else {
                Outcome::Close
            },
            progress,
            received,
            record,
            request_bytes: request_bytes(&head),
            response_bytes: response_bytes.unwrap_or(0) as u64,
            route: reply.route,
            unwritten: Vec::new(),
        }
    }

    /// The answer to bytes that are no HTTP.
    pub(crate) fn invalid(connection: &mut Connection<'_>) -> Self {
        let worker = connection.worker;
        let dialect = worker.stub.dialect;
        dialect.write_invalid(&worker.date().1, &mut connection.output);
        Self::refused(connection, 400)
    }

    /// The answer to a body beyond the limit.
    pub(crate) fn too_large(connection: &mut Connection<'_>, input: &[u8]) -> Self {
        let worker = connection.worker;
        let limit = worker.shared.max_body;
        let reply = Reply::too_large(limit);
        write_head(
            worker,
            &reply,
            true,
            &worker.date().1,
            &mut connection.output,
        );
        let mut exchange = Self::refused(connection, reply.status);
        if let Ok(Some((head, _))) = RequestHead::parse(input) {
            exchange.record.method = Some(head.method.to_owned());
            exchange.record.route = Some(head.path().to_owned());
        }
        exchange.body = reply.body;
        exchange
    }

    fn refused(connection: &Connection<'_>, status: u16) -> Self {
        let received = Instant::now();
        Self {
            body: Body::Empty,
            cut: None,
            is_head: false,
            outcome: Outcome::Close,
            progress: Progress::default(),
            received,
            record: record(connection, status, Facts::default(), received),
            request_bytes: 0,
            response_bytes: 0,
            route: None,
            unwritten: Vec::new(),
        }
    }

    /// Sends the answer and files the record, however it ends.
    pub(crate) async fn run(mut self, connection: &mut Connection<'_>) -> io::Result<Outcome> {
        connection.worker.shared.metrics.count_request();
        let sent = self.send(connection).await;
        self.count(&connection.worker.counters);
        connection.output.clear();
        let is_stopping = *connection.worker.shared.phase.borrow() == Phase::Stopping;
        self.record.ended = match sent {
            Ok(()) => self.cut.map_or(Ended::Done, Ended::Fault),
            Err(_) if is_stopping => Ended::Drain,
            Err(_) => Ended::ClientAbort,
        };
        if let Some(truth) = &connection.worker.shared.truth {
            truth.put(self.record);
        }
        sent.map(|()| self.outcome)
    }

    /// Counts the exchange, now that it is over; bytes that were no HTTP reach no counter.
    fn count(&mut self, counters: &Counters) {
        self.progress.end(counters);
        if let Some(method) = &self.record.method {
            counters.count_http(&Asked {
                duration_ns: nanoseconds(self.received.elapsed()),
                method,
                request_bytes: self.request_bytes,
                response_bytes: self.response_bytes,
                route: self.route,
                status: self.record.status,
            });
        }
    }

    async fn send(&mut self, connection: &mut Connection<'_>) -> io::Result<()> {
        match std::mem::replace(&mut self.body, Body::Empty) {
            Body::Empty | Body::HeadAlone(_) => self.flush(connection).await,
            Body::Rendered(rendered) => {
                connection.output.extend_from_slice(&rendered.bytes);
                self.unwritten.extend_from_slice(&rendered.steps);
                self.flush(connection).await
            }
            Body::Stream(mut timeline) => {
                while let Some(due) = timeline.due() {
                    if due > self.received.elapsed() {
                        self.flush(connection).await?;
                        wait(connection, self.received + due).await?;
                    }
                    let step = timeline.step(&mut connection.output);
                    self.unwritten.extend(step);
                    if connection.output.len() >= WRITE {
                        self.flush(connection).await?;
                    }
                }
                self.cut = timeline.cut();
                if self.cut.is_some() {
                    self.outcome = Outcome::Close;
                }
                self.flush(connection).await
            }
            Body::Whole(whole) => {
                if whole.due > self.received.elapsed() {
                    wait(connection, self.received + whole.due).await?;
                }
                if !self.is_head {
                    connection.output.extend_from_slice(&whole.bytes);
                }
                self.unwritten.push(whole.step());
                self.flush(connection).await
            }
        }
    }

    /// Writes what stands in the output and notes when that was.
    async fn flush(&mut self, connection: &mut Connection<'_>) -> io::Result<()> {
        if connection.output.is_empty() {
            return Ok(());
        }
        let output = std::mem::take(&mut connection.output);
        let written = connection.write(&output, &mut self.record.bytes).await;
        connection.output = output;
        written?;
        connection.output.clear();
        let worker = connection.worker;
        let elapsed = self.received.elapsed();
        for step in &self.unwritten {
            if !step.due.is_zero() {
                worker
                    .shared
                    .metrics
                    .count_late(elapsed.saturating_sub(step.due));
            }
        }
        self.progress
            .wrote(&worker.counters, &self.unwritten, elapsed);
        if worker.shared.truth.is_some() {
            let (received, now) = (self.record.received_ns, worker.now_ns());
            let chunk = |step: &Step| Chunk::new(step, received, now);
            self.record.chunks.extend(self.unwritten.iter().map(chunk));
        }
        self.unwritten.clear();
        Ok(())
    }
}

/// Waits for a moment; a client that goes away ends the wait, unless it has sent as much ahead as a
/// head may hold.
async fn wait(connection: &mut Connection<'_>, until: Instant) -> io::Result<()> {
    let mut phase = connection.worker.shared.phase.clone();
    let max_ahead = connection.worker.shared.max_head;
    let timer = tokio::time::sleep_until(until);
    tokio::pin!(timer);
    loop {
        let listens = connection.input.len() < max_ahead;
        tokio::select! {
            biased;
            () = &mut timer => return Ok(()),
            readable = connection.stream.readable(), if listens => {
                readable?;
                match connection.stream.try_read_buf(&mut connection.input) {
                    Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            _ = phase.wait_for(|phase| *phase == Phase::Stopping) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

/// What `content-length` says of a request.
fn request_bytes(head: &RequestHead<'_>) -> u64 {
    match head.framing {
        Framing::Length(length) => length,
        Framing::Chunked | Framing::UntilClose => 0,
    }
}

/// Answers that tell of the process or the connection rather than of a model.
fn of_process(
    worker: &Worker,
    route: Route,
    head: &RequestHead<'_>,
    head_bytes: &[u8],
    body: &[u8],
) -> Reply {
    let shared = &worker.shared;
    let page = || shared.metrics.page(&worker.stub, shared.started_unix_ns);
    let (mut reply, content_type) = match route {
        Route::Metrics => {
            let page = Reply::text(page().into_bytes());
            (page, Some(metrics::CONTENT_TYPE))
        }
        Route::MetricsBelow if head.method == "HEAD" => {
            let head = Reply::head_alone(Content::Untold);
            (head, Some(metrics::BELOW_CONTENT_TYPE))
        }
        Route::MetricsBelow => {
            let page = Reply::one_chunk(page().as_bytes());
            (page, Some(metrics::BELOW_CONTENT_TYPE))
        }
        _ => (Reply::text([head_bytes, body].concat()), None),
    };
    reply.headers.content_type = content_type;
    reply
}

fn write_head(worker: &Worker, reply: &Reply, close: bool, date: &str, out: &mut Vec<u8>) {
    let head = Head {
        close,
        content: reply.content(),
        date,
        headers: &reply.headers,
        status: reply.status,
    };
    worker.stub.dialect.write_head(&head, out);
}

fn record(connection: &Connection<'_>, status: u16, facts: Facts, received: Instant) -> Record {
    let shared = &connection.worker.shared;
    let received = received.duration_since(shared.origin).as_nanos();
    Record {
        bytes: 0,
        chunks: Vec::new(),
        connection: connection.number,
        dialect: connection.worker.stub.dialect.name(),
        ended: Ended::Done,
        facts,
        method: None,
        parsed_ns: connection.worker.now_ns(),
        received_ns: u64::try_from(received).unwrap_or(u64::MAX),
        request_id: String::new(),
        route: None,
        started_unix_ns: shared.started_unix_ns,
        status,
    }
}
