//! The answer to a request, decided, with its head in the output.

use std::time::Duration;

use plan::Route;
use plan::reply::{Body, Facts, Reply};
use plan::stub::Call;
use tokio::time::Instant;
use wire::dialect::{Content, Head, Headers};
use wire::http1::{Chunking, Framing, RequestHead};
use wire::metrics;

use super::attend::Watch;
use super::{Exchange, Outcome, Output};
use crate::connection::Connection;
use crate::metrics::{Asked, Method, Progress};
use crate::truth::Record;
use crate::worker::Worker;

/// A request whose bytes are all there.
#[derive(Clone, Copy)]
pub(crate) struct Arrived<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) head: &'a RequestHead<'a>,
    pub(crate) head_bytes: &'a [u8],
    /// When the last of them came.
    pub(crate) received: Instant,
}

impl<'a> Arrived<'a> {
    /// How it is put to a stub.
    pub(crate) fn call(&self, wants_facts: bool) -> Call<'a> {
        Call {
            body: self.body,
            head: self.head,
            wants_facts,
        }
    }
}

impl Exchange {
    /// Decides the answer to a request and puts its head into the output.
    pub(crate) fn decide(&mut self, connection: &Connection<'_>, arrived: &Arrived<'_>) {
        let worker = connection.worker;
        let mut context = worker.context.borrow_mut();
        context.created = worker.date(arrived.received).0;
        context.created_nanos = worker.shared.nanos(arrived.received);
        let reply = worker
            .stub
            .reply(&arrived.call(worker.shared.truth.is_some()), &mut context);
        drop(context);
        self.answer(connection, arrived, reply);
    }

    /// Puts the head of an answer into the output; what is not for a stub to answer is answered here.
    pub(crate) fn answer(
        &mut self,
        connection: &Connection<'_>,
        arrived: &Arrived<'_>,
        reply: Result<Reply, Route>,
    ) {
        let Arrived { head, received, .. } = *arrived;
        let worker = connection.worker;
        let mut context = worker.context.borrow_mut();
        let mut reply = reply.unwrap_or_else(|route| {
            let mut reply = of_process(worker, route, arrived);
            reply.route = Some(route);
            let call = arrived.call(worker.shared.truth.is_some());
            worker.stub.decorate(&call, &mut context, &mut reply);
            reply
        });
        let (_, date) = worker.date(received);
        self.begin(connection, received);
        self.chunking = worker.stub.dialect.chunking(head.is_http10);
        let closing = Closing {
            close: !head.keep_alive,
            is_unframed: self.chunking == Chunking::None,
        };
        write_head(worker, &reply, closing, &date, &mut self.output.bytes);
        self.asked = Some(Asked {
            method: Method::named(head.method),
            request_bytes: request_bytes(head),
            response_bytes: reply.content().length().unwrap_or(0) as u64,
            route: reply.route,
            status: reply.status,
        });
        self.is_head = head.method == "HEAD";
        if head.keep_alive {
            self.outcome = Outcome::KeepAlive;
        }
        self.progress = Progress::new(reply.works.take(), &worker.counters);
        if worker.shared.truth.is_some() {
            let request_id = match head.header("x-request-id") {
                Some(id) => id.to_owned(),
                None => format!("{:032x}", context.random.u128(..)),
            };
            self.truth = Some(Box::new(Record {
                method: Some(head.method.to_owned()),
                route: Some(head.path().to_owned()),
                request_id,
                ..record(
                    connection,
                    reply.status,
                    *reply.facts.unwrap_or_default(),
                    received,
                )
            }));
        }
        self.watch = reply.ticket.take().map(|ticket| {
            let head = Saved {
                closing,
                headers: std::mem::take(&mut reply.headers),
                status: reply.status,
            };
            Box::new(Watch::new(*ticket, head))
        });
        self.body = reply.body;
    }

    /// The answer to bytes that are no HTTP.
    pub(crate) fn invalid(&mut self, connection: &Connection<'_>) {
        let worker = connection.worker;
        self.refuse(connection, 400);
        let (_, date) = worker.date(self.begun);
        worker
            .stub
            .dialect
            .write_invalid(&date, &mut self.output.bytes);
    }

    /// The answer to a body beyond the limit.
    pub(crate) fn too_large(&mut self, connection: &Connection<'_>, input: &[u8]) {
        let worker = connection.worker;
        let reply = Reply::too_large(worker.stub.dialect, worker.shared.max_body);
        self.refuse(connection, reply.status);
        let (_, date) = worker.date(self.begun);
        let close = Closing {
            close: true,
            is_unframed: false,
        };
        write_head(worker, &reply, close, &date, &mut self.output.bytes);
        if let Ok(Some((head, _))) = RequestHead::parse(input) {
            self.asked = Some(Asked {
                method: Method::named(head.method),
                request_bytes: 0,
                response_bytes: 0,
                route: None,
                status: reply.status,
            });
            if let Some(record) = &mut self.truth {
                record.method = Some(head.method.to_owned());
                record.route = Some(head.path().to_owned());
            }
        }
        self.body = reply.body;
    }

    fn refuse(&mut self, connection: &Connection<'_>, status: u16) {
        let received = Instant::now();
        self.begin(connection, received);
        if connection.worker.shared.truth.is_some() {
            let record = record(connection, status, Facts::default(), received);
            self.truth = Some(Box::new(record));
        }
    }

    /// An answer of nothing, at the end of the connection.
    fn begin(&mut self, connection: &Connection<'_>, received: Instant) {
        connection.worker.counters.count_request();
        *self = Self {
            output: connection.worker.take_output(),
            ..Self::new(received)
        };
    }

    /// None yet.
    pub(crate) fn new(begun: Instant) -> Self {
        Self {
            asked: None,
            body: Body::Empty,
            chunking: Chunking::default(),
            cut: None,
            elapsed: Duration::ZERO,
            is_blocked: false,
            is_head: false,
            outcome: Outcome::Close,
            output: Output::default(),
            progress: Progress::default(),
            begun,
            waited: Duration::ZERO,
            rendered: None,
            watch: None,
            truth: None,
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
fn of_process(worker: &Worker, route: Route, arrived: &Arrived<'_>) -> Reply {
    let shared = &worker.shared;
    let page = || shared.metrics.page(&worker.stub, shared.started_unix_ns);
    let (mut reply, content_type) = match route {
        Route::Metrics => {
            let page = Reply::text(page().into_bytes());
            (page, Some(metrics::CONTENT_TYPE))
        }
        Route::MetricsBelow if arrived.head.method == "HEAD" => {
            let head = Reply::head_alone(Content::Untold);
            (head, Some(metrics::BELOW_CONTENT_TYPE))
        }
        Route::Loads => {
            let (seconds, _) = worker.date(arrived.received);
            let now = Duration::new(seconds, shared.nanos(arrived.received));
            let loads = shared.metrics.loads(&worker.stub, now);
            (Reply::json(200, loads), None)
        }
        Route::MetricsBelow => {
            let page = Reply::one_chunk(page().as_bytes());
            (page, Some(metrics::BELOW_CONTENT_TYPE))
        }
        _ => (
            Reply::text([arrived.head_bytes, arrived.body].concat()),
            None,
        ),
    };
    reply.headers.content_type = content_type;
    reply.headers.is_capitalised = route == Route::MetricsBelow;
    reply
}

/// What a head says, its body left out.
pub(super) struct Saved {
    closing: Closing,
    headers: Headers,
    pub(super) status: u16,
}

impl Saved {
    /// Appends the head for a body.
    pub(super) fn write(&self, worker: &Worker, content: Content, date: &str, out: &mut Vec<u8>) {
        let head = Head {
            close: self.closing.close,
            is_unframed: self.closing.is_unframed,
            content,
            date,
            headers: &self.headers,
            status: self.status,
        };
        worker.stub.dialect.write_head(&head, out);
    }
}

/// How a response ends.
#[derive(Clone, Copy)]
struct Closing {
    /// With the connection.
    close: bool,
    /// A stream has no chunks.
    is_unframed: bool,
}

fn write_head(worker: &Worker, reply: &Reply, closing: Closing, date: &str, out: &mut Vec<u8>) {
    let head = Head {
        close: closing.close,
        is_unframed: closing.is_unframed,
        content: reply.content(),
        date,
        headers: &reply.headers,
        status: reply.status,
    };
    worker.stub.dialect.write_head(&head, out);
}

fn record(connection: &Connection<'_>, status: u16, facts: Facts, received: Instant) -> Record {
    let worker = connection.worker;
    let dialect = worker.stub.dialect.name();
    Record {
        facts,
        status,
        ..worker.shared.record(dialect, connection.number, received)
    }
}
