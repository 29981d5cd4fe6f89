//! Servers in this process, commands as they are typed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use plan::replay::Replay;
use serve::replay::{Plays, load};
use serve::server::{Config, Server};

use crate::folders::{fixtures, folder};
use crate::stub;

#[derive(clap::Parser)]
struct Conform {
    #[command(flatten)]
    args: harness::conform::cli::Args,
}

#[derive(clap::Parser)]
struct Record {
    #[command(flatten)]
    args: harness::capture::cli::Args,
}

pub(crate) struct Running(Server);

impl Running {
    /// What `stubline serve` with these words starts, on a free port.
    pub(crate) fn stub(words: &[&str]) -> Self {
        Self(stub::start(words))
    }

    /// vLLM with the recordings' scripts.
    pub(crate) fn scripted() -> Self {
        let scripts = fixtures().join("wire/vllm-0.33.0/scripts.json");
        let scripts = format!("script:{}", scripts.display());
        let tokenizer = fixtures().join("tokenizers/bpe").display().to_string();
        let words = ["vllm", "tiny-model", "--served-model-name", "tiny-chat"];
        let more = [
            "--max-model-len",
            "512",
            "--tokenizer",
            &tokenizer,
            "--source",
            &scripts,
        ];
        Self::stub(&[&words[..], &more[..]].concat())
    }

    /// A folder, played.
    pub(crate) fn replay(dir: &Path, plays: Plays) -> Self {
        let replay = Arc::new(Replay::new(load(dir).unwrap()));
        Self(Server::replay(&Config::default(), replay, plays).unwrap())
    }

    pub(crate) fn url(&self) -> String {
        stub::url(&self.0)
    }
}

impl Running {
    pub(crate) fn stop(self) {
        self.0.stop(Duration::from_secs(5)).unwrap();
    }
}

/// The exit code of `stubline conform` with these words, and what it prints.
pub(crate) fn conform(words: &[&str]) -> anyhow::Result<(u8, String)> {
    let words = ["conform"].into_iter().chain(words.iter().copied());
    let mut out = Vec::new();
    let code = harness::conform::cli::run(&Conform::parse_from(words).args, &mut out)?;
    Ok((code, String::from_utf8(out).unwrap()))
}

/// Runs `stubline record` with these words, and gives what it prints.
pub(crate) fn record(words: &[&str]) -> String {
    let words = ["record"].into_iter().chain(words.iter().copied());
    let mut out = Vec::new();
    let code = harness::capture::cli::run(&Record::parse_from(words).args, &mut out).unwrap();
    assert_eq!(code, 0);
    String::from_utf8(out).unwrap()
}

/// A recorded case and how its server is named.
pub(crate) struct Recorded<'a> {
    pub(crate) profile: &'a str,
    pub(crate) model: &'a str,
    pub(crate) configuration: &'a str,
    pub(crate) name: &'a str,
}

/// Cases that failed, and how many passed.
pub(crate) fn failures(words: &[&str]) -> (Vec<String>, usize) {
    let (code, told) = conform(&[words, &["--format", "json"]].concat()).unwrap();
    let report: serde_json::Value = serde_json::from_str(&told).unwrap();
    let cases = report["cases"].as_array().unwrap();
    let failed = cases.iter().filter(|case| case["outcome"] == "fail");
    let failed: Vec<String> = failed
        .map(|case| format!("{}: {}", case["case"], case["reason"]))
        .collect();
    assert_eq!(code == 1, !failed.is_empty());
    let passed = usize::try_from(report["counts"]["passed"].as_u64().unwrap()).unwrap();
    (failed, passed)
}

/// Plays one recorded case with its response changed, and says what `conform` makes of it.
pub(crate) fn changed(case: &Recorded<'_>, change: impl Fn(&str) -> String) -> String {
    let Recorded {
        profile,
        model,
        configuration,
        name,
    } = *case;
    let corpus = profile.trim_end_matches("-rust");
    let from = fixtures().join(format!("wire/{corpus}/{configuration}"));
    let dir = folder(&format!("changed-{profile}")).join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let file = |dir: &Path, end: &str| dir.join(format!("{name}.{end}.http"));
    std::fs::copy(file(&from, "request"), file(&dir, "request")).unwrap();
    let response = std::fs::read_to_string(file(&from, "response")).unwrap();
    let changed = change(&response);
    assert_ne!(changed, response);
    std::fs::write(file(&dir, "response"), changed).unwrap();
    let player = Running::replay(&dir, Plays::default());
    let case = format!("{configuration}/{name}");
    let url = player.url();
    let words = ["--url", &url, "--profile", profile, "--model", model];
    let more = ["--config", configuration, "--case", &case];
    let words = [&words[..], &more[..]].concat();
    let (code, told) = conform(&words).unwrap();
    player.stop();
    assert_eq!(code, 1, "{told}");
    told
}
