//! One client's connection.

use std::io;
use std::time::Duration;

use plan::control_plane::{Event, Fault, Over, Turn, Waited, check_session_id};
use plan::script::CutKind;
use plan::{Kind, Step};
use tokio::time::Instant;
use wire::dialect::Content;
use wire::dialect::uvicorn;
use wire::executorch::{self, Error, Route, Unrouted};
use wire::http1::{self, Chunking};
use wire::usage::Usage;
use wire::worker_lines::{Operation, Stats, Token, acknowledged};

use super::Clerk;
use super::call::{self, Call, Manner};
use super::outbox::Outbox;
use super::reply::{Reply, stream_head};
use super::worker::{Asked, Failed, Said};
use crate::local::Phase;
use crate::pacer::Wait;
use crate::socket::{Came, Socket};
use crate::truth::{Chunk, Ended, Record};

/// Why a worker is lost that says something else than text.
const NO_TEXT: &str = "the model worker said what is no text";
/// How long a turn that was left may take to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A client, and the thread that serves it.
pub(super) struct Connection<'c> {
    pub(super) clerk: &'c Clerk,
    pub(super) number: u64,
    pub(super) socket: Socket<'c>,
}

/// What becomes of a request.
enum Answer {
    Turn(Box<Turn>),
    Whole(Reply),
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::Whole(reply)
    }
}

impl Connection<'_> {
    /// One request and its answer; `false` ends the connection.
    pub(super) async fn exchange(&mut self) -> io::Result<bool> {
        let clerk = self.clerk;
        let parser = clerk.desk.parser;
        let call = match self.socket.request(&clerk.shared).await? {
            Came::Ended => return Ok(false),
            Came::Invalid => None,
            Came::TooLarge => return self.refuse_large().await,
            Came::Whole { .. } => Call::take(&mut self.socket.input, parser),
        };
        let Some(call) = call else {
            let mut out = Vec::new();
            uvicorn::write_invalid(parser, &clerk.date.at(Instant::now()).1, &mut out);
            return self.refuse(400, &out).await;
        };
        clerk.counters.count_request();
        let mut record = call.record(&clerk.shared, self.number);
        let local = self.socket.local;
        let answering = self.answer(&call, &mut record);
        let answered = local.unless(Phase::Stopping, answering).await;
        match &answered {
            None => record.ended = Ended::Drain,
            Some(Ok(_)) => {}
            Some(Err(_)) => record.ended = Ended::ClientAbort,
        }
        if let Some(truth) = &clerk.shared.truth {
            truth.put(record);
        }
        let is_whole = answered.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
        Ok(is_whole && !call.manner.closes)
    }

    async fn refuse_large(&mut self) -> io::Result<bool> {
        let clerk = self.clerk;
        let most = clerk.shared.max_body;
        let message = format!("Request body is larger than {most} bytes.");
        let reply = Reply::error(&Error::invalid(413, message, "request_too_large"));
        let out = {
            let (_, date) = clerk.date.at(Instant::now());
            reply.bytes(clerk.desk.parser, Manner::REFUSED, &date)
        };
        self.refuse(reply.status, &out).await
    }

    /// Answers what could not be read, and ends the connection.
    async fn refuse(&mut self, status: u16, bytes: &[u8]) -> io::Result<bool> {
        let clerk = self.clerk;
        let received = Instant::now();
        clerk.counters.count_request();
        let mut record = call::record(&clerk.shared, self.number, received);
        record.status = status;
        record.bytes = bytes.len() as u64;
        let sent = self.socket.send(bytes).await;
        if sent.is_err() {
            record.ended = Ended::ClientAbort;
        }
        if let Some(truth) = &clerk.shared.truth {
            truth.put(record);
        }
        sent.map(|()| false)
    }

    /// Answers; `false` if the answer has no end.
    async fn answer(&mut self, call: &Call, record: &mut Record) -> io::Result<bool> {
        match self.decide(call, record).await {
            Answer::Whole(reply) => self.send_whole(call, &reply, 0, record).await?,
            Answer::Turn(turn) if turn.is_stream => return self.stream(*turn, call, record).await,
            Answer::Turn(turn) => self.complete(*turn, call, record).await?,
        }
        Ok(true)
    }

    /// What a request gets, before any turn of it begins.
    async fn decide(&self, call: &Call, record: &mut Record) -> Answer {
        let desk = &self.clerk.desk;
        match executorch::route(&call.method, &call.path, desk.has_metrics) {
            Err(Unrouted::Method(method)) => Reply::not_allowed(method).into(),
            Err(Unrouted::Slash) if call.host.is_some() => Reply::elsewhere(call).into(),
            Err(Unrouted::Path | Unrouted::Slash) => Reply::detail(404, "Not Found").into(),
            Ok(Route::Chat) => self.chat(call, record).await,
            Ok(Route::Close(id)) => self.operate(Operation::Close, &id).await.into(),
            Ok(Route::Reset(id)) => self.operate(Operation::Reset, &id).await.into(),
            Ok(Route::Health) if desk.worker.is_healthy() => {
                Reply::json(200, br#"{"status":"ok"}"#.into()).into()
            }
            Ok(Route::Health) => Reply::json(503, br#"{"status":"unavailable"}"#.into()).into(),
            Ok(Route::Metrics) => {
                let mut page = String::new();
                desk.counters.encode(&mut page);
                self.clerk.shared.metrics.encode_own(&mut page);
                let mut reply = Reply::text(200, page.into_bytes());
                reply.headers.content_type = Some(wire::metrics::CONTENT_TYPE);
                reply.into()
            }
            Ok(Route::Models) => {
                let mut bytes = Vec::new();
                executorch::encode_models(&desk.plane.model, self.created(), &mut bytes);
                Reply::json(200, bytes).into()
            }
        }
    }

    async fn operate(&self, operation: Operation, session_id: &str) -> Reply {
        if let Err(error) = check_session_id(session_id) {
            return Reply::error(&error);
        }
        let desk = &self.clerk.desk;
        if let Err(failed) = desk.worker.operate(operation, session_id).await {
            return Reply::error(&Error::generation(&failed.text));
        }
        desk.plane.forget(session_id);
        let line = acknowledged(operation.done(), session_id);
        Reply::json(200, line.into_bytes())
    }

    async fn chat(&self, call: &Call, record: &mut Record) -> Answer {
        let desk = &self.clerk.desk;
        let request = match executorch::parse(call.content_type.as_deref(), &call.body) {
            Ok(request) => request,
            Err(Some(failure)) => return Reply::failure(&failure).into(),
            Err(None) => return Reply::internal().into(),
        };
        let (id, mark) = (fastrand::u128(..), fastrand::u128(..));
        let id = format!("chatcmpl-{id:032x}");
        let session_id = call.session_id.as_deref();
        let turn = match desk.plane.prepare(&request, session_id, id, mark) {
            Ok(turn) => turn,
            Err(refusal) => return Reply::from(refusal).into(),
        };
        let facts = &mut record.facts;
        facts.include_usage = turn.include_usage;
        facts.stream = Some(turn.is_stream);
        facts.prompt.clone_from(&turn.prompt);
        facts.response_id = Some(turn.id.as_str().into());
        if let Some(session_id) = &turn.ask.session_id
            && let Err(failed) = desk.worker.operate(Operation::Open, session_id).await
        {
            desk.plane.withdraw(session_id);
            return Reply::error(&not_admitted(&failed)).into();
        }
        Answer::Turn(Box::new(turn))
    }

    async fn send_whole(
        &mut self,
        call: &Call,
        reply: &Reply,
        tokens: u32,
        record: &mut Record,
    ) -> io::Result<()> {
        let clerk = self.clerk;
        let due = call.received.elapsed();
        record.status = reply.status;
        let bytes = {
            let (_, date) = clerk.date.at(Instant::now());
            reply.bytes(clerk.desk.parser, call.manner, &date)
        };
        self.socket.send(&bytes).await?;
        record.bytes = bytes.len() as u64;
        if reply.content != Content::Empty {
            let step = Step {
                due,
                kind: Kind::Body,
                index: None,
                tokens,
                bytes: u32::try_from(reply.bytes.len()).unwrap_or(u32::MAX),
            };
            let (received, written) = (record.received_ns, clerk.shared.now_ns());
            record.chunks.push(Chunk::new(&step, received, written));
        }
        Ok(())
    }

    /// A turn whose answer is sent whole. It goes on to its end though the client may have gone.
    async fn complete(
        &mut self,
        mut turn: Turn,
        call: &Call,
        record: &mut Record,
    ) -> io::Result<()> {
        let desk = &self.clerk.desk;
        let mut asked = desk.worker.turn(turn.ask.clone());
        let mut waited = Waited {
            request_id: call.request_id.clone(),
            ..Waited::default()
        };
        let failed = loop {
            match News::of(asked.next().await, &mut waited, call) {
                News::Nothing => {}
                News::Token(token) => match turn.take(token, 0) {
                    Ok(found) if found.stops => asked.cancel(&desk.worker),
                    Ok(_) => {}
                    Err(fault) => {
                        desk.worker.lose(NO_TEXT);
                        break fault.to_string();
                    }
                },
                News::Done(stats) => {
                    let created = self.created();
                    let random = || fastrand::u128(..);
                    let ended = turn.end(&desk.plane, *stats, waited, created, random);
                    match ended {
                        Err(fault) => break fault.to_string(),
                        Ok(over) => return self.send_over(over, call, record).await,
                    }
                }
                News::Failed(failed) => break failed.text,
            }
        };
        let reply = Reply::error(&Error::generation(&failed));
        self.send_whole(call, &reply, 0, record).await
    }

    async fn send_over(&mut self, over: Over, call: &Call, record: &mut Record) -> io::Result<()> {
        let tokens = self.tell(&over, record);
        let reply = match over.events.into_iter().next() {
            Some(event) if !over.is_cut => Reply::json(200, event.bytes),
            _ => {
                record.ended = Ended::Fault(CutKind::Raise);
                Reply::internal()
            }
        };
        let told = if over.is_cut { 0 } else { tokens };
        self.send_whole(call, &reply, told, record).await
    }

    /// A turn whose answer is sent as it comes; `false` if it has no end.
    async fn stream(
        &mut self,
        mut turn: Turn,
        call: &Call,
        record: &mut Record,
    ) -> io::Result<bool> {
        let desk = &self.clerk.desk;
        let mut out = Outbox::default();
        let mut head = Vec::new();
        stream_head(
            desk.parser,
            call.manner,
            &self.clerk.date.at(Instant::now()).1,
            &mut head,
        );
        out.put(&head);
        self.put(&mut out, &[turn.begin(self.created())], 0, call);
        let mut asked = desk.worker.turn(turn.ask.clone());
        let streamed = self
            .stream_turn(&mut turn, &mut asked, &mut out, call, record)
            .await;
        let is_whole = match streamed {
            Err(error) => {
                self.leave(asked).await;
                return Err(error);
            }
            Ok(Streamed::Done(stats, waited)) => {
                self.end_stream(turn, *stats, waited, &mut out, call, record)
            }
            Ok(Streamed::Failed(text)) => self.put_failure(&text, &mut out, call, record),
            Ok(Streamed::Unencodable(text)) => {
                asked.cancel(&desk.worker);
                self.put_failure(&text, &mut out, call, record)
            }
        };
        if is_whole && self.is_framed(call) {
            out.put(http1::LAST_CHUNK);
        }
        let sent = self.flush(&mut out, record).await;
        if !asked.is_over {
            self.leave(asked).await;
        }
        sent.map(|()| is_whole && self.is_framed(call))
    }

    /// Takes what the worker says until it ends the turn, or that fails; meanwhile the client takes what
    /// it will. An error is the client's.
    async fn stream_turn(
        &mut self,
        turn: &mut Turn,
        asked: &mut Asked,
        out: &mut Outbox,
        call: &Call,
        record: &mut Record,
    ) -> io::Result<Streamed> {
        let shared = &self.clerk.shared;
        let mut waited = Waited {
            request_id: call.request_id.clone(),
            ..Waited::default()
        };
        loop {
            let said = tokio::select! {
                biased;
                written = self.socket.progress(out.rest(), shared.max_head) => {
                    out.wrote(written?, shared.now_ns(), record);
                    continue;
                }
                said = asked.next() => said,
            };
            match News::of(said, &mut waited, call) {
                News::Nothing => {}
                News::Token(token) => match turn.take(token, self.created()) {
                    Ok(found) => {
                        if found.stops {
                            asked.cancel(&self.clerk.desk.worker);
                        }
                        self.put(out, found.event.as_slice(), 0, call);
                    }
                    Err(fault @ Fault::Mistyped(_)) => {
                        self.clerk.desk.worker.lose(NO_TEXT);
                        return Ok(Streamed::Failed(fault.to_string()));
                    }
                    Err(fault @ Fault::Unencodable { .. }) => {
                        return Ok(Streamed::Unencodable(fault.to_string()));
                    }
                },
                News::Done(stats) => return Ok(Streamed::Done(stats, waited)),
                News::Failed(failed) => return Ok(Streamed::Failed(failed.text)),
            }
        }
    }

    /// Ends a stream as the worker has ended its turn; `false` if the server fails over that.
    fn end_stream(
        &self,
        turn: Turn,
        stats: Stats,
        waited: Waited,
        out: &mut Outbox,
        call: &Call,
        record: &mut Record,
    ) -> bool {
        let created = self.created();
        let random = || fastrand::u128(..);
        let plane = &self.clerk.desk.plane;
        match turn.end(plane, stats, waited, created, random) {
            Err(fault) => self.put_failure(&fault.to_string(), out, call, record),
            Ok(over) => {
                let tokens = self.tell(&over, record);
                self.put(out, &over.events, tokens, call);
                if over.is_cut {
                    record.ended = Ended::Fault(CutKind::Raise);
                }
                !over.is_cut
            }
        }
    }

    fn put_failure(&self, text: &str, out: &mut Outbox, call: &Call, record: &mut Record) -> bool {
        self.put(out, &Event::failure(text), 0, call);
        record.ended = Ended::Fault(CutKind::Error);
        true
    }

    /// Puts events into the outbox; the one that ends the answer tells its tokens.
    fn put(&self, out: &mut Outbox, events: &[Event], tokens: u32, call: &Call) {
        let due = call.received.elapsed();
        for event in events {
            let told = if event.kind == Kind::Finish {
                tokens
            } else {
                0
            };
            out.put_event(event, self.is_framed(call), due, told);
        }
    }

    fn is_framed(&self, call: &Call) -> bool {
        self.clerk.desk.parser.chunking(call.manner.is_http10) != Chunking::None
    }

    /// Waits until the client has taken all.
    async fn flush(&mut self, out: &mut Outbox, record: &mut Record) -> io::Result<()> {
        let shared = &self.clerk.shared;
        while !out.rest().is_empty() {
            let written = self.socket.progress(out.rest(), shared.max_head).await?;
            out.wrote(written, shared.now_ns(), record);
        }
        Ok(())
    }

    /// Ends a turn that nobody waits for any more.
    async fn leave(&self, mut asked: Asked) {
        let worker = &self.clerk.desk.worker;
        if asked.withdraw() {
            return;
        }
        let patience = Instant::now() + PATIENCE;
        let wait = Wait::new(&self.socket.local.pacer);
        let ending = async {
            while !asked.is_over {
                asked.cancel(worker);
                asked.next().await;
            }
        };
        if !worker.has_limited_patience() {
            return ending.await;
        }
        tokio::select! {
            () = ending => {}
            _ = wait.until(patience) => worker.give_up(),
        }
    }

    /// Logs and counts a turn that is over; gives its tokens. One whose counts nobody knows, so that the
    /// server fails over it, is none.
    fn tell(&self, over: &Over, record: &mut Record) -> u32 {
        if over.is_cut && over.usage.is_none() {
            return 0;
        }
        let desk = &self.clerk.desk;
        desk.log.write(&over.record);
        desk.counters.count(&over.record);
        let count = |tokens: i128| u64::try_from(tokens).ok();
        let facts = &mut record.facts;
        facts.finish_reason = Some(over.record.finish);
        let usage = over.usage.map(|usage| Usage {
            prompt_tokens: count(usage.prompt_tokens),
            completion_tokens: count(usage.completion_tokens),
            ..Usage::default()
        });
        facts.prompt_tokens = usage.and_then(|usage| usage.prompt_tokens);
        facts.usage = usage;
        record.turn = Some(Box::new(over.record.clone()));
        let tokens = usage.and_then(|usage| usage.completion_tokens);
        u32::try_from(tokens.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Seconds since 1970.
    fn created(&self) -> u64 {
        self.clerk.date.at(Instant::now()).0
    }
}

/// What a worker's words mean for a turn.
enum News {
    Done(Box<Stats>),
    Failed(Failed),
    Nothing,
    Token(Token),
}

impl News {
    /// Notes when it is said.
    fn of(said: Said, waited: &mut Waited, call: &Call) -> Self {
        match said {
            Said::Acknowledged => Self::Nothing,
            Said::Begun(_, at) => {
                waited.queue = at.saturating_duration_since(call.received);
                Self::Nothing
            }
            Said::Done(stats) => Self::Done(stats),
            Said::Failed(failed) => Self::Failed(failed),
            Said::Token(token, at) => {
                let since = at.saturating_duration_since(call.received);
                waited.ttft.get_or_insert(since);
                Self::Token(token)
            }
        }
    }
}

/// How a stream came to its end.
enum Streamed {
    Done(Box<Stats>, Waited),
    Failed(String),
    Unencodable(String),
}

/// The answer to a session that the worker does not take.
fn not_admitted(failed: &Failed) -> Error {
    match failed.code.as_deref() {
        Some("unsupported_session") => {
            let message = "This server hosts a single session; omit session_id.";
            Error::invalid(400, message.into(), "unsupported_session")
        }
        Some("capacity_exhausted") => Error {
            status: 429,
            message: "Session capacity exhausted; reuse an existing session_id or retry later."
                .into(),
            kind: "capacity_error",
            code: Some("capacity_exhausted"),
        },
        _ => Error::generation(&failed.text),
    }
}
