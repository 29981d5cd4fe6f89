//! The metrics page tells what was served: the same as the truth file.

use serde_json::{Value, json};

use crate::support::{Client, Stub, fixtures, post};
use crate::waits::TruthFile;

/// A stub of vLLM with the recorded scripts.
fn start(truth: &TruthFile, flags: &[&str]) -> Stub {
    let scripts = fixtures().join("wire/vllm-0.33.0/scripts.json");
    let source = format!("script:{}", scripts.display());
    let tokenizer = fixtures().join("tokenizers/bpe");
    let tokenizer = tokenizer.to_str().unwrap();
    let words = ["vllm", "--workers", "1", "--truth", truth.path()];
    let words = words.iter().chain(flags).copied();
    Stub::start(words.chain(["--source", &source, "--tokenizer", tokenizer]))
}

fn page(client: &mut Client) -> String {
    client.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    String::from_utf8(client.response().unwrap().body).unwrap()
}

/// The numbers of a name's samples that have all of these labels.
fn samples<'p>(page: &'p str, name: &str, labels: &[&str]) -> Vec<&'p str> {
    let mut found = Vec::new();
    for line in page.lines() {
        let rest = line.strip_prefix(name);
        let is_of_name = rest.is_some_and(|rest| rest.starts_with(['{', ' ']));
        if is_of_name && labels.iter().all(|label| line.contains(label)) {
            found.push(line.rsplit_once(' ').unwrap().1);
        }
    }
    found
}

/// Their sum, if they are counts.
fn count(page: &str, name: &str, labels: &[&str]) -> u32 {
    let count = |sample: &str| -> u32 { sample.strip_suffix(".0").unwrap().parse().unwrap() };
    samples(page, name, labels).into_iter().map(count).sum()
}

/// The mean of a histogram.
fn mean(page: &str, name: &str) -> f64 {
    let sums = samples(page, &format!("{name}_sum"), &[]);
    let sum: f64 = sums[0].parse().unwrap();
    sum / f64::from(count(page, &format!("{name}_count"), &[]))
}

fn ask(text: &str, more: &Value) -> String {
    let mut body = json!({"messages": [{"role": "user", "content": text}]});
    let members = body.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    body.to_string()
}

#[test]
fn the_page_equals_the_truth() {
    let truth = TruthFile::new("metrics");
    let stub = start(&truth, &["--pace", "steady:ttft=30ms,itl=2ms"]);
    let mut client = stub.client();
    let chat = "/v1/chat/completions";
    for more in [
        json!({"stream": true}),
        json!({"stream": true, "max_tokens": 5}),
        json!({}),
        json!({"max_tokens": 8}),
    ] {
        let answer = client.post(chat, &ask("Say it. [[hello]]", &more));
        assert_eq!(answer.status, 200);
    }
    assert_eq!(client.post(chat, r#"{"model":"no"}"#).status, 400);
    let page = page(&mut client);
    stub.stop();

    equals(&page, &truth.records());
    assert_eq!(count(&page, "vllm:num_requests_running", &[]), 0);
    assert_eq!(count(&page, "vllm:request_params_n_sum", &[]), 4);
    assert_eq!(count(&page, "vllm:request_params_max_tokens_count", &[]), 4);
    let short = count(
        &page,
        "vllm:request_generation_tokens_bucket",
        &["le=\"5.0\""],
    );
    assert_eq!(short, 1);
    let first = mean(&page, "vllm:time_to_first_token_seconds");
    assert!((0.03..0.3).contains(&first), "{first}");
    let gap = mean(&page, "vllm:inter_token_latency_seconds");
    assert!((0.0018..0.02).contains(&gap), "{gap}");
    let asked = |status| {
        let labels = [
            "handler=\"/v1/chat/completions\"",
            "method=\"POST\"",
            status,
        ];
        count(&page, "http_requests_total", &labels)
    };
    assert_eq!((asked("status=\"2xx\""), asked("status=\"4xx\"")), (4, 1));
    let durations = count(&page, "http_request_duration_highr_seconds_count", &[]);
    assert_eq!(durations, 5);
    assert_eq!(
        samples(&page, "stubline_worker_cpu_seconds_total", &[]).len(),
        1
    );
    let waits = samples(&page, "stubline_worker_wait_seconds_total", &[]);
    let told = std::fs::exists("/proc/self/schedstat").unwrap();
    assert_eq!(waits.len(), usize::from(told));
}

/// The engine's counters against records of requests with one choice each.
fn equals(page: &str, records: &[Value]) {
    let sum = |key: &str| -> u32 {
        let counts = records.iter().filter_map(|record| record[key].as_u64());
        counts.map(|count| u32::try_from(count).unwrap()).sum()
    };
    let (prompts, answers) = (sum("prompt_tokens"), sum("completion_tokens"));
    assert_eq!(answers, 12 + 5 + 12 + 8);
    for (name, expected) in [
        ("vllm:prompt_tokens_total", prompts),
        ("vllm:generation_tokens_total", answers),
        ("vllm:request_generation_tokens_sum", answers),
        ("vllm:iteration_tokens_total_sum", prompts + answers),
        ("vllm:inter_token_latency_seconds_count", answers - 4),
    ] {
        assert_eq!(count(page, name, &[]), expected, "{name}");
    }
    for reason in ["stop", "length", "abort", "error"] {
        let ended = records
            .iter()
            .filter(|record| record["finish_reason"] == reason);
        let label = format!("finished_reason=\"{reason}\"");
        let told = count(page, "vllm:request_success_total", &[&label]);
        assert_eq!(told as usize, ended.count(), "{reason}");
    }
}

#[test]
fn every_choice_is_a_request_of_the_engine() {
    let truth = TruthFile::new("metrics-n");
    let stub = start(&truth, &[]);
    let mut client = stub.client();
    for stream in [false, true] {
        let more = json!({"n": 3, "max_tokens": 4, "stream": stream});
        client.post("/v1/chat/completions", &ask("Say it. [[hello]]", &more));
    }
    let page = page(&mut client);
    stub.stop();

    for (name, expected) in [
        ("vllm:request_success_total", 6),
        ("vllm:request_params_n_count", 2),
        ("vllm:request_params_n_sum", 6),
        ("vllm:generation_tokens_total", 24),
        ("vllm:time_to_first_token_seconds_count", 6),
        ("vllm:inter_token_latency_seconds_count", 18),
    ] {
        assert_eq!(count(&page, name, &[]), expected, "{name}");
    }
}

#[test]
fn an_answer_that_nobody_waits_for_does_not_succeed() {
    let truth = TruthFile::new("metrics-abort");
    let stub = start(&truth, &["--pace", "steady:ttft=0ms,itl=20ms"]);
    let mut leaver = stub.client();
    let body = ask("Say it. [[hello]]", &json!({"stream": true}));
    leaver.send(post("/v1/chat/completions", &body).as_bytes());
    assert!(leaver.read());
    let mut client = stub.client();
    let during = page(&mut client);
    drop(leaver);
    let mut after = page(&mut client);
    while count(&after, "vllm:num_requests_running", &[]) > 0 {
        after = page(&mut client);
    }
    stub.stop();

    assert_eq!(count(&during, "vllm:num_requests_running", &[]), 1);
    assert_eq!(count(&after, "vllm:request_success_total", &[]), 0);
    let records = truth.records();
    let aborted = records
        .iter()
        .find(|record| record["ended"] == "client_abort");
    let told = aborted.unwrap()["completion_tokens"].as_u64();
    let counted = count(&after, "vllm:generation_tokens_total", &[]);
    assert_eq!(told, Some(u64::from(counted)));
}

#[test]
fn who_waits_for_a_turn_is_counted_apart() {
    let words = [
        "vllm",
        "--max-num-seqs",
        "1",
        "--drain",
        "0s",
        "--pace",
        "steady:ttft=50ms,itl=1h",
    ];
    let stub = Stub::start(words);
    let [mut first, mut second] = [stub.client(), stub.client()];
    for client in [&mut first, &mut second] {
        let body = ask("a", &json!({"stream": true, "max_tokens": 1}));
        client.send(post("/v1/chat/completions", &body).as_bytes());
        assert!(client.read());
    }
    // Of one token, so the first is over at once.
    assert!(first.response().is_some() && second.response().is_some());
    let body = ask("ab", &json!({"stream": true}));
    for client in [&mut first, &mut second] {
        client.send(post("/v1/chat/completions", &body).as_bytes());
        assert!(client.read());
    }
    let mut other = stub.client();
    let shown = page(&mut other);
    let gauge = |name: &str| count(&shown, name, &[]);
    assert_eq!(gauge("vllm:num_requests_running"), 1);
    assert_eq!(gauge("vllm:num_requests_waiting"), 1);
    let queued = samples(&shown, "vllm:request_queue_time_seconds_sum", &[])[0];
    assert!(queued.parse::<f64>().unwrap() > 0.0, "{queued}");
    stub.stop();
}
