//! What ExecuTorch's server asks of its worker, line for line as recorded.

use std::path::PathBuf;
use std::sync::Arc;

use plan::control_plane::{ChatTemplate, ControlPlane, Waited};
use serde_json::Value;
use vocab::Tokenizer;
use wire::executorch::{PROFILES, Route, parse, route};
use wire::http1::WholeRequest;
use wire::worker_lines::Heard;

/// A recorded exchange with the lines that it made the server and its worker write.
struct Case {
    name: String,
    server: String,
    request: Vec<u8>,
    lines: Vec<Value>,
}

fn fixtures() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
}

/// The exchanges of a corpus that reached a worker, in order for each server.
fn cases(corpus: &str) -> Vec<Case> {
    let folder = fixtures().join("wire").join(corpus);
    let index = std::fs::read(folder.join("cases.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let case = |(name, told): (&String, &Value)| {
        let read = |end: &str| std::fs::read_to_string(folder.join(format!("{name}{end}")));
        let lines = read(".worker.jsonl").ok()?;
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        Some(Case {
            name: name.clone(),
            server: told["server"].as_str()?.to_owned(),
            request: read(".request.http").ok()?.into_bytes(),
            lines: lines.collect(),
        })
    };
    let cases = index["cases"].as_object().unwrap().iter().filter_map(case);
    let mut cases: Vec<Case> = cases.collect();
    let at = |case: &Case| case.lines[0]["t"].as_f64().unwrap();
    cases.sort_by(|one, other| {
        let servers = one.server.cmp(&other.server);
        servers.then(at(one).total_cmp(&at(other)))
    });
    cases
}

fn plane(corpus: &str, server: &str) -> ControlPlane {
    let profile = PROFILES
        .iter()
        .find(|profile| profile.name == corpus)
        .unwrap();
    let template = if server == "srv-hf" {
        let folder = fixtures().join("executorch/tokenizer");
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
        ChatTemplate::of(Arc::new(Tokenizer::from_files(read).unwrap())).unwrap()
    } else {
        ChatTemplate::chatml()
    };
    ControlPlane::new(profile, "stub-model".into(), template)
}

/// Makes the case's turn and compares what the worker is asked; the worker says what it said then.
fn asked(plane: &ControlPlane, case: &Case) -> bool {
    let whole = WholeRequest::parse(&case.request).unwrap().unwrap();
    let head = &whole.head;
    match route(head.method, head.path(), false).unwrap() {
        Route::Chat => {}
        Route::Close(id) | Route::Reset(id) => {
            plane.forget(&id);
            return false;
        }
        other => panic!("{}: {other:?} asks nothing of a worker", case.name),
    }
    let headers = [
        "x-executorch-session-id",
        "session_id",
        "x-session-affinity",
    ];
    let session_id = headers.iter().find_map(|name| head.header(name));
    let request = parse(head.content_type(), &whole.body).unwrap();
    let mut turn = plane.prepare(&request, session_id, "id".into(), 7).unwrap();
    let of = |direction: &'static str| {
        let lines = case
            .lines
            .iter()
            .filter(move |line| line["dir"] == direction);
        lines.map(|line| line["line"].as_str().unwrap())
    };
    let Some(recorded) = of("to_worker").find(|line| !line.starts_with("{\"op\"")) else {
        return false;
    };
    let told: Value = serde_json::from_str(recorded).unwrap();
    let id = told.get("cancel_request_id").and_then(Value::as_u64);
    let line = String::from_utf8(turn.ask.line(id)).unwrap();
    assert_eq!(line, recorded, "{}", case.name);
    for line in of("from_worker") {
        match Heard::parse(line.as_bytes()) {
            Ok(Heard::Token(token)) => {
                let _ = turn.take(token, 0);
            }
            Ok(Heard::Done(stats)) => {
                turn.end(plane, *stats, Waited::default(), 0, || 7).unwrap();
                break;
            }
            // Sessions answer too, and some workers say what none should.
            _ => {}
        }
    }
    true
}

#[test]
fn workers_are_asked_as_recorded() {
    for (corpus, least) in [("executorch-1.5.1", 80), ("executorch-cff6f4dd32e6", 80)] {
        let mut known: Option<(String, ControlPlane)> = None;
        let mut count = 0;
        for case in cases(corpus) {
            let plane = match known.take() {
                Some((server, plane)) if server == case.server => plane,
                _ => plane(corpus, &case.server),
            };
            count += usize::from(asked(&plane, &case));
            known = Some((case.server, plane));
        }
        assert!(count > least, "{corpus}: {count}");
    }
}
