//! `stubline serve replay`: recorded bytes, unchanged, to whoever sends the recorded requests.

mod folder;

use std::borrow::Cow;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use plan::Kind;
use plan::Step;
use plan::replay::{Answer, Replay};
use tokio::time::Instant;
use wire::dialect::Dialect;
use wire::http1::WholeRequest;

use crate::cli::{Listening, Running};
use crate::cpu::Thread;
use crate::local::Phase;
use crate::metrics::Counters;
use crate::pacer::Wait;
use crate::server::Server;
use crate::socket::{Came, Socket};
use crate::truth::{Chunk, Ended, Record};
use crate::worker::{Date, Shared};

pub use folder::load;

/// Flags of `serve replay`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folder of `<case>.request.http` and `<case>.response.http`, searched with its folders
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    listening: Listening,
    /// When bytes are sent: burst, or recorded for the times in `<case>.times.json`
    #[arg(long, value_enum, default_value_t = Pace::Burst, value_name = "SPEC")]
    pace: Pace,
    /// Answer what was not recorded with the nearest case of the same target
    #[arg(long)]
    nearest: bool,
}

/// When recorded bytes are sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Pace {
    /// At once.
    #[default]
    Burst,
    /// When they came, as far as that was recorded.
    Recorded,
}

/// How a folder is played.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plays {
    /// When bytes are sent.
    pub pace: Pace,
    /// What was not recorded gets the nearest case's answer.
    pub nearest: bool,
}

/// Loads the folder and starts to play it.
pub(crate) fn start(args: Args) -> anyhow::Result<Running> {
    let drain = args.listening.drain;
    let config = args.listening.config()?;
    let replay = Replay::new(load(&args.dir)?);
    let dir = args.dir.display();
    ensure!(
        !replay.is_empty(),
        "{dir} holds no <case>.request.http with its <case>.response.http"
    );
    tracing::info!("playing {} answers from {dir}", replay.len());
    let plays = Plays {
        pace: args.pace,
        nearest: args.nearest,
    };
    let server = Server::replay(&config, Arc::new(replay), plays);
    Ok(Running {
        server: server.context("failed to start")?,
        drain,
    })
}

/// One thread's state.
#[derive(Debug)]
pub(crate) struct Player {
    counters: Arc<Counters>,
    date: Date,
    plays: Plays,
    replay: Arc<Replay>,
    shared: Shared,
}

impl Player {
    /// Serves a listener until the phase says stop.
    pub(crate) fn run(
        listener: TcpListener,
        shared: Shared,
        replay: Arc<Replay>,
        plays: Plays,
    ) -> io::Result<()> {
        let player = Rc::new(Self {
            counters: shared.metrics.add_worker(Thread::current(), Dialect::VLLM),
            date: Date::default(),
            plays,
            replay,
            shared,
        });
        let serving = Rc::clone(&player);
        player
            .shared
            .serve(listener, async move |stream, local, number| {
                let mut connection = Connection {
                    number,
                    player: &serving,
                    socket: Socket::new(stream, local)?,
                };
                while connection.exchange().await? {}
                Ok(())
            })
    }
}

/// A client's connection.
struct Connection<'p> {
    number: u64,
    player: &'p Player,
    socket: Socket<'p>,
}

/// What a client sent and what it gets.
struct Played<'a> {
    answer: Cow<'a, Answer>,
    method: Option<String>,
    request_id: String,
    route: Option<String>,
    /// Interim bytes that were sent already.
    skip: usize,
    /// Bytes of input that it used.
    used: usize,
}

impl<'p> Connection<'p> {
    /// One request and its answer; `false` ends the connection.
    async fn exchange(&mut self) -> io::Result<bool> {
        let played = match self.socket.request(&self.player.shared).await? {
            Came::Ended | Came::TooLarge => None,
            Came::Invalid => self.played_raw(),
            Came::Whole { has_continued } => {
                let request = WholeRequest::parse(&self.socket.input).ok().flatten();
                let request = request.expect("it came whole");
                Some(self.played(&request, has_continued))
            }
        };
        let Some(played) = played else {
            return Ok(false);
        };
        self.socket.input.drain(..played.used);
        self.play(played).await
    }

    fn played(&self, request: &WholeRequest<'_>, has_continued: bool) -> Played<'p> {
        let player = self.player;
        let replay = &player.replay;
        let answer = replay
            .answer(&self.socket.input, request)
            .or_else(|missed| {
                let nearest = missed
                    .nearest
                    .as_deref()
                    .filter(|_| self.player.plays.nearest);
                nearest.and_then(|name| replay.named(name)).ok_or(missed)
            });
        let answer = match answer {
            Ok(answer) => Cow::Borrowed(answer),
            Err(missed) => {
                tracing::warn!("no recorded case fits {} {}", missed.method, missed.target);
                Cow::Owned(missed.answer(&self.player.date.at(Instant::now()).1))
            }
        };
        Played {
            skip: if has_continued { answer.interim } else { 0 },
            answer,
            method: Some(request.head.method.to_owned()),
            request_id: match request.head.header("x-request-id") {
                Some(id) => id.to_owned(),
                None if player.shared.truth.is_some() => format!("{:032x}", fastrand::u128(..)),
                None => String::new(),
            },
            route: Some(request.head.path().to_owned()),
            used: request.length,
        }
    }

    fn played_raw(&self) -> Option<Played<'p>> {
        let answer = self.player.replay.answer_raw(&self.socket.input)?;
        Some(Played {
            answer: Cow::Borrowed(answer),
            method: None,
            request_id: String::new(),
            route: None,
            skip: 0,
            used: self.socket.input.len(),
        })
    }

    /// Sends an answer as it falls due and files the record, however it ends.
    async fn play(&mut self, played: Played<'_>) -> io::Result<bool> {
        let received = Instant::now();
        self.player.counters.count_request();
        let shared = &self.player.shared;
        let mut record = record(shared, self.number, &played, received);
        let local = self.socket.local;
        let sending = self.send(&played, received, &mut record);
        let sent = local.unless(Phase::Stopping, sending).await;
        record.ended = match sent {
            None => Ended::Drain,
            Some(Err(_)) => Ended::ClientAbort,
            Some(Ok(())) => Ended::Done,
        };
        if let Some(truth) = &shared.truth {
            truth.put(record);
        }
        sent.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
        Ok(played.answer.keep_alive)
    }

    /// Writes an answer's parts when they are due and notes when that was.
    async fn send(
        &mut self,
        played: &Played<'_>,
        received: Instant,
        record: &mut Record,
    ) -> io::Result<()> {
        let (bytes, mut at) = (&played.answer.bytes, 0);
        let whole = [(Duration::ZERO, bytes.len())];
        let parts = match self.player.plays.pace {
            Pace::Burst => &whole[..],
            Pace::Recorded => &played.answer.parts,
        };
        for &(due, length) in parts {
            if due > received.elapsed() {
                let wait = Wait::new(&self.socket.local.pacer);
                wait.until(received + due).await?;
            }
            let part = &bytes[at.max(played.skip).min(at + length)..at + length];
            at += length;
            self.socket.send(part).await?;
            if !due.is_zero() {
                let late = received.elapsed().saturating_sub(due);
                self.player.counters.count_late(late);
            }
            let step = Step {
                due,
                kind: Kind::Body,
                index: None,
                tokens: 0,
                bytes: u32::try_from(part.len()).unwrap_or(u32::MAX),
            };
            record.bytes += part.len() as u64;
            let written = self.player.shared.now_ns();
            record
                .chunks
                .push(Chunk::new(&step, record.received_ns, written));
        }
        Ok(())
    }
}

fn record(shared: &Shared, connection: u64, played: &Played<'_>, received: Instant) -> Record {
    Record {
        method: played.method.clone(),
        request_id: played.request_id.clone(),
        route: played.route.clone(),
        status: played.answer.status,
        ..shared.record("replay", connection, received)
    }
}
