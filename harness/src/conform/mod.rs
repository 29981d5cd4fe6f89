//! `stubline conform`: a live server against recorded cases of the server it says it is.
//!
//! Without our scripts a server's texts are its own, so `structure` compares how answers are built:
//! heads, framing, order and kinds of events, keys, nulls and types, errors word for word. A server
//! that plays the scripts is compared byte for byte.

mod applicable;
pub mod cli;
mod corpus;
mod framing;
mod json;
mod live;
mod manner;
mod native;
pub(crate) mod report;
mod shape;
mod stream;
mod structure;

use wire::http1::WholeRequest;
use wire::recording::{difference, normalised};

use corpus::{Corpus, Recorded};
use live::{Facts, Server};

use crate::raw::End;

/// What became of a case.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Outcome {
    /// It differs, in words.
    Fail(String),
    /// It cannot be held against this server, with the reason.
    NotApplicable(String),
    Pass,
}

/// A case and what became of it.
#[derive(Clone, Debug)]
struct Finding {
    configuration: String,
    name: String,
    outcome: Outcome,
    seconds: f64,
}

/// What cases to send.
#[derive(Clone, Debug)]
enum Mode {
    /// Byte for byte, all of them.
    Exact,
    /// As far as it is structure, those of one configuration.
    Live { configuration: String, facts: Facts },
}

/// Holds a server against each case whose path fits, in recorded order.
fn run(
    server: &Server<'_>,
    corpus: &Corpus,
    mode: &Mode,
    fits: impl Fn(&Recorded) -> bool,
) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for recorded in corpus.cases.iter().filter(|recorded| fits(recorded)) {
        let started = tokio::time::Instant::now();
        let outcome = match mode {
            Mode::Exact => match applicable::exchange_reason(recorded) {
                Some(reason) => Outcome::NotApplicable(reason),
                None => exact(server, recorded, corpus)?,
            },
            Mode::Live {
                configuration,
                facts,
            } => match applicable::live_reason(recorded, corpus, configuration, facts) {
                Some(reason) => Outcome::NotApplicable(reason),
                None => live(server, recorded, facts)?,
            },
        };
        findings.push(Finding {
            configuration: recorded.configuration.clone(),
            name: recorded.case.name.clone(),
            outcome,
            seconds: started.elapsed().as_secs_f64(),
        });
    }
    Ok(findings)
}

fn exact(server: &Server<'_>, recorded: &Recorded, corpus: &Corpus) -> anyhow::Result<Outcome> {
    let rules = corpus.manner.rules.of_page(&recorded.target());
    let received = server.exchange(&recorded.request)?;
    let told = difference(
        &normalised(&recorded.response, &rules),
        &normalised(&received.bytes, &rules),
    );
    let late = match received.end {
        End::TimedOut => " (the answer was not complete in time)",
        End::Closed | End::Complete => "",
    };
    Ok(told.map_or(Outcome::Pass, |told| {
        Outcome::Fail(format!("the bytes part:\n{told}{late}"))
    }))
}

fn live(server: &Server<'_>, recorded: &Recorded, facts: &Facts) -> anyhow::Result<Outcome> {
    let request = server.request(recorded, facts);
    let to_head = WholeRequest::parse(&request)
        .is_ok_and(|whole| whole.is_some_and(|whole| whole.head.method == "HEAD"));
    let received = server.exchange(&request)?;
    if received.end == End::TimedOut {
        let bytes = received.bytes.len();
        let told = format!("the answer was not complete in time; {bytes} bytes came");
        return Ok(Outcome::Fail(told));
    }
    let told = structure::difference(recorded, &received.bytes, to_head, facts);
    Ok(told.map_or(Outcome::Pass, Outcome::Fail))
}
