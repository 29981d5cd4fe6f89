//! A model worker's process, or the thread that works in its place.

use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::AsRawFd as _;

use crate::model_worker::{self, CONTROL, Frames, Prepared};

/// How long a process that is to end is waited for before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// How to start a worker.
pub(super) enum Starts {
    /// As the real server starts one.
    Process {
        binary: PathBuf,
        model_path: String,
        tokenizer_path: String,
    },
    /// Our own, in this process.
    Thread(Box<Prepared>),
}

/// A worker that was started, and its pipes.
pub(super) struct Started {
    /// None if cancellations are not offered.
    pub(super) cancels: Option<Cancels>,
    pub(super) process: Process,
    pub(super) stdin: Box<dyn Write + Send>,
    pub(super) stdout: Box<dyn BufRead + Send>,
}

/// Takes cancellations to a worker.
pub(super) enum Cancels {
    Pipe(PipeWriter),
    Queue(mpsc::Sender<Vec<u8>>),
}

impl Cancels {
    /// Sends the frame of a turn's number.
    pub(super) fn send(&mut self, id: u64) -> io::Result<()> {
        let frame = id.to_le_bytes();
        let broken = |_| io::ErrorKind::BrokenPipe.into();
        match self {
            Self::Pipe(pipe) => pipe.write_all(&frame),
            Self::Queue(queue) => queue.send(frame.into()).map_err(broken),
        }
    }
}

/// What runs a worker.
#[derive(Debug)]
pub(super) enum Process {
    Child(Mutex<Child>),
    /// The exit code, once there is one.
    Thread(Arc<OnceLock<u8>>),
}

impl Process {
    /// The exit code, as Python tells it: of a signal, its number below 0.
    pub(super) fn exit_code(&self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt as _;
        match self {
            Self::Child(child) => {
                let mut child = child.lock().expect("nobody panics with the lock");
                let status = child.try_wait().ok()??;
                status
                    .code()
                    .or_else(|| status.signal().map(|signal| -signal))
            }
            Self::Thread(code) => code.get().map(|code| i32::from(*code)),
        }
    }

    /// Waits a little for the end of a worker that has closed its pipe.
    pub(super) fn settle(&self) {
        for _ in 0..200 {
            if self.exit_code().is_some() {
                return;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Ends it and waits for that.
    pub(super) fn end(&self) {
        let Self::Child(child) = self else {
            return;
        };
        let mut child = child.lock().expect("nobody panics with the lock");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if matches!(child.try_wait(), Ok(None))
            && let Some(pid) = pid
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        let mut waited = Duration::ZERO;
        while matches!(child.try_wait(), Ok(None)) {
            if waited >= PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(POLL);
            waited += POLL;
        }
    }
}

impl Starts {
    /// Starts it; whether cancellations are offered is the server's affair.
    pub(super) fn start(self, offers_cancel: bool) -> io::Result<Started> {
        match self {
            Self::Process {
                binary,
                model_path,
                tokenizer_path,
            } => {
                let mut command = Command::new(binary);
                command.args(["--model_path", &model_path]);
                command.args(["--tokenizer_path", &tokenizer_path]);
                spawned(command, offers_cancel)
            }
            Self::Thread(prepared) => in_thread(*prepared, offers_cancel),
        }
    }
}

fn spawned(mut command: Command, offers_cancel: bool) -> io::Result<Started> {
    command.env_remove(CONTROL);
    let pipe = if offers_cancel {
        let (control, cancels) = io::pipe()?;
        // The child keeps this end, and this process nothing but the other.
        fcntl_setfd(&control, FdFlags::empty())?;
        fcntl_setfl(&cancels, OFlags::NONBLOCK)?;
        command.env(CONTROL, control.as_raw_fd().to_string());
        Some((control, Cancels::Pipe(cancels)))
    } else {
        None
    };
    if let Some(conda) = std::env::var_os("CONDA_PREFIX") {
        let mut path = conda;
        path.push("/lib:");
        path.push(std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default());
        command.env("LD_LIBRARY_PATH", path);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let stdin = child.stdin.take().expect("it is piped");
    let stdout = child.stdout.take().expect("it is piped");
    Ok(Started {
        cancels: pipe.map(|(_, cancels)| cancels),
        process: Process::Child(Mutex::new(child)),
        stdin: Box::new(stdin),
        stdout: buffered(stdout),
    })
}

fn in_thread(prepared: Prepared, offers_cancel: bool) -> io::Result<Started> {
    let (to_read, stdin): (PipeReader, PipeWriter) = io::pipe()?;
    let (stdout, to_write) = io::pipe()?;
    let (cancels, frames) = mpsc::channel::<Vec<u8>>();
    let code = Arc::new(OnceLock::new());
    let ended = Arc::clone(&code);
    let work = move || {
        let frames: Frames = Box::new(move || frames.try_iter().flatten().collect());
        let frames = offers_cancel.then_some(frames);
        let code = model_worker::attend(prepared, BufReader::new(to_read), to_write, frames);
        ended.get_or_init(|| code);
    };
    std::thread::Builder::new()
        .name("model-worker".into())
        .spawn(work)?;
    Ok(Started {
        cancels: Some(Cancels::Queue(cancels)),
        process: Process::Thread(code),
        stdin: Box::new(stdin),
        stdout: buffered(stdout),
    })
}

fn buffered(read: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::new(read))
}
