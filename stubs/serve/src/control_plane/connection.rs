//! One client's connection.

use std::io;
use std::time::Duration;

use plan::control_plane::{Event, Fault, Turn, Waited, check_session_id};
use plan::script::CutKind;
use plan::{Kind, Step};
use tokio::time::Instant;
use wire::dialect::Content;
use wire::dialect::uvicorn;
use wire::executorch::{self, Error, Route, Unrouted};
use wire::http1::{self, Chunking};
use wire::usage::Usage;
use wire::worker_lines::Operation;

use super::Clerk;
use super::call::{self, Call, Manner};
use super::reply::{Reply, stream_head};
use super::worker::{Asked, Failed, Said};
use crate::local::Phase;
use crate::pacer::Wait;
use crate::socket::{Came, Socket};
use crate::truth::{Chunk, Ended, Record};

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
        let line = wire::worker_lines::acknowledged(operation.done(), session_id);
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
        record.status = reply.status;
        let bytes = {
            let (_, date) = clerk.date.at(Instant::now());
            reply.bytes(clerk.desk.parser, call.manner, &date)
        };
        self.socket.send(&bytes).await?;
        record.bytes = bytes.len() as u64;
        if reply.content != Content::Empty {
            let size = reply.bytes.len();
            self.note((Kind::Body, size, tokens), call.received.elapsed(), record);
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
            match Heard::of(asked.next().await, &mut waited, call) {
                Heard::Nothing => {}
                Heard::Token(token) => match turn.take(token, 0) {
                    Ok(found) if found.stops => self.cancel(&asked),
                    Ok(_) => {}
                    Err(fault) => {
                        desk.worker.lose("the model worker said what is no text");
                        break fault.to_string();
                    }
                },
                Heard::Done(stats) => {
                    let created = self.created();
                    let random = || fastrand::u128(..);
                    let ended = turn.end(&desk.plane, *stats, waited, created, random);
                    match ended {
                        Err(fault) => break fault.to_string(),
                        Ok(ended) => return self.send_ended(ended, call, record).await,
                    }
                }
                Heard::Failed(failed) => break failed.text,
            }
        };
        let reply = Reply::error(&Error::generation(&failed));
        self.send_whole(call, &reply, 0, record).await
    }

    async fn send_ended(
        &mut self,
        ended: plan::control_plane::Ended,
        call: &Call,
        record: &mut Record,
    ) -> io::Result<()> {
        let tokens = self.tell(&ended, record);
        let reply = match ended.events.into_iter().next() {
            Some(event) if !ended.is_cut => Reply::json(200, event.bytes),
            _ => Reply::internal(),
        };
        let told = if reply.status == 200 { tokens } else { 0 };
        self.send_whole(call, &reply, told, record).await
    }

    /// A turn whose answer is sent as it comes.
    async fn stream(
        &mut self,
        mut turn: Turn,
        call: &Call,
        record: &mut Record,
    ) -> io::Result<bool> {
        let desk = &self.clerk.desk;
        let mut head = Vec::new();
        stream_head(
            desk.parser,
            call.manner,
            &self.clerk.date.at(Instant::now()).1,
            &mut head,
        );
        let first = turn.begin(self.created());
        self.send_events(head, &[first], 0, call, record).await?;
        let mut asked = desk.worker.turn(turn.ask.clone());
        let streamed = self.stream_turn(&mut turn, &mut asked, call, record).await;
        let over = match streamed {
            Err(error) => {
                self.leave(asked).await;
                return Err(error);
            }
            Ok(Streamed::Done(stats, waited)) => {
                let created = self.created();
                let random = || fastrand::u128(..);
                match turn.end(&desk.plane, *stats, waited, created, random) {
                    Err(fault) => Err(fault.to_string()),
                    Ok(ended) => Ok(ended),
                }
            }
            Ok(Streamed::Failed(text)) => Err(text),
            Ok(Streamed::Unencodable(text)) => {
                let sent = self.send_failure(&text, call, record).await;
                self.leave(asked).await;
                return sent;
            }
        };
        match over {
            Err(text) => self.send_failure(&text, call, record).await,
            Ok(ended) => {
                let tokens = self.tell(&ended, record);
                self.send_events(Vec::new(), &ended.events, tokens, call, record)
                    .await?;
                if ended.is_cut {
                    record.ended = Ended::Fault(CutKind::Raise);
                    return Ok(false);
                }
                self.send_last(call, record).await
            }
        }
    }

    async fn send_failure(
        &mut self,
        text: &str,
        call: &Call,
        record: &mut Record,
    ) -> io::Result<bool> {
        let failure = Event::failure(text);
        self.send_events(Vec::new(), &failure, 0, call, record)
            .await?;
        record.ended = Ended::Fault(CutKind::Error);
        self.send_last(call, record).await
    }

    /// Shows text as it comes, until the worker ends the turn, or it fails. An error is the client's.
    async fn stream_turn(
        &mut self,
        turn: &mut Turn,
        asked: &mut Asked,
        call: &Call,
        record: &mut Record,
    ) -> io::Result<Streamed> {
        let most = self.clerk.shared.max_head;
        let mut waited = Waited {
            request_id: call.request_id.clone(),
            ..Waited::default()
        };
        loop {
            let said = tokio::select! {
                biased;
                () = self.socket.left(most) => return Err(io::ErrorKind::ConnectionAborted.into()),
                said = asked.next() => said,
            };
            match Heard::of(said, &mut waited, call) {
                Heard::Nothing => {}
                Heard::Token(token) => match turn.take(token, self.created()) {
                    Ok(found) => {
                        if found.stops {
                            self.cancel(asked);
                        }
                        self.send_events(Vec::new(), found.event.as_slice(), 0, call, record)
                            .await?;
                    }
                    Err(fault @ Fault::Mistyped(_)) => {
                        let worker = &self.clerk.desk.worker;
                        worker.lose("the model worker said what is no text");
                        return Ok(Streamed::Failed(fault.to_string()));
                    }
                    Err(fault @ Fault::Unencodable { .. }) => {
                        return Ok(Streamed::Unencodable(fault.to_string()));
                    }
                },
                Heard::Done(stats) => return Ok(Streamed::Done(stats, waited)),
                Heard::Failed(failed) => return Ok(Streamed::Failed(failed.text)),
            }
        }
    }

    fn cancel(&self, asked: &Asked) {
        if let Some(id) = asked.id {
            self.clerk.desk.worker.cancel(id);
        }
    }

    /// Ends a turn that nobody waits for any more.
    async fn leave(&self, mut asked: Asked) {
        let worker = &self.clerk.desk.worker;
        if asked.withdraw() {
            return;
        }
        self.cancel(&asked);
        let mut is_cancelled = asked.id.is_some();
        let patience = Instant::now() + PATIENCE;
        let wait = Wait::new(&self.socket.local.pacer);
        let ending = async {
            loop {
                match asked.next().await {
                    Said::Begun(..) if !is_cancelled => {
                        self.cancel(&asked);
                        is_cancelled = true;
                    }
                    Said::Done(_) | Said::Failed(_) => return,
                    Said::Acknowledged | Said::Begun(..) | Said::Token(..) => {}
                }
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

    /// Logs and counts a turn that is over; gives its tokens.
    fn tell(&self, ended: &plan::control_plane::Ended, record: &mut Record) -> u32 {
        let desk = &self.clerk.desk;
        desk.log.write(&ended.record);
        desk.counters.count(&ended.record);
        let count = |tokens: i128| u64::try_from(tokens).ok();
        let facts = &mut record.facts;
        facts.finish_reason = Some(ended.record.finish);
        let usage = ended.usage.map(|usage| Usage {
            prompt_tokens: count(usage.prompt_tokens),
            completion_tokens: count(usage.completion_tokens),
            ..Usage::default()
        });
        facts.prompt_tokens = usage.and_then(|usage| usage.prompt_tokens);
        facts.usage = usage;
        record.turn = Some(Box::new(ended.record.clone()));
        let tokens = usage.and_then(|usage| usage.completion_tokens);
        u32::try_from(tokens.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Sends events, each a chunk of its own; the last but one that ends the answer tells its tokens.
    async fn send_events(
        &mut self,
        mut front: Vec<u8>,
        events: &[Event],
        tokens: u32,
        call: &Call,
        record: &mut Record,
    ) -> io::Result<()> {
        let due = call.received.elapsed();
        let is_framed = self.clerk.desk.parser.chunking(call.manner.is_http10) != Chunking::None;
        for event in events {
            if is_framed {
                http1::write_chunk(&mut front, |out| out.extend_from_slice(&event.bytes));
            } else {
                front.extend_from_slice(&event.bytes);
            }
        }
        if front.is_empty() {
            return Ok(());
        }
        self.socket.send(&front).await?;
        record.bytes += front.len() as u64;
        for event in events {
            let told = if event.kind == Kind::Finish {
                tokens
            } else {
                0
            };
            self.note((event.kind, event.bytes.len(), told), due, record);
        }
        Ok(())
    }

    async fn send_last(&mut self, call: &Call, record: &mut Record) -> io::Result<bool> {
        if self.clerk.desk.parser.chunking(call.manner.is_http10) == Chunking::None {
            return Ok(false);
        }
        self.socket.send(http1::LAST_CHUNK).await?;
        record.bytes += http1::LAST_CHUNK.len() as u64;
        Ok(true)
    }

    /// Notes what was just written.
    fn note(&self, (kind, bytes, tokens): (Kind, usize, u32), due: Duration, record: &mut Record) {
        let shared = &self.clerk.shared;
        if shared.truth.is_none() {
            return;
        }
        let step = Step {
            due,
            kind,
            index: (kind != Kind::Body).then_some(0),
            tokens,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        };
        let written = shared.now_ns();
        record
            .chunks
            .push(Chunk::new(&step, record.received_ns, written));
    }

    /// Seconds since 1970.
    fn created(&self) -> u64 {
        self.clerk.date.at(Instant::now()).0
    }
}

/// What a worker's words mean for a turn.
enum Heard {
    Done(Box<wire::worker_lines::Stats>),
    Failed(Failed),
    Nothing,
    Token(wire::worker_lines::Token),
}

impl Heard {
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
    Done(Box<wire::worker_lines::Stats>, Waited),
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
