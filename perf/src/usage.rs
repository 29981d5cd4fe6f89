//! What processes take of the cores, as the kernel tells in `/proc`.

use std::path::PathBuf;
use std::time::Duration;

use harness::cpu::{Cpu, schedstat};

/// What a process and all that it started have taken so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// CPU time as the kernel splits it, of processes that still run.
    pub(crate) ticks: Ticks,
    threads: Vec<Thread>,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    number: u32,
    time: Duration,
    wait: Duration,
}

/// CPU time as the kernel splits it, in hundredths of a second.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Ticks {
    /// In the kernel.
    pub(crate) kernel: u64,
    /// In the program.
    pub(crate) user: u64,
}

/// A process whose usage can be asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tree(pub(crate) u32);

impl Tree {
    /// What it and all below it have taken; what has ended and was not waited for is lost.
    pub(crate) fn usage(self) -> Usage {
        let mut usage = Usage::default();
        let mut left = vec![self.0];
        while let Some(pid) = left.pop() {
            usage.add_process(pid, &mut left);
        }
        usage
    }
}

impl Usage {
    /// All threads together.
    pub(crate) fn cpu(&self) -> Cpu {
        Cpu {
            time: self.threads.iter().map(|thread| thread.time).sum(),
            wait: Some(self.threads.iter().map(|thread| thread.wait).sum()),
        }
    }

    /// Takes up a later reading; threads that have ended keep what they had.
    pub(crate) fn renew(&mut self, later: &Self) {
        self.ticks.kernel = self.ticks.kernel.max(later.ticks.kernel);
        self.ticks.user = self.ticks.user.max(later.ticks.user);
        for thread in &later.threads {
            match self
                .threads
                .iter_mut()
                .find(|known| known.number == thread.number)
            {
                Some(known) => *known = *thread,
                None => self.threads.push(*thread),
            }
        }
    }

    /// The busiest thread's time on a core and ready to run since an earlier reading.
    pub(crate) fn busiest_since(&self, before: &Self) -> Duration {
        let since = |thread: &Thread| {
            let earlier = before
                .threads
                .iter()
                .find(|known| known.number == thread.number);
            let earlier = earlier.map_or(Duration::ZERO, |known| known.time + known.wait);
            (thread.time + thread.wait).saturating_sub(earlier)
        };
        self.threads.iter().map(since).max().unwrap_or_default()
    }

    fn add_process(&mut self, pid: u32, left: &mut Vec<u32>) {
        let process = PathBuf::from(format!("/proc/{pid}"));
        if let Some(ticks) = read(&process.join("stat")).as_deref().and_then(ticks) {
            self.ticks.kernel += ticks.kernel;
            self.ticks.user += ticks.user;
        }
        let threads = std::fs::read_dir(process.join("task"));
        for thread in threads.into_iter().flatten().flatten() {
            let path = thread.path();
            let number = thread
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let times = read(&path.join("schedstat")).as_deref().and_then(schedstat);
            if let (Some(number), Some((time, wait))) = (number, times) {
                self.threads.push(Thread { number, time, wait });
            }
            let children = read(&path.join("children")).unwrap_or_default();
            left.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
}

impl Ticks {
    /// This process's own.
    pub(crate) fn own() -> Self {
        read(&PathBuf::from("/proc/self/stat"))
            .as_deref()
            .and_then(ticks)
            .unwrap_or_default()
    }

    /// What was taken since an earlier reading.
    #[must_use]
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            kernel: self.kernel.saturating_sub(before.kernel),
            user: self.user.saturating_sub(before.user),
        }
    }
}

fn read(path: &PathBuf) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn ticks(stat: &str) -> Option<Ticks> {
    Some(Ticks {
        kernel: field(stat, 15)?,
        user: field(stat, 14)?,
    })
}

/// A numbered field of a `stat` file, counted behind the name, which may have spaces.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let fields: Vec<String> = (3..=30).map(|field| field.to_string()).collect();
        let stat = format!("7 (a b) c) {}", fields.join(" "));
        let expected = Ticks {
            kernel: 15,
            user: 14,
        };
        assert_eq!(ticks(&stat), Some(expected));
        let times = (Duration::from_nanos(1500), Duration::from_nanos(20));
        assert_eq!(schedstat("1500 20 3\n"), Some(times));
        assert_eq!(schedstat("x"), None);
    }

    #[test]
    fn a_process_counts_with_its_children() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "cat & cat"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let before = Tree(std::process::id()).usage();
        assert!(before.cpu().time > Duration::ZERO && before.cpu().wait.is_some());
        let of_child = Tree(child.id()).usage();
        assert!(before.threads.len() > of_child.threads.len());
        drop(child.stdin.take());
        child.wait().unwrap();
        let mut after = before.clone();
        after.renew(&Tree(std::process::id()).usage());
        assert!(
            after.threads.len() >= before.threads.len() && after.cpu().time >= before.cpu().time
        );
        assert!(after.busiest_since(&Usage::default()) >= before.busiest_since(&before));
    }
}
