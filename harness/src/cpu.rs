//! CPU time of this side and of the server's, and the cores that a side may use.

use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

use anyhow::Context as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::error::UsageError;

/// What a side took of the cores.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cpu {
    /// Time on a core.
    pub time: Duration,
    /// Time in which a thread could have run but had no core; `None` where the kernel or the server
    /// does not tell.
    pub wait: Option<Duration>,
}

impl Cpu {
    /// What the calling thread has taken so far.
    pub(crate) fn thread() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let taken = statistics.as_deref().and_then(schedstat);
        Self {
            time: Duration::try_from(time).unwrap_or_default(),
            wait: taken.map(|(_, wait)| wait),
        }
    }

    /// What a server's Prometheus metrics tell, of its workers alone where they tell that.
    pub(crate) fn server(metrics: &str) -> Option<Self> {
        let total = |name| {
            let seconds = metrics.lines().filter_map(|line| value(line, name));
            seconds.reduce(|sum, seconds| sum + seconds)
        };
        let time = total("stubline_worker_cpu_seconds_total")
            .or_else(|| total("process_cpu_seconds_total"))?;
        let wait = total("stubline_worker_wait_seconds_total");
        Some(Self {
            time: Duration::try_from_secs_f64(time).ok()?,
            wait: wait.and_then(|wait| Duration::try_from_secs_f64(wait).ok()),
        })
    }

    /// What has been taken since an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let wait = self.wait.zip(before.wait);
        Self {
            time: self.time.saturating_sub(before.time),
            wait: wait.map(|(wait, before)| wait.saturating_sub(before)),
        }
    }
}

impl Add for Cpu {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            time: self.time + other.time,
            wait: self.wait.zip(other.wait).map(|(one, other)| one + other),
        }
    }
}

impl Sum for Cpu {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.reduce(Self::add).unwrap_or_default()
    }
}

/// What the kernel's `schedstat` file of a thread tells: time on a core, and time without one although it
/// was ready to run.
pub fn schedstat(text: &str) -> Option<(Duration, Duration)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let (time, wait) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((Duration::from_nanos(time), Duration::from_nanos(wait)))
}

fn value(line: &str, name: &str) -> Option<f64> {
    let rest = line.strip_prefix(name)?;
    let number = match rest.strip_prefix('{') {
        Some(labels) => labels.rsplit_once('}')?.1,
        None => rest.strip_prefix(' ')?,
    };
    number.split_whitespace().next()?.parse().ok()
}

/// Lets the calling thread run on these cores alone while `start` starts threads or processes, which
/// stay there.
///
/// # Errors
/// [`UsageError`] if none of the cores can be used.
pub fn on_cores<T>(cores: Option<&[usize]>, start: impl FnOnce() -> T) -> anyhow::Result<T> {
    let Some(cores) = cores else {
        return Ok(start());
    };
    let mut set = CpuSet::new();
    for &core in cores.iter().filter(|&&core| core < CpuSet::MAX_CPU) {
        set.set(core);
    }
    let all = sched_getaffinity(None).context("failed to ask which cores there are")?;
    sched_setaffinity(None, &set)
        .map_err(|_| UsageError(format!("cores {cores:?}: none of them can be used")))?;
    let started = start();
    sched_setaffinity(None, &all).context("failed to leave the cores again")?;
    Ok(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_time_is_preferred_and_summed() {
        let server = |text: &str| Cpu::server(text);
        let taken = |time, wait: Option<u64>| {
            Some(Cpu {
                time: Duration::from_millis(time),
                wait: wait.map(Duration::from_millis),
            })
        };
        let process = "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n";
        assert_eq!(server(process), taken(1500, None));
        let workers = format!(
            "{process}stubline_worker_cpu_seconds_total{{worker=\"0\"}} 0.25\n\
             stubline_worker_cpu_seconds_total{{worker=\"1\"}} 0.5 1700000000\n"
        );
        assert_eq!(server(&workers), taken(750, None));
        let waits = format!(
            "{workers}stubline_worker_wait_seconds_total{{worker=\"0\"}} 0.125\n\
             stubline_worker_wait_seconds_total{{worker=\"1\"}} 1\n"
        );
        assert_eq!(server(&waits), taken(750, Some(1125)));
        assert_eq!(server("process_cpu_seconds_total_x 3\nother 1\n"), None);
    }

    #[test]
    fn a_threads_time_only_grows() {
        let before = Cpu::thread();
        let after = Cpu::thread();
        assert!(after.time >= before.time && after.wait >= before.wait);
        assert_eq!(before.since(after).time, Duration::ZERO);
        assert_eq!(
            [before, after].into_iter().sum::<Cpu>().time,
            before.time + after.time
        );
    }

    #[test]
    fn what_is_started_on_a_core_stays_there() {
        let all = sched_getaffinity(None).unwrap();
        let core = (0..CpuSet::MAX_CPU).find(|&core| all.is_set(core)).unwrap();
        let spawn = || std::thread::spawn(|| sched_getaffinity(None).unwrap());
        let there = on_cores(Some(&[core]), spawn).unwrap().join().unwrap();
        assert!(there.count() == 1 && there.is_set(core));
        assert_eq!(sched_getaffinity(None).unwrap(), all);
        let nowhere = on_cores(Some(&[usize::MAX]), || ()).unwrap_err();
        assert!(nowhere.is::<UsageError>());
    }
}
