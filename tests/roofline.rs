//! `stubline roofline` with real servers and clients, in windows that are too short to measure anything.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const STUBLINE: &str = env!("CARGO_BIN_EXE_stubline");

/// A file of rows that is removed when dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str, rows: &str) -> Self {
        let name = format!("stubline-roofline-{name}-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        let head = "about = \"test\"\nwindow = \"40ms\"\nrounds = 6\n";
        std::fs::write(&path, format!("{head}{rows}")).unwrap();
        Self(path)
    }

    fn run(&self, flags: &[&str]) -> Output {
        let mut command = Command::new(STUBLINE);
        command
            .args(["roofline", "--scenario"])
            .arg(&self.0)
            .args(flags);
        command.output().unwrap()
    }

    fn report(&self, flags: &[&str]) -> Value {
        let output = self.run(&[flags, &["--format", "json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Exit code and the line on stderr.
    fn refusal(&self, flags: &[&str]) -> (Option<i32>, String) {
        let output = self.run(flags);
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn rows_are_measured_against_the_bare_loop_and_themselves() {
    let file = File::new(
        "rows",
        "[[rows]]\nservers = [\"ceiling\", \"max\"]\nmodes = [\"json\", \"stream\", \"stream+usage\", \
         \"stream+continuous\"]\nloads = [\"concurrency:2\"]\n",
    );
    let report = file.report(&["--client-workers", "1"]);
    let rows = report["rows"].as_array().unwrap();
    let roles: Vec<&str> = rows
        .iter()
        .map(|row| row["role"].as_str().unwrap_or("again"))
        .collect();
    let bare = roles.iter().filter(|role| **role == "bare").count();
    assert_eq!((rows.len(), bare), (4 + 4 + 1, 4), "{roles:?}");
    for row in rows {
        assert_eq!(row["windows"].as_array().unwrap().len(), 6);
        assert_eq!(row["failed"], 0);
        for key in ["qps", "server_us", "client_us"] {
            let estimate = row[key]["estimate"].as_f64().unwrap();
            // A busy machine can leave too few windows with requests for an interval.
            let low = row[key]["low"].as_f64().unwrap_or(estimate);
            assert!(low > 0.0 && low <= estimate, "{key} {row}");
        }
    }
    assert!(
        rows[..4]
            .iter()
            .all(|row| row["to_ceiling"]["estimate"].as_f64().unwrap() > 0.5)
    );
    let bytes: Vec<u64> = rows
        .iter()
        .map(|row| row["response_bytes"].as_u64().unwrap())
        .collect();
    assert!(bytes[1] < bytes[2] && bytes[2] < bytes[3], "{bytes:?}");
    let comparisons = report["comparisons"].as_array().unwrap();
    let of = |question: &str| {
        comparisons
            .iter()
            .filter(|known| known["question"] == question)
            .count()
    };
    assert_eq!((of("null"), of("usage"), comparisons.len()), (2, 4, 6));
    let verdicts = report["verdicts"].as_array().unwrap();
    assert!(
        verdicts
            .iter()
            .any(|text| text.as_str().unwrap().starts_with("limit: "))
    );
}

#[test]
fn a_paced_stub_is_the_limit() {
    let file = File::new(
        "paced",
        "[servers]\npaced = \"echo --metrics --pace steady:ttft=100ms,itl=0ms\"\n\
         [[rows]]\nservers = [\"paced\"]\nmodes = [\"stream\"]\nloads = [\"concurrency:4\"]\n",
    );
    let report = file.report(&["--window", "100ms", "--rounds", "1"]);
    let limit = report["rows"][0]["limit"].as_str().unwrap();
    assert!(["others", "server_pauses"].contains(&limit), "{report}");
    let verdicts = report["verdicts"].to_string();
    assert!(verdicts.contains("intervals need 6 rounds"), "{verdicts}");
}

const ONE: &str =
    "[[rows]]\nservers = [\"max\"]\nmodes = [\"stream\"]\nloads = [\"concurrency:2\"]\n";

#[test]
fn a_client_that_pauses_is_the_limit_and_is_counted_by_the_server() {
    let file = File::new("client", ONE);
    let client = format!(
        "{STUBLINE} bench --url {{url}} --model {{model}} --stream {{stream}} --load constant:50 --requests 20"
    );
    let report = file.report(&["--rounds", "1", "--client-cmd", &client]);
    let row = &report["rows"][0];
    // A machine with more to do than cores is told of instead.
    let limit = row["limit"].as_str().unwrap();
    assert!(["client_pauses", "others"].contains(&limit), "{row}");
    assert_eq!(row["windows"][0]["requests"], 20);
    assert_eq!(row["windows"][0]["events"], 20 * 16);
    assert!(row["windows"][0]["client"]["cpu"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_server_of_somebody_else_is_started_and_stopped() {
    let file = File::new("server", ONE);
    let server = format!("other={STUBLINE} serve max --port {{port}} --workers {{workers}}");
    let report = file.report(&["--rounds", "2", "--server-cmd", &server, "--model", "max"]);
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["server"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["max", "other", "max"]);
    assert!(rows[1]["server_us"]["estimate"].as_f64().unwrap() > 0.0);
    assert_eq!(report["comparisons"][2]["question"], "server");
}

#[test]
fn what_cannot_be_measured_is_refused_in_a_line() {
    let file = File::new("refused", ONE);
    let quiet = ["--rounds", "1", "--client-cmd", "true {url}"];
    let broken = [
        "--rounds",
        "1",
        "--client-cmd",
        "echo 'no such model' >&2; exit 3; {url}",
    ];
    let dead = ["--server-cmd", "x=echo 'no module' >&2; exit 1; {port}"];
    let portless = ["--server-cmd", "x=cat"];
    for (flags, reason) in [
        (&quiet[..], "it sent no request"),
        (&broken, "it ended with exit status: 3: no such model"),
        (&dead, "it ended with exit status: 1: no module"),
        (&portless, "expected {port} in it"),
    ] {
        let (code, line) = file.refusal(flags);
        assert_eq!((code, line.lines().count()), (Some(2), 1), "{line}");
        assert!(line.contains(reason), "{line}");
    }
    let absent = File::new(
        "absent",
        &ONE.replace("max", "nobody")
            .replace("[[rows]]", "[servers]\nnobody = \"nobody\"\n[[rows]]"),
    );
    let (code, line) = absent.refusal(&[]);
    assert_eq!(
        (code, &*line),
        (Some(2), "stubline: this build cannot serve nobody yet\n")
    );
}
