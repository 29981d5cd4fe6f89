//! ExecuTorch's own LLM server with our model worker behind it, and ours in its place. Needs packages from
//! a registry, so it is ignored unless asked for: `just real`. Where they cannot be installed it says why
//! and passes.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use harness::real::{self, Recipe};
use serde_json::{Value, json};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const ANSWER: &str = "Hello there, how are you today?";
/// Eight pieces and the step that finds the end, at 4 ms: `fixtures/README.md`.
const DECODE_MS: &str = "36.0";

/// One log line `llm_turn_stats`, by key.
type Turn = HashMap<String, String>;

struct Real {
    url: String,
    log: PathBuf,
}

impl Real {
    fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let authority = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(authority).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    /// The status and everything behind the head.
    fn exchange(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut response = String::new();
        let mut stream = self.send(method, path, body);
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    /// A turn of a session, not streamed; its usage.
    fn chat(&self, session: &str, messages: &[Value]) -> Value {
        let body = json!({"model": "executorch", "session_id": session, "messages": messages});
        let (status, body) = self.exchange("POST", "/v1/chat/completions", &body.to_string());
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["choices"][0]["message"]["content"], ANSWER);
        body["usage"].clone()
    }

    /// The same, streamed.
    fn stream(&self, session: &str, messages: &[Value]) -> String {
        let body = json!({"model": "executorch", "session_id": session, "stream": true, "messages": messages});
        let (status, body) = self.exchange("POST", "/v1/chat/completions", &body.to_string());
        assert_eq!(status, 200, "{body}");
        body
    }

    /// What its own log says of the turns so far.
    fn turns(&self) -> Vec<Turn> {
        let log = fs::read_to_string(&self.log).unwrap();
        let lines = log
            .lines()
            .filter_map(|line| line.split_once("llm_turn_stats "));
        let field = |field: &str| {
            let (key, value) = field.split_once('=').unwrap();
            (key.to_owned(), value.to_owned())
        };
        lines
            .map(|(_, fields)| fields.split(' ').map(field).collect())
            .collect()
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn later(first: &str, second: &str) -> [Value; 3] {
    let answered = json!({"role": "assistant", "content": ANSWER});
    [user(first), answered, user(second)]
}

/// The counts add up, and each rate is its count over its time to the printed digit.
fn check(turn: &Turn) {
    let number = |key: &str| turn[key].parse::<f64>().unwrap();
    let prefilled = number("prefilled_prompt_tokens");
    let prompt = number("prompt_tokens");
    assert!(
        (number("reused_prompt_tokens") + prefilled - prompt).abs() < 0.5,
        "{turn:?}"
    );
    assert_eq!(turn["completion_tokens"], "8", "{turn:?}");
    assert_eq!(turn["decode_ms"], DECODE_MS, "{turn:?}");
    // 0.05 ms for each prefilled token; the log prints a tenth of a millisecond.
    assert!(
        (number("prefill_ms") - prefilled * 0.05).abs() <= 0.05 + 1e-9,
        "{turn:?}"
    );
    assert_eq!(turn["prefill_tok_s"], "20000.0", "{turn:?}");
    assert_eq!(turn["decode_tok_s"], "222.2", "{turn:?}");
    let total = number("prefill_ms") + number("decode_ms");
    assert!((number("total_ms") - total).abs() <= 0.1 + 1e-9, "{turn:?}");
    assert_eq!(turn["finish"], "stop", "{turn:?}");
}

#[test]
#[ignore = "needs packages of PyPI: just real"]
fn the_real_server_works_with_our_worker_and_so_does_ours() {
    let recipe = Recipe::named("executorch").unwrap();
    let installed = real::cache().and_then(|cache| recipe.install(&cache.join("executorch")));
    let python = match installed {
        Ok(python) => python,
        Err(reason) => return eprintln!("skipped: executorch cannot be installed: {reason}"),
    };
    let log = std::env::temp_dir().join(format!("stubline-executorch-{}.log", std::process::id()));
    let files = [
        ("worker", Path::new(env!("CARGO_BIN_EXE_stubline-worker"))),
        (
            "model",
            &Path::new(ROOT).join("fixtures/executorch/scripts.json"),
        ),
        (
            "tokenizer",
            &Path::new(ROOT).join("fixtures/wire/sglang-0.5.23/stub-model"),
        ),
    ];
    let server = recipe.start(&python, &files, &log).unwrap();
    let real = Real {
        url: server.url.clone(),
        log: log.clone(),
    };
    check_all(&real, &python);
    drop(server);
    for worker in [None, Some(files[0].1)] {
        let ours = Ours::start(worker, files[1].1, files[2].1, &log);
        check_all(&ours.real, &python);
    }
    let _ = fs::remove_file(&log);
}

fn check_all(real: &Real, python: &Path) {
    sessions_resume_warm(real);
    a_client_that_leaves_costs_nothing(real);
    conformance(real, python);
}

/// `stubline serve executorch`, until it is dropped.
struct Ours {
    child: Child,
    real: Real,
}

impl Ours {
    /// With a worker's binary, or with the worker in its own process.
    fn start(worker: Option<&Path>, model: &Path, tokenizer: &Path, log: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stubline"));
        command.args([
            "serve",
            "executorch",
            "--port",
            "0",
            "--tokenizer-path",
            "byte",
        ]);
        command.arg("--model-path").arg(model);
        command.arg("--hf-tokenizer").arg(tokenizer);
        command.args(["--max-context", "4096"]);
        command.args(
            worker
                .iter()
                .flat_map(|worker| [Path::new("--worker-bin"), worker]),
        );
        command.stdout(Stdio::piped());
        let mut child = command
            .stderr(fs::File::create(log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let url = line.trim_end().strip_prefix("listening on ").unwrap();
        let real = Real {
            url: url.to_owned(),
            log: log.to_owned(),
        };
        Self { child, real }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sessions_resume_warm(real: &Real) {
    real.chat("a", &[user("one")]);
    real.chat("b", &[user("another one")]);
    let usage = real.chat("a", &later("one", "and then?"));
    let stream = real.stream("b", &later("another one", "and then?"));
    assert_eq!(stream.matches("[DONE]").count(), 1, "{stream}");

    let turns = real.turns();
    let of = |index: usize| {
        let turn: &Turn = &turns[index];
        (turn["session_id"].as_str(), turn["reason"].as_str())
    };
    assert_eq!(turns.len(), 4, "{turns:?}");
    assert_eq!(of(0), ("a", "new"));
    assert_eq!(of(1), ("b", "new"));
    assert_eq!(of(2), ("a", "exact_prefix"));
    assert_eq!(of(3), ("b", "exact_prefix"));
    turns.iter().for_each(check);
    assert_eq!(
        turns[2]["prompt_tokens"],
        usage["prompt_tokens"].to_string()
    );
    for (first, second) in [(0, 2), (1, 3)] {
        let told: u64 = turns[first]["prompt_tokens"].parse().unwrap();
        assert_eq!(
            turns[second]["reused_prompt_tokens"],
            (told + 8).to_string()
        );
    }
}

/// More than two seconds are left to say: a worker that took no cancellation would be given up.
fn a_client_that_leaves_costs_nothing(real: &Real) {
    let before = real.turns().len();
    let body = json!({"model": "executorch", "stream": true, "messages": [user("u-4s")]});
    let mut stream = real.send("POST", "/v1/chat/completions", &body.to_string());
    let mut start = [0; 512];
    stream.read_exact(&mut start).unwrap();
    drop(stream);

    real.chat("a", &[user("afterwards")]);
    let (status, body) = real.exchange("GET", "/health", "");
    assert_eq!((status, body.as_str()), (200, r#"{"status":"ok"}"#));
    assert_eq!(
        real.turns().len(),
        before + 1,
        "the turn that was left has no line"
    );
}

/// The suite that the package brings.
fn conformance(real: &Real, python: &Path) {
    let suite = "import executorch, os, pytest, sys; \
        folder = list(executorch.__path__)[0] + '/examples/llm_server/conformance'; \
        sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', folder]))";
    let output = Command::new(python)
        .args(["-c", suite])
        .env("OPENAI_BASE_URL", format!("{}/v1", real.url))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("7 passed"), "{said}");
}
