//! Recorded cases: those in this program, and those of a folder.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context as _, ensure};
use wire::http1::RequestHead;
use wire::recording::{Case, INDEX, Index, REQUEST, RESPONSE};

use super::manner::Manner;
use crate::error::UsageError;

/// Packed by `build.rs`: a name and its files, compressed.
static PACKED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/corpora.rs"));

/// A recorded exchange and where it is from.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    /// What its configuration's folder is called; empty for the folder that was named.
    pub(super) configuration: String,
    /// What its `cases.json` says.
    pub(super) case: Case,
    pub(super) request: Vec<u8>,
    pub(super) response: Vec<u8>,
}

/// Cases, how their servers were started, and what the engine was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Corpus {
    pub(super) cases: Vec<Recorded>,
    /// Flags and environment by configuration.
    pub(super) flags: HashMap<String, String>,
    /// What a script's name stands for beyond a text: `fault`, `steps`, ….
    pub(super) engine: HashMap<String, Vec<String>>,
    /// What server was recorded; by its environment, unless a profile says it.
    pub(super) manner: &'static Manner,
    is_of_profile: bool,
}

impl Recorded {
    /// Configuration and name.
    pub(super) fn path(&self) -> String {
        if self.configuration.is_empty() {
            return self.case.name.clone();
        }
        format!("{}/{}", self.configuration, self.case.name)
    }

    /// The path that was asked for; empty if the request is not HTTP.
    pub(super) fn target(&self) -> String {
        let head = RequestHead::parse(&self.request).ok().flatten();
        head.map_or_else(String::new, |(head, _)| head.path().to_owned())
    }
}

/// The profiles that have recordings in this program, newest first.
pub(super) fn profiles() -> Vec<String> {
    let corpora = PACKED.iter().rev();
    let profiles = corpora.flat_map(|(name, _)| Manner::profiles(name));
    profiles.map(|(profile, _)| profile).collect()
}

/// The recorded cases of a profile.
pub(super) fn embedded(profile: &str) -> anyhow::Result<Corpus> {
    let known = PACKED.iter().find_map(|(name, packed)| {
        let mut profiles = Manner::profiles(name);
        let (_, manner) = profiles.find(|(known, _)| known == profile)?;
        Some((packed, manner))
    });
    let (packed, manner) = known.ok_or_else(|| {
        let known = profiles().join(", ");
        UsageError(format!(
            "--profile {profile}: no recordings of it; known: {known}"
        ))
    })?;
    let bytes = miniz_oxide::inflate::decompress_to_vec(packed)
        .map_err(|error| anyhow::anyhow!("the packed corpus is broken: {error}"))?;
    let files = unpack(&bytes).context("the packed corpus is broken")?;
    let mut corpus = Corpus {
        manner,
        is_of_profile: true,
        ..Corpus::default()
    };
    if let Some(scripts) = files.get("scripts.json") {
        corpus.engine = engine(scripts)?;
    }
    let mut configurations: Vec<&str> = files
        .keys()
        .filter_map(|name| name.strip_suffix("/cases.json"))
        .filter(|name| (manner.has)(name))
        .collect();
    configurations.sort_unstable();
    for name in configurations {
        let read = |file: &str| {
            files
                .get(&*format!("{name}/{file}"))
                .map(|bytes| bytes.to_vec())
        };
        corpus.add(name, read)?;
    }
    Ok(corpus)
}

/// The cases of a folder and its folders.
pub(super) fn folder(dir: &Path) -> anyhow::Result<Corpus> {
    let mut corpus = Corpus::default();
    let wrong = |error: &dyn std::fmt::Display| {
        UsageError(format!("--against-fixtures {}: {error}", dir.display()))
    };
    corpus
        .collect(dir, "")
        .map_err(|error| wrong(&format!("{error:#}")))?;
    if corpus.cases.is_empty() {
        return Err(wrong(&format!("no case with *{REQUEST} and *{RESPONSE}")).into());
    }
    Ok(corpus)
}

fn unpack(mut bytes: &[u8]) -> Option<HashMap<&str, &[u8]>> {
    let mut files = HashMap::new();
    let mut take = |length: usize| {
        let (taken, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        Some(taken)
    };
    loop {
        let Some(head) = take(8) else {
            return Some(files);
        };
        let length = |bytes: &[u8]| -> Option<usize> {
            usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
        };
        let (name, content) = (length(&head[..4])?, length(&head[4..])?);
        let name = std::str::from_utf8(take(name)?).ok()?;
        files.insert(name, take(content)?);
    }
}

/// Keys of each script beside its texts.
fn engine(scripts: &[u8]) -> anyhow::Result<HashMap<String, Vec<String>>> {
    let scripts: HashMap<String, serde_json::Value> =
        serde_json::from_slice(scripts).context("scripts.json")?;
    let keys = |script: serde_json::Value| match script {
        serde_json::Value::Object(script) => script
            .into_iter()
            .map(|(key, _)| key)
            .filter(|key| key != "choices")
            .collect(),
        _ => Vec::new(),
    };
    Ok(scripts
        .into_iter()
        .map(|(name, script)| (name, keys(script)))
        .collect())
}

impl Corpus {
    /// Adds the cases of one folder in the order of its index.
    fn add(&mut self, name: &str, read: impl Fn(&str) -> Option<Vec<u8>>) -> anyhow::Result<()> {
        let json = read(INDEX).context("no cases.json")?;
        let index = Index::parse(&json).with_context(|| format!("{name}/{INDEX}"))?;
        let mut environment: Vec<_> = index.env.iter().collect();
        environment.sort();
        let environment = environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        if !self.is_of_profile {
            self.manner = Manner::of_environment(index.env.keys().map(String::as_str));
        }
        let words: Vec<String> = environment.chain(index.flags.iter().cloned()).collect();
        self.flags.insert(name.to_owned(), words.join(" "));
        for case in index.cases {
            let file = |end: &str| read(&format!("{}{end}", case.name));
            let (Some(request), Some(response)) = (file(REQUEST), file(RESPONSE)) else {
                continue;
            };
            self.cases.push(Recorded {
                configuration: name.to_owned(),
                case,
                request,
                response,
            });
        }
        Ok(())
    }

    fn collect(&mut self, dir: &Path, name: &str) -> anyhow::Result<()> {
        ensure!(dir.is_dir(), "no such folder");
        let (mut cases, mut folders) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let file = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() {
                folders.push(file);
            } else if let Some(name) = file.strip_suffix(REQUEST) {
                cases.push(name.to_owned());
            }
        }
        let read = |file: &str| std::fs::read(dir.join(file)).ok();
        if read(INDEX).is_some() {
            self.add(name, read)?;
        }
        let path = |case: &str| match name {
            "" => case.to_owned(),
            name => format!("{name}/{case}"),
        };
        let mut known: HashSet<String> = self.cases.iter().map(Recorded::path).collect();
        let aux = self
            .cases
            .iter()
            .filter_map(|known| known.case.aux.as_ref());
        known.extend(aux.map(|aux| path(aux)));
        cases.retain(|case| !known.contains(&path(case)));
        cases.sort();
        for case in cases {
            let file = |end: &str| read(&format!("{case}{end}"));
            if let (Some(request), Some(response)) = (file(REQUEST), file(RESPONSE)) {
                self.cases.push(Recorded {
                    configuration: name.to_owned(),
                    case: Case {
                        name: case,
                        ..Case::default()
                    },
                    request,
                    response,
                });
            }
        }
        folders.sort();
        for folder in folders {
            let within = if name.is_empty() {
                folder.clone()
            } else {
                format!("{name}/{folder}")
            };
            self.collect(&dir.join(&folder), &within)?;
        }
        Ok(())
    }
}
