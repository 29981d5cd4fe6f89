//! What holds of any bytes; the targets and `tests/fuzz_bodies.rs` call the same functions.

use std::sync::Arc;

use wire::chunk::{Choice, Chunk, Gist, Reader, Samples};
use wire::dialect::sglang::bodies;
use wire::dialect::{Dialect, Encoder, Envelope};
use wire::executorch;
use wire::failure::Failure;
use wire::http1::{BodyDecoder, Framing, RequestHead};
use wire::json::Json;
use wire::request::Endpoint;
use wire::sse;

const ENDPOINTS: [Endpoint; 2] = [Endpoint::Chat, Endpoint::Completions];

/// A chunk survives being written by a dialect, and the fast paths write and read what the typed ones
/// do.
pub fn chunk(data: &[u8]) {
    let mut reader = Reader::default();
    // Twice, the second time as one that is known.
    for json in data.split(|&byte| byte == b'\n').chain([data, data]) {
        let decoded = Chunk::decode(json).ok().map(Gist::from);
        assert_eq!(reader.read(json).ok(), decoded);
    }
    let (mut known, mut fresh) = (Samples::default(), Samples::default());
    for json in data.split(|&byte| byte == b'\n').chain([data, data]) {
        let read = fresh.read(json, &mut Reader::default()).ok();
        assert_eq!(known.read(json, &mut reader).ok(), read);
    }
    let Some(chunk) = Chunk::decode(data).ok().filter(is_small) else {
        return;
    };
    for endpoint in ENDPOINTS {
        let chunk = spoken(endpoint, &chunk);
        let mut encoder = Encoder::new(Dialect::VLLM, envelope(endpoint), Arc::default());
        let (mut json, mut typed, mut fast) = (Vec::new(), Vec::new(), Vec::new());
        Dialect::VLLM.encode(encoder.envelope(), &chunk, &mut Vec::new(), &mut json);
        assert_eq!(Chunk::decode(&json).expect("wire reads itself"), chunk);
        sse::encode(&json, &mut typed);
        encoder.event(&chunk, &mut fast);
        assert_eq!(fast, typed);
    }
}

/// A body's content does not depend on the cuts, and a head's length only on the head.
pub fn http1(data: &[u8]) {
    let (bytes, at) = cut(data);
    let length = Framing::Length(at as u64);
    for framing in [Framing::Chunked, length, Framing::UntilClose] {
        let whole = body(framing, &[bytes]);
        assert_eq!(body(framing, &[&bytes[..at], &bytes[at..]]), whole);
    }
    if let Ok(Some((_, length))) = RequestHead::parse(bytes) {
        let shorter = RequestHead::parse(&bytes[..at.min(length - 1)]);
        assert!(matches!(shorter, Ok(None)), "{shorter:?}");
        let alone = RequestHead::parse(&bytes[..length]);
        assert!(matches!(alone, Ok(Some((_, end))) if end == length));
    }
}

/// What is accepted is a JSON object to Python, and what is refused gets a JSON answer.
pub fn request(data: &[u8]) {
    for endpoint in ENDPOINTS {
        let Err(failure) = Dialect::VLLM.parse(endpoint, Some("application/json"), data) else {
            assert!(matches!(Json::parse(data), Ok(Json::Object(_))));
            continue;
        };
        refusal(Dialect::VLLM, &failure);
    }
    for failure in refusals(data) {
        refusal(Dialect::SGLANG, &failure);
    }
    for kind in [None, Some("application/json")] {
        if let Err(Some(failure)) = executorch::parse(kind, data) {
            let mut answer = Vec::new();
            failure.encode(&mut answer);
            // It quotes numbers that serde_json finds too large.
            let Ok(Json::Object(answer)) = Json::parse(&answer) else {
                panic!("{failure:?} is JSON");
            };
            assert!(answer.get("detail").is_some(), "{failure:?}");
        }
    }
}

/// What SGLang refuses to read, on each of its routes.
fn refusals(data: &[u8]) -> Vec<Failure> {
    let (dialect, kind) = (Dialect::SGLANG, Some("application/json"));
    let endpoints = ENDPOINTS.into_iter().chain([Endpoint::Generate]);
    let read = endpoints.map(|endpoint| dialect.parse(endpoint, kind, data).map(drop));
    let messages = |counts, reasons| {
        dialect
            .parse_messages(kind, data, counts, reasons)
            .map(drop)
    };
    let served = ["stub-model".into()];
    let response = |asked| dialect.check_response(&asked, &served);
    let results = read.chain([
        messages(false, true),
        messages(true, false),
        dialect.parse_responses(kind, data).and_then(response),
        bodies::Detokenize::parse(kind, data).map(drop),
        bodies::Ollama::chat(kind, data).map(drop),
        bodies::Ollama::generate(kind, data).map(drop),
        bodies::ParseFunctionCall::parse(kind, data).map(drop),
        bodies::Score::parse(kind, data).map(drop),
        bodies::SeparateReasoning::parse(kind, data).map(drop),
        bodies::Tokenize::parse(kind, data).map(drop),
        bodies::check_embeddings(kind, data, "/v1/rerank"),
        bodies::check_internal_state(kind, data),
        bodies::of_vertex(kind, data).map(drop),
    ]);
    results.filter_map(Result::err).collect()
}

/// A refusal is a JSON object.
fn refusal(dialect: Dialect, failure: &Failure) {
    let mut answer = Vec::new();
    dialect.encode_failure(None, failure, &mut answer);
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("a refusal is JSON");
    let is_known = matches!(failure.status(), 400 | 404);
    assert!(answer.is_object() && is_known, "{answer}");
}

/// The events of a stream do not depend on its cuts, and each that is one line can be sent again.
pub fn sse(data: &[u8]) {
    let (bytes, at) = cut(data);
    let mut whole = events(&[bytes]);
    assert_eq!(events(&[&bytes[..at], &bytes[at..]]), whole);
    whole.retain(|event| !event.contains(&b'\n'));
    let mut again = Vec::new();
    for event in &whole {
        sse::encode(event, &mut again);
    }
    assert_eq!(events(&[&again]), whole);
}

/// The input behind its first byte, and the place in it that this byte names.
fn cut(data: &[u8]) -> (&[u8], usize) {
    let (&first, bytes) = data.split_first().unwrap_or((&0, data));
    (bytes, usize::from(first) % (bytes.len() + 1))
}

fn events(cuts: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    let mut decoder = sse::Decoder::default();
    for bytes in cuts {
        decoder.feed(bytes, |event| events.push(event.to_vec()));
    }
    decoder.finish(|event| events.push(event.to_vec()));
    events
}

/// Bytes taken, if the framing held, the content up to there, and whether that was all.
fn body(framing: Framing, cuts: &[&[u8]]) -> (Option<usize>, Vec<u8>, bool) {
    let mut decoder = BodyDecoder::new(framing);
    let mut content = Vec::new();
    let feed = |bytes: &&[u8]| {
        let taken = decoder.feed(bytes, |part| content.extend_from_slice(part));
        taken.ok()
    };
    let taken = cuts.iter().map(feed).sum();
    (taken, content, decoder.is_complete())
}

fn envelope(endpoint: Endpoint) -> Envelope {
    Envelope::new(endpoint, "id".into(), "model".into())
}

/// No more choices than one, of a small index: the encoder keeps a template for each up to it.
fn is_small(chunk: &Chunk<'_>) -> bool {
    chunk.choices.len() < 2 && chunk.choices.iter().all(|choice| choice.index < 9)
}

/// The part of a chunk that vLLM's events have a place for.
fn spoken<'a>(endpoint: Endpoint, chunk: &Chunk<'a>) -> Chunk<'a> {
    let mut chunk = chunk.clone();
    if chunk.error.is_some() {
        return Chunk {
            error: chunk.error,
            ..Chunk::default()
        };
    }
    for Choice {
        delta, token_ids, ..
    } in &mut chunk.choices
    {
        match endpoint {
            Endpoint::Chat => token_ids.take_if(|_| delta.role.is_some()),
            Endpoint::Completions | Endpoint::Generate => {
                delta.content.get_or_insert_default();
                delta.reasoning = None;
                delta.role = None;
                delta.tool_calls.clear();
                None
            }
        };
    }
    chunk
}
