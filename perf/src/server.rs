//! Servers under measurement, each a process of its own.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use harness::cpu::Cpu;
use harness::stub::Stub;
use harness::{UsageError, bench, probe};

use crate::counters::Counters;
use crate::group::Group;
use crate::place::Place;
use crate::scenario::Start;
use crate::usage::{Tree, Usage};

/// The model that stubs are asked for.
pub(crate) const MODEL: &str = "stub";
const POLL: Duration = Duration::from_millis(20);

/// A server that answers for as long as this lives.
#[derive(Debug)]
pub(crate) struct Server {
    /// `http://HOST:PORT`
    pub(crate) url: String,
    /// It tells counters at `/metrics`.
    pub(crate) counts: bool,
    process: Process,
}

#[derive(Debug)]
enum Process {
    Command(Group),
    /// It runs already, in this process or elsewhere.
    Elsewhere,
    Stub(Stub),
}

/// A reading of what a server has taken.
#[derive(Clone, Debug)]
pub(crate) enum Reading {
    /// Of its processes, by the kernel.
    Kernel(Usage),
    /// Of itself, by its metrics.
    Metrics(Cpu),
}

impl Reading {
    /// The sums.
    pub(crate) fn cpu(&self) -> Cpu {
        match self {
            Self::Kernel(usage) => usage.cpu(),
            Self::Metrics(cpu) => *cpu,
        }
    }
}

impl Server {
    /// Starts what is to be measured, or takes what runs.
    ///
    /// # Errors
    /// [`UsageError`] if it does not start.
    pub(crate) fn start(start: &Start, place: &Place, patience: Duration) -> anyhow::Result<Self> {
        let cores = place.cores.as_deref();
        let (url, process) = match start {
            Start::Command(command) => command_at_free_port(command, place, patience)?,
            Start::Stub(words) => {
                let names = |flag: &str| words.split_whitespace().any(|word| word == flag);
                let mut words = words.clone();
                if !names("--workers") {
                    let workers = place.workers.to_string();
                    words.extend([" --workers ", &workers]);
                }
                if !names("--served-model-name") {
                    words.extend([" --served-model-name ", MODEL]);
                }
                if !names("--log") {
                    words.push_str(" --log warn");
                }
                let stub = Stub::start(&words, cores)?;
                (stub.url.clone(), Process::Stub(stub))
            }
            Start::Url(url) => (url.clone(), Process::Elsewhere),
        };
        let counts = probe::get(&url, "/metrics")
            .is_ok_and(|(status, text)| status == 200 && Counters::read(&text).is_some());
        Ok(Self {
            url,
            counts,
            process,
        })
    }

    /// Starts the bare loop with these bytes.
    ///
    /// # Errors
    /// The program's own file is gone, or a port cannot be had.
    pub(crate) fn ceiling(
        request: usize,
        response: Vec<u8>,
        place: &Place,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("failed to find this program's file")?;
        let (reader, mut writer) = std::io::pipe()?;
        // A pipe holds less than an answer may have.
        std::thread::spawn(move || writer.write_all(&response));
        let mut command = Command::new(program);
        let request = request.to_string();
        let workers = place.workers.to_string();
        command.args(["ceiling", "--request", &request, "--workers", &workers]);
        command.stdin(reader);
        let stub = Stub::spawn(command, "ceiling", place.cores.as_deref())?;
        Ok(Self {
            url: stub.url.clone(),
            counts: false,
            process: Process::Stub(stub),
        })
    }

    /// What it has taken of the cores so far, if anybody tells.
    pub(crate) fn reading(&self) -> Option<Reading> {
        let pid = match &self.process {
            Process::Command(group) => group.pid(),
            Process::Stub(stub) => stub.pid(),
            Process::Elsewhere => {
                let cpu = bench::server_cpu(&self.url, None).ok()??;
                return Some(Reading::Metrics(cpu));
            }
        };
        Some(Reading::Kernel(Tree(pid).usage()))
    }

    /// Its counters, if it has any.
    pub(crate) fn counters(&self) -> Option<Counters> {
        if !self.counts {
            return None;
        }
        let (_, text) = probe::get(&self.url, "/metrics").ok()?;
        Counters::read(&text)
    }

    /// The model to ask for where `wanted` is the user's wish; `None` if the server has to be asked.
    pub(crate) fn model<'m>(&self, wanted: Option<&'m str>) -> Option<&'m str> {
        match self.process {
            Process::Command(_) => wanted.or(Some(MODEL)),
            Process::Elsewhere => wanted,
            Process::Stub(_) => Some(MODEL),
        }
    }
}

fn command_at_free_port(
    command: &str,
    place: &Place,
    patience: Duration,
) -> anyhow::Result<(String, Process)> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let workers = place.workers.to_string();
    let filled = command
        .replace("{port}", &port.to_string())
        .replace("{workers}", &workers);
    let wrong = |reason: &str| UsageError(format!("--server-cmd {command:?}: {reason}"));
    if filled == command {
        return Err(wrong("expected {port} in it, the port to listen on").into());
    }
    let mut group = Group::start(&filled, place.cores.as_deref())?;
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = group.ended() {
            let said = group.said();
            return Err(wrong(&format!("it ended with {status}: {said}")).into());
        }
        if started.elapsed() > patience {
            let reason = format!("nothing listens on port {port} after {patience:?}");
            return Err(wrong(&reason).into());
        }
        std::thread::sleep(POLL);
    }
    Ok((format!("http://127.0.0.1:{port}"), Process::Command(group)))
}

/// Whether this program's `serve` knows a stub.
pub(crate) fn is_known(words: &str) -> bool {
    let name = words.split_whitespace().next().unwrap_or_default();
    let Ok(program) = std::env::current_exe() else {
        return false;
    };
    let output = Command::new(program)
        .args(["serve", name, "--help"])
        .output();
    output.is_ok_and(|output| output.status.success())
}
