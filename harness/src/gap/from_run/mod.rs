//! The counts of a run that is over, from the folder that it left: one of `MLPerf`'s endpoints, or one
//! of `stubline bench --report-dir`.

mod mlperf;
mod ours;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write};
use std::path::Path;

use serde_json::Value;
use vocab::Tokenizer;

use super::attribution::Flavour;
use super::paired::Report;
use crate::cli::Format;
use crate::error::UsageError;

/// Tells what a folder knows of its run's counts. `tokenizer` counts its texts, where it has any.
///
/// # Errors
/// [`UsageError`] if it is not the folder of a run.
pub fn read(
    dir: &Path,
    tokenizer: Option<&Tokenizer>,
    flavour: &Flavour,
) -> Result<Report, UsageError> {
    let wrong = |reason: String| UsageError(format!("--from-run {}: {reason}", dir.display()));
    if !dir.is_dir() {
        return Err(wrong("there is no such folder".into()));
    }
    let log = Log::read(&dir.join("events.jsonl")).map_err(wrong)?;
    let source = dir.display().to_string();
    let is_theirs = log.lines.iter().any(|line| line["event_type"].is_string());
    let mut report = if is_theirs {
        let summary = object(&dir.join("performance/result_summary.json"));
        let summary = summary.or_else(|| object(&dir.join("result_summary.json")));
        mlperf::report(
            source,
            &log,
            summary.as_ref(),
            tokenizer.map(|known| (known, flavour)),
        )
    } else {
        let accounting = object(&dir.join("token_accounting.json"));
        ours::report(source, &log, accounting.as_ref()).map_err(wrong)?
    };
    report.unseen.splice(0..0, log.told());
    Ok(report)
}

/// Runs `stubline gap --from-run` and gives its exit code: 1 if a sample failed or more than `tolerance`
/// tokens stay unexplained.
///
/// # Errors
/// [`UsageError`] is for exit code 2, all others for 1.
pub fn run(
    dir: &Path,
    tokenizer: Option<&str>,
    limits: (u64, usize),
    (format, out): (Format, &mut impl Write),
) -> anyhow::Result<u8> {
    let tokenizer = tokenizer.map(crate::cli::tokenizer).transpose()?;
    let report = read(dir, tokenizer.as_ref(), &Flavour::default())?;
    report.print(format, limits, out)
}

/// The lines of a log that are JSON objects, and those that are not.
#[derive(Debug, Default)]
struct Log {
    lines: Vec<Value>,
    bad: u64,
    /// The first bad line's number, and what is wrong with it.
    first_bad: Option<(u64, String)>,
}

impl Log {
    fn read(path: &Path) -> Result<Self, String> {
        let name = || path.file_name().unwrap_or_default().to_string_lossy();
        let file = File::open(path).map_err(|error| format!("{}: {error}", name()))?;
        let mut log = Self::default();
        for (line, number) in BufReader::new(file).split(b'\n').zip(1..) {
            let line = line.map_err(|error| format!("{}: {error}", name()))?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(&line) {
                Ok(value @ Value::Object(_)) => log.lines.push(value),
                Ok(_) => log.refuse(number, "not an object".into()),
                Err(error) => log.refuse(number, error.to_string()),
            }
        }
        Ok(log)
    }

    fn refuse(&mut self, number: u64, reason: String) {
        self.bad += 1;
        self.first_bad.get_or_insert((number, reason));
    }

    fn told(&self) -> Option<String> {
        let (number, reason) = self.first_bad.as_ref()?;
        Some(format!(
            "events.jsonl: {} bad lines, the first is line {number}: {reason}",
            self.bad
        ))
    }
}

/// A file's JSON object, if it has one.
fn object(path: &Path) -> Option<Value> {
    let text = std::fs::read(path).ok()?;
    let value: Value = serde_json::from_slice(&text).ok()?;
    value.is_object().then_some(value)
}
