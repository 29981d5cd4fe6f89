//! `stubline serve executorch` as a process: the worker that it starts, and how both end.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const STUBLINE: &str = env!("CARGO_BIN_EXE_stubline");
const WORKER: &str = env!("CARGO_BIN_EXE_stubline-worker");
const SCRIPTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/fixtures/executorch/scripts.json"
);
const CHAT: &str = r#"{"messages":[{"role":"user","content":"hi"}]}"#;

/// A server that listens.
struct Serving {
    child: Child,
    authority: String,
}

fn serve(words: &[&str]) -> Command {
    let mut command = Command::new(STUBLINE);
    command.args(["serve", "executorch"]);
    if !words.contains(&"--port") {
        command.args(["--port", "0"]);
    }
    if !words.contains(&"--tokenizer-path") {
        command.args(["--tokenizer-path", "byte"]);
    }
    command.args(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("STUBLINE_TURN_LOG_LEVEL");
    command
}

impl Serving {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let url = line.trim_end().strip_prefix("listening on http://");
        Self {
            authority: url.unwrap().to_owned(),
            child,
        }
    }

    /// The status and the body.
    fn exchange(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.authority).unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n");
        let head = format!("{head}content-type: application/json\r\nconnection: close\r\n\r\n");
        stream.write_all([&head, body].concat().as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    fn chat(&self) -> (u16, String) {
        self.exchange("POST", "/v1/chat/completions", CHAT)
    }

    /// The process of its worker.
    fn worker(&self) -> String {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.split_whitespace().next().unwrap().to_owned()
    }

    /// Ends it as a user would; its exit code and what it said on stderr.
    fn end(mut self) -> (Option<i32>, String) {
        kill("-TERM", &self.child.id().to_string());
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

fn kill(signal: &str, process: &str) {
    assert!(
        Command::new("kill")
            .args([signal, process])
            .status()
            .unwrap()
            .success()
    );
}

fn is_running(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// What a server says that does not start.
fn refused(words: &[&str]) -> String {
    let Output {
        status,
        stderr,
        stdout,
    } = serve(words).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "{said}");
    assert_eq!(String::from_utf8(stdout).unwrap(), "");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_worker_is_started_and_ended_with_its_server() {
    let words = ["--worker-bin", WORKER, "--model-path", SCRIPTS];
    let serving = Serving::start(&mut serve(&words));
    let (status, body) = serving.chat();
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("Hello there, how are you today?"), "{body}");
    let worker = serving.worker();
    let (code, said) = serving.end();
    assert_eq!(code, Some(0));
    assert_eq!(said.matches("llm_turn_stats").count(), 1, "{said}");
    assert!(!is_running(&worker));
}

#[test]
fn a_worker_that_is_killed_is_told_of() {
    let words = ["--worker-bin", WORKER, "--model-path", SCRIPTS];
    let serving = Serving::start(&mut serve(&words));
    assert_eq!(serving.exchange("GET", "/health", "").0, 200);
    kill("-KILL", &serving.worker());
    // The kernel may take a moment.
    while serving.exchange("GET", "/health", "").0 == 200 {}
    let (status, body) = serving.chat();
    assert_eq!(status, 500);
    assert!(
        body.contains("model worker is unavailable; restart the server"),
        "{body}"
    );
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn the_environment_silences_the_log_and_a_flag_goes_before_it() {
    let words = ["--model-path", SCRIPTS, "--turn-log-level", "info"];
    for (words, lines) in [(&words[..2], 0), (&words[..], 1)] {
        let mut command = serve(words);
        let serving = Serving::start(command.env("STUBLINE_TURN_LOG_LEVEL", "off"));
        assert_eq!(serving.chat().0, 200);
        let (_, said) = serving.end();
        assert_eq!(said.matches("llm_turn_stats").count(), lines, "{said}");
    }
}

#[test]
fn what_cannot_start_is_said_in_one_line() {
    let folder = std::env::temp_dir();
    let model = |name: &str, worker: &str| -> PathBuf {
        let path = folder.join(format!("stubline-{}-{name}.json", std::process::id()));
        fs::write(&path, format!("{{\"worker\":{worker},\"default\":\"x\"}}")).unwrap();
        path
    };
    let models = [
        (
            "exit",
            r#"{"start_exit":3}"#,
            "worker failed to start (no output",
        ),
        (
            "log",
            r#"{"start_lines":["loading..."]}"#,
            "invalid worker JSON: 'loading...'",
        ),
        (
            "unready",
            r#"{"start_lines":["{\"ready\":false}"]}"#,
            "worker did not report ready: {'ready': False}",
        ),
        (
            "capacity",
            r#"{"start_lines":["{\"ready\":true,\"max_named_sessions\":\"many\"}"]}"#,
            "max_named_sessions is no number: many",
        ),
    ];
    for (name, worker, expected) in models {
        let path = model(name, worker);
        for binary in [&[][..], &["--worker-bin", WORKER]] {
            let words = [&["--model-path", path.to_str().unwrap()], binary].concat();
            let said = refused(&words);
            assert!(said.contains(expected), "{said}");
        }
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn what_makes_no_sense_is_said_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let worker = ["--worker-bin", WORKER, "--model-path", SCRIPTS];
    for (words, expected) in [
        (
            vec!["--worker-bin", "/nowhere/worker", "--model-path", "x"],
            "--worker-bin /nowhere/worker: ",
        ),
        (vec!["--worker-bin", WORKER], "--model-path"),
        ([&worker[..], &["--pace", "burst"]].concat(), "--worker-bin"),
        (
            [&worker[..], &["--max-sessions", "5"]].concat(),
            "--worker-bin",
        ),
        (
            [&worker[..], &["--truth", "/nowhere/t"]].concat(),
            "/nowhere/t",
        ),
        ([&worker[..], &["--port", &port]].concat(), "cannot listen"),
        (
            vec!["--model-path", "/nowhere.json"],
            "--model-path /nowhere.json",
        ),
        (vec!["--source", "script:/nowhere"], "--source /nowhere"),
        (
            vec!["--source", "echo", "--model-path", SCRIPTS],
            "--source or --model-path",
        ),
        (vec!["--num-runners", "2"], "--num-runners must be 1"),
        (vec!["--profile", "executorch-9"], "known: executorch-1.5.1"),
        (
            vec!["--hf-tokenizer", "/nowhere"],
            "--hf-tokenizer /nowhere: there is no tokenizer.json in it",
        ),
        (vec!["--turn-log-level", "loud"], "off, debug, info"),
        (vec!["--pace", "fast"], "costs"),
        (vec!["--pace", "steady:ttft=1ms,itl=10ms"], "--pace"),
        (vec!["--max-osl", "0"], "--max-osl"),
        (vec!["--jitter", "2"], "jitter"),
    ] {
        let said = refused(&words);
        assert!(said.contains(expected), "{said}");
    }
}
