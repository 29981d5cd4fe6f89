//! `events.jsonl`

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use serde::Serialize;

use crate::bench::{Config, Run};
use crate::record::Event;

/// A line: what became of one request. Times are nanoseconds from the run's start.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    request_id: String,
    issued_ns: u64,
    sent_ns: Option<u64>,
    first_ns: Option<u64>,
    complete_ns: Option<u64>,
    chunks: &'a [Event],
    error: Option<String>,
    content_chars: usize,
    reasoning_chars: usize,
    input_tokens: Option<u64>,
    output_tokens: u64,
    input_tokens_server: Option<u64>,
    output_tokens_server: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens_ids: Option<u64>,
}

pub(super) fn write(path: &Path, run: &Run, config: &Config) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for (record, counts) in run.records.iter().zip(&run.counts) {
        let usage = record.usage.unwrap_or_default();
        let line = Line {
            id: &config.samples[record.sample].id,
            request_id: run.request_id(record),
            issued_ns: record.issued_ns,
            sent_ns: record.sent_ns,
            first_ns: record.first_ns(),
            complete_ns: record.is_completed().then_some(record.ended_ns),
            chunks: &record.events,
            error: record.failure.map(|failure| failure.to_string()),
            content_chars: record.content.chars().count(),
            reasoning_chars: record.reasoning.chars().count(),
            input_tokens: counts.input,
            output_tokens: counts.output(),
            input_tokens_server: usage.prompt_tokens,
            output_tokens_server: usage.completion_tokens,
            output_tokens_ids: counts.output_ids,
        };
        serde_json::to_writer(&mut file, &line)?;
        file.write_all(b"\n")?;
    }
    Ok(file.flush()?)
}
