//! What was recorded from SGLang's Python front end, for tests.

use std::path::PathBuf;

use serde_json::Value;
use vocab::{Tokenizer, Vocab};
use wire::http1::{WholeRequest, WholeResponse};
use wire::{recording, sse};

/// A recorded exchange whose bodies are JSON.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) configuration: String,
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) body: Value,
    /// The request's, as it was sent.
    pub(crate) bytes: Vec<u8>,
    /// The events of a stream, the elements of a list, or the body alone.
    pub(crate) answers: Vec<Value>,
}

/// A file of the corpus.
pub(crate) fn file(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

/// The recorded server's tokenizer.
pub(crate) fn tokenizer() -> Tokenizer {
    let folder = folder().join("stub-model");
    Tokenizer::from_files(|name| std::fs::read_to_string(folder.join(name)).ok()).unwrap()
}

/// All cases, those of a configuration in the order in which they were recorded.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    let index: Value = serde_json::from_str(&file("cases.json")).unwrap();
    let names: Vec<String> = index["configurations"]
        .as_object()
        .unwrap()
        .keys()
        .filter(|name| !name.starts_with("rust-server"))
        .cloned()
        .collect();
    names.into_iter().flat_map(|configuration| {
        let index = file(&format!("{configuration}/cases.json"));
        let index = recording::Index::parse(index.as_bytes()).unwrap();
        let read = move |case: recording::Case| read(&configuration, &case.name);
        index.cases.into_iter().filter_map(read)
    })
}

fn folder() -> PathBuf {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    PathBuf::from(fixtures).join("wire/sglang-0.5.23")
}

fn read(configuration: &str, name: &str) -> Option<Case> {
    let bytes = |end| std::fs::read(folder().join(format!("{configuration}/{name}.{end}.http")));
    let request = bytes("request").ok()?;
    let request = WholeRequest::parse(&request).ok()??;
    let response = WholeResponse::parse(&bytes("response").ok()?, false, true).ok()??;
    Some(Case {
        configuration: configuration.into(),
        name: name.into(),
        path: request.head.path().into(),
        body: serde_json::from_slice(&request.body).ok()?,
        bytes: request.body,
        answers: answers(&response.body)?,
    })
}

fn answers(body: &[u8]) -> Option<Vec<Value>> {
    if !body.starts_with(b"data:") {
        return match serde_json::from_slice(body).ok()? {
            Value::Array(list) => Some(list),
            one => Some(vec![one]),
        };
    }
    let mut events = Vec::new();
    let mut decoder = sse::Decoder::default();
    decoder.feed(body, |event| {
        events.extend(serde_json::from_slice::<Value>(event));
    });
    Some(events)
}

impl Case {
    /// The ids of a whole answer of `/generate`, for each with its prompt's text and its sample's number.
    pub(crate) fn generated(&self, vocab: &Vocab) -> Vec<(String, usize, Vec<u32>)> {
        let prompts = self.prompts(vocab);
        let mut said: Vec<Vec<u32>> = vec![Vec::new(); prompts.len() * self.samples()];
        for (index, answer) in self.numbered() {
            let Some(ids) = answer["output_ids"].as_array() else {
                continue;
            };
            if self.configuration != "incremental" {
                said[index].clear();
            }
            said[index].extend(ids.iter().map(id));
        }
        let prompt = |index: usize| vocab.decode(&prompts[index / self.samples()]);
        let said = said
            .into_iter()
            .enumerate()
            .filter(|(_, ids)| !ids.is_empty());
        said.map(|(index, ids)| (prompt(index), index % self.samples(), ids))
            .collect()
    }

    /// Samples of each prompt.
    pub(crate) fn samples(&self) -> usize {
        let native = self.body["sampling_params"]["n"].as_u64();
        let samples = native.or_else(|| self.body["n"].as_u64()).unwrap_or(1);
        usize::try_from(samples).unwrap().max(1)
    }

    /// Frames or answers, each with the number of its choice.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &Value)> {
        let streams = self.body["stream"] == true;
        self.answers
            .iter()
            .enumerate()
            .map(move |(number, answer)| {
                let index = match answer["index"].as_u64() {
                    Some(index) => usize::try_from(index).unwrap(),
                    None if streams => 0,
                    None => number,
                };
                (index, answer)
            })
    }

    /// The prompts of a request to `/generate`.
    pub(crate) fn prompts(&self, vocab: &Vocab) -> Vec<Vec<u32>> {
        let encoded = |text: &Value| vocab.encode(text.as_str().unwrap_or_default(), true);
        let given = |ids: &Vec<Value>| ids.iter().map(id).collect::<Vec<u32>>();
        match (&self.body["input_ids"], &self.body["text"]) {
            (Value::Array(ids), _) if ids.iter().all(Value::is_array) => {
                ids.iter().filter_map(Value::as_array).map(given).collect()
            }
            (Value::Array(ids), _) => vec![given(ids)],
            (_, Value::Array(texts)) => texts.iter().map(encoded).collect(),
            (_, one @ Value::String(_)) => vec![encoded(one)],
            _ => Vec::new(),
        }
    }
}

fn id(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}
