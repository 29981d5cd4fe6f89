//! Every recorded conversation with a model worker, line for line; times and rates may differ.
//!
//! A server's cases are one conversation, since sessions live from one to the next.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plan::model_worker::{Host, Model, Stop, Timing, Worker};
use serde_json::{Map, Value};
use vocab::Tokenizer;

use crate::support::fixtures;

const CORPORA: [&str; 2] = ["executorch-1.5.1", "executorch-cff6f4dd32e6"];
const END: &str = ".worker.jsonl";
/// Recordings in which the worker says something; the others are of a process that ends.
const TELLING_1_5_1: usize = 119;
const TELLING_SERIAL: usize = 145;

/// A line of a recording.
#[derive(Clone, Debug)]
struct Recorded {
    case: String,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Cancel(Vec<u8>),
    Exit,
    From(String),
    Omitted(usize),
    To(String),
}

/// A recorded conversation.
struct Conversation {
    lines: Vec<Recorded>,
    /// There was a control descriptor.
    offered: bool,
    server: String,
}

pub(crate) fn objects(path: &str) -> Map<String, Value> {
    let text = std::fs::read(fixtures().join(path)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Names of the recordings of a corpus.
fn names(corpus: &str) -> Vec<String> {
    let files = std::fs::read_dir(fixtures().join("wire").join(corpus)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter_map(|name| Some(name.strip_suffix(END)?.to_owned()))
        .collect();
    names.sort();
    names
}

fn conversations(corpus: &str) -> Vec<Conversation> {
    let index = objects(&format!("wire/{corpus}/cases.json"));
    let mut lines: BTreeMap<String, Vec<(f64, Recorded)>> = BTreeMap::new();
    let mut offered = HashMap::new();
    for case in names(corpus) {
        let server = index["cases"][&case]["server"].as_str();
        let of_process = || {
            let name = case.strip_suffix(".startup");
            name.or_else(|| case.strip_suffix(".shutdown"))
        };
        let server = server.or_else(of_process).unwrap_or(&case).to_owned();
        let path = PathBuf::from(corpus).join(format!("{case}{END}"));
        let text = std::fs::read_to_string(fixtures().join("wire").join(path)).unwrap();
        for (number, line) in text.lines().enumerate() {
            let line: Value = serde_json::from_str(line).unwrap();
            if let Some(words) = line["argv"].as_array() {
                assert_eq!(words.len(), 5, "{case}");
                assert_eq!(
                    (&words[1], &words[3]),
                    (&"--model_path".into(), &"--tokenizer_path".into())
                );
                offered.insert(server.clone(), line["control_fd_set"] == true);
            }
            #[expect(clippy::cast_precision_loss, reason = "a file has few lines")]
            let at = line["t"].as_f64().unwrap_or(number as f64);
            if let Some(what) = what(&line) {
                let case = case.clone();
                let known = lines.entry(server.clone()).or_default();
                known.push((at, Recorded { case, what }));
            }
        }
    }
    let conversation = |(server, mut lines): (String, Vec<(f64, Recorded)>)| {
        lines.sort_by(|one, other| one.0.total_cmp(&other.0));
        Conversation {
            lines: lines.into_iter().map(|(_, line)| line).collect(),
            // The process's start was not recorded everywhere.
            offered: offered
                .get(&server)
                .map_or(corpus == CORPORA[0], |offered| *offered),
            server,
        }
    };
    lines.into_iter().map(conversation).collect()
}

fn what(line: &Value) -> Option<What> {
    let text = || line["line"].as_str().unwrap().to_owned();
    Some(match line["dir"].as_str().unwrap() {
        "cancel" => {
            let hex = line["hex"].as_str().unwrap();
            let byte = |start| u8::from_str_radix(&hex[start..start + 2], 16).unwrap();
            What::Cancel((0..hex.len()).step_by(2).map(byte).collect())
        }
        "exit" if line["rc"] != 0 => What::Exit,
        "from_worker" => What::From(text()),
        "omitted" => What::Omitted(usize::try_from(line["lines"].as_u64().unwrap()).unwrap()),
        "to_worker" => What::To(text()),
        "argv" | "cancel_eof" | "eof" | "exit" => return None,
        other => panic!("what is {other}?"),
    })
}

/// The scripts of the recordings and what is special about a server, as a file for its worker.
pub(crate) fn model_file(server: &str) -> String {
    let mut scripts = objects("executorch/scripts.json");
    let mut servers = objects("executorch/servers.json");
    if let Some(Value::Object(more)) = servers.remove(server) {
        scripts.extend(more);
    }
    Value::Object(scripts).to_string()
}

impl Conversation {
    /// A worker with the scripts of the recordings and what is special about this server.
    fn worker(&self) -> Worker {
        let tokenizer = Arc::new(Tokenizer::named("byte").unwrap());
        let model = Model::from_json(&model_file(&self.server), &tokenizer, |_| None).unwrap();
        Worker::new(model, tokenizer, Timing::Strict, self.offered)
    }

    /// How each case differs, frames being read `late` steps later.
    fn differences(&self, late: usize) -> BTreeMap<String, String> {
        let mut worker = self.worker();
        let mut found = BTreeMap::new();
        let mut left = &self.lines[..];
        let starts = matches!(left.first(), Some(first) if matches!(first.what, What::From(_)));
        let mut unheard = Heard::default();
        let mut died = worker.start(&mut unheard).is_err();
        if starts {
            left = compare("startup", left, &unheard.lines, died, &mut found);
        }
        while let Some((first, rest)) = left.split_first() {
            let What::To(line) = &first.what else {
                found.insert(first.case.clone(), format!("unexpected {:?}", first.what));
                left = rest;
                continue;
            };
            let mut heard = Heard::of(rest, late);
            died |= worker.line(line.as_bytes(), &mut heard).is_err();
            left = compare(&first.case, rest, &heard.lines, died, &mut found);
        }
        found
    }
}

/// What a worker wrote, and when frames come to it.
#[derive(Default)]
struct Heard {
    frames: Vec<(usize, Vec<u8>)>,
    late: usize,
    lines: Vec<Vec<u8>>,
}

impl Heard {
    /// Frames come as they were recorded: behind so many lines.
    fn of(recorded: &[Recorded], late: usize) -> Self {
        let mut frames = Vec::new();
        let mut lines = 0;
        for line in recorded {
            match &line.what {
                What::Cancel(frame) => frames.push((lines, frame.clone())),
                What::From(_) => lines += 1,
                What::Omitted(count) => lines += count,
                What::Exit => {}
                What::To(_) => break,
            }
        }
        Self {
            frames,
            late,
            lines: Vec::new(),
        }
    }
}

impl Host for Heard {
    fn control(&mut self) -> Vec<u8> {
        let due = self.frames.iter().position(|frame| {
            // A frame is there before the worker is seen to have read it.
            self.lines.len() >= frame.0 + self.late
        });
        due.map_or_else(Vec::new, |due| self.frames.remove(due).1)
    }

    fn pass(&mut self, _time: Duration) {}

    fn write(&mut self, line: &[u8]) -> Result<(), Stop> {
        self.lines.push(line.to_vec());
        Ok(())
    }
}

/// Holds lines against those recorded up to the next one that was sent; returns what follows.
fn compare<'r>(
    asked: &str,
    recorded: &'r [Recorded],
    ours: &[Vec<u8>],
    died: bool,
    found: &mut BTreeMap<String, String>,
) -> &'r [Recorded] {
    let is_sent = |line: &Recorded| matches!(line.what, What::To(_));
    let end = recorded.iter().position(is_sent);
    let (answer, rest) = recorded.split_at(end.unwrap_or(recorded.len()));
    let mut ours = ours.iter().map(|line| masked(&shown(line)));
    let mut complete = false;
    let mut last = asked;
    for line in answer {
        let different = match &line.what {
            What::Exit => (!died).then(|| "it goes on".to_owned()),
            What::From(text) => {
                let (theirs, ours) = (masked(text), ours.next());
                complete = !theirs.starts_with("{\"token\"");
                let how = || format!("- {theirs}\n+ {ours:?}");
                (ours.as_ref() != Some(&theirs)).then(how)
            }
            What::Omitted(count) => {
                ours.by_ref().take(*count).for_each(drop);
                None
            }
            What::Cancel(_) | What::To(_) => None,
        };
        last = &line.case;
        if let Some(how) = different {
            found.entry(line.case.clone()).or_insert(how);
        }
    }
    // A server that was stopped in mid-turn did not hear the end.
    if let Some(more) = ours.next()
        && (complete || end.is_some())
    {
        let how = format!("+ {more} and so on");
        found.entry(last.to_owned()).or_insert(how);
    }
    rest
}

/// As the recordings show bytes that are no UTF-8.
fn shown(line: &[u8]) -> String {
    match std::str::from_utf8(line) {
        Ok(text) => text.to_owned(),
        Err(_) => line.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// A line whose times and rates are their form alone: `F` for a double, anything else as it is.
fn masked(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(end) = rest
        .find("_ms\":")
        .map(|at| at + 5)
        .into_iter()
        .chain(rest.find("_tok_s\":").map(|at| at + 8))
        .min()
    {
        let (before, after) = rest.split_at(end);
        out.push_str(before);
        let length = after.find([',', '}']).unwrap_or(after.len());
        let (number, after) = after.split_at(length);
        let is_double = number.contains('.') && number.parse::<f64>().is_ok();
        // What a script demands, and the rate of nothing, is exact.
        let is_exact = ["0.0", "-5.0", "1000000000000.0", "123.5"].contains(&number);
        out.push_str(if is_double && !is_exact { "F" } else { number });
        rest = after;
    }
    out + rest
}

/// Cases of a corpus in which the worker says something, and those that differ.
fn played(corpus: &str) -> (usize, BTreeMap<String, String>) {
    let (mut found, mut telling) = (BTreeMap::new(), BTreeSet::new());
    for conversation in conversations(corpus) {
        // A frame was recorded when it was sent; the worker read it before or after its next line.
        let [early, late] = [0, 1].map(|late| conversation.differences(late));
        let both = early
            .into_iter()
            .filter(|(case, _)| late.contains_key(case));
        found.extend(both);
        let tells = |line: &Recorded| !matches!(line.what, What::Cancel(_) | What::To(_));
        let lines = conversation.lines.into_iter().filter(tells);
        telling.extend(lines.map(|line| line.case));
    }
    (telling.len(), found)
}

#[test]
fn every_recorded_conversation_is_held() {
    let mut report = Vec::new();
    for (corpus, telling) in CORPORA.into_iter().zip([TELLING_1_5_1, TELLING_SERIAL]) {
        let (count, found) = played(corpus);
        assert_eq!(count, telling, "{corpus}");
        println!("{corpus}: {} of {count} equal", count - found.len());
        let told = found
            .iter()
            .map(|(case, how)| format!("{corpus}/{case}:\n{how}"));
        report.extend(told);
    }
    let count = report.len();
    assert!(count == 0, "{count} differ:\n{}", report.join("\n"));
}
