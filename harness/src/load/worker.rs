//! One thread's share of the load.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::answer::Answer;
use super::connection::{Connection, Ended};
use super::timer::Timer;
use super::{Clock, Job};
use crate::record::{Failure, Record};

/// Connections of a worker that are opened ahead of an open loop, which may not need more.
const OPEN_AHEAD: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Worker {
    job: Arc<Job>,
    clock: Clock,
    /// The last one used is used next, so that a light load keeps few connections warm.
    idle: RefCell<Vec<Connection>>,
    /// In an open loop, held by the one sender that waits for its request's time: the senders
    /// take turns in order.
    turn: Option<Mutex<Timer>>,
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

/// A request whose time has come.
struct Due {
    ticket: u64,
    /// Its intended time in an open loop.
    intended_ns: Option<u64>,
}

/// What a sender uses again for each request.
struct Sender {
    answer: Answer,
    request: Vec<u8>,
    /// When it was first written.
    sent_ns: Option<u64>,
    resent: bool,
}

impl Worker {
    pub(super) fn new(job: Arc<Job>, clock: Clock, idle: Vec<Connection>) -> io::Result<Self> {
        let timer = job.tickets.is_open().then(Timer::new).transpose()?;
        Ok(Self {
            job,
            clock,
            idle: RefCell::new(idle),
            turn: timer.map(Mutex::new),
        })
    }

    /// Sends with that many requests in flight at most until the tickets are used up.
    pub(super) async fn run(self, senders: usize) -> Vec<Record> {
        let worker = Rc::new(self);
        let mut tasks = JoinSet::new();
        for _ in 0..senders {
            tasks.spawn_local(Rc::clone(&worker).send());
        }
        tasks.join_all().await.into_iter().flatten().collect()
    }

    async fn send(self: Rc<Self>) -> Vec<Record> {
        let mut records = Vec::new();
        let mut sender = Sender {
            answer: Answer::new(self.job.keep_events),
            request: Vec::new(),
            sent_ns: None,
            resent: false,
        };
        while let Some(due) = self.due().await {
            let record = self.sample(due, &mut sender).await;
            self.job.tickets.learn(record.failure);
            records.push(record);
        }
        records
    }

    /// Waits until there is a request to send.
    async fn due(&self) -> Option<Due> {
        let tickets = &self.job.tickets;
        let Some(turn) = &self.turn else {
            let ticket = tickets.take(self.clock.now())?;
            return Some(Due {
                ticket,
                intended_ns: None,
            });
        };
        let mut timer = turn.lock().await;
        let ticket = tickets.take(self.clock.now())?;
        let intended_ns = tickets.intended(ticket)?;
        let waited = timer.wait_until(self.clock, intended_ns).await;
        waited.expect("a timer file descriptor can be set and read");
        (!tickets.is_over()).then_some(Due {
            ticket,
            intended_ns: Some(intended_ns),
        })
    }

    async fn sample(&self, due: Due, sender: &mut Sender) -> Record {
        let started_ns = self.clock.now();
        self.job.requests.write(due.ticket, &mut sender.request);
        sender.answer.clear();
        sender.sent_ns = None;
        sender.resent = false;
        let attempt = tokio::time::timeout(self.job.timeout, self.attempt(sender)).await;
        let outcome = attempt.unwrap_or(Err(Failure::Timeout));
        let said = &mut sender.answer.said;
        Record {
            request: due.ticket,
            sample: self.job.requests.sample(due.ticket),
            issued_ns: due.intended_ns.or(sender.sent_ns).unwrap_or(started_ns),
            sent_ns: sender.sent_ns,
            resent: sender.resent,
            ended_ns: outcome.unwrap_or_else(|_| self.clock.now()),
            // What the answer said about itself came before the connection's end.
            failure: said.failure.or_else(|| outcome.err()),
            detail: std::mem::take(&mut said.detail).into(),
            texts: (&*said.texts).into(),
            content: (&*said.content).into(),
            reasoning: (&*said.reasoning).into(),
            tool_calls: said.tool_calls,
            usage: said.usage,
            events: (&*said.events).into(),
        }
    }

    /// Sends a request and gives the time at which its answer was complete.
    async fn attempt(&self, sender: &mut Sender) -> Result<u64, Failure> {
        let idle = self.idle.borrow_mut().pop();
        if let Some(connection) = idle {
            let outcome = self.exchange(connection, sender).await;
            // A server may close an idle connection at any time; that is no failure of the request,
            // but it is told of.
            if outcome != Err(Failure::Cut) || sender.answer.begun {
                return outcome;
            }
            sender.resent = true;
        }
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
        sender.sent_ns.get_or_insert_with(|| self.clock.now());
        let Sender {
            answer, request, ..
        } = sender;
        let exchange = connection.exchange(request, self.job.stream, self.clock, answer);
        let Ended { at_ns, reusable } = exchange.await?;
        if reusable {
            self.idle.borrow_mut().push(connection);
        }
        Ok(at_ns)
    }
}
