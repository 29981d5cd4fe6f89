//! Exchanges during which something else happens: an abort, a second request, a full queue.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::corpus::{Case, Configuration, Corpus, Native};
use super::exchange::{Socket, body_start, exchange};
use crate::support::post;

/// The time of a step in an answer that is aborted: long, since a slow machine must hit the right one.
const STEP: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);
const LONG: &str =
    r#"{"text":"[[long]] Long","sampling_params":{"max_new_tokens":400},"stream":true}"#;
const SHORT: &str = r#"{"text":"[[one]] hi","sampling_params":{"max_new_tokens":4},"stream":true}"#;

/// The case's response, and that of the other exchange.
pub(crate) fn exchanges(
    corpus: &Corpus,
    configuration: &Configuration,
    case: &Case,
) -> Vec<Vec<u8>> {
    let is_cut = ["abort", "disconnected"].iter().any(|word| {
        String::from_utf8_lossy(&case.response[body_start(&case.response)..]).contains(word)
    });
    let is_queued = case.exchange.contains("while one") || case.exchange.contains("while another");
    let pace = match (is_queued, is_cut) {
        (true, _) => "steady:ttft=500ms,itl=500ms",
        (_, true) => "steady:ttft=200ms,itl=200ms",
        _ => "steady:ttft=20ms,itl=20ms",
    };
    let more: &[&str] = match (&case.aux, is_queued) {
        (None, false) => &[],
        _ => &["--pace", pace],
    };
    let stub = corpus.start(configuration, more);
    let address = stub.address();
    let responses = match (&case.aux, &corpus.native) {
        _ if is_queued => queued(address, case),
        (Some(aux), Some(native)) if aux.path() == "/abort_request" => {
            aborted(address, case, aux, native)
        }
        (Some(aux), Some(native)) => doubled(address, case, aux, native),
        _ => vec![exchange(address, case)],
    };
    stub.stop();
    responses
}

/// The other exchange aborts the case's.
fn aborted(address: SocketAddr, case: &Case, aux: &Case, native: &Native) -> Vec<Vec<u8>> {
    let mut socket = Socket::send(address, &case.request, PATIENCE);
    if is_stream(case) {
        socket.read_until(|bytes, _| events(bytes) >= native.events);
    } else {
        // Within the step that yields the last recorded token.
        let tokens = recorded_tokens(case).unwrap_or(2);
        thread::sleep(STEP * (tokens - 1) + STEP / 2);
    }
    let other = exchange(address, aux);
    vec![socket.finish(case), other]
}

/// The other exchange is sent in the midst of the case's, which is aborted then.
fn doubled(address: SocketAddr, case: &Case, aux: &Case, native: &Native) -> Vec<Vec<u8>> {
    let mut socket = Socket::send(address, &case.request, PATIENCE);
    socket.read_until(|bytes, _| events(bytes) >= 4);
    let other = exchange(address, aux);
    socket.read_until(|bytes, _| events(bytes) >= native.events);
    let request: Value =
        serde_json::from_slice(&case.request[body_start(&case.request)..]).unwrap();
    let abort = format!("{{\"rid\":{}}}", request["rid"]);
    let mut abort = Socket::send(address, post("/abort_request", &abort).as_bytes(), PATIENCE);
    abort.read_until(|bytes, _| bytes.ends_with(b"\r\n\r\n"));
    vec![socket.finish(case), other]
}

/// One request runs; the case's waits and is aborted, or finds the queue full.
fn queued(address: SocketAddr, case: &Case) -> Vec<Vec<u8>> {
    let mut running = Socket::send(address, post("/generate", LONG).as_bytes(), PATIENCE);
    running.read_until(|bytes, _| events(bytes) >= 1);
    let Some(aux) = &case.aux else {
        let mut waiting = Socket::send(address, post("/generate", SHORT).as_bytes(), PATIENCE);
        waiting.read_until(|bytes, _| bytes.ends_with(b"\r\n\r\n"));
        thread::sleep(STEP);
        return vec![exchange(address, case)];
    };
    let socket = Socket::send(address, &case.request, PATIENCE);
    thread::sleep(STEP);
    let other = exchange(address, aux);
    vec![socket.finish(case), other]
}

fn is_stream(case: &Case) -> bool {
    let head = &case.response[..body_start(&case.response)];
    String::from_utf8_lossy(head).contains("text/event-stream")
}

/// Events that were received.
fn events(bytes: &[u8]) -> usize {
    bytes.windows(7).filter(|part| part == b"\ndata: ").count()
}

fn recorded_tokens(case: &Case) -> Option<u32> {
    let text = String::from_utf8_lossy(&case.response);
    let (_, behind) = text.split_once("\"completion_tokens\":")?;
    let digits = behind.split(|character: char| !character.is_ascii_digit());
    digits.into_iter().next()?.parse().ok()
}
