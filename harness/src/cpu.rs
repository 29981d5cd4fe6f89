//! CPU time of this side and of the server's.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time that the calling thread has used.
pub(crate) fn thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// CPU time that a server's Prometheus metrics tell, of its workers alone where it tells that.
pub(crate) fn server(metrics: &str) -> Option<Duration> {
    let total = |name| {
        let seconds = metrics.lines().filter_map(|line| value(line, name));
        seconds.reduce(|sum, seconds| sum + seconds)
    };
    let seconds = total("stubline_worker_cpu_seconds_total")
        .or_else(|| total("process_cpu_seconds_total"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn value(line: &str, name: &str) -> Option<f64> {
    let rest = line.strip_prefix(name)?;
    let number = match rest.strip_prefix('{') {
        Some(labels) => labels.rsplit_once('}')?.1,
        None => rest.strip_prefix(' ')?,
    };
    number.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_time_is_preferred_and_summed() {
        let process = "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n";
        assert_eq!(server(process), Some(Duration::from_millis(1500)));
        let workers = format!(
            "{process}stubline_worker_cpu_seconds_total{{worker=\"0\"}} 0.25\n\
             stubline_worker_cpu_seconds_total{{worker=\"1\"}} 0.5 1700000000\n"
        );
        assert_eq!(server(&workers), Some(Duration::from_millis(750)));
        assert_eq!(server("process_cpu_seconds_total_x 3\nother 1\n"), None);
    }

    #[test]
    fn a_threads_time_only_grows() {
        let before = thread();
        assert!(thread() >= before);
    }
}
