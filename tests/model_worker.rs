//! Model workers in processes of their own: the words they take, the pipe that cancels, how they end.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

const STUBLINE: &str = env!("CARGO_BIN_EXE_stubline");
const WORKER: &str = env!("CARGO_BIN_EXE_stubline-worker");
const SCRIPTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/fixtures/executorch/scripts.json"
);

/// A worker that is ready.
struct Running {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    ready: String,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut running = Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            ready: String::new(),
        };
        running.ready = running.line();
        running
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// Its exit code once nothing more comes.
    fn end(mut self) -> Option<i32> {
        drop(self.stdin);
        self.child.wait().unwrap().code()
    }
}

/// A file that is removed when dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("stubline-worker-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn four_words(model: &str) -> Command {
    let mut command = Command::new(WORKER);
    command.args(["--model_path", model, "--tokenizer_path", "byte"]);
    command
}

#[test]
fn the_four_words_start_a_worker() {
    let mut worker = Running::start(&mut four_words(SCRIPTS));
    let ready = r#"{"max_named_sessions":2,"max_sessions":3,"ready":true}"#;
    assert_eq!(worker.ready, ready);
    worker.send(r#"{"prompt": "hi", "max_new_tokens": 1}"#);
    assert_eq!(worker.line(), r#"{"token":"Hello"}"#);
    let done: Value = serde_json::from_str(&worker.line()).unwrap();
    assert_eq!(done["decode_ms"], 4.0);
    assert_eq!(worker.end(), Some(0));
}

#[test]
fn a_script_ends_the_worker() {
    let mut worker = Running::start(&mut four_words(SCRIPTS));
    worker.send(r#"{"prompt": "u-die-now"}"#);
    assert_eq!(worker.line(), "");
    assert_eq!(worker.end(), Some(3));
}

#[test]
fn costs_on_the_command_line_show_in_the_last_line() {
    let mut command = Command::new(STUBLINE);
    command.args(["worker", "executorch", "--model_path", SCRIPTS]);
    command.args(["--tokenizer_path", "byte", "--no-sleep"]);
    command.args(["--decode-ms-per-token", "1e6", "--max-sessions", "1"]);
    let mut worker = Running::start(&mut command);
    let ready = r#"{"max_named_sessions":0,"max_sessions":1,"ready":true}"#;
    assert_eq!(worker.ready, ready);
    worker.send(r#"{"prompt": "hi", "max_new_tokens": 1}"#);
    worker.line();
    let done: Value = serde_json::from_str(&worker.line()).unwrap();
    assert_eq!(done["decode_tok_s"], 0.001);
    assert_eq!(worker.end(), Some(0));
}

/// A recording beside the file that names it is played.
#[test]
fn a_recording_is_played() {
    let line = r#"{"dir":"from_worker","line":"{\"ready\":true}"}"#;
    let recording = File::new("a.worker.jsonl", line);
    let name = recording.0.file_name().unwrap().to_str().unwrap();
    let model = File::new("a.json", &format!("{{\"replay\":\"{name}\"}}"));
    let worker = Running::start(&mut four_words(model.0.to_str().unwrap()));
    assert_eq!(worker.ready, r#"{"ready":true}"#);
    assert_eq!(worker.end(), Some(0));
}

/// The shell makes the pipe, as no safe code can hand a descriptor to a child by its number.
#[test]
fn a_frame_on_the_control_pipe_ends_the_turn() {
    let pipe = std::env::temp_dir().join(format!("stubline-control-{}", std::process::id()));
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut command = Command::new("sh");
    let script = "exec 7<>\"$0\"; EXECUTORCH_LLM_WORKER_CONTROL_FD=7 exec \"$@\"";
    command.arg("-c").arg(script).arg(&pipe).arg(WORKER);
    command.args(["--model_path", SCRIPTS, "--tokenizer_path", "byte"]);
    let mut worker = Running::start(&mut command);
    let ready = r#"{"max_named_sessions":2,"max_sessions":3,"ready":true,"supports_cancel":true}"#;
    assert_eq!(worker.ready, ready);
    let mut control = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    // 4 s, if nobody ends it.
    worker.send(r#"{"prompt": "u-4s", "cancel_request_id": 1}"#);
    assert_eq!(worker.line(), r#"{"token":"The"}"#);
    for id in [0_u64, 9, 1] {
        control.write_all(&id.to_le_bytes()).unwrap();
    }
    let last = loop {
        let line: Value = serde_json::from_str(&worker.line()).unwrap();
        if line.get("token").is_none() {
            break line;
        }
    };
    assert_eq!(last["cancelled"], true, "{last}");
    assert_eq!(worker.end(), Some(0));
    std::fs::remove_file(pipe).unwrap();
}

#[test]
fn wrong_words_are_told_in_one_line() {
    let usage = "stubline-worker: use stubline-worker --model_path FILE --tokenizer_path NAME|PATH \
                 and nothing else; `stubline worker executorch` takes more\n";
    let broken = File::new("broken.json", "{\"a\":{\"worker\":{\"x\":1}}}");
    let broken = broken.0.to_str().unwrap();
    for (words, expected) in [
        (&[][..], Some(usage)),
        (
            &["--tokenizer_path", "byte", "--model_path", SCRIPTS],
            Some(usage),
        ),
        (
            &["--model_path", SCRIPTS, "--tokenizer_path", "byte", "-v"],
            Some(usage),
        ),
        (
            &["--model_path", "/missing", "--tokenizer_path", "byte"],
            None,
        ),
        (&["--model_path", broken, "--tokenizer_path", "byte"], None),
        (
            &["--model_path", SCRIPTS, "--tokenizer_path", "/missing"],
            None,
        ),
    ] {
        let output = Command::new(WORKER).args(words).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(output.stdout.is_empty());
        if let Some(expected) = expected {
            assert_eq!(told, expected);
        }
    }
    let words = ["worker", "executorch", "--model-path", SCRIPTS];
    let output = Command::new(STUBLINE).args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
}
