//! Structure, against SGLang's recordings played back, and against recordings that were changed.

use serve::replay::Plays;

use crate::folders::fixtures;
use crate::support::{Recorded, Running, changed, failures};

fn profile(configuration: &str) -> &'static str {
    if configuration.starts_with("rust-server") {
        "sglang-0.5.23-rust"
    } else {
        "sglang-0.5.23"
    }
}

#[test]
fn recordings_of_sglang_hold_against_their_replay() {
    let mut count = 0;
    for folder in std::fs::read_dir(fixtures().join("wire/sglang-0.5.23")).unwrap() {
        let folder = folder.unwrap().path();
        if !folder.join("cases.json").is_file() {
            continue;
        }
        let config = folder.file_name().unwrap().to_str().unwrap();
        let profile = profile(config);
        let player = Running::replay(&folder, Plays::default());
        let url = player.url();
        let words = ["--url", &url, "--profile", profile, "--config", config];
        let (failed, passed) = failures(&[&words[..], &["--model", "stub-model"]].concat());
        player.stop();
        assert!(failed.is_empty(), "{config}:\n{}", failed.join("\n"));
        count += passed;
    }
    assert!(count >= 586, "{count} passed");
}

/// Configuration and case, what is changed to what, and what is said of it.
const CHANGES: &[[&str; 5]] = &[
    [
        "default",
        "gen-stream",
        "\"text\":\"Hello, world\"",
        "\"text\":\"Hallo, world\"",
        "the text of a frame does not begin with that of the frame before",
    ],
    [
        "default",
        "gen-stream",
        "[39,535]",
        "[395535]",
        "`output_ids` of a frame do not begin with those of the frame before",
    ],
    [
        "default",
        "gen-stream",
        "\"completion_tokens\":1,",
        "\"completion_tokens\":7,",
        "`output_ids` are not as many as `completion_tokens`",
    ],
    [
        "incremental",
        "gen-stream",
        "\"completion_tokens\":1,",
        "\"completion_tokens\":7,",
        "`output_ids` up to a frame are not as many as its `completion_tokens`",
    ],
    [
        "default",
        "gen-stream",
        "\"num_retractions\":0,\"reasoning_tokens\":0",
        "\"reasoning_tokens\":0,\"num_retractions\":0",
        "event 1 (first frame): in `meta_info` key `reasoning_tokens` stands where `num_retractions` is recorded",
    ],
    [
        "default",
        "gen-stream",
        "\"weight_versions\"",
        "\"weight_versionz\"",
        "(last frame): key `weight_versions` is missing in `meta_info`",
    ],
    [
        "default",
        "gen-stream",
        "e\r\ndata: [DONE]\n\n\r\n",
        "",
        "the events are frames; recorded are frames, [DONE]",
    ],
    [
        "default",
        "gen-n2-stream",
        "\"index\":0}",
        "\"index\":1}",
        "choice 0 has the events last frame; recorded are first frame, last frame",
    ],
    [
        "default",
        "gen-n2",
        "{\"text\":\"First",
        "{\"test\":\"First",
        "key `text` is missing in `the body[0]`",
    ],
    [
        "default",
        "gen-rid",
        "my-request-id",
        "my-request-io",
        "`meta_info.id` is \"my-request-io\", recorded is \"my-request-id\"",
    ],
    [
        "default",
        "gen-err-no-input-stream",
        "\"message\":\"E",
        "\"message\":\"e",
        "event 1 (error): it says",
    ],
    [
        "default",
        "chat-stream",
        "\"reasoning_content\":null,\"role\":\"assistant\"",
        "\"role\":\"assistant\",\"reasoning_content\":null",
        "event 1 (role): in `choices[0].delta` key `role` stands where `reasoning_content` is recorded",
    ],
    [
        "default",
        "chat-basic",
        "\"matched_stop\"",
        "\"stop_matched\"",
        "key `matched_stop` is missing in `choices[0]`",
    ],
    [
        "default",
        "cmpl-stream",
        "\"usage\":null",
        "\"usagE\":null",
        "event 1 (content): key `usage` is missing in the body",
    ],
    [
        "default",
        "route-embeddings",
        "does not appear",
        "does not apqear",
        "the body is {\"object\":\"error\",\"message\":\"This model does not apqear",
    ],
    [
        "default",
        "route-server-info",
        "\"tokenizer_mode\"",
        "\"tokenizer_node\"",
        "key `tokenizer_node` stands where `tokenizer_mode` is recorded",
    ],
    [
        "default",
        "route-ollama-chat-stream",
        "\"done\":true,",
        "\"done\":null,",
        "it is not the last line, and no other, that is done",
    ],
    [
        "rust-server",
        "chat-stream",
        "\r\nE\r\ndata: [DONE]",
        "\r\ne\r\ndata: [DONE]",
        "chunk size is written \"e\", not E",
    ],
    [
        "rust-server",
        "gen-stream",
        "\"cached_tokens\":0,\"reasoning_tokens\":0",
        "\"reasoning_tokens\":0,\"cached_tokens\":0",
        "event 1 (frame): in `meta_info` key `reasoning_tokens` stands where `cached_tokens` is recorded",
    ],
];

#[test]
fn a_server_that_errs_is_told_what_is_different() {
    for &[configuration, name, old, new, expected] in CHANGES {
        let case = Recorded {
            profile: profile(configuration),
            model: "stub-model",
            configuration,
            name,
        };
        let told = changed(&case, |response| response.replacen(old, new, 1));
        assert!(told.contains(expected), "{name}:\n{told}");
    }
}

#[test]
fn our_stub_is_built_like_sglang() {
    let folder = fixtures().join("wire/sglang-0.5.23");
    let scripts = format!("script:{}", folder.join("scripts.json").display());
    let tokenizer = folder.join("stub-model").display().to_string();
    let scripted = ["--tokenizer", &tokenizer, "--source", &scripts];
    let length = ["--context-length", "2048", "--model-path"];
    for (profile, words) in [
        (
            "sglang-0.5.23",
            [&length[..], &["stub-model"], &scripted].concat(),
        ),
        (
            "sglang-0.5.23-rust",
            [&length[..], &["stub-model"], &scripted].concat(),
        ),
        (
            "sglang-0.5.23",
            vec!["--served-model-name", "a longer \"name\""],
        ),
    ] {
        let stub = Running::stub(&[&["sglang", "--profile", profile][..], &words].concat());
        let (failed, passed) = failures(&["--url", &stub.url(), "--profile", profile]);
        stub.stop();
        assert!(failed.is_empty(), "{profile}:\n{}", failed.join("\n"));
        assert!(passed >= 200, "{passed} passed");
    }
}
