//! A process with all that it starts, ended together.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};

/// Twice the time that a server takes to drain, before its group is killed.
const POLLS: u32 = 1000;
pub(crate) const POLL: Duration = Duration::from_millis(10);
/// Lines that are told of a process that failed.
const LAST_LINES: usize = 5;

/// A process group and the file that has what it says; all of it is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    log: PathBuf,
}

impl Group {
    /// Starts a command in a group of its own, so that an interrupt from the terminal is for us.
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let said =
            File::create(log).with_context(|| format!("{} cannot be written", log.display()))?;
        command.stdin(Stdio::null()).process_group(0);
        command.stdout(said.try_clone()?).stderr(said);
        let program = command.get_program().display().to_string();
        let child = command.spawn();
        Ok(Self {
            child: child.with_context(|| format!("{program} cannot be started"))?,
            log: log.into(),
        })
    }

    /// How its first process ended, if it has.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// All that it has said.
    pub(crate) fn said(&self) -> String {
        let said = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    /// The end of what it has said, in one line.
    pub(crate) fn last_lines(&self) -> String {
        last_lines(&self.said())
    }

    /// Asks all to stop, and kills those that take too long or stay behind; how the first one ended.
    pub(crate) fn stop(&mut self) -> Option<ExitStatus> {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::TERM);
        }
        wait_a_while(&mut self.child);
        self.kill()
    }

    /// Kills all at once.
    pub(crate) fn kill(&mut self) -> Option<ExitStatus> {
        self.signal(Signal::KILL);
        self.child.wait().ok()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = pid {
            // Nobody of the group may be left.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits for a server that was asked to end, but not for ever.
pub(crate) fn wait_a_while(child: &mut Child) {
    for _ in 0..POLLS {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(POLL);
    }
}

/// The last lines that say something, joined.
pub(crate) fn last_lines(said: &str) -> String {
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut last: Vec<&str> = lines.rev().take(LAST_LINES).collect();
    last.reverse();
    match last[..] {
        [] => "it said nothing".into(),
        _ => last.join(" | "),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use rustix::process::test_kill_process;

    use super::*;

    #[test]
    fn what_a_process_started_ends_with_it() {
        let log = std::env::temp_dir().join(format!("group-{:x}.log", fastrand::u64(..)));
        let mut command = Command::new("sh");
        command.args(["-c", "cat /dev/zero >/dev/null & echo $!; wait"]);
        let mut group = Group::start(&mut command, &log).unwrap();
        while !group.said().ends_with('\n') {
            std::thread::yield_now();
        }
        assert!(group.ended().unwrap().is_none());
        let other = Pid::from_raw(group.last_lines().parse().unwrap()).unwrap();
        assert_eq!(test_kill_process(other), Ok(()));
        drop(group);
        // The orphan is dead; whoever adopted it may not have looked yet.
        let state = || fs::read_to_string(format!("/proc/{}/stat", other.as_raw_nonzero()));
        while state().is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::yield_now();
        }
        assert!(matches!(
            test_kill_process(other),
            Ok(()) | Err(Errno::SRCH)
        ));
        fs::remove_file(log).unwrap();
    }

    #[test]
    fn the_last_lines_are_told_in_one() {
        assert_eq!(last_lines("\n \n"), "it said nothing");
        assert_eq!(last_lines("1\n2\n\n3\n4\n5\n  6\n"), "2 | 3 | 4 | 5 | 6");
    }
}
