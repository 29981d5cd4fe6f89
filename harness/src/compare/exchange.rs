//! A request as the server's truth file has it.

use std::fmt::Write as _;

use anyhow::ensure;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::quantity::Basis;
use super::stated::{Stated, Statement};
use crate::stats::float;

/// A request and what is true of it.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) request_id: String,
    pub(super) response_id: Option<String>,
    pub(super) prompt_sha256: Option<String>,
    pub(super) failed: bool,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) usage_tokens: Option<u64>,
    pub(super) text_tokens: Option<u64>,
    /// None of a request that was refused: nobody looked.
    pub(super) include_usage: Option<bool>,
    pub(super) connection: u64,
    pub(super) received_ns: u64,
    pub(super) ended_ns: u64,
    /// When the last write was due.
    pub(super) end_due_ns: u64,
    /// When each chunk that says something was written.
    pub(super) texts_ns: Vec<u64>,
    /// By how much the latest write was late.
    pub(super) late_ns: u64,
}

/// A record of a truth file, as far as it is looked at.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Line {
    request_id: String,
    response_id: Option<String>,
    pub(super) route: Option<String>,
    pub(super) method: Option<String>,
    status: u16,
    include_usage: Option<bool>,
    prompt_sha256: Option<String>,
    connection: u64,
    pub(super) started_unix_ns: u64,
    received_ns: u64,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    finish_reason: Option<String>,
    usage_sent: Option<serde_json::Value>,
    chunks: Vec<Chunk>,
    ended: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Chunk {
    kind: String,
    due_ns: u64,
    written_ns: u64,
}

impl Exchange {
    /// What a record says of a request, and the scenario of its texts.
    ///
    /// # Errors
    /// The server did not do what the scenario states.
    pub(super) fn new(line: Line, stated: &Stated) -> anyhow::Result<Self> {
        let says_error = line.chunks.iter().any(|chunk| chunk.kind == "error");
        let is_taken = (200..300).contains(&line.status);
        let mut failed = !is_taken || line.ended != "done" || says_error;
        let statement = stated.of(line.prompt_sha256.as_ref());
        // A client may ask for fewer tokens than the scenario has.
        let is_cut = line.finish_reason.as_deref() == Some("length");
        let usage = line.usage_sent.as_ref();
        let usage = usage.and_then(|usage| usage["completion_tokens"].as_u64());
        if let Some(statement) = statement {
            failed |= stated.is_replayed && statement.failed;
            let is_left = line.ended == "client_abort";
            ensure!(
                is_left || failed == statement.failed,
                "the server did not play the scenario: a request ended as {}, status {}",
                line.ended,
                line.status
            );
            let said = line.completion_tokens.filter(|_| !failed && !is_cut);
            let expected = statement.completion_tokens;
            ensure!(
                said.is_none() || expected.is_none() || said == expected,
                "the server did not play the scenario: it said {said:?} tokens, not {expected:?}"
            );
        }
        let says = |chunk: &&Chunk| matches!(&*chunk.kind, "content" | "reasoning" | "tool");
        let late = line.chunks.iter();
        let late = late.map(|chunk| chunk.written_ns.saturating_sub(chunk.due_ns));
        let texts = line
            .chunks
            .iter()
            .filter(says)
            .map(|chunk| chunk.written_ns);
        Ok(Self {
            request_id: line.request_id,
            response_id: line.response_id,
            prompt_sha256: line.prompt_sha256,
            failed,
            prompt_tokens: line.prompt_tokens,
            usage_tokens: usage,
            text_tokens: statement
                .filter(|_| !is_cut && !failed)
                .and_then(|known| known.text_tokens),
            include_usage: is_taken.then_some(line.include_usage == Some(true)),
            connection: line.connection,
            received_ns: line.received_ns,
            end_due_ns: line
                .chunks
                .last()
                .map_or(line.received_ns, |chunk| chunk.due_ns),
            ended_ns: line
                .chunks
                .last()
                .map_or(line.received_ns, |chunk| chunk.written_ns),
            texts_ns: texts.collect(),
            late_ns: late.max().unwrap_or(0),
        })
    }

    /// A request of which only the statement is known.
    pub(super) fn stated(statement: Statement) -> Self {
        Self {
            request_id: String::new(),
            response_id: None,
            prompt_sha256: None,
            failed: statement.failed,
            prompt_tokens: None,
            // A real server's tokens are its own.
            usage_tokens: None,
            text_tokens: statement.text_tokens,
            include_usage: None,
            connection: 0,
            received_ns: 0,
            ended_ns: 0,
            end_due_ns: 0,
            texts_ns: Vec::new(),
            late_ns: 0,
        }
    }

    /// Output tokens on a basis, by default the server's.
    pub(super) fn output(&self, basis: Option<Basis>) -> Option<u64> {
        match basis {
            Some(Basis::Retokenized) => self.text_tokens,
            Some(Basis::Usage) | None => self.usage_tokens,
        }
    }

    pub(super) fn ttft_ns(&self) -> Option<u64> {
        Some(self.texts_ns.first()?.saturating_sub(self.received_ns))
    }

    /// Tokens behind the first, where there are some.
    pub(super) fn behind_first(&self, basis: Option<Basis>) -> Option<u64> {
        self.texts_ns.first()?;
        self.output(basis)?
            .checked_sub(1)
            .filter(|&count| count > 0)
    }

    pub(super) fn tpot_ns(&self, basis: Option<Basis>) -> Option<f64> {
        let behind = self.behind_first(basis)?;
        let time = self.ended_ns.saturating_sub(*self.texts_ns.first()?);
        Some(float(time) / float(behind))
    }

    /// Number of gaps between chunks that say something.
    pub(super) fn gap_count(&self) -> u64 {
        (self.texts_ns.len() as u64).saturating_sub(1)
    }

    pub(super) fn gaps_ns(&self) -> impl Iterator<Item = u64> + Clone {
        let pairs = self.texts_ns.windows(2);
        pairs.map(|pair| pair[1].saturating_sub(pair[0]))
    }
}

/// As truth files have it.
pub(super) fn sha256(text: &str) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text) {
        write!(hex, "{byte:02x}").expect("a String takes all");
    }
    hex
}
