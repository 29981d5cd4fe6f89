//! Sums without records, and requests that come before those that count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::arrival::Arrival;
use harness::bench::{self, Config, Keep, Limit};
use harness::record::Failure;
use harness::report::Summary;

use crate::fake::{Fake, GOOD, Reply, STREAM_HEAD, stream, whole};

/// Every third answer is a refusal.
fn fake() -> Fake {
    Fake::new(|post| match post % 3 {
        2 => whole(503, "busy"),
        _ => Reply {
            parts: vec![stream(&GOOD)],
            close: false,
        },
    })
}

#[test]
fn totals_are_the_sums_of_the_records() {
    for keep in [Keep::Records, Keep::Totals] {
        let fake = fake();
        let config = Config {
            keep,
            limit: Limit::Requests(30),
            ..fake.config()
        };
        let run = bench::run(&config).unwrap();
        let totals = &run.totals;
        assert_eq!((totals.completed, totals.issued()), (20, 30));
        assert_eq!(totals.failed, BTreeMap::from([(Failure::Http(503), 10)]));
        assert_eq!((totals.events, totals.text_chunks), (80, 40));
        let refusal = whole(503, "busy").parts[0].len();
        let bytes = 20 * stream(&GOOD).len() + 10 * refusal;
        assert_eq!(totals.bytes, bytes as u64);
        assert_eq!((totals.latency.count(), totals.ttft.count()), (20, 20));
        assert!(totals.ttft.quantile(0.5) <= totals.latency.quantile(1.0));
        assert_eq!((totals.connections, totals.resent), (0, 0));
        let kept = match keep {
            Keep::Records => 30,
            Keep::Totals => 0,
        };
        assert_eq!(run.records.len(), kept);
        let summary = Summary::new(&run, &config);
        assert_eq!(
            (summary.n_samples_completed, summary.n_samples_failed),
            (20, 10)
        );
        assert_eq!(summary.errors, BTreeMap::from([("http_503".into(), 10)]));
        assert_eq!(summary.latency.unwrap().count, 20);
        assert!(summary.qps > 0.0 && run.client.time > Duration::ZERO);
    }
}

#[test]
fn answers_without_records_are_still_checked() {
    let bad = format!("{STREAM_HEAD}8\r\ndata: {{\n\r\n");
    let fake = Fake::new(move |_| Reply {
        parts: vec![bad.clone().into()],
        close: true,
    });
    let config = Config {
        keep: Keep::Totals,
        ..fake.config()
    };
    let totals = bench::run(&config).unwrap().totals;
    assert_eq!((totals.completed, totals.issued()), (0, 3));
}

#[test]
fn what_warms_up_is_sent_but_counts_nowhere() {
    for (load, limit) in [
        (Arrival::Concurrency(2), Limit::Requests(5)),
        (Arrival::Constant(500.0), Limit::Requests(5)),
    ] {
        let fake = fake();
        let config = Config {
            load,
            limit,
            warm_up: Duration::from_millis(20),
            ..fake.config()
        };
        let run = bench::run(&config).unwrap();
        assert_eq!((run.records.len(), run.totals.issued()), (5, 5));
        let early = |record: &&harness::record::Record| record.issued_ns < 20_000_000;
        assert_eq!(run.records.iter().filter(early).count(), 0);
        assert_eq!(run.records[0].request, 0);
        let seen = fake.seen();
        let (warm, counted): (Vec<_>, Vec<_>) = seen
            .iter()
            .partition(|seen| seen.head.contains("-warm-up-"));
        assert!(!warm.is_empty());
        assert_eq!(counted.len(), 5);
        let last = run.records.iter().map(|record| record.ended_ns).max();
        assert_eq!(last, Some(run.duration_ns + 20_000_000));
    }
}

#[test]
fn an_interrupted_run_ends_with_what_is_there() {
    for load in [Arrival::Concurrency(2), Arrival::Constant(0.01)] {
        let interrupt = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&interrupt);
        // The sixth answer never comes.
        let fake = Fake::new(move |post| {
            ends.store(
                post >= 5 || matches!(load, Arrival::Constant(_)),
                Ordering::Relaxed,
            );
            let parts = (post < 5).then(|| stream(&GOOD));
            Reply {
                parts: parts.into_iter().collect(),
                close: false,
            }
        });
        let config = Config {
            load,
            limit: Limit::Duration(Duration::from_mins(5)),
            interrupt,
            ..fake.config()
        };
        let run = bench::run(&config).unwrap();
        let summary = Summary::new(&run, &config);
        assert!(summary.interrupted && summary.exit_code() == 1);
        assert!(run.totals.completed >= 1, "{load:?}");
        let failed = run
            .totals
            .failed
            .keys()
            .all(|&failure| failure == Failure::Interrupted);
        assert!(failed, "{:?}", run.totals.failed);
        let text = harness::report::text(&summary);
        assert!(text.contains("the run was interrupted\n"), "{text}");
    }
}
