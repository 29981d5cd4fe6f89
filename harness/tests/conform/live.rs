//! Structure, against our stub and against servers that err.

use crate::folders::folder;
use crate::support::{Recorded, Running, changed, conform, failures};

#[test]
fn our_stub_is_built_like_vllm() {
    let stub = Running::scripted();
    let (failed, passed) = failures(&["--url", &stub.url()]);
    stub.stop();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(passed >= 230, "{passed} passed");
}

#[test]
fn another_model_with_its_own_texts_is_held_too() {
    let words = [
        "vllm",
        "some/model",
        "--served-model-name",
        "a longer \"name\"",
        "b",
    ];
    let stub = Running::stub(&words);
    let (failed, passed) = failures(&["--url", &stub.url()]);
    stub.stop();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(passed >= 200, "{passed} passed");
}

#[test]
fn an_older_version_is_told_from_the_newest() {
    let stub = Running::stub(&["vllm", "m", "--profile", "vllm-0.32.0"]);
    let told = |profile: &str, case: &str| {
        let words = ["--url", &stub.url(), "--profile", profile, "--case", case];
        conform(&words).unwrap()
    };
    assert_eq!(told("vllm-0.32.0", "default/chat-stream").0, 0);
    let (code, text) = told("vllm-0.33.0", "default/chat-stream");
    assert_eq!(code, 1);
    let expected = "event 2 (content): key `kv_transfer_params` is missing in the body";
    assert!(text.contains(expected), "{text}");
    let (_, text) = told("vllm-0.33.0", "get-version");
    let expected = "`version` is \"0.32.0\", recorded is \"0.33.0\"";
    assert!(text.contains(expected), "{text}");
    stub.stop();
}

#[test]
fn a_server_that_errs_is_told_what_is_different() {
    for (name, old, new, expected) in [
        (
            "chat-stream",
            "transfer-encoding",
            "Transfer-Encoding",
            "the headers are date, server, content-type, vary, Transfer-Encoding; recorded are date, server, content-type, vary, transfer-encoding",
        ),
        (
            "chat-stream-usage",
            "e\r\ndata: [DONE]\n\n\r\n",
            "",
            "the events are role, finish, usage; recorded are role, finish, usage, [DONE]",
        ),
        (
            "chat-stream",
            "\n\n\r\nf6\r\ndata:",
            "\n\n\r\nF6\r\ndata:",
            "chunk size is written \"F6\", not f6",
        ),
        (
            "chat",
            "\"refusal\":null,\"annotations\":null",
            "\"annotations\":null,\"refusal\":null",
            "in `choices[0].message` key `annotations` stands where `refusal` is recorded",
        ),
        (
            "chat",
            "\"service_tier\":null",
            "\"service_tier\":1234",
            "`service_tier` is an integer, recorded is null",
        ),
        (
            "err-unknown-model",
            "does not exist",
            "does  not exist",
            "the body is {\"error\":{\"message\":\"The model `no-such-model` does  not exis",
        ),
        (
            "get-health",
            "HTTP/1.1 200 OK",
            "HTTP/1.1 204 No Content",
            "the status line is `HTTP/1.1 204 No Content`, recorded is `HTTP/1.1 200 OK`",
        ),
    ] {
        let case = Recorded {
            profile: "vllm-0.33.0",
            model: "tiny-chat",
            configuration: "default",
            name,
        };
        let told = changed(&case, |response| response.replacen(old, new, 1));
        assert!(told.contains(expected), "{name}:\n{told}");
    }
}

#[test]
fn what_cannot_be_checked_has_its_reason_and_wrong_words_are_refused() {
    let stub = Running::stub(&["vllm", "m"]);
    let url = stub.url();
    let (code, told) = conform(&["--url", &url, "--case", "*session-half-close"]).unwrap();
    assert_eq!(code, 0);
    assert!(told.contains("more than one plain exchange"), "{told}");
    let (_, told) = conform(&["--url", &url, "--case", "err-max-tokens-too-big"]).unwrap();
    assert!(
        told.contains("needs a server with --max-model-len 512"),
        "{told}"
    );
    let (_, told) = conform(&["--url", &url, "--case", "api-key/*"]).unwrap();
    assert!(
        told.contains("needs a server with --api-key sk-local-test; say --config api-key"),
        "{told}"
    );
    for words in [
        ["--profile", "vllm-0.1"],
        ["--config", "none-such"],
        ["--case", "none-such"],
        ["--against-fixtures", "/none-such"],
    ] {
        let error = conform(&[&["--url", &*url][..], &words[..]].concat()).unwrap_err();
        assert!(error.is::<harness::UsageError>(), "{error}");
    }
    stub.stop();
}

#[test]
fn a_report_for_ci_is_written() {
    let stub = Running::scripted();
    let file = folder("junit").join("conform.xml");
    let path = file.display().to_string();
    let words = [
        "--url",
        &stub.url(),
        "--case",
        "default/chat-stream",
        "--junit",
        &path,
    ];
    conform(&words).unwrap();
    stub.stop();
    let xml = std::fs::read_to_string(file).unwrap();
    assert!(
        xml.contains("tests=\"1\" failures=\"0\" skipped=\"0\""),
        "{xml}"
    );
    assert!(
        xml.contains("<testcase classname=\"default\" name=\"chat-stream\""),
        "{xml}"
    );
}
