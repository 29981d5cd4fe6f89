//! The one model worker of a server: turns and operations go to it one by one, in the order they come.

use std::io::{self, BufRead, Read as _, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::Instant;
use wire::executorch::Profile;
use wire::worker_lines::{Ask, Heard, HeardError, Operation, Ready, Stats, Token};

use super::process::{Cancels, Process, Started, Starts};

/// What a lost worker's server says to all requests.
const UNAVAILABLE: &str = "model worker is unavailable; restart the server";
/// What it says if the worker did not end a turn.
const GIVEN_UP: &str = "model worker cancellation timed out; restart the server";
/// Longest line of a worker.
const MAX_LINE: u64 = 64 << 20;

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
    given_up: watch::Sender<bool>,
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
    /// All that wait are told when the worker is given up.
    given_up: watch::Receiver<bool>,
    /// The number under which a turn can be cancelled, once it has begun.
    id: Option<u64>,
    is_cancelled: bool,
    /// Set by whoever is first: the worker begins it, or nobody wants it any more.
    is_claimed: Arc<AtomicBool>,
    /// Nothing more comes of it.
    pub(super) is_over: bool,
    said: UnboundedReceiver<Said>,
}

impl Asked {
    /// What comes next of it.
    pub(super) async fn next(&mut self) -> Said {
        let waits = !self.is_claimed.load(Ordering::Acquire);
        let given_up = async {
            if self
                .given_up
                .wait_for(|is_given_up| *is_given_up)
                .await
                .is_err()
            {
                // There is no worker any more, which the other end says.
                std::future::pending::<()>().await;
            }
        };
        let said = tokio::select! {
            biased;
            said = self.said.recv() => said,
            () = given_up, if waits => {
                if self.withdraw() {
                    Some(Said::Failed(GIVEN_UP.to_owned().into()))
                } else {
                    self.said.recv().await
                }
            }
        };
        let said = said.unwrap_or_else(|| Said::Failed(UNAVAILABLE.to_owned().into()));
        match said {
            Said::Begun(id, _) => self.id = Some(id),
            Said::Token(..) => {}
            Said::Acknowledged | Said::Done(_) | Said::Failed(_) => self.is_over = true,
        }
        said
    }

    /// Takes it back; false if it has begun.
    pub(super) fn withdraw(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::AcqRel)
    }

    /// Asks the worker to end the turn, once, if it has begun.
    pub(super) fn cancel(&mut self, worker: &Worker) {
        if let Some(id) = self.id.filter(|_| !self.is_cancelled) {
            worker.cancel(id);
            self.is_cancelled = true;
        }
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
            cancels: Mutex::new(cancels.filter(|_| supports_cancel)),
            given_up: watch::Sender::new(false),
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
            given_up: self.given_up.subscribe(),
            id: None,
            is_cancelled: false,
            is_claimed: Arc::clone(&is_claimed),
            is_over: false,
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
        let failed = cancels.as_mut().and_then(|cancels| cancels.send(id).err());
        // A pipe that is full loses this cancellation, one that is broken all.
        if failed.is_some_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
            *cancels = None;
        }
    }

    /// Whether a turn that was left is waited for no longer than a while.
    pub(super) fn has_limited_patience(&self) -> bool {
        self.state.profile.gives_up_workers
    }

    /// Takes the worker for lost: what it will say belongs to no turn.
    pub(super) fn lose(&self, why: &str) {
        self.state.lose(why);
    }

    /// Ends a worker that does not end a turn.
    pub(super) fn give_up(&self) {
        self.state.failure.get_or_init(|| GIVEN_UP.to_owned());
        self.state
            .lose("it has not ended a turn that was cancelled");
        self.given_up.send_replace(true);
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
            self.lose(&text);
        } else {
            tracing::error!("the model worker failed: {text}");
        }
        Said::Failed(text.into())
    }

    /// Nothing that the worker says belongs to a turn from now on.
    fn lose(&self, why: &str) {
        if self.lost.set(why.to_owned()).is_ok() {
            tracing::error!("the model worker is lost: {why}");
        }
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
        let read = (&mut self.stdout)
            .take(MAX_LINE)
            .read_until(b'\n', &mut self.line);
        match read {
            Ok(0) => {
                if !self.state.profile.gives_up_workers {
                    // The exit code is told then.
                    self.state.process.settle();
                }
                return self.state.fail("worker exited mid-request".into());
            }
            Err(_) => return self.state.fail("worker stdout is closed".into()),
            Ok(count) if count as u64 == MAX_LINE && !self.line.ends_with(b"\n") => {
                self.state.lose("a line of it is too long");
                return Said::Failed(format!("worker line above {MAX_LINE} bytes").into());
            }
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
