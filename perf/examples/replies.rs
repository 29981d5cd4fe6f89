//! `replies SCENARIO COUNT` turns the bytes of one request into those of its response, COUNT times.
//!
//! `perf/instructions` counts its instructions. No socket, no clock, ids from a fixed seed: nothing but
//! the stub, its head parsed and its response appended to a buffer as the server does.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use plan::ReasoningParser;
use plan::reply::Body;
use plan::source::{Fixed, ScriptFile};
use plan::stub::{Call, Context, Stub};
use vocab::Tokenizer;
use wire::dialect::Head;
use wire::http1::RequestHead;

/// 160 characters, which the echo gives back and the max stub says.
const TEXT: &str = "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps";

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(count)) = (arguments.next(), arguments.next()) else {
        bail!("usage: replies SCENARIO COUNT");
    };
    let scenario = Scenario::named(&name)?;
    let count: usize = count.parse().context("COUNT is a number")?;
    let mut context = Context::new(0);
    context.created = 1_700_000_000;
    let mut out = Vec::new();
    for _ in 0..count {
        out.clear();
        let events = reply(&scenario, &mut context, &mut out)?;
        ensure!(events == scenario.events, "{events} events instead");
    }
    Ok(())
}

/// A request to a stub.
struct Scenario {
    stub: Stub,
    request: Vec<u8>,
    /// Events of the answer; an answer that is not streamed is one.
    events: usize,
}

impl Scenario {
    fn named(name: &str) -> anyhow::Result<Self> {
        let (stub, prompt, fields, events) = match name {
            "echo-json" => (echo()?, TEXT, "", 1),
            "echo-stream" => (echo()?, TEXT, STREAM, ROLE + 160 + FINISH + DONE),
            "max-json" => (max()?, TEXT, "", 1),
            "max-stream" => (max()?, TEXT, STREAM, ROLE + 16 + FINISH + DONE),
            "vllm-stream" => (
                vllm()?,
                "[[think]]",
                STREAM_USAGE,
                ROLE + 17 + FINISH + USAGE + DONE,
            ),
            _ => bail!("no scenario `{name}`"),
        };
        let body = format!(
            r#"{{"model":"{}","messages":[{{"role":"user","content":"{prompt}"}}],"max_completion_tokens":160{fields}}}"#,
            stub.names[0],
        );
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:8000\r\nuser-agent: stubline\r\n\
             content-type: application/json\r\nx-request-id: stubline-0\r\ncontent-length: {}\r\n\r\n",
            body.len(),
        );
        Ok(Self {
            stub,
            request: [head, body].concat().into_bytes(),
            events,
        })
    }
}

const STREAM: &str = r#","stream":true"#;
const STREAM_USAGE: &str = r#","stream":true,"stream_options":{"include_usage":true}"#;

// Events of a stream beside its text.
const ROLE: usize = 1;
const FINISH: usize = 1;
const USAGE: usize = 1;
const DONE: usize = 1;

/// As `stubline serve echo`.
fn echo() -> anyhow::Result<Stub> {
    let tokenizer = Tokenizer::named("char").context("a built-in vocabulary")?;
    Ok(Stub::echo(Arc::new(tokenizer)))
}

/// As `stubline serve max`.
fn max() -> anyhow::Result<Stub> {
    let mut stub = echo()?;
    stub.names = vec!["max".into()];
    stub.root = "max".into();
    stub.engine.source = Box::new(Fixed::new(TEXT, &stub.engine.tokenizer));
    stub.streaming.renders_once = true;
    stub.streaming.tokens_per_chunk = 10;
    Ok(stub)
}

/// As `stubline serve vllm model --tokenizer … --source script:… --reasoning-parser qwen3`.
fn vllm() -> anyhow::Result<Stub> {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures"));
    let file = |path: &str| std::fs::read_to_string(fixtures.join(path));
    let read = |name: &str| file(&format!("tokenizers/bpe/{name}")).ok();
    let tokenizer = Arc::new(Tokenizer::from_files(read)?);
    let scripts = file("wire/vllm-0.33.0/scripts.json")?;
    let source = ScriptFile::from_json(&scripts, &tokenizer)?;
    let mut stub = Stub::echo(tokenizer);
    stub.names = vec!["model".into()];
    stub.root = "model".into();
    stub.engine.honors_limits = true;
    stub.engine.max_model_len = Some(131_072);
    stub.engine.source = Box::new(source);
    stub.front.serves_metrics = true;
    stub.parsers.reasoning = Some(ReasoningParser::Qwen3);
    Ok(stub)
}

/// Appends the response; gives its number of events.
fn reply(scenario: &Scenario, context: &mut Context, out: &mut Vec<u8>) -> anyhow::Result<usize> {
    let (head, length) = RequestHead::parse(&scenario.request)?.context("the head is whole")?;
    let call = Call {
        body: &scenario.request[length..],
        head: &head,
        wants_prompt: false,
    };
    let reply = scenario.stub.reply(&call, context);
    let reply = reply.ok().context("a chat is for the stub to answer")?;
    ensure!(reply.status == 200, "status {}", reply.status);
    let head = Head {
        close: !head.keep_alive,
        content: reply.content(),
        date: "Tue, 14 Nov 2023 22:13:20 GMT",
        headers: &reply.headers,
        status: reply.status,
    };
    scenario.stub.dialect.write_head(&head, out);
    let mut events = 0;
    match reply.body {
        Body::Empty | Body::HeadAlone(_) => {}
        Body::Rendered(rendered) => {
            out.extend_from_slice(&rendered.bytes);
            events = rendered.steps.len();
        }
        Body::Stream(mut timeline) => {
            while timeline.step(out).is_some() {
                events += 1;
            }
        }
        Body::Whole(whole) => {
            out.extend_from_slice(&whole.bytes);
            events = 1;
        }
    }
    Ok(events)
}
