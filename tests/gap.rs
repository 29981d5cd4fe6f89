//! `stubline gap` with real stubs: every scenario comes out as its file says, and a wrong file is found.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const STUBLINE: &str = env!("CARGO_BIN_EXE_stubline");
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/harness/scenarios/gap");

/// Runs the command in a folder that holds nothing of ours.
fn gap(flags: &[&str]) -> Output {
    let mut command = Command::new(STUBLINE);
    command.arg("gap").args(flags);
    command.current_dir(std::env::temp_dir()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A changed copy of a scenario that is removed when dropped.
struct Changed(PathBuf);

impl Changed {
    fn new(name: &str, changes: &[(&str, &str)]) -> Self {
        let mut text = std::fs::read_to_string(format!("{SCENARIOS}/{name}.toml")).unwrap();
        for (from, to) in changes {
            assert!(text.contains(from), "{name} has no {from}");
            text = text.replacen(from, to, 1);
        }
        let dir = std::env::temp_dir().join(format!("gap-{}-{:?}", std::process::id(), changes[0]));
        let dir = PathBuf::from(dir.display().to_string().replace([' ', '"', '{', '}'], ""));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn run(&self) -> Output {
        gap(&["--scenario", self.0.to_str().unwrap()])
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

#[test]
fn every_scenario_is_as_its_file_says() {
    let output = gap(&["--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    let failed: Vec<&Value> = scenarios
        .iter()
        .filter(|scenario| scenario["held"] != true)
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(output.status.success());
    let files = std::fs::read_dir(SCENARIOS).unwrap().count();
    assert_eq!(
        (report["n_scenarios"].as_u64(), report["n_failed"].as_u64()),
        (Some(files as u64), Some(0))
    );
    for scenario in scenarios {
        let terms = scenario["explained_by"].as_array().unwrap();
        let explained: i64 = terms
            .iter()
            .map(|term| term["tokens"].as_i64().unwrap())
            .sum();
        assert_eq!(
            scenario["difference"].as_i64(),
            Some(explained),
            "{scenario}"
        );
        assert!(
            terms.iter().all(|term| term["what"] != "unexplained"),
            "{scenario}"
        );
    }
}

#[test]
fn wrong_expectations_fail_and_are_named() {
    for (name, changes, told) in [
        (
            "think-reasoning-vllm",
            &[("usage = 20", "usage = 21")][..],
            "usage: expected 21, found 20",
        ),
        (
            "tool-markup-sglang",
            &[
                (
                    "\"tool_structure\", tokens = -12",
                    "\"tool_structure\", tokens = -11",
                ),
                ("\"end_token\", tokens = -1", "\"end_token\", tokens = -2"),
            ],
            "explained_by: expected end token -2, tool structure -11, found end token -1, tool structure -12",
        ),
        (
            "usage-float",
            &[("usage = \"none\"", "usage = 12")],
            "usage: expected 12, found none",
        ),
        (
            "usage-cut-off",
            &[("failure = \"cut\"\n", "")],
            "failure: expected none, found cut",
        ),
        (
            "ids-stop-string-vllm",
            &[("ids_decode = false", "ids_decode = true")],
            "ids_decode: expected true, found false",
        ),
    ] {
        let output = Changed::new(name, changes).run();
        let table = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{table}");
        let failed: Vec<&str> = table
            .lines()
            .filter(|line| line.starts_with("FAILED"))
            .collect();
        assert_eq!(failed.len(), 1, "{table}");
        assert!(
            failed[0].contains(name) && failed[0].ends_with(told),
            "{table}"
        );
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    let sum = Changed::new(
        "eos-counted-vllm",
        &[("difference = -1", "difference = -2")],
    );
    let key = Changed::new("eos-counted-vllm", &[("usage = 12", "usages = 12")]);
    let pair = Changed::new(
        "merged-vllm",
        &[("\"chunks\", \"usage\"", "\"chunks\", \"events\"")],
    );
    let marker = Changed::new("eos-counted-vllm", &[("[[eos-counted-vllm]]", "[[x]]")]);
    for (spec, told) in [
        ("nobody*", "no scenario has such a name; see --list"),
        ("nobody.toml", "No such file"),
        (
            sum.0.to_str().unwrap(),
            "adds up to -1, not to the difference",
        ),
        (key.0.to_str().unwrap(), "unknown variant `usages`"),
        (pair.0.to_str().unwrap(), "`expect` says nothing of events"),
        (
            marker.0.to_str().unwrap(),
            "does not say [[eos-counted-vllm]]",
        ),
    ] {
        let output = gap(&["--scenario", spec]);
        let line = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(
            (output.status.code(), line.lines().count()),
            (Some(2), 1),
            "{line}"
        );
        assert!(line.contains(told), "{line}");
    }
}

#[test]
fn the_table_is_narrow_and_the_documentation_names_all() {
    let table = stdout(&gap(&["--scenario", "usage-*"]));
    let widest = table.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(160), "{table}");
    let listed = stdout(&gap(&["--list", "--format", "json"]));
    let known: Value = serde_json::from_str(&listed).unwrap();
    assert!(known[0]["why"].is_string(), "{listed}");
    let documented = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/gap.md"));
    let documented = documented.unwrap();
    for entry in std::fs::read_dir(SCENARIOS).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(listed.contains(name), "{name}");
        assert!(documented.contains(&format!("`{name}`")), "{name}");
    }
}
