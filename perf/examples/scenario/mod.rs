//! Requests whose cost is counted, and the stubs that answer them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use plan::source::{Fixed, ScriptFile};
use plan::stub::Stub;
use plan::{PrefixCache, ReasoningParser};
use vocab::Tokenizer;
use wire::dialect::Dialect;

/// 160 characters, which the echo gives back and the max stub says.
const TEXT: &str = "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps";

/// A request to a stub.
pub(crate) struct Scenario {
    pub(crate) stub: Stub,
    pub(crate) request: Vec<u8>,
    /// Events of the answer; an answer that is not streamed is one.
    pub(crate) events: usize,
}

impl Scenario {
    pub(crate) fn named(name: &str) -> anyhow::Result<Self> {
        let (stub, prompt, fields, events) = match name {
            "sglang-native" => return Self::native(160),
            "sglang-native-1000" => return Self::native(1000),
            "echo-json" => (echo()?, TEXT, "", 1),
            "echo-chunks" => (echo_in_chunks()?, TEXT, STREAM, ROLE + 16 + FINISH + DONE),
            "echo-stream" => (echo()?, TEXT, STREAM, ROLE + 160 + FINISH + DONE),
            "max-json" => (max()?, TEXT, "", 1),
            "max-stream" => (max()?, TEXT, STREAM, ROLE + 16 + FINISH + DONE),
            "vllm-stream" => (
                vllm()?,
                "[[think]]",
                STREAM_USAGE,
                ROLE + 17 + FINISH + USAGE + DONE,
            ),
            "sglang-stream" => (sglang()?, TEXT, STREAM, ROLE + 160 + FINISH + DONE),
            _ => bail!("no scenario `{name}`"),
        };
        let body = format!(
            r#"{{"model":"{}","messages":[{{"role":"user","content":"{prompt}"}}],"max_completion_tokens":160{fields}}}"#,
            stub.names[0],
        );
        Ok(Self {
            stub,
            request: post("/v1/chat/completions", &body),
            events,
        })
    }

    /// A stream of SGLang's own of so many tokens, each frame of which says all so far.
    fn native(tokens: usize) -> anyhow::Result<Self> {
        let text: String = TEXT.chars().cycle().take(tokens).collect();
        let body = format!(
            r#"{{"text":"{text}","sampling_params":{{"temperature":0,"max_new_tokens":{tokens}}},"stream":true}}"#
        );
        Ok(Self {
            stub: sglang()?,
            request: post("/generate", &body),
            events: tokens + DONE,
        })
    }
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:8000\r\nuser-agent: stubline\r\n\
             content-type: application/json\r\nx-request-id: stubline-0\r\ncontent-length: {}\r\n\r\n",
        body.len(),
    );
    [&head, body].concat().into_bytes()
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

/// As `stubline serve echo --tokens-per-chunk 10`.
fn echo_in_chunks() -> anyhow::Result<Stub> {
    let mut stub = echo()?;
    stub.streaming.tokens_per_chunk = 10;
    Ok(stub)
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

/// As `stubline serve sglang`.
fn sglang() -> anyhow::Result<Stub> {
    let mut stub = echo()?;
    stub.dialect = Dialect::SGLANG;
    stub.engine.honors_limits = true;
    stub.engine.max_model_len = Some(131_072);
    stub.engine.prefix_cache = Some(PrefixCache::radix());
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
