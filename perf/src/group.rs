//! Commands of others in process groups of their own, so that nothing of them is left behind.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use harness::cpu;
use rustix::process::{Pid, Signal, kill_process_group};

/// The command, beside a reader of a pipe that ends the group when this process is gone.
const SCRIPT: &str = "exec 3<&0; (cat <&3 >/dev/null 2>&1; kill -TERM 0) 2>/dev/null & exec 3<&-; \
                      exec sh -c \"$0\" </dev/null";
const POLL: Duration = Duration::from_millis(10);
/// How often to look whether a group has ended before it is killed.
const POLLS: u32 = 500;
/// Lines of stderr that are kept.
const LINES: usize = 5;

/// A command that runs until it ends or this is dropped.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    /// The group ends when it is closed.
    alive: Option<ChildStdin>,
    last_lines: Arc<Mutex<Vec<String>>>,
}

impl Group {
    /// Starts a shell command on these cores.
    ///
    /// # Errors
    /// There is no shell, or the cores cannot be used.
    pub(crate) fn start(command: &str, cores: Option<&[usize]>) -> anyhow::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, command]).process_group(0);
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child =
            cpu::on_cores(cores, || shell.spawn())?.context("failed to start a shell")?;
        let last_lines = Arc::new(Mutex::new(Vec::new()));
        let (lines, stderr) = (Arc::clone(&last_lines), child.stderr.take());
        let stderr = BufReader::new(stderr.expect("stderr is piped"));
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut lines = lines.lock().expect("nobody panics with the lock");
                lines.push(line);
                let more = lines.len().saturating_sub(LINES);
                lines.drain(..more);
            }
        });
        Ok(Self {
            alive: child.stdin.take(),
            child,
            last_lines,
        })
    }

    /// The shell that became the command.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the command ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The last thing that it said on stderr.
    pub(crate) fn said(&self) -> String {
        let lines = self.last_lines.lock().expect("nobody panics with the lock");
        let said = lines.iter().rev().find(|line| !line.trim().is_empty());
        said.map_or_else(|| "it said nothing".into(), |line| line.trim().to_owned())
    }

    fn signal(&self, signal: Signal) -> bool {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        group.is_some_and(|group| kill_process_group(group, signal).is_ok())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..POLLS {
            let is_there = self.signal(Signal::TERM);
            drop(self.alive.take());
            if self.ended().is_some() || !is_there {
                break;
            }
            std::thread::sleep(POLL);
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::test_kill_process_group;

    use super::*;

    #[test]
    fn nothing_of_a_group_is_left() {
        let group = Group::start("cat /dev/zero | cat >/dev/null & cat /dev/zero", None).unwrap();
        let pid = Pid::from_raw(i32::try_from(group.pid()).unwrap()).unwrap();
        assert!(test_kill_process_group(pid).is_ok());
        drop(group);
        while test_kill_process_group(pid).is_ok() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_command_that_ends_tells_how_and_why() {
        let mut group =
            Group::start("echo one >&2; echo 'no such port' >&2; exit 3", None).unwrap();
        let status = loop {
            match group.ended() {
                Some(status) => break status,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(status.code(), Some(3));
        while group.said() != "no such port" {
            std::thread::yield_now();
        }
    }
}
