//! Answers that are not what they should be.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::UsageError;
use harness::arrival::Arrival;
use harness::bench::{self, Config, Limit, Run, TokenCountSource};
use harness::report::Summary;
use tokio::net::TcpSocket;

use crate::fake::{Fake, GOOD, MORE, ROLE, Reply, STREAM_HEAD, TEXT, USAGE, stream, whole};

fn errors(fake: &Fake) -> (BTreeMap<String, u64>, u8) {
    let summary = Summary::new(&fake.run(), &fake.config());
    let exit = summary.exit_code();
    (summary.errors, exit)
}

#[test]
fn every_failure_is_counted_by_its_kind() {
    let cut = stream(&GOOD);
    let cut = Reply {
        parts: vec![cut[..cut.len() / 2].to_vec()],
        close: true,
    };
    let garbage = Reply {
        parts: vec![b"220 smtp ready\r\n\r\n".to_vec()],
        close: true,
    };
    let bad_chunk = Reply {
        parts: vec![format!("{STREAM_HEAD}zz\r\n").into()],
        close: true,
    };
    let of = |events: &[&str]| Reply {
        parts: vec![stream(events)],
        close: false,
    };
    let error = r#"{"error":{"message":"out of memory","code":500}}"#;
    for (kind, reply) in [
        ("cut", cut),
        ("bad_http", garbage),
        ("bad_http", bad_chunk),
        ("no_done", of(&[ROLE, TEXT, MORE, USAGE])),
        ("error_event", of(&[ROLE, TEXT, error, "[DONE]"])),
        ("http_500", whole(500, error)),
        ("http_429", whole(429, "")),
        ("malformed", of(&[ROLE, "{\"choices\":", "[DONE]"])),
        ("malformed", of(&[ROLE, "[1]", "[DONE]"])),
        ("malformed", whole(200, "{}")),
    ] {
        let fake = Fake::new(move |_| reply.clone());
        assert_eq!(errors(&fake), (BTreeMap::from([(kind.into(), 3)]), 1));
    }
}

#[test]
fn a_failure_spoils_only_its_own_sample() {
    let fake = Fake::new(|post| match post {
        1 => whole(503, "busy"),
        _ => Reply {
            parts: vec![stream(&GOOD)],
            close: false,
        },
    });
    let run = fake.run();
    let failed: Vec<bool> = run
        .records
        .iter()
        .map(|record| !record.is_completed())
        .collect();
    assert_eq!(failed, [false, true, false]);
    assert_eq!(&*run.records[1].detail, "busy");
    let summary = Summary::new(&run, &fake.config());
    assert_eq!(
        (summary.n_samples_completed, summary.n_samples_failed),
        (2, 1)
    );
    assert_eq!(summary.latency.unwrap().count, 2);
    let connections: Vec<usize> = fake.seen().iter().map(|seen| seen.connection).collect();
    assert!(
        connections
            .iter()
            .all(|&connection| connection == connections[0])
    );
}

#[test]
fn a_silent_server_times_out() {
    let fake = Fake::new(|_| Reply::default());
    let config = Config {
        timeout: Duration::from_millis(30),
        ..fake.config()
    };
    let run = bench::run(&config).unwrap();
    let summary = Summary::new(&run, &config);
    assert_eq!(summary.errors, BTreeMap::from([("timeout".into(), 3)]));
    assert!(summary.duration_ns >= 90_000_000, "{}", summary.duration_ns);
}

/// A port that nobody listens on and nobody else can take.
fn taken() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

/// A run against a port where nobody listens.
fn run_against_nobody(load: Arrival) -> (Run, Config) {
    let taken = taken();
    let config = Config {
        url: format!("http://{}", taken.local_addr().unwrap()),
        load,
        limit: Limit::Requests(1_000_000),
        ..Fake::always("").config()
    };
    (bench::run(&config).unwrap(), config)
}

#[test]
fn a_load_on_a_dead_server_ends_early() {
    for load in [
        Arrival::Concurrency(4),
        Arrival::Burst,
        Arrival::Poisson(1e5),
    ] {
        let (run, config) = run_against_nobody(load);
        let summary = Summary::new(&run, &config);
        let refused = summary.errors["connect"];
        assert_eq!(refused, summary.n_samples_issued);
        assert!((8..2000).contains(&refused), "{load:?} {refused}");
        assert_eq!((summary.exit_code(), summary.latency), (1, None));
        assert!(run.records[0].detail.contains("refused"));
    }
}

#[test]
fn a_dead_server_without_a_model_is_an_error_but_not_of_usage() {
    let taken = taken();
    let config = Config {
        url: format!("http://{}", taken.local_addr().unwrap()),
        model: None,
        ..Fake::always("").config()
    };
    let error = bench::run(&config).unwrap_err();
    assert!(!error.is::<UsageError>());
    assert!(
        error
            .to_string()
            .starts_with("failed to connect to http://127.0.0.1:")
    );
}

#[test]
fn usage_that_is_needed_but_not_asked_for_is_refused_before_any_request() {
    let fake = Fake::always(stream(&GOOD));
    let config = Config {
        include_usage: false,
        token_count_source: TokenCountSource::Server,
        ..fake.config()
    };
    assert!(bench::run(&config).unwrap_err().is::<UsageError>());
    assert!(fake.seen().is_empty());
}
