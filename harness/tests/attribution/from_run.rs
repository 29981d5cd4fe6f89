//! `stubline gap --from-run` over folders of `MLPerf`'s endpoints and of our own, whole and damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use harness::UsageError;
use harness::bench::{self, Config, Limit};
use harness::cli::Format;
use harness::gap::attribution::{Cause, Flavour};
use harness::gap::from_run;
use harness::gap::paired::Report;
use harness::report::{self, Summary};
use serde_json::json;
use vocab::Tokenizer;

use crate::folders::folder;
use crate::stub::{start, url};

fn char() -> Tokenizer {
    Tokenizer::named("char").unwrap()
}

fn read(dir: &Path) -> Report {
    from_run::read(dir, Some(&char()), &Flavour::default()).unwrap()
}

const EVENTS: &str = r#"{"event_type":"session.started","timestamp_ns":1,"sample_uuid":"","conversation_id":"","turn":null,"data":null}
{"event_type":"sample.issued","timestamp_ns":2,"sample_uuid":"w","conversation_id":"","turn":null,"data":["PromptData","warm up"]}
{"event_type":"sample.complete","timestamp_ns":3,"sample_uuid":"w","conversation_id":"","turn":null,"data":["TextModelOutput","long answer of the warm-up"]}
{"event_type":"session.start_performance_tracking","timestamp_ns":4,"sample_uuid":"","conversation_id":"","turn":null,"data":null}
{"event_type":"sample.issued","timestamp_ns":5,"sample_uuid":"a","conversation_id":"","turn":null,"data":["PromptData","hi",null,null,null,null,null,null]}
{"event_type":"sample.recv_first","timestamp_ns":6,"sample_uuid":"a","conversation_id":"","turn":null,"data":null,"worker_id":0}
{"event_type":"sample.recv_non_first","timestamp_ns":7,"sample_uuid":"a","conversation_id":"","turn":null,"data":null,"worker_id":0}
{"event_type":"sample.complete","timestamp_ns":8,"sample_uuid":"a","conversation_id":"","turn":null,"data":["TextModelOutput",["Yes",".!"],["hm","mm"]],"finish_reason":"stop"}
{"event_type":"sample.issued","timestamp_ns":9,"sample_uuid":"b","conversation_id":"","turn":null,"data":["PromptData","hi"]}
{"event_type":"sample.complete","timestamp_ns":10,"sample_uuid":"b","conversation_id":"","turn":null,"data":["TextModelOutput","",null,[[{"index":0,"id":"x","function":{"name":"f","arguments":"{\"a\""}}],[{"index":0,"function":{"arguments":":1}"}}]]],"finish_reason":"tool_calls"}
{"event_type":"sample.issued","timestamp_ns":11,"sample_uuid":"c","conversation_id":"","turn":null,"data":["PromptData","hi"]}
{"event_type":"error.generic","timestamp_ns":12,"sample_uuid":"c","conversation_id":"","turn":null,"data":["ErrorData","HTTP","HTTP 500: no"]}
{"event_type":"sample.complete","timestamp_ns":13,"sample_uuid":"c","conversation_id":"","turn":null,"data":null}
{"event_type":"session.ended","timestamp_ns":14,"sample_uuid":"","conversation_id":"","turn":null,"data":null}
"#;

/// A folder of their client's with this log and summary.
fn theirs(name: &str, events: &[u8], summary: Option<serde_json::Value>) -> PathBuf {
    let dir = folder(name);
    std::fs::write(dir.join("events.jsonl"), events).unwrap();
    if let Some(summary) = summary {
        std::fs::create_dir(dir.join("performance")).unwrap();
        let path = dir.join("performance/result_summary.json");
        std::fs::write(path, summary.to_string()).unwrap();
    }
    dir
}

fn told(report: &Report) -> String {
    let lines = [&report.about[..], &report.unseen, &[String::new()]].concat();
    lines.join("\n")
}

#[test]
fn a_run_of_theirs_gives_texts_and_their_totals() {
    let summary = json!({"output_sequence_lengths": {"total": 5, "avg": 2.5, "histogram": {}}});
    let dir = theirs("mlperf", EVENTS.as_bytes(), Some(summary));
    let report = read(&dir);
    assert_eq!(
        (report.n_samples, report.n_failed, report.n_missing_usage),
        (2, 1, 2)
    );
    assert_eq!(report.samples[0].attribution.client, 9);
    assert_eq!(
        (report.samples[0].id.as_str(), report.samples[0].chunks),
        ("a", 2)
    );
    assert_eq!(report.unexplained.absolute, 0);
    assert_eq!(report.exit_code(0), 1, "a sample failed");
    let told = told(&report);
    for part in [
        "1 samples of the warm-up are left out",
        "their client counts 5 output tokens, this tokenizer 9: theirs are content alone",
        "the server's counts: this run has none",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn the_servers_total_is_explained_where_a_run_of_theirs_has_it() {
    // Character by character: <think>…</think> around the thought, a call, and two end tokens.
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>";
    let server = 9 + "<think></think>".len() + 1 + call.len() + 1;
    for summary in [
        json!({"token_count_source": "client", "output_sequence_lengths": {"total": 9},
               "output_sequence_lengths_server": {"total": server}}),
        json!({"token_count_source": "server", "output_sequence_lengths": {"total": server},
               "output_sequence_lengths_client": {"total": 9}}),
    ] {
        let report = read(&theirs("mlperf-server", EVENTS.as_bytes(), Some(summary)));
        assert_eq!(report.total, i64::try_from(server).unwrap() - 9);
        assert_eq!(report.unexplained.tokens, 0, "{:?}", report.explained);
        let causes: Vec<Cause> = report.explained.iter().map(|sum| sum.cause).collect();
        assert!(causes.contains(&Cause::Delimiters) && !causes.contains(&Cause::MissingUsage));
        assert!(told(&report).contains("9: theirs are content and reasoning"));
    }
}

#[test]
fn a_run_of_theirs_without_a_tokenizer_says_what_it_has() {
    let summary = json!({"output_sequence_lengths": {"count": 2, "mean": 2.5}});
    let dir = theirs("mlperf-bare", EVENTS.as_bytes(), Some(summary));
    let report = from_run::read(&dir, None, &Flavour::default()).unwrap();
    assert_eq!((report.n_samples, report.difference.as_ref()), (0, None));
    let told = told(&report);
    assert!(
        told.contains("their client counts 5 output tokens\n"),
        "{told}"
    );
    assert!(told.contains("name one with --tokenizer"), "{told}");
}

#[test]
fn bad_and_cut_lines_are_counted_and_named() {
    let mut events = b"\n{\"event_type\":1}\n[1]\n\xff\xfe\nnull\n".to_vec();
    events.extend_from_slice(EVENTS.as_bytes());
    for odd in [
        json!({"event_type": "sample.complete", "sample_uuid": "a", "data": ["TextModelOutput", "again"]}),
        json!({"event_type": "sample.complete", "sample_uuid": "never", "data": 7}),
        json!({"event_type": "sample.issued", "sample_uuid": "d"}),
        json!({"event_type": "sample.complete", "sample_uuid": "d", "data": ["TextModelOutput", [1, ["x", null]], {"a": 1}, [[7], 8, {"function": 9}]]}),
        json!({"event_type": "sample.issued", "sample_uuid": "e"}),
        json!({"event_type": "sample.complete", "sample_uuid": "e", "data": ["TextModelOutput"], "usage": {"completion_tokens": 3}}),
    ] {
        events.extend_from_slice(format!("{odd}\n").as_bytes());
    }
    events.extend_from_slice(b"{\"event_type\":\"sample.complete\",\"sample_uuid\":\"b\",\"da");
    let report = read(&theirs("mlperf-odd", &events, Some(json!([1]))));
    let told = told(&report);
    for part in [
        "events.jsonl: 4 bad lines, the first is line 3: not an object",
        "2 events of samples that are unknown or over",
        "not seen: result_summary.json",
    ] {
        let part = part.trim_start_matches("not seen: ");
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!((report.n_samples, report.n_failed), (4, 1));
    let with_usage = report
        .samples
        .iter()
        .find(|sample| sample.id == "e")
        .unwrap();
    assert_eq!(with_usage.attribution.server, Some(3));
    for cut in (0..EVENTS.len()).step_by(7) {
        let dir = theirs("mlperf-cut", &EVENTS.as_bytes()[..cut], None);
        let _ = from_run::read(&dir, Some(&char()), &Flavour::default());
    }
}

#[test]
fn a_folder_of_no_run_is_a_usage_error() {
    let empty = folder("no-run");
    let odd = theirs("no-known-form", b"{}\n", None);
    for dir in [Path::new("/nowhere"), &*empty, &*odd] {
        let error = from_run::read(dir, None, &Flavour::default()).unwrap_err();
        assert!(error.to_string().starts_with("--from-run "), "{error}");
    }
    let mut out = Vec::new();
    let error = from_run::run(&empty, Some("/nowhere"), (0, 1), (Format::Table, &mut out));
    assert!(error.unwrap_err().is::<UsageError>());
}

#[test]
fn our_own_folders_give_their_counts() {
    let stub = start(&["vllm", "--source", "fixed:Hello"]);
    let samples = harness::dataset::random(4, 4, 3, &char().vocab, 1);
    let mut config = Config::new(url(&stub), samples.into(), Arc::new(char()));
    config.limit = Limit::Requests(3);
    config.keep_events = true;
    let run = bench::run(&config).unwrap();
    let dir = folder("ours");
    let summary = Summary::new(&run, &config);
    report::write_folder(&dir, &run, &config, &summary).unwrap();
    let whole = read(&dir);
    let difference = whole.difference.as_ref().unwrap();
    assert_eq!(
        (whole.n_samples, whole.n_failed, difference.count),
        (3, 0, 3)
    );
    assert_eq!(whole.unexplained.tokens, whole.total, "there are no texts");
    assert_eq!(whole.bases.counts, 3);
    std::fs::remove_file(dir.join("token_accounting.json")).unwrap();
    let events = read(&dir);
    assert_eq!((events.total, events.n_samples), (whole.total, 3));
    assert!(told(&events).contains("counts are those of events.jsonl"));

    let sample = |output| json!({"id": "s", "request_id": "r", "output": output});
    let accounting = json!({"samples": [
        sample(json!({"usage": 9, "usage_reasoning": 5, "retokenized": 3, "reasoning": 0})),
        sample(json!({"usage": null, "retokenized": 3, "reasoning": 0})),
        sample(json!({"usage": 5, "retokenized": -1})),
        sample(json!({"usage": u64::MAX, "retokenized": true})),
    ]});
    std::fs::write(dir.join("token_accounting.json"), accounting.to_string()).unwrap();
    let odd = read(&dir);
    assert_eq!((odd.n_samples, odd.n_missing_usage), (2, 1));
    assert_eq!(odd.samples[0].attribution.of(Cause::HiddenReasoning), 5);
    assert_eq!(odd.samples[0].attribution.unexplained, 1);
    assert!(told(&odd).contains("2 samples of token_accounting.json"));
    let mut out = Vec::new();
    let code = from_run::run(&dir, None, (1, 1), (Format::Table, &mut out)).unwrap();
    assert_eq!(code, 0);
    assert!(String::from_utf8(out).unwrap().contains("hidden_reasoning"));
}
