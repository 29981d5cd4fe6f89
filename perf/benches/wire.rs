//! What every request pays for: events read and written, bodies parsed, prompts tokenised.
//!
//! Each result is checked where it is measured, so that nothing fast and wrong goes unseen.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput};
use vocab::Tokenizer;
use wire::chunk::{Choice, Chunk, Delta};
use wire::dialect::{Dialect, Encoder, Envelope};
use wire::finish::FinishReason;
use wire::request::Endpoint;
use wire::sse;

/// Bytes that a client reads from its socket at a time.
const READ: usize = 16 << 10;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    decode_events(&mut criterion);
    encode_event(&mut criterion);
    parse_request(&mut criterion);
    tokenise(&mut criterion);
    criterion.final_summary();
}

fn decode_events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode_events");
    for characters in [0, 100, 1_000, 8_000, 32_000] {
        let (bytes, events) = stream(characters);
        let framing = events * "data: \n\n".len();
        let expected = (events, bytes.len() - framing);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let id = BenchmarkId::from_parameter(characters);
        group.bench_with_input(id, &bytes, |bencher, bytes| {
            bencher.iter(|| assert_eq!(decoded(black_box(bytes)), expected));
        });
    }
    group.finish();
}

/// A chat stream whose content has so many characters, 4 an event, and its number of events.
fn stream(characters: usize) -> (Vec<u8>, usize) {
    let mut encoder = Encoder::new(Dialect::VLLM, envelope(), Arc::default());
    let mut bytes = Vec::new();
    encoder.event(&role(), &mut bytes);
    let mut events = 3;
    for start in (0..characters).step_by(4) {
        let text = &"word"[..4.min(characters - start)];
        encoder.event(&text_chunk(text), &mut bytes);
        events += 1;
    }
    let mut last = text_chunk("");
    last.choices[0].finish = Some(FinishReason::Stop.into());
    encoder.event(&last, &mut bytes);
    bytes.extend_from_slice(sse::DONE);
    (bytes, events)
}

/// Events of a stream, and bytes of their data.
fn decoded(bytes: &[u8]) -> (usize, usize) {
    let mut seen = (0, 0);
    let mut count = |data: &[u8]| {
        seen.0 += 1;
        seen.1 += data.len();
    };
    let mut decoder = sse::Decoder::default();
    for read in bytes.chunks(READ) {
        decoder.feed(read, &mut count);
    }
    decoder.finish(&mut count);
    seen
}

/// The template against the typed encoder, which it is made from.
fn encode_event(criterion: &mut Criterion) {
    let mut encoder = Encoder::new(Dialect::VLLM, envelope(), Arc::default());
    let chunk = text_chunk(" \"token\"");
    let (mut json, mut expected) = (Vec::new(), Vec::new());
    Dialect::VLLM.encode(encoder.envelope(), &chunk, &mut Vec::new(), &mut json);
    sse::encode(&json, &mut expected);
    let mut out = Vec::with_capacity(expected.len());

    let mut group = criterion.benchmark_group("encode_event");
    group.throughput(Throughput::Bytes(expected.len() as u64));
    group.bench_function("template", |bencher| {
        bencher.iter(|| {
            out.clear();
            encoder.event(black_box(&chunk), &mut out);
            assert_eq!(out, expected);
        });
    });
    group.bench_function("typed", |bencher| {
        bencher.iter(|| {
            out.clear();
            out.extend_from_slice(b"data: ");
            let told = &mut Vec::new();
            Dialect::VLLM.encode(encoder.envelope(), black_box(&chunk), told, &mut out);
            out.extend_from_slice(b"\n\n");
            assert_eq!(out, expected);
        });
    });
    group.finish();
}

fn parse_request(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse_request");
    for bytes in [600, 8 << 10, 128 << 10] {
        let body = chat_body(bytes);
        group.throughput(Throughput::Bytes(bytes as u64));
        let id = BenchmarkId::from_parameter(bytes);
        group.bench_with_input(id, &body, |bencher, body| {
            bencher.iter(|| {
                let json = Some("application/json");
                let body = black_box(body.as_bytes());
                let request = Dialect::VLLM.parse(Endpoint::Chat, json, body);
                let request = request.expect("the body is a good one");
                assert!(request.stream);
                assert_eq!(request.prompt.decisive_text(), Some(QUESTION));
            });
        });
    }
    group.finish();
}

/// What the last message asks.
const QUESTION: &str = "And what does it cost?";

/// A streamed chat of exactly so many bytes: turns of two lines each, then the question.
fn chat_body(bytes: usize) -> String {
    let turn = |role: &str, text: &str| format!(r#"{{"role":"{role}","content":"{text}"}},"#);
    let head = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":160,"temperature":0.7,"messages":["#;
    let question = turn("user", QUESTION);
    let tail = format!("{}]}}", question.trim_end_matches(','));
    let text = r"A stub server answers as the real one does.\nIts bytes are known before they are sent, and so are its tokens.";
    let mut body = head.to_owned();
    for role in ["user", "assistant"].into_iter().cycle() {
        let next = turn(role, text);
        let rest = bytes - body.len() - tail.len();
        if rest < 2 * next.len() {
            body += &turn(role, &"x".repeat(rest - turn(role, "").len()));
            break;
        }
        body += &next;
    }
    body += &tail;
    assert_eq!(body.len(), bytes);
    body
}

/// Of a text whose words the tokenizer has seen, as it has the template's and a repeated prompt's.
fn tokenise(criterion: &mut Criterion) {
    const TOKENS: usize = 1_000;
    let vocab = tokenizer().vocab;
    let text = prompts();
    let all = vocab.tokens(&text);
    let part = |tokens: usize| {
        let bytes = all[..tokens].iter().map(|token| token.bytes as usize);
        &text[..bytes.sum()]
    };
    // A cut may part what were one token's bytes.
    let exact = |text: &&str| vocab.count(text) == TOKENS;
    let text = (TOKENS - 8..all.len()).map(part).find(exact);
    let text = text.expect("some part of the prompts has so many tokens");

    let mut group = criterion.benchmark_group("tokenise");
    group.throughput(Throughput::Elements(TOKENS as u64));
    group.bench_function("bpe", |bencher| {
        bencher.iter(|| assert_eq!(vocab.count(black_box(text)), TOKENS));
    });
    group.finish();
}

fn tokenizer() -> Tokenizer {
    let folder = fixtures().join("tokenizers/bpe");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    Tokenizer::from_files(read).expect("the fixture is a whole tokenizer")
}

/// The recorded prompts, of many languages, one after the other.
fn prompts() -> String {
    #[derive(serde::Deserialize)]
    struct Line {
        prompt: String,
    }
    let lines = std::fs::read_to_string(fixtures().join("prompts/mixed-1000.jsonl"));
    let prompt = |line| {
        let line: Line = serde_json::from_str(line).expect("a prompt a line");
        line.prompt
    };
    let lines = lines.expect("the fixture is there");
    lines.lines().take(200).map(prompt).collect()
}

fn fixtures() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures"))
}

fn envelope() -> Envelope {
    Envelope {
        created: 1_700_000_000,
        fingerprint: Dialect::VLLM.fingerprint(),
        ..Envelope::new(
            Endpoint::Chat,
            "chatcmpl-0123456789abcdef".into(),
            "model".into(),
        )
    }
}

fn role() -> Chunk<'static> {
    let mut chunk = text_chunk("");
    chunk.choices[0].delta.role = Some("assistant".into());
    chunk
}

fn text_chunk(text: &str) -> Chunk<'_> {
    Chunk {
        choices: vec![Choice {
            delta: Delta {
                content: Some(text.into()),
                ..Delta::default()
            },
            ..Choice::default()
        }],
        ..Chunk::default()
    }
}
