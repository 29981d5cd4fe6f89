//! Tokenizers, and a stub that is asked.

use std::sync::{Arc, LazyLock};

use plan::Timeline;
use plan::reply::Reply;
use plan::stub::{Call, Context, Stub};
use serde_json::Value;
use vocab::Tokenizer;
use wire::http1::RequestHead;

/// A built-in vocabulary, or `bpe` of the fixtures.
pub(crate) fn tokenizer(name: &str) -> Arc<Tokenizer> {
    static BPE: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tokenizers/bpe");
        let read = |file: &str| std::fs::read_to_string(format!("{folder}/{file}")).ok();
        Arc::new(Tokenizer::from_files(read).unwrap())
    });
    Tokenizer::named(name).map_or_else(|| Arc::clone(&BPE), Arc::new)
}

/// All bytes of a stream.
pub(crate) fn all(timeline: &mut Timeline) -> Vec<u8> {
    let mut bytes = Vec::new();
    while timeline.step(&mut bytes).is_some() {}
    bytes
}

/// What a stub replies to a POST at 1700000000 s, its ids from one seed.
pub(crate) fn ask(stub: &Stub, path: &str, body: &Value) -> Reply {
    ask_in(&mut Context::new(7), stub, path, body)
}

/// The same by a worker that may have answered before.
pub(crate) fn ask_in(context: &mut Context, stub: &Stub, path: &str, body: &Value) -> Reply {
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\ncontent-type: application/json\r\n\r\n");
    let (head, _) = RequestHead::parse(head.as_bytes()).unwrap().unwrap();
    let call = Call {
        body: body.as_bytes(),
        head: &head,
        wants_facts: true,
    };
    context.created = 1_700_000_000;
    stub.reply(&call, context).unwrap()
}
