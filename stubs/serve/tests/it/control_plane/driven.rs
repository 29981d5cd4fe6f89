//! Turns from end to end: what a worker says, what the client gets, what is told of it.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::{Plane, file};
use crate::model_worker::model_file;
use crate::support::{Client, post};
use crate::waits::TruthFile;

const CHAT: &str = "/v1/chat/completions";

/// 0.5 ms for each token of the prompt, and four tokens and an end at 3 ms each.
const COSTS: &str = r#"{"worker":{"prefill_ms_per_token":0.5,"decode_ms_per_token":3,"sleep":false},
    "default":{"worker":{"pieces":["a","b","c","d"]}}}"#;

/// A line of the log, by key.
fn members(line: &str) -> BTreeMap<&str, &str> {
    let (_, members) = line.split_once("llm_turn_stats ").unwrap();
    let members = members.split(' ').map(|member| member.split_once('='));
    members.map(Option::unwrap).collect()
}

fn chat(text: &str, stream: bool) -> String {
    json!({"messages": [{"role": "user", "content": text}], "stream": stream}).to_string()
}

/// As the line prints a number.
fn printed(value: &Value) -> String {
    format!("{:.1}", value.as_f64().unwrap())
}

/// The numbers of a page of metrics, by name.
fn metrics(client: &mut Client) -> BTreeMap<String, f64> {
    client.send(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n");
    let page = String::from_utf8(client.response().unwrap().body).unwrap();
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.filter_map(|line| line.rsplit_once(' '));
    samples
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Each rate is its count over its time, wherever it is told, and to the digit that is printed.
#[test]
fn a_turn_is_told_the_same_everywhere_in_both_paths() {
    let model = file("costs.json", COSTS);
    let truth = TruthFile::new("control-plane");
    let words = [
        "--model-path",
        model.to_str().unwrap(),
        "--tokenizer",
        "byte",
    ];
    let more = ["--metrics", "--turn-log", "strict", "--truth", truth.path()];
    let plane = Plane::start(words.into_iter().chain(more));
    let mut client = plane.client();
    let (mut lines, mut pages) = (Vec::new(), Vec::new());
    for (text, stream) in [("hello", false), ("a longer one", true)] {
        let response = client.post(CHAT, &chat(text, stream));
        assert_eq!(response.content(), "abcd");
        lines.push(plane.logged());
        pages.push(metrics(&mut client));
    }
    drop(client);
    plane.stop();
    let told = truth
        .records()
        .into_iter()
        .filter(|record| record["turn"].is_object());
    let told: Vec<Value> = told.collect();
    assert_eq!(told.len(), 2);
    for ((record, line), page) in told.iter().zip(&lines).zip(&pages) {
        assert_eq!(line.lines().count(), 1, "{line}");
        check(record, &members(line.trim_end()), page);
    }
    let all = |name: &str| json!(pages[1][name]);
    let sum = |name: &str| pages[1][name];
    assert_eq!(all("llm_turn_completion_tokens_total"), 8.0);
    assert_eq!(all("llm_turn_decode_tok_s"), 8.0 * 1000.0 / 30.0);
    let prefilled = sum("llm_turn_prefilled_prompt_tokens_total");
    let rate = prefilled * 1000.0 / sum("llm_turn_prefill_ms_total");
    assert_eq!(all("llm_turn_prefill_tok_s"), rate);
    let turns = r#"llm_turns_total{finish="stop",session_reset_reason="new",cancelled="false"}"#;
    assert_eq!(all(turns), 2.0);
}

/// A turn of the truth file against its line and the page behind it.
fn check(record: &Value, line: &BTreeMap<&str, &str>, page: &BTreeMap<String, f64>) {
    let turn = &record["turn"];
    for name in [
        "prompt_tokens",
        "prefilled_prompt_tokens",
        "completion_tokens",
    ] {
        assert_eq!(turn[name].to_string(), line[name]);
    }
    let measures = [
        "prefill_ms",
        "prefill_tok_s",
        "decode_ms",
        "decode_tok_s",
        "total_ms",
    ];
    for name in measures.into_iter().chain(["queue_ms", "ttft_ms"]) {
        assert_eq!(printed(&turn[name]), line[name], "{name}");
    }
    for name in measures {
        let shown = page[&format!("llm_turn_last_{name}")];
        assert_eq!(json!(shown), turn[name], "{name}");
    }
    let number = |name: &str| turn[name].as_f64().unwrap();
    let prefilled = number("prefilled_prompt_tokens");
    assert_eq!(turn["prefill_ms"], prefilled * 0.5);
    assert_eq!(turn["decode_ms"], 15.0);
    let rate = |tokens: f64, ms: f64| format!("{:.1}", tokens * 1000.0 / ms);
    assert_eq!(line["prefill_tok_s"], rate(prefilled, number("prefill_ms")));
    assert_eq!(line["decode_tok_s"], rate(4.0, 15.0));
    for (name, expected) in [
        ("finish", "stop"),
        ("session_reset_reason", "new"),
        ("session_id", "<scratch>"),
        ("cancelled", "false"),
    ] {
        assert_eq!(line[name], expected);
    }
    assert_eq!(record["request_id"], line["request_id"]);
    assert_eq!(record["completion_tokens"], 4);
}

#[test]
fn keys_of_the_line_are_the_real_servers_unless_asked_for_others() {
    let model = file("keys.json", COSTS);
    let mut words = vec!["--model-path", model.to_str().unwrap()];
    let keys = |words: &[&str]| {
        let plane = Plane::start(words.iter().copied());
        plane.client().post(CHAT, &chat("hi", false));
        let log = plane.logged();
        plane.stop();
        let (front, line) = log.split_once("llm_turn_stats ")?;
        let keys = line
            .split(' ')
            .map(|member| member.split('=').next().unwrap());
        Some((front.to_owned(), keys.collect::<Vec<_>>().join(" ")))
    };
    let logger = "INFO:executorch.examples.llm_server.python.serving_chat:";
    let upstream = "session_id reason prompt_tokens reused_prompt_tokens prefilled_prompt_tokens \
                    completion_tokens prefill_ms prefill_tok_s decode_ms decode_tok_s total_ms finish";
    assert_eq!(keys(&words), Some((logger.into(), upstream.into())));
    words.extend(["--turn-log", "strict"]);
    let strict = upstream.replace(" reason ", " session_reset_reason ");
    let strict = format!("{strict} request_id queue_ms ttft_ms cancelled");
    assert_eq!(keys(&words), Some((logger.into(), strict.clone())));
    words.extend(["--turn-log-level", "debug"]);
    let (front, told) = keys(&words).unwrap();
    assert_eq!(told, strict);
    let debug = "DEBUG:executorch.examples.llm_server.python.worker_client:warm-resume: reason=new reused=0";
    assert!(front.starts_with(debug), "{front}");
    *words.last_mut().unwrap() = "off";
    assert_eq!(keys(&words), None);
}

/// Whatever a worker does, the turn it does it in fails, and none gets the words of another.
#[test]
fn a_worker_that_misbehaves_is_lost() {
    let faults = [
        (
            "main",
            "u-garbage",
            "invalid worker JSON: 'not json at all'",
        ),
        (
            "srv-token-number",
            "u-fault",
            "can only concatenate str (not \"int\") to str",
        ),
        ("main", "u-die-mid", "worker exited mid-request"),
        ("main", "u-die-now", "worker exited mid-request"),
        ("srv-blank-line", "u-fault", "invalid worker JSON: ''"),
    ];
    for (server, text, why) in faults {
        for stream in [false, true] {
            let model = file(
                &format!("{server}-{text}-{stream}.json"),
                &model_file(server),
            );
            let words = [
                "--model-path",
                model.to_str().unwrap(),
                "--tokenizer",
                "byte",
            ];
            let plane = Plane::start(words.into_iter().chain(["--pace", "burst"]));
            let mut client = plane.client();
            let failed = client.post(CHAT, &chat(text, stream));
            let told = String::from_utf8(failed.body).unwrap();
            let why = format!("Generation failed: {}", why.replace('"', "\\\""));
            assert!(told.contains(&why), "{server} {text}: {told}");
            assert_eq!(failed.status, if stream { 200 } else { 500 });
            for stream in [true, false] {
                let next = client.post(CHAT, &chat("hi", stream));
                let told = String::from_utf8(next.body).unwrap();
                let unavailable = "model worker is unavailable; restart the server";
                assert!(told.contains(unavailable), "{server} {text}: {told}");
                assert!(!told.contains("\"content\""), "{told}");
            }
            client.send(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n");
            assert_eq!(client.response().unwrap().status, 503, "{server} {text}");
            assert_eq!(plane.logged(), "", "{server} {text}");
            plane.stop();
        }
    }
}

/// What the sessions of a client came to.
#[derive(Default)]
struct Tally {
    answered: u64,
    left: u64,
}

/// One client's session: answers that are its own, and now and then one that it does not wait for.
fn talk(plane: &Plane, number: usize, turns: usize) -> Tally {
    let mut tally = Tally::default();
    let mut client = plane.client();
    let mut messages: Vec<Value> = Vec::new();
    for turn in 0..turns {
        let leaves = (turn + number).is_multiple_of(5);
        let text = format!(
            "turn {turn} of {number} {}",
            "and on ".repeat(if leaves { 300 } else { 1 })
        );
        let mut asked = messages.clone();
        asked.push(json!({"role": "user", "content": text}));
        let body = json!({
            "messages": asked,
            "session_id": format!("s{number}"),
            "stream": leaves || turn.is_multiple_of(2),
        });
        if leaves {
            let mut leaving = plane.client();
            leaving.send(post(CHAT, &body.to_string()).as_bytes());
            // Its first words, and no more.
            while !leaving
                .input()
                .windows(9)
                .any(|part| part == b"\"content\"")
            {
                assert!(leaving.read(), "the answer begins");
            }
            tally.left += 1;
            continue;
        }
        let response = client.post(CHAT, &body.to_string());
        assert_eq!(response.status, 200);
        assert_eq!(response.content(), text);
        tally.answered += 1;
        messages = asked;
        messages.push(json!({"role": "assistant", "content": text}));
    }
    tally
}

#[test]
fn a_thousand_turns_of_fifty_sessions_are_answered_once_each() {
    let truth = TruthFile::new("sessions");
    let words = [
        "--source",
        "echo",
        "--max-sessions",
        "51",
        "--pace",
        "costs",
    ];
    let costs = [
        "--prefill-ms-per-token",
        "0",
        "--decode-ms-per-token",
        "0.1",
    ];
    let words = words.into_iter().chain(costs);
    let words = words.chain(["--turn-log", "strict"]);
    let plane = Plane::start(words.chain(["--truth", truth.path()]));
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let plane = &plane;
        let talks: Vec<_> = (0..50)
            .map(|number| scope.spawn(move || talk(plane, number, 20)))
            .collect();
        talks.into_iter().map(|talk| talk.join().unwrap()).collect()
    });
    let answered: u64 = tallies.iter().map(|tally| tally.answered).sum();
    let left: u64 = tallies.iter().map(|tally| tally.left).sum();
    assert_eq!((answered, left), (800, 200));
    let mut client = plane.client();
    client.send(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 200);
    drop(client);
    let log = plane.logged();
    plane.stop();
    let resumed = log
        .lines()
        .filter(|line| members(line)["session_reset_reason"] == "exact_prefix");
    assert!(resumed.count() > 300, "sessions go on");
    let records = truth.records();
    let chats: Vec<&Value> = records
        .iter()
        .filter(|record| record["route"] == CHAT)
        .collect();
    assert_eq!(chats.len(), 1000, "no turn is lost");
    let names: HashSet<&Value> = chats.iter().map(|record| &record["request_id"]).collect();
    assert_eq!(names.len(), 1000);
    let (done, others): (Vec<&Value>, Vec<&Value>) =
        chats.iter().partition(|record| record["ended"] == "done");
    // On a busy machine some turns are over before it is noticed that their client has left.
    assert!(done.len() as u64 >= answered, "{}", done.len());
    assert!(others.len() as u64 > left / 2, "{}", others.len());
    assert!(done.iter().all(|record| record["turn"].is_object()));
    told_once(&log, &chats);
}

/// Each turn that is over has its line, and no other has one.
fn told_once(log: &str, records: &[&Value]) {
    let over = records.iter().filter(|record| record["turn"].is_object());
    let mut told: Vec<&str> = over
        .map(|record| record["request_id"].as_str().unwrap())
        .collect();
    let mut logged: Vec<&str> = log
        .lines()
        .map(|line| members(line)["request_id"])
        .collect();
    told.sort_unstable();
    logged.sort_unstable();
    assert_eq!(logged, told, "one line each");
}

/// A client that reads nothing keeps neither the worker nor what is remembered of sessions.
#[test]
fn a_client_that_takes_nothing_holds_nobody_up() {
    let plane = Plane::start(["--window", "9000000", "--tokenizer", "word"]);
    let in_session = |messages: Value, stream: bool| {
        json!({"messages": messages, "session_id": "s", "stream": stream}).to_string()
    };
    // More than sockets hold.
    let long = "and on ".repeat(1 << 15);
    let mut stalled = plane.client();
    let asked = json!([{"role": "user", "content": long}]);
    stalled.send(post(CHAT, &in_session(asked, true)).as_bytes());
    assert!(stalled.read());
    let mut client = plane.client();
    client.send(b"DELETE /v1/sessions/s HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 200);
    let first = json!([{"role": "user", "content": "one"}]);
    assert_eq!(
        client.post(CHAT, &in_session(first, false)).content(),
        "one"
    );
    assert!(stalled.response().unwrap().content() == long, "all of it");
    let second = json!([
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "two"},
    ]);
    assert_eq!(
        client.post(CHAT, &in_session(second, false)).content(),
        "two"
    );
    let logged = plane.logged();
    let reasons = logged.lines().map(|line| members(line)["reason"]);
    assert_eq!(reasons.collect::<Vec<_>>(), ["new", "new", "exact_prefix"]);
    drop((client, stalled));
    plane.stop();
}

/// A worker that does not end a turn that was left is given up, and whoever waits for it is told.
#[test]
fn those_who_wait_for_a_worker_that_is_given_up_are_told() {
    let plane = Plane::start(["--source", "echo", "--pace", "steady:ttft=1h,itl=1ms"]);
    let mut leaving = plane.client();
    leaving.send(post(CHAT, &chat("long", true)).as_bytes());
    assert!(leaving.read());
    let mut waiting = [false, true].map(|stream| {
        let mut client = plane.client();
        client.send(post(CHAT, &chat("waits", stream)).as_bytes());
        client
    });
    // Its role comes before its turn, so it waits by then.
    assert!(waiting[1].read());
    drop(leaving);
    for client in &mut waiting {
        let told = String::from_utf8(client.response().unwrap().body).unwrap();
        let why = "model worker cancellation timed out; restart the server";
        assert!(told.contains(why), "{told}");
    }
    let mut client = plane.client();
    client.send(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 503);
    assert_eq!(plane.logged(), "");
    drop((client, waiting));
    plane.stop();
}
