//! The one model worker of a server: turns and operations go to it one by one, in the order they come.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use wire::executorch::Profile;
use wire::worker_lines::{Ask, Heard, HeardError, Operation, Ready, Stats, Token};

use super::process::{Cancels, Process, Started, Starts};

/// What a lost worker's server says to all requests.
const UNAVAILABLE: &str = "model worker is unavailable; restart the server";

/// What comes of a turn or an operation, in the order in which it comes.
#[derive(Debug)]
pub(super) enum Said {
    /// The operation is done.
    Acknowledged,
    /// It is its turn; the number under which a turn can be cancelled.
    Begun(u64, Instant),
    /// The turn is over.
    Done(Box<Stats>),
    /// It failed.
    Failed(Failed),
    /// Some text.
    Token(Token, Instant),
}

/// Why a turn or an operation failed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Failed {
    pub(super) code: Option<String>,
    pub(super) text: String,
}

impl From<String> for Failed {
    fn from(text: String) -> Self {
        Self { code: None, text }
    }
}

/// A worker that is ready, as the connections see it.
pub(super) struct Worker {
    cancels: Mutex<Option<Cancels>>,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    state: Arc<State>,
}

/// What is known of a worker's health.
struct State {
    /// What all further requests are told.
    failure: OnceLock<String>,
    /// Why nothing that the worker says can be used any more.
    lost: OnceLock<String>,
    next_id: AtomicU64,
    process: Process,
    profile: &'static Profile,
    supports_cancel: bool,
}

struct Job {
    asks: Asks,
    is_claimed: Arc<AtomicBool>,
    said: UnboundedSender<Said>,
}

/// A turn or an operation that waits for the worker, or runs.
pub(super) struct Asked {
    /// The number under which a turn can be cancelled, once it has begun.
    pub(super) id: Option<u64>,
    /// Set by whoever is first: the worker begins it, or nobody wants it any more.
    is_claimed: Arc<AtomicBool>,
    said: UnboundedReceiver<Said>,
}

impl Asked {
    /// What comes next of it.
    pub(super) async fn next(&mut self) -> Said {
        let said = self.said.recv().await;
        if let Some(Said::Begun(id, _)) = said {
            self.id = Some(id);
        }
        said.unwrap_or_else(|| Said::Failed(UNAVAILABLE.to_owned().into()))
    }

    /// Takes it back; false if it has begun.
    pub(super) fn withdraw(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::AcqRel)
    }
}

enum Asks {
    Operation(Operation, String),
    Turn(Box<Ask>),
}

/// Why a worker did not start, in the real server's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("worker failed to start (no output; check its stderr).")]
    Silent,
    #[error(transparent)]
    Unready(#[from] HeardError),
}

impl Worker {
    /// Starts a worker and waits for its first line.
    pub(super) fn start(starts: Starts, profile: &'static Profile) -> Result<Self, StartError> {
        let Started {
            cancels,
            process,
            stdin,
            mut stdout,
        } = starts.start(profile.gives_up_workers)?;
        let mut first = Vec::new();
        let read = stdout.read_until(b'\n', &mut first);
        let ready = match read {
            Ok(0) => Err(StartError::Silent),
            Ok(_) => Ready::parse(&first).map_err(StartError::Unready),
            Err(error) => Err(error.into()),
        };
        let ready = ready.inspect_err(|_| process.end())?;
        let supports_cancel = ready.supports_cancel && profile.gives_up_workers;
        tracing::info!(
            "model worker ready (max_named_sessions={}, supports_cancel={supports_cancel})",
            ready.max_named_sessions
        );
        let state = Arc::new(State {
            failure: OnceLock::new(),
            lost: OnceLock::new(),
            next_id: AtomicU64::new(1),
            process,
            profile,
            supports_cancel,
        });
        let (jobs, to_do) = mpsc::channel();
        let mut driver = Driver {
            line: Vec::new(),
            state: Arc::clone(&state),
            stdin,
            stdout,
        };
        std::thread::Builder::new()
            .name("model-driver".into())
            .spawn(move || driver.run(&to_do))?;
        Ok(Self {
            cancels: Mutex::new(supports_cancel.then_some(cancels)),
            jobs: Mutex::new(Some(jobs)),
            state,
        })
    }

    /// Whether it takes requests, as far as its server would know.
    pub(super) fn is_healthy(&self) -> bool {
        let state = &self.state;
        let has_failed = state.failure.get().is_some() || state.lost.get().is_some();
        let has_exited = || state.process.exit_code().is_some();
        !(has_failed || state.profile.gives_up_workers && has_exited())
    }

    /// Puts a turn behind those that wait.
    pub(super) fn turn(&self, ask: Ask) -> Asked {
        self.put(Asks::Turn(Box::new(ask)))
    }

    /// Puts an operation behind what waits, and waits for it.
    pub(super) async fn operate(
        &self,
        operation: Operation,
        session_id: &str,
    ) -> Result<(), Failed> {
        let mut asked = self.put(Asks::Operation(operation, session_id.to_owned()));
        loop {
            match asked.next().await {
                Said::Acknowledged => return Ok(()),
                Said::Failed(failed) => return Err(failed),
                Said::Begun(..) | Said::Done(_) | Said::Token(..) => {}
            }
        }
    }

    fn put(&self, asks: Asks) -> Asked {
        let (said, receiver) = unbounded_channel();
        let is_claimed = Arc::new(AtomicBool::new(false));
        let asked = Asked {
            id: None,
            is_claimed: Arc::clone(&is_claimed),
            said: receiver,
        };
        // A server that has seen its worker fail asks it no more.
        if let Err(text) = self.state.check() {
            let _ = said.send(Said::Failed(text.into()));
            return asked;
        }
        let jobs = self.jobs.lock().expect("nobody panics with the lock");
        if let Some(jobs) = &*jobs {
            // A driver that is gone leaves the receiver without a word, which says that too.
            let _ = jobs.send(Job {
                asks,
                is_claimed,
                said,
            });
        }
        asked
    }

    /// Asks the worker to end a turn.
    pub(super) fn cancel(&self, id: u64) {
        let mut cancels = self.cancels.lock().expect("nobody panics with the lock");
        let sent = cancels.as_mut().is_none_or(|cancels| cancels.send(id));
        if !sent {
            *cancels = None;
        }
    }

    /// Whether a turn that was left is waited for no longer than a while.
    pub(super) fn has_limited_patience(&self) -> bool {
        self.state.profile.gives_up_workers
    }

    /// Takes the worker for lost: what it will say belongs to no turn.
    pub(super) fn lose(&self, why: &str) {
        self.state.lost.get_or_init(|| why.to_owned());
    }

    /// Ends a worker that does not end a turn.
    pub(super) fn give_up(&self) {
        let why = "model worker cancellation timed out; restart the server";
        self.state.failure.get_or_init(|| why.to_owned());
        self.lose("worker client aborted");
        let state = Arc::clone(&self.state);
        let ending = std::thread::Builder::new().name("model-end".into());
        if let Err(error) = ending.spawn(move || state.process.end()) {
            tracing::error!("failed to end the model worker: {error}");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs
            .get_mut()
            .expect("nobody panics with the lock")
            .take();
        self.state.process.end();
    }
}

impl State {
    /// What a request is told that the worker cannot take.
    fn check(&self) -> Result<(), String> {
        if !self.profile.gives_up_workers {
            return self.usable();
        }
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        self.usable()
            .map_err(|_| self.failure.get_or_init(|| UNAVAILABLE.to_owned()).clone())
    }

    fn usable(&self) -> Result<(), String> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        match self.process.exit_code() {
            Some(code) => Err(format!("worker exited (code {code}); restart the server")),
            None => Ok(()),
        }
    }

    /// A failure of the worker itself; the real server's later version does not use it any more.
    fn fail(&self, text: String) -> Said {
        if self.profile.gives_up_workers {
            self.lost.get_or_init(|| text.clone());
        }
        Said::Failed(text.into())
    }
}

/// The thread that talks to a worker.
struct Driver {
    line: Vec<u8>,
    state: Arc<State>,
    stdin: Box<dyn Write + Send>,
    stdout: Box<dyn BufRead + Send>,
}

impl Driver {
    fn run(&mut self, jobs: &mpsc::Receiver<Job>) {
        for job in jobs {
            let Job {
                asks,
                is_claimed,
                said,
            } = job;
            if is_claimed.swap(true, Ordering::AcqRel) {
                continue;
            }
            // Nobody need listen: a worker that was asked says all that it has to say.
            let tell = |what| {
                let _ = said.send(what);
            };
            if let Err(text) = self.state.check() {
                tell(Said::Failed(text.into()));
                continue;
            }
            let id = match asks {
                Asks::Turn(_) => self.state.next_id.fetch_add(1, Ordering::Relaxed),
                Asks::Operation(..) => 0,
            };
            tell(Said::Begun(id, Instant::now()));
            let line = match &asks {
                Asks::Operation(operation, session_id) => operation.line(session_id),
                Asks::Turn(ask) => ask.line(Some(id).filter(|_| self.state.supports_cancel)),
            };
            if self.write(&line).is_err() {
                tell(self.state.fail("worker stdin is closed".into()));
                continue;
            }
            loop {
                let what = self.hear(&asks);
                if let Some(failure) = self.state.failure.get() {
                    // Nobody listens to a worker that was given up, which ends one of ours.
                    self.stdout = Box::new(io::empty());
                    tell(Said::Failed(failure.clone().into()));
                    break;
                }
                let is_last = !matches!(what, Said::Token(..));
                tell(what);
                if is_last {
                    break;
                }
            }
        }
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.stdin.write_all(&[line, b"\n"].concat())?;
        self.stdin.flush()
    }

    fn hear(&mut self, asks: &Asks) -> Said {
        self.line.clear();
        match self.stdout.read_until(b'\n', &mut self.line) {
            Ok(0) => {
                self.state.process.settle();
                return self.state.fail("worker exited mid-request".into());
            }
            Err(_) => return self.state.fail("worker stdout is closed".into()),
            Ok(_) => {}
        }
        let heard = match asks {
            Asks::Operation(operation, _) => Heard::parse_operation(&self.line, *operation),
            Asks::Turn(_) => Heard::parse(&self.line).map(Some),
        };
        match heard {
            Ok(None) => Said::Acknowledged,
            Ok(Some(Heard::Done(stats))) => Said::Done(stats),
            Ok(Some(Heard::Error { text, code })) => Said::Failed(Failed { code, text }),
            Ok(Some(Heard::Token(token))) => Said::Token(token, Instant::now()),
            Err(HeardError::NotUtf8 { .. }) if self.state.profile.gives_up_workers => {
                self.state.fail("worker stdout is closed".into())
            }
            Err(error) => self.state.fail(error.to_string()),
        }
    }
}
