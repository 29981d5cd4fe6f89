//! Record, replay, and the comparison byte for byte.

use serve::replay::Plays;

use crate::folders::{fixtures, folder};
use crate::support::{Running, conform, record};

const CASES: &str = r#"{"name":"stream","path":"/v1/chat/completions","headers":{"X-Request-Id":"a"},"body":{"model":"tiny-chat","messages":[{"role":"user","content":"Say it. [[utf8]]"}],"stream":true}}
{"name":"error","path":"/v1/completions","body":"{"}
{"name":"head","method":"HEAD","path":"/health"}
{"name":"sub/health","method":"GET","path":"/health"}
"#;

#[test]
fn what_was_recorded_is_played_again_to_the_byte() {
    let (dir, again) = (folder("recorded"), folder("recorded-again"));
    let cases = dir.join("list.jsonl");
    std::fs::write(&cases, CASES).unwrap();
    let stub = Running::scripted();
    let text = |path: &std::path::Path| path.display().to_string();
    let words = [
        "--url",
        &stub.url(),
        "--cases",
        &text(&cases),
        "--out",
        &text(&dir),
    ];
    assert_eq!(
        record(&words),
        "4 cases recorded, 0 without a whole answer\n"
    );
    stub.stop();
    let player = Running::replay(&dir, Plays::default());
    record(&[
        "--url",
        &player.url(),
        "--cases",
        &text(&cases),
        "--out",
        &text(&again),
    ]);
    for name in ["stream", "error", "head", "sub/health"] {
        for end in ["request", "response"] {
            let read = |dir: &std::path::Path| {
                let bytes = std::fs::read(dir.join(format!("{name}.{end}.http"))).unwrap();
                // Only the port that the Host header tells is another.
                let text = String::from_utf8(bytes).unwrap();
                let lines = text.split("\r\n").filter(|line| !line.starts_with("Host:"));
                lines.collect::<Vec<_>>().join("\r\n")
            };
            assert_eq!(read(&dir), read(&again), "{name}");
        }
    }
    let words = ["--url", &player.url(), "--against-fixtures", &text(&dir)];
    let (code, told) = conform(&words).unwrap();
    assert!(
        told.ends_with("\n4 passed, 0 failed, 0 not applicable\n"),
        "{told}"
    );
    assert_eq!(code, 0);
    player.stop();
}

#[test]
fn recorded_folders_hold_against_their_replay() {
    for (folder, counts) in [
        ("vllm-0.33.0", "706 passed, 0 failed, 7 not applicable"),
        (
            "sglang-0.5.23/default",
            "239 passed, 0 failed, 17 not applicable",
        ),
        (
            "sglang-0.5.23/rust-server",
            "241 passed, 0 failed, 17 not applicable",
        ),
    ] {
        let dir = fixtures().join("wire").join(folder);
        let player = Running::replay(&dir, Plays::default());
        let dir = dir.display().to_string();
        let (code, told) = conform(&["--url", &player.url(), "--against-fixtures", &dir]).unwrap();
        player.stop();
        assert!(told.ends_with(&format!("\n{counts}\n")), "{told}");
        assert_eq!(code, 0);
    }
}

#[test]
fn bytes_that_part_are_shown() {
    let dir = fixtures()
        .join("wire/vllm-0.32.0/default")
        .display()
        .to_string();
    let stub = Running::scripted();
    let url = stub.url();
    let words = [
        "--url",
        &url,
        "--against-fixtures",
        &dir,
        "--case",
        "chat-stream",
    ];
    let (code, told) = conform(&words).unwrap();
    stub.stop();
    assert_eq!(code, 1);
    assert!(
        told.contains("FAIL  chat-stream\n      the bytes part:\n"),
        "{told}"
    );
    assert!(told.contains("\\\"kv_transfer_params\\\":null"), "{told}");
}
