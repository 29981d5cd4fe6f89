//! What the kernel says of this process.

use std::path::Path;

use wire::metrics::Process;

use crate::cpu;

/// Ticks of a second in `/proc`, the same on all of Linux.
const TICKS: f64 = 100.0;

/// The numbers as of now; zero where the kernel tells none.
pub(super) fn read() -> Process {
    let read = |name: &str| std::fs::read_to_string(Path::new("/proc").join(name));
    let status = read("self/status").unwrap_or_default();
    let kilobytes = |key| number_behind(&status, key).unwrap_or(0.0) * 1024.0;
    let boot = number_behind(&read("stat").unwrap_or_default(), "btime");
    let ticks = start_ticks(&read("self/stat").unwrap_or_default());
    let limits = read("self/limits").unwrap_or_default();
    let open = std::fs::read_dir("/proc/self/fd");
    Process {
        cpu_seconds: cpu::process().as_secs_f64(),
        max_fds: whole(number_behind(&limits, "Max open files").unwrap_or(0.0)),
        open_fds: open.map_or(0, |open| open.count() as u64),
        pid: std::process::id(),
        resident_bytes: whole(kilobytes("VmRSS:")),
        start_seconds: boot
            .zip(ticks)
            .map_or(0.0, |(boot, ticks)| boot + ticks / TICKS),
        virtual_bytes: whole(kilobytes("VmSize:")),
    }
}

/// The number behind a key at the start of a line.
fn number_behind(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// When the process started, in ticks from the machine's start: field 22, counted behind the name,
/// which may have spaces.
fn start_ticks(stat: &str) -> Option<f64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(19)?.parse().ok()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers as the kernel wrote them"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_do_not_shift_the_fields() {
        let fields: Vec<String> = (3..=30).map(|field| field.to_string()).collect();
        let stat = format!("7 (a b) c) {}", fields.join(" "));
        assert_eq!(start_ticks(&stat), Some(22.0));
    }

    #[test]
    fn this_process_has_memory_and_files() {
        let process = read();
        assert!(process.resident_bytes > 0 && process.virtual_bytes >= process.resident_bytes);
        assert!(process.open_fds > 0 && process.max_fds >= process.open_fds);
        assert!(process.start_seconds > 1e9);
    }
}
