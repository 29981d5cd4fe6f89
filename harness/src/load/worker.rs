//! One thread's share of the load.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answer::Answer;
use super::connection::{Connection, Desk, Ended};
use super::patience::{self, Patience, Patiences};
use super::tickets::Ticket;
use super::timer::Timer;
use super::{Clock, Completed, Job, Share};
use crate::bench::Keep;
use crate::cpu::Cpu;
use crate::record::{Failure, Record};
use crate::totals::Totals;

/// Connections of a worker that are opened ahead of an open loop, which may not need more.
const OPEN_AHEAD: usize = 8;
/// Longest sleep between two looks at what is in flight.
const LONG: Duration = Duration::from_hours(1);
/// How long answers are waited for behind an interrupt.
const GRACE: Duration = Duration::from_millis(250);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Worker {
    job: Arc<Job>,
    index: usize,
    clock: Clock,
    /// The last one used is used next, so that a light load keeps few connections warm.
    idle: RefCell<Vec<Connection>>,
    /// In an open loop, held by the one sender that waits for its request's time: the senders
    /// take turns in order.
    turn: Option<Mutex<Timer>>,
    desk: RefCell<Desk>,
    in_flight: Patiences,
    totals: RefCell<Totals>,
    /// What this thread had taken of the cores when the warm-up ended.
    warmed: Cell<Option<Cpu>>,
}

/// Connections opened before the clock starts, as many as the server accepts.
pub(super) async fn connect_ahead(job: &Job, senders: usize) -> Vec<Connection> {
    let count = if job.tickets.is_open() {
        senders.min(OPEN_AHEAD)
    } else {
        senders
    };
    let mut connections = Vec::with_capacity(senders);
    for _ in 0..count {
        match connect(job).await {
            Ok(connection) => connections.push(connection),
            // The senders will try again and record what they find.
            Err(_) => break,
        }
    }
    connections
}

async fn connect(job: &Job) -> io::Result<Connection> {
    Connection::open(job.address, CONNECT_TIMEOUT.min(job.timeout)).await
}

/// What a sender uses again for each request.
struct Sender {
    answer: Answer,
    patience: Rc<Patience>,
    request: Vec<u8>,
    way: Way,
    records: Vec<Record>,
}

/// How a request went, its answer's content apart.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// When it was first written.
    sent_ns: Option<u64>,
    /// It had to open a connection.
    connected: bool,
    resent: bool,
}

impl Worker {
    /// The worker of that index.
    pub(super) fn new(
        job: Arc<Job>,
        index: usize,
        clock: Clock,
        idle: Vec<Connection>,
    ) -> io::Result<Self> {
        let timer = job.tickets.is_open().then(Timer::new).transpose()?;
        Ok(Self {
            job,
            index,
            clock,
            idle: RefCell::new(idle),
            turn: timer.map(Mutex::new),
            desk: RefCell::new(Desk::new(clock)),
            in_flight: RefCell::default(),
            totals: RefCell::default(),
            warmed: Cell::new(None),
        })
    }

    /// Sends with that many requests in flight at most until the tickets are used up.
    pub(super) async fn run(self, senders: usize) -> Share {
        let worker = Rc::new(self);
        if worker.job.warm_up.is_zero() {
            worker.warmed.set(Some(Cpu::thread()));
        }
        // Both end with the set.
        let mut helpers = JoinSet::new();
        helpers.spawn_local(Rc::clone(&worker).warm_up());
        helpers.spawn_local(Rc::clone(&worker).watch());
        let mut tasks = JoinSet::new();
        for _ in 0..senders {
            tasks.spawn_local(Rc::clone(&worker).send());
        }
        let records = tasks.join_all().await.into_iter().flatten().collect();
        let client = worker.warmed.get();
        Share {
            records,
            totals: worker.totals.take(),
            client: client.map_or_else(Cpu::default, |warmed| Cpu::thread().since(warmed)),
        }
    }

    async fn warm_up(self: Rc<Self>) {
        if self.warmed.get().is_none() {
            tokio::time::sleep_until(self.clock.origin + self.job.warm_up).await;
            self.warmed.set(Some(Cpu::thread()));
        }
    }

    /// Ends requests that take too long, and all of them some time after an interrupt.
    async fn watch(self: Rc<Self>) {
        let mut interrupted = pin!(self.job.interrupted.notified());
        let mut last = None;
        if self.job.tickets.is_interrupted() {
            last = Some(self.clock.at(Instant::now() + GRACE));
        }
        loop {
            let now = Instant::now();
            let next = patience::check(&self.in_flight, self.clock.at(now), last);
            // A request that is sent meanwhile ends no earlier.
            let latest = now + self.job.timeout.min(LONG);
            let next = next.map_or(latest, |next| self.clock.instant(next).min(latest));
            tokio::select! {
                () = &mut interrupted, if last.is_none() => {
                    last = Some(self.clock.at(Instant::now() + GRACE));
                }
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    async fn send(self: Rc<Self>) -> Vec<Record> {
        let job = &self.job;
        let patience = Rc::new(Patience::default());
        self.in_flight.borrow_mut().push(Rc::clone(&patience));
        let mut sender = Sender {
            answer: Answer::new(job.form, job.kept),
            patience,
            request: Vec::new(),
            way: Way::default(),
            records: Vec::new(),
        };
        while let Some((ticket, now)) = self.due(&sender.patience).await {
            let failure = self.sample(ticket, now, &mut sender).await;
            self.job.tickets.learn(failure);
        }
        sender.records
    }

    /// Waits until there is a request to send, and gives the time.
    async fn due(&self, patience: &Patience) -> Option<(Ticket, u64)> {
        let tickets = &self.job.tickets;
        let Some(turn) = &self.turn else {
            let now = self.clock.now();
            return Some((tickets.take(now)?, now));
        };
        let mut timer = turn.lock().await;
        let ticket = tickets.take(self.clock.now())?;
        let waited = timer.wait_until(self.clock, ticket.intended_ns?);
        let waited = patience.bear(Patience::ENDLESS, waited).await?;
        let now = waited.expect("a timer file descriptor can be set and read");
        (!tickets.is_over(now)).then_some((ticket, now))
    }

    /// Sends a request, counts what comes of it, and tells how it failed.
    async fn sample(
        &self,
        ticket: Ticket,
        started_ns: u64,
        sender: &mut Sender,
    ) -> Option<Failure> {
        self.job.requests.write(ticket, &mut sender.request);
        sender.answer.clear();
        sender.way = Way::default();
        let patience = Rc::clone(&sender.patience);
        let ends_ns = started_ns.saturating_add(self.job.timeout_ns);
        let attempt = patience.bear(ends_ns, self.attempt(sender)).await;
        let outcome = attempt.unwrap_or_else(|| {
            let early = self.job.tickets.is_interrupted() && self.clock.now() < ends_ns;
            Err(if early {
                Failure::Interrupted
            } else {
                Failure::Timeout
            })
        });
        let end = End {
            issued_ns: ticket
                .intended_ns
                .or(sender.way.sent_ns)
                .unwrap_or(started_ns),
            ended_ns: outcome.unwrap_or_else(|_| self.clock.now()),
            // What the answer said about itself came before the connection's end.
            failure: sender.answer.said.failure.or_else(|| outcome.err()),
        };
        if !ticket.warms_up {
            self.count(ticket, end, sender);
            if self.job.keep == Keep::Records {
                let sample = self.job.requests.sample(ticket);
                let record = sender.record(ticket, sample, end);
                sender.records.push(record);
            }
        }
        end.failure
    }

    fn count(&self, ticket: Ticket, end: End, sender: &Sender) {
        let (way, said) = (sender.way, &sender.answer.said);
        let totals = &mut *self.totals.borrow_mut();
        if let Some(failure) = end.failure {
            *totals.failed.entry(failure).or_default() += 1;
        } else {
            totals.completed += 1;
            let Completed(completed) = &self.job.completed[self.index];
            completed.store(totals.completed, Ordering::Relaxed);
            totals.latency.record(end.ended_ns - end.issued_ns);
            if let Some(first) = said.first_ns {
                totals.ttft.record(first - end.issued_ns);
            }
        }
        if let (Some(intended), Some(sent)) = (ticket.intended_ns, way.sent_ns) {
            totals.send_late.record(sent - intended);
        }
        totals.events += said.n_events;
        totals.text_chunks += said.n_texts;
        totals.bytes += sender.answer.bytes;
        totals.connections += u64::from(way.connected);
        totals.resent += u64::from(way.resent);
        totals.ended_ns = totals.ended_ns.max(end.ended_ns);
    }

    /// Sends a request and gives the time at which its answer was complete.
    async fn attempt(&self, sender: &mut Sender) -> Result<u64, Failure> {
        let idle = self.idle.borrow_mut().pop();
        if let Some(connection) = idle {
            let outcome = self.exchange(connection, sender).await;
            // A server may close an idle connection at any time; that is no failure of the request,
            // but it is told of.
            if outcome != Err(Failure::Cut) || sender.answer.bytes > 0 {
                return outcome;
            }
            sender.way.resent = true;
        }
        sender.way.connected = true;
        match connect(&self.job).await {
            Ok(connection) => self.exchange(connection, sender).await,
            Err(error) => {
                sender.answer.said.detail = error.to_string();
                Err(Failure::Connect)
            }
        }
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        sender: &mut Sender,
    ) -> Result<u64, Failure> {
        sender.way.sent_ns.get_or_insert_with(|| self.clock.now());
        let Sender {
            answer, request, ..
        } = sender;
        let exchange = connection.exchange(request, &self.desk, answer);
        let Ended { at_ns, reusable } = exchange.await?;
        if reusable {
            self.idle.borrow_mut().push(connection);
        }
        Ok(at_ns)
    }
}

/// A request's times and outcome.
#[derive(Clone, Copy, Debug)]
struct End {
    issued_ns: u64,
    ended_ns: u64,
    failure: Option<Failure>,
}

impl Sender {
    fn record(&mut self, ticket: Ticket, sample: usize, end: End) -> Record {
        let said = &mut self.answer.said;
        let said_ids = said.samples.said_ids();
        Record {
            request: ticket.number,
            sample,
            issued_ns: end.issued_ns,
            sent_ns: self.way.sent_ns,
            resent: self.way.resent,
            ended_ns: end.ended_ns,
            failure: end.failure,
            detail: std::mem::take(&mut said.detail).into(),
            texts: (&*said.texts).into(),
            content: String::from_utf8_lossy(&said.content).into(),
            reasoning: String::from_utf8_lossy(&said.reasoning).into(),
            tool_calls: said.tool_calls,
            tools: std::mem::take(&mut said.tools).into(),
            odd_usage: said.odd_usage.take(),
            usage: said.usage,
            output_ids: said.samples.n_ids(),
            said_ids: said_ids.map(Vec::into_boxed_slice),
            events: (&*said.events).into(),
            data: std::mem::take(&mut said.data).into(),
        }
    }
}
