//! How requests are sent and connections kept.

use std::collections::HashSet;
use std::time::Duration;

use harness::arrival::Arrival;
use harness::bench::{self, Config, Limit};
use harness::probe;
use harness::record::{Failure, Record, TextChunk};
use harness::report::Summary;

use crate::fake::{Fake, GOOD, Reply, stream, whole};

#[test]
fn a_good_stream_is_read_whole_over_one_connection() {
    let fake = Fake::always(stream(&GOOD));
    let run = fake.run();
    assert_eq!(run.records.len(), 3);
    for record in &run.records {
        assert_eq!((record.failure, &*record.content), (None, "héllo you"));
        let parts: Vec<u32> = record
            .texts
            .iter()
            .map(|TextChunk { content, .. }| *content)
            .collect();
        assert_eq!(parts, [6, 4]);
        let times = [
            Some(record.issued_ns),
            record.sent_ns,
            record.first_ns(),
            Some(record.ended_ns),
        ];
        assert!(times.is_sorted() && times[0] == times[1], "{times:?}");
        assert!(record.events.is_empty());
    }
    let seen = fake.seen();
    let connections: HashSet<usize> = seen.iter().map(|seen| seen.connection).collect();
    assert_eq!(connections.len(), 1);
    for (record, seen) in run.records.iter().zip(&seen) {
        let header = format!("x-request-id: {}\r\n", run.request_id(record));
        assert!(seen.head.contains(&header), "{}", seen.head);
        assert_eq!(
            seen.body,
            r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#
        );
    }
}

#[test]
fn any_cut_of_the_bytes_yields_the_same_answer() {
    let bytes = stream(&GOOD);
    let cuts = bytes.len() as u64;
    let fake = Fake::new(move |post| {
        let (front, back) = bytes.split_at(post);
        Reply {
            parts: vec![front.into(), back.into()],
            close: false,
        }
    });
    let config = Config {
        limit: Limit::Requests(cuts),
        ..fake.config()
    };
    let run = bench::run(&config).unwrap();
    for record in &run.records {
        assert_eq!((record.failure, &*record.content), (None, "héllo you"));
    }
    assert_eq!(run.records.len() as u64, cuts);
}

#[test]
fn a_server_that_closes_between_requests_fails_none() {
    let close = |_| Reply {
        parts: vec![stream(&GOOD)],
        close: true,
    };
    let fake = Fake::new(close);
    let config = Config {
        limit: Limit::Requests(50),
        ..fake.config()
    };
    let run = bench::run(&config).unwrap();
    assert!(run.records.iter().all(Record::is_completed));
    assert_eq!(fake.seen().len(), 50);
}

#[test]
fn an_idle_connection_that_answers_nothing_twice_is_a_cut() {
    let fake = Fake::new(|_| Reply {
        parts: Vec::new(),
        close: true,
    });
    let run = fake.run();
    let failures: Vec<_> = run.records.iter().map(|record| record.failure).collect();
    assert_eq!(failures, [Some(Failure::Cut); 3]);
    // One had a connection opened ahead, which is tried once more; the others began afresh.
    assert_eq!(fake.seen().len(), 4);
    let resent = run.records.iter().filter(|record| record.resent);
    assert_eq!(resent.count(), 1);
}

#[test]
fn bodies_without_a_length_end_with_done_or_with_the_connection() {
    let done = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n";
    let fake = Fake::always(done);
    assert!(
        fake.run()
            .records
            .iter()
            .all(|record| &*record.content == "a")
    );
    let whole = "HTTP/1.1 200 OK\r\n\r\n{\"choices\":[{\"message\":{\"content\":\"b\"}}]}";
    let fake = Fake::new(move |_| Reply {
        parts: vec![whole.into()],
        close: true,
    });
    let config = Config {
        stream: false,
        ..fake.config()
    };
    let run = bench::run(&config).unwrap();
    assert!(
        run.records
            .iter()
            .all(|record| record.is_completed() && &*record.content == "b")
    );
}

#[test]
fn an_unstreamed_answer_has_a_latency_but_no_first_token() {
    let body = r#"{"choices":[{"message":{"content":"héllo","reasoning_content":"hm"}}],"usage":{"prompt_tokens":2,"completion_tokens":7}}"#;
    let fake = Fake::new(move |_| whole(200, body));
    let config = Config {
        stream: false,
        ..fake.config()
    };
    let summary = Summary::new(&bench::run(&config).unwrap(), &config);
    assert_eq!(summary.latency.unwrap().count, 3);
    assert_eq!(
        (summary.ttft, summary.tpot, summary.itl),
        (None, None, None)
    );
    assert_eq!(summary.output_sequence_lengths.unwrap().max, 7);
    assert_eq!(summary.osl_paired.unwrap().ratio, Some(1.0));
    assert!(!fake.seen()[0].body.contains("stream"));
}

#[test]
fn interim_answers_and_long_heads_are_passed_over() {
    let mut bytes = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nx-long: ".to_vec();
    bytes.resize(bytes.len() + 100_000, b'x');
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&stream(&GOOD)["HTTP/1.1 200 OK\r\n".len()..]);
    let run = Fake::always(bytes).run();
    assert!(run.records.iter().all(Record::is_completed));
}

#[test]
fn an_open_loop_is_measured_from_its_schedule() {
    let fake = Fake::always(stream(&GOOD));
    let config = Config {
        load: Arrival::Constant(2000.0),
        limit: Limit::Duration(Duration::from_millis(50)),
        connections: Some(3),
        workers: 2,
        ..fake.config()
    };
    let run = bench::run(&config).unwrap();
    let issued: Vec<u64> = run.records.iter().map(|record| record.issued_ns).collect();
    let schedule: Vec<u64> = (0..100).map(|index| index * 500_000).collect();
    assert_eq!(issued, schedule);
    assert!(
        run.records
            .iter()
            .all(|record| record.sent_ns >= Some(record.issued_ns))
    );
}

#[test]
fn a_burst_keeps_all_connections_busy_until_its_time_is_over() {
    let fake = Fake::always(stream(&GOOD));
    let config = Config {
        load: Arrival::Burst,
        limit: Limit::Duration(Duration::from_millis(50)),
        connections: Some(4),
        workers: 2,
        ..fake.config()
    };
    let run = bench::run(&config).unwrap();
    let connections: HashSet<usize> = fake.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections.len(), 4);
    let numbers: Vec<u64> = run.records.iter().map(|record| record.request).collect();
    assert!(numbers.is_sorted() && numbers.len() > 4);
}

#[test]
fn the_model_is_the_first_that_the_server_lists() {
    let fake = Fake::always(stream(&GOOD));
    let config = Config {
        model: None,
        ..fake.config()
    };
    assert_eq!(bench::run(&config).unwrap().model, "first");
    assert!(fake.seen()[0].body.starts_with(r#"{"model":"first","#));
}

#[test]
fn a_probe_is_the_loads_request_and_its_bytes() {
    let answer = stream(&GOOD);
    let fake = Fake::always(answer.clone());
    let probe = probe::exchange(&fake.config()).unwrap();
    assert_eq!(probe.response, answer);
    let seen = fake.seen();
    let sent = String::from_utf8(probe.request).unwrap();
    assert!(
        sent.ends_with(&format!("\r\n\r\n{}", seen[0].body)),
        "{sent}"
    );
    let refused = Fake::new(|_| whole(404, "no"));
    let error = probe::exchange(&refused.config()).unwrap_err().to_string();
    assert!(error.ends_with("answered 404: no"), "{error}");
}
