//! A stub in a process of its own, for as long as a run lasts.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::cpu;
use crate::error::UsageError;
use crate::group::wait_a_while;

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// What a server of ours says before the address at which it listens.
pub(crate) const LISTENING: &str = "listening on ";

/// A child process that serves; it is stopped when this is dropped.
#[derive(Debug)]
pub struct Stub {
    child: Child,
    /// `http://HOST:PORT`
    pub url: String,
}

impl Stub {
    /// Starts this program's `serve` with the words of `spec`, on these cores alone if some are named,
    /// and waits until it listens.
    ///
    /// # Errors
    /// [`UsageError`] if it does not start.
    pub fn start(spec: &str, cores: Option<&[usize]>) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("failed to find this program's file")?;
        let mut command = Command::new(program);
        command.arg("serve").args(arguments(spec)?);
        command.arg("--exit-with-parent").stdin(Stdio::null());
        Self::spawn(command, spec, cores)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts a command that says where it listens, as `serve` does; `spec` is what it is called when
    /// it fails.
    ///
    /// # Errors
    /// [`UsageError`] if it does not start.
    pub fn spawn(
        mut command: Command,
        spec: &str,
        cores: Option<&[usize]>,
    ) -> anyhow::Result<Self> {
        // A group of its own, so that an interrupt from the terminal ends the run first.
        command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let spawned = cpu::on_cores(cores, || command.spawn())?;
        let mut child = spawned.context("failed to start the stub")?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut stub = Self {
            child,
            url: String::new(),
        };
        let line = first_line(stdout).recv_timeout(START_TIMEOUT);
        let line = line.unwrap_or_default();
        let mut stderr = stub.child.stderr.take().expect("stderr is piped");
        let Some(url) = line.strip_prefix(LISTENING) else {
            drop(stub);
            let mut said = String::new();
            let _ = stderr.read_to_string(&mut said);
            let reason = reason(&said);
            return Err(UsageError(format!("--stub {spec:?} did not start: {reason}")).into());
        };
        stub.url = url.trim_end().into();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some((_, said)) = line.split_once("  INFO ") {
                    tracing::info!(target: "stub", "the stub says: {said}");
                } else {
                    tracing::warn!(target: "stub", "the stub says: {line}");
                }
            }
        });
        Ok(stub)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Asks a server to stop, and kills it if it takes too long.
fn stop(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(pid), Ok(None)) = (pid, child.try_wait()) {
        let _ = kill_process(pid, Signal::TERM);
    }
    wait_a_while(child);
    // Nothing is done to one that has ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// The line of stderr that says why: clap puts hints behind it, a server warnings before it.
fn reason(stderr: &str) -> &str {
    let lines = || stderr.lines().filter(|line| !line.trim().is_empty());
    let error = lines().find(|line| line.starts_with("error"));
    let reason = error.or_else(|| lines().next_back());
    let reason = reason.unwrap_or("it said nothing");
    reason.trim_start_matches("error: ")
}

/// The first line, as soon as it is there; the rest is read and dropped so that nobody blocks.
fn first_line(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (send, line) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        if let Some(first) = lines.next() {
            let _ = send.send(first);
        }
        lines.for_each(drop);
    });
    line
}

/// The words of a spec, with a free port and metrics where it does not name its own.
fn arguments(spec: &str) -> Result<Vec<String>, UsageError> {
    let mut words =
        words(spec).ok_or_else(|| UsageError(format!("--stub {spec:?}: a quote is not closed")))?;
    let names = |flag: &str| {
        let with_value = format!("{flag}=");
        words
            .iter()
            .any(|word| word == flag || word.starts_with(&with_value))
    };
    let has_metrics_flag = matches!(words.first().map(String::as_str), Some("echo" | "max"));
    let (port, metrics) = (!names("--port"), has_metrics_flag && !names("--metrics"));
    if port {
        words.extend(["--port".into(), "0".into()]);
    }
    if metrics {
        words.push("--metrics".into());
    }
    Ok(words)
}

/// Splits at spaces outside of single and double quotes; `None` if a quote is not closed.
fn words(spec: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in spec.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_becomes_arguments() {
        for (spec, expected) in [
            ("echo", "echo|--port|0|--metrics"),
            ("max --port 9 --metrics", "max|--port|9|--metrics"),
            ("vllm --model a --port=0", "vllm|--model|a|--port=0"),
            (
                "sglang --source 'fixed:a  b' \"\"",
                "sglang|--source|fixed:a  b||--port|0",
            ),
        ] {
            assert_eq!(arguments(spec).unwrap().join("|"), expected);
        }
        assert!(arguments("echo 'a").is_err());
    }

    fn shell(script: &str) -> anyhow::Result<Stub> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Stub::spawn(command, "x", None)
    }

    #[test]
    fn a_stub_that_listens_is_stopped_when_dropped() {
        let stub = shell("echo listening on http://127.0.0.1:5; exec cat /dev/zero >&1").unwrap();
        assert_eq!(stub.url, "http://127.0.0.1:5");
        let pid = i32::try_from(stub.child.id()).unwrap();
        drop(stub);
        let gone = rustix::process::test_kill_process(Pid::from_raw(pid).unwrap());
        assert_eq!(gone, Err(rustix::io::Errno::SRCH));
    }

    #[test]
    fn a_stub_that_does_not_start_is_a_usage_error_with_its_reason() {
        let error = shell("echo warning >&2; echo 'port 80 is taken' >&2; exit 2").unwrap_err();
        assert!(error.is::<UsageError>());
        assert_eq!(
            reason("warning\nerror: no\n\nFor more, try '--help'.\n"),
            "no"
        );
        assert_eq!(
            error.to_string(),
            "--stub \"x\" did not start: port 80 is taken"
        );
    }
}
