//! The counts of a live server: its answers to a data set, taken apart.

mod ask;
mod cli;

use super::answer;
use super::attribution::{self, Counted, Flavour};
use super::paired::{Report, Sample};
use crate::bench::{self, Config, Keep};

pub use ask::{Asked, ask};
pub use cli::{Args, run};

/// Sends a load and takes each answer's counts apart.
///
/// # Errors
/// [`crate::UsageError`] if the configuration does not make sense, anything else if the run could not
/// start.
pub fn measure(config: &Config, asked: &Asked, flavour: &Flavour) -> anyhow::Result<Report> {
    let config = Config {
        extra_body: asked.extra_body(config),
        keep: Keep::Records,
        keep_data: true,
        ..config.clone()
    };
    let run = bench::run(&config)?;
    let (mut samples, mut failed) = (Vec::new(), 0);
    for record in &run.records {
        if !record.is_completed() {
            failed += 1;
            continue;
        }
        let answer = answer::of_record(record);
        let found = attribution::attribute(&answer, &config.tokenizer, flavour, Counted::All);
        samples.push(Sample {
            id: config.samples[record.sample].id.clone(),
            request_id: run.request_id(record),
            chunks: answer.chunks,
            attribution: found,
        });
    }
    let mut report = Report::new(config.url.clone(), samples);
    report.n_failed = failed;
    report.about.push(format!("model {}", run.model));
    report.about.extend(asked.about.iter().cloned());
    report.unseen.extend(asked.unseen.iter().cloned());
    Ok(report)
}
