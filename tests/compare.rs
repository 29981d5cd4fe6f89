//! `stubline compare` with real stubs and our own client, which agrees with them on everything, and with
//! clients that do not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const STUBLINE: &str = env!("CARGO_BIN_EXE_stubline");
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/harness/scenarios/compare");

/// The command in a folder that holds nothing of ours.
fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(STUBLINE);
    command.arg("compare").args(flags);
    command.current_dir(std::env::temp_dir());
    command
}

fn compare(flags: &[&str]) -> Output {
    command(flags).output().unwrap()
}

fn report_of(output: &Output) -> Value {
    let told = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {told}"))
}

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("compare-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn join(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Everything agrees; gives the scenarios that were played.
fn agrees(server: &str) -> BTreeSet<String> {
    let folder = Folder::new(&server.replace(':', "-"));
    let junit = folder.join("compare.xml");
    let flags = ["--client", "native", "--server", server, "--format", "json"];
    let output = compare(&[&flags[..], &["--junit", &junit]].concat());
    let report = report_of(&output);
    let audits = report["audits"].as_array().unwrap();
    let rows = || {
        audits.iter().flat_map(|audit| {
            let rows = audit["rows"].as_array().unwrap().iter();
            rows.map(move |row| (&audit["scenario"], row))
        })
    };
    for (scenario, row) in rows() {
        assert_eq!(row["verdict"], "agree", "{server} {scenario} {row:#}");
    }
    assert_eq!(output.status.code(), Some(0));
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains(r#"failures="0""#), "{xml}");
    let (played, skipped): (Vec<&Value>, Vec<&Value>) =
        audits.iter().partition(|audit| audit["skipped"].is_null());
    assert_eq!(
        xml.matches("<testcase").count(),
        rows().count() + skipped.len()
    );
    let names = played
        .iter()
        .map(|audit| audit["scenario"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

/// The names of the scenarios whose files are such.
fn scenarios(is_meant: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let files = std::fs::read_dir(SCENARIOS)
        .unwrap()
        .map(|file| file.unwrap().path());
    let meant = files.filter(|path| is_meant(&std::fs::read_to_string(path).unwrap()));
    let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    meant.map(name).collect()
}

#[test]
fn our_client_agrees_with_vllm() {
    assert_eq!(
        agrees("stub:vllm"),
        scenarios(|text| !text.contains("[replay]"))
    );
}

#[test]
fn our_client_agrees_with_executorch() {
    // It takes one turn at a time, merges texts as it likes, and splits no reasoning off.
    let needs = [
        "[replay]",
        "parallel = true",
        "interval = ",
        "reasoning = true",
    ];
    assert_eq!(
        agrees("stub:executorch"),
        scenarios(|text| !needs.iter().any(|need| text.contains(need)))
    );
}

#[test]
fn our_client_agrees_with_sglang() {
    assert_eq!(
        agrees("stub:sglang"),
        scenarios(|text| !text.contains("[replay]"))
    );
}

#[test]
fn our_client_agrees_with_echo() {
    assert_eq!(
        agrees("stub:echo"),
        scenarios(|text| text.contains("echo = true"))
    );
}

#[test]
fn our_client_agrees_with_recorded_bytes() {
    assert_eq!(
        agrees("stub:replay"),
        scenarios(|text| text.contains("[replay]"))
    );
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    for (flags, told) in [
        (
            "--client nobody --server stub:vllm",
            "there is no client \"nobody\"",
        ),
        (
            "--client native --server nobody",
            "there is no server \"nobody\"",
        ),
        (
            "--client native=/nowhere --server stub:vllm",
            "native: there is no /nowhere",
        ),
        (
            "--client native --server stub:vllm --scenario nobody",
            "no such scenario",
        ),
        ("--client native", "--server"),
        ("--server stub:vllm", "--client"),
        (
            "--client native --server stub:vllm --against stub:echo",
            "cannot be used with",
        ),
        (
            "--server stub:vllm --against stub:echo",
            "stub:echo plays no scripts",
        ),
        (
            "--client native,native --server stub:vllm",
            "name each one once",
        ),
        (
            "--client native --server llama.cpp=/bin/sh",
            "say what llama.cpp loads with --model",
        ),
        (
            "--client native --server llama.cpp=no-such-program",
            "llama.cpp: there is no no-such-program",
        ),
        (
            "--client mlperf=/bin/false --server stub:vllm",
            "mlperf does not tell its version: it said nothing",
        ),
    ] {
        let flags: Vec<&str> = flags.split(' ').collect();
        let output = compare(&flags);
        let line = String::from_utf8(output.stderr.clone()).unwrap();
        let last = line.lines().last().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(last.contains(told), "{line}");
    }
}

/// A client that says where it was pointed and that it works, and never ends; what it has started does
/// neither.
const HANGS: &str = "#!/bin/sh
if [ $1 = --version ]; then echo hanging 9.9; exit; fi
tail -f /dev/null &
echo $! working $4
wait
";

/// Words that play one scenario.
fn plain<'w>(client: &'w str, server: &'w str) -> [&'w str; 6] {
    [
        "--client",
        client,
        "--server",
        server,
        "--scenario",
        "plain",
    ]
}

/// Writes a program into a folder and names it.
fn program(folder: &Folder, script: &str) -> String {
    let path = folder.join("program");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn client(folder: &Folder, script: &str) -> String {
    format!("mlperf={}", program(folder, script))
}

/// There is a process with this id which is not dead yet.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_client_that_hangs_is_ended_with_all_that_it_started() {
    let folder = Folder::new("hangs");
    let client = client(&folder, HANGS);
    let flags = plain(&client, "stub:vllm");
    let output = compare(&[&flags[..], &["--time-limit", "300ms", "--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let report = report_of(&output);
    let audit = &report["audits"][0];
    assert_eq!(audit["version"], "9.9");
    let [row] = &audit["rows"].as_array().unwrap()[..] else {
        panic!("{audit}");
    };
    let said = row["client"].as_str().unwrap();
    let (_, words) = said
        .split_once("no end within 300ms; its last words: ")
        .unwrap();
    let (pid, words) = words.split_once(' ').unwrap();
    assert!(words.starts_with("working http://127.0.0.1:"), "{said}");
    // The kill may still be on its way to it.
    while is_alive(pid) {
        std::thread::yield_now();
    }
}

#[test]
fn an_interrupt_leaves_no_process_behind() {
    let folder = Folder::new("interrupt");
    let client = client(&folder, HANGS);
    let keep = folder.join("keep");
    let flags = plain(&client, "stub:vllm");
    let mut command = command(&[&flags[..], &["--keep", &keep]].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut compare = command.spawn().unwrap();
    let log = format!("{keep}/mlperf stub-vllm plain/client.log");
    let said = loop {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        if said.ends_with('\n') {
            break said;
        }
        assert!(compare.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    };
    let (pid, url) = said.trim_end().split_once(" working http://").unwrap();
    assert!(is_alive(pid) && TcpStream::connect(url).is_ok());
    let interrupt = Command::new("kill")
        .args(["-INT", &compare.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    assert_eq!(compare.wait().unwrap().code(), Some(1));
    assert!(TcpStream::connect(url).is_err());
    while is_alive(pid) {
        std::thread::yield_now();
    }
}

#[test]
fn a_client_without_a_report_is_told_with_its_last_words() {
    let folder = Folder::new("fails");
    let client = client(
        &folder,
        "#!/bin/sh\necho version; [ $1 = --version ] || { echo no tokenizer >&2; exit 3; }\n",
    );
    let flags = plain(&client, "stub:echo");
    let output = compare(&flags);
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{table}");
    assert!(table.contains("DIFFER plain: right is: "), "{table}");
    let output = compare(&[&flags[..], &["--format", "json"]].concat());
    let row = &report_of(&output)["audits"][0]["rows"][0]["client"];
    let row = row.as_str().unwrap();
    assert!(row.starts_with("no report result_summary.json: "), "{row}");
    assert!(
        row.ends_with("; its last words: version | no tokenizer"),
        "{row}"
    );
}

#[test]
fn stubs_of_the_same_scripts_reply_the_same() {
    let flags = [
        "--server",
        "stub:sglang",
        "--against",
        "stub:vllm",
        "--format",
        "json",
    ];
    let output = compare(&[&flags[..], &["--scenario", "e*"]].concat());
    let report = report_of(&output);
    let rows = report["audits"].as_array().unwrap().iter();
    let rows: Vec<&Value> = rows.map(|audit| &audit["rows"][0]).collect();
    assert_eq!(rows.len(), 3, "{report}");
    for row in rows {
        assert_eq!(
            (&row["quantity"], &row["verdict"]),
            (&"replies".into(), &"agree".into())
        );
        assert_eq!(row["truth"]["value"], 6.0);
    }
    assert_eq!(output.status.code(), Some(0));
}

/// The command against this server and a `llama-server` that is this script.
fn llama(name: &str, before: &str, script: &str) -> Output {
    let folder = Folder::new(name);
    let servers = format!("{before}llama.cpp={}", program(&folder, script));
    let flags = plain("native", &servers);
    compare(&[&flags[..], &["--model", "m.gguf", "--format", "json"]].concat())
}

#[test]
fn a_server_without_a_truth_file_is_held_against_the_scenario() {
    // Its words are `--host 127.0.0.1 --port PORT --model m.gguf`.
    let script = format!("#!/bin/sh\nexec {STUBLINE} serve echo --port $4 --model $6\n");
    let output = llama("llama", "", &script);
    let report = report_of(&output);
    let rows = report["audits"][0]["rows"].as_array().unwrap();
    let rows: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| {
            (
                row["quantity"].as_str().unwrap(),
                row["verdict"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("run", "agree"),
            ("requests", "agree"),
            ("failures", "agree")
        ]
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_server_that_does_not_start_fails_with_its_last_lines_after_what_was_found() {
    let script = "#!/bin/sh\necho loading $6; echo no such model >&2; exit 1\n";
    let output = llama("dead", "stub:echo,", script);
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    let told = "the server llama.cpp did not start: loading m.gguf | no such model\n";
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.ends_with(told), "{line}");
    let report = report_of(&output);
    let audits = report["audits"].as_array().unwrap();
    let ends: Vec<(&Value, &Value)> = audits
        .iter()
        .map(|audit| (&audit["server"], &audit["rows"][0]["verdict"]))
        .collect();
    assert_eq!(
        ends,
        [
            (&json!("stub:echo"), &json!("agree")),
            (&json!("llama.cpp"), &json!("differ"))
        ]
    );
}
