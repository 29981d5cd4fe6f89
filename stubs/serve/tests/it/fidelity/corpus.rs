//! The recorded corpora as data: where they are, how their servers are started, what a case is.

use std::path::PathBuf;

use wire::http1::RequestHead;
use wire::recording::{INDEX, Index, REQUEST, RESPONSE, Rules};

use crate::support::{Stub, fixtures};

/// A server's recordings, and what plays them.
pub(crate) struct Corpus {
    /// Its folder among the recordings.
    pub(crate) folder: &'static str,
    /// Its configurations among the folder's.
    pub(crate) has: fn(&str) -> bool,
    /// The words after `serve` but for source and tokenizer.
    pub(crate) words: &'static [&'static str],
    /// More of them for one configuration.
    pub(crate) more_words: &'static [(&'static str, &'static [&'static str])],
    /// The tokenizer among the fixtures.
    pub(crate) tokenizer: &'static str,
    /// What may differ.
    pub(crate) rules: Rules,
    /// The server was asked to forget its prompts before each case, and how aborts came about.
    pub(crate) native: Option<Native>,
}

/// How the recordings of SGLang were made.
pub(crate) struct Native {
    /// Events that a client has seen when its request is aborted.
    pub(crate) events: usize,
    /// A configuration's case before which the cache was not empty, and the case that had filled it: no
    /// flush was asked for, or it came while a request was still being taken down and did nothing.
    pub(crate) filled: &'static [(&'static str, &'static str, &'static str)],
}

/// A folder of a corpus: one server.
pub(crate) struct Configuration {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) index: Index,
}

/// One recorded exchange.
pub(crate) struct Case {
    pub(crate) name: String,
    /// How it was exchanged, in the recording's words.
    pub(crate) exchange: String,
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
    /// The exchange that took place meanwhile.
    pub(crate) aux: Option<Box<Self>>,
}

impl Corpus {
    pub(crate) fn configurations(&self) -> Vec<Configuration> {
        let folder = std::fs::read_dir(fixtures().join("wire").join(self.folder)).unwrap();
        let paths = folder.map(|entry| entry.unwrap().path());
        let folders = paths.filter(|path| path.join(INDEX).is_file());
        let mut found: Vec<_> = folders.map(Configuration::read).collect();
        found.retain(|configuration| (self.has)(&configuration.name));
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found
    }

    /// Starts the stub for a configuration; `more` are further words.
    pub(crate) fn start(&self, configuration: &Configuration, more: &[&str]) -> Stub {
        let scripts = fixtures().join("wire").join(self.folder);
        let scripts = format!("script:{}", scripts.join("scripts.json").display());
        let tokenizer = fixtures().join(self.tokenizer);
        let mut words = self.words.to_vec();
        words.extend(["--source", &scripts]);
        words.extend(["--tokenizer", tokenizer.to_str().unwrap()]);
        words.extend(configuration.index.flags.iter().map(String::as_str));
        let own = self.more_words.iter();
        let own = own.filter(|(name, _)| *name == configuration.name);
        words.extend(own.flat_map(|(_, words)| *words));
        words.extend(more);
        let env = &configuration.index.env;
        Stub::start_with(words, |name| env.get(name).cloned())
    }
}

impl Native {
    /// The case that had filled the cache.
    pub(crate) fn filler(&self, configuration: &str, case: &str) -> Option<&'static str> {
        let mut known = self.filled.iter();
        let found = known.find(|(config, name, _)| (*config, *name) == (configuration, case));
        found.map(|(_, _, filler)| *filler)
    }
}

impl Configuration {
    fn read(folder: PathBuf) -> Self {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let index = std::fs::read(folder.join(INDEX)).unwrap();
        let index = Index::parse(&index).unwrap();
        Self {
            name,
            folder,
            index,
        }
    }

    /// Exchanges, the second ones of a case included.
    pub(crate) fn count(&self) -> usize {
        let cases = self.index.cases.iter();
        cases.map(|case| 1 + usize::from(case.aux.is_some())).sum()
    }

    /// Responses in the folder.
    pub(crate) fn responses(&self) -> usize {
        let files = std::fs::read_dir(&self.folder).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        paths
            .filter(|path| path.to_str().unwrap().ends_with(RESPONSE))
            .count()
    }

    pub(crate) fn cases(&self) -> impl Iterator<Item = Case> {
        self.index.cases.iter().map(|case| Case {
            exchange: case.exchange.clone().unwrap_or_default(),
            aux: case.aux.as_ref().map(|aux| Box::new(self.case(aux))),
            ..self.case(&case.name)
        })
    }

    pub(crate) fn case(&self, name: &str) -> Case {
        let read = |end: &str| std::fs::read(self.folder.join(format!("{name}{end}"))).unwrap();
        Case {
            name: name.to_owned(),
            exchange: String::new(),
            request: read(REQUEST),
            response: read(RESPONSE),
            aux: None,
        }
    }

    /// What the server demands as `authorization`, as a header line.
    pub(crate) fn authorization(&self) -> String {
        let flags = &self.index.flags;
        let key = flags.iter().position(|flag| flag == "--api-key");
        key.map_or_else(String::new, |key| {
            format!("Authorization: Bearer {}\r\n", flags[key + 1])
        })
    }
}

impl Case {
    pub(crate) fn method(&self) -> &str {
        let head = RequestHead::parse(&self.request).ok().flatten();
        head.map_or("", |(head, _)| head.method)
    }

    pub(crate) fn path(&self) -> &str {
        let head = RequestHead::parse(&self.request).ok().flatten();
        head.map_or("", |(head, _)| head.path())
    }

    /// The exchange takes a second and more.
    pub(crate) fn waits(&self) -> bool {
        let is_held = self.path().starts_with("/health");
        self.aux.is_some() || self.exchange.contains("while") || is_held
    }
}

pub(crate) fn is_any(_configuration: &str) -> bool {
    true
}

pub(crate) fn is_rust(configuration: &str) -> bool {
    configuration.starts_with("rust-server")
}
