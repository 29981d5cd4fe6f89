//! Native answers put together from frames, as recorded and as imagined.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};
use wire::chunk::{Reader, Samples, Settled};
use wire::http1::WholeResponse;
use wire::sse;
use wire::usage::Usage;

/// Streams of the corpus that hold native frames.
fn recorded() -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/wire/sglang-0.5.23");
    let folders = std::fs::read_dir(corpus).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()));
    let paths = files.flatten().map(|file| file.unwrap().path());
    let is_stream = |path: &PathBuf| path.to_string_lossy().ends_with("stream.response.http");
    let mut paths: Vec<_> = paths.filter(is_stream).collect();
    paths.sort();
    paths
}

/// The data of a response's events.
fn events(response: &[u8]) -> Vec<Vec<u8>> {
    let response = WholeResponse::parse(response, false, true)
        .unwrap()
        .unwrap();
    let mut decoder = sse::Decoder::default();
    let mut events = Vec::new();
    decoder.feed(&response.body, |data| events.push(data.to_vec()));
    events
}

#[derive(Debug, Default, PartialEq)]
struct Said {
    text: String,
    chunks: usize,
    ids: Option<u64>,
    usage: Option<Usage>,
}

fn said(frames: &[Vec<u8>], reader: &mut Reader) -> (Said, Samples) {
    let mut samples = Samples::default();
    let (mut said, mut bytes) = (Said::default(), Vec::new());
    for frame in frames {
        let gist = samples.read(frame, reader).unwrap();
        said.chunks += usize::from(gist.says_something());
        said.usage = gist.usage.or(said.usage);
        bytes.extend_from_slice(&gist.content);
    }
    said.text = String::from_utf8(bytes).unwrap();
    said.ids = samples.n_ids();
    (said, samples)
}

/// What a stream says, read without any cleverness by somebody who knows the server's flags.
fn expected(frames: &[Vec<u8>], is_incremental: bool) -> Said {
    let mut texts: BTreeMap<u64, String> = BTreeMap::new();
    let (mut ids, mut metas) = (BTreeMap::new(), BTreeMap::new());
    let mut said = Said::default();
    for frame in frames {
        let frame: Value = serde_json::from_slice(frame).unwrap();
        let index = frame["index"].as_u64().unwrap_or(0);
        let text = frame["text"].as_str().unwrap_or_default();
        let count = frame["output_ids"].as_array().map(|ids| ids.len() as u64);
        let before = texts.entry(index).or_default();
        let new = if is_incremental {
            text
        } else {
            text.strip_prefix(&**before).unwrap()
        };
        said.text.push_str(new);
        said.chunks += usize::from(!new.is_empty());
        *before = text.into();
        let sum: &mut Option<u64> = ids.entry(index).or_insert(None);
        *sum = if is_incremental {
            Some(sum.unwrap_or(0) + count.unwrap_or(0))
        } else {
            count
        };
        metas.insert(index, frame["meta_info"].clone());
    }
    said.ids = ids.into_values().sum();
    let sum = |key: &str| {
        metas
            .values()
            .map(|meta| meta[key].as_u64())
            .sum::<Option<u64>>()
    };
    said.usage = Some(Usage {
        completion_tokens: sum("completion_tokens"),
        reasoning_tokens: sum("reasoning_tokens"),
        prompt_tokens: metas[&0]["prompt_tokens"].as_u64(),
        cache: metas[&0]["cached_tokens"].as_u64().map(|cached| {
            let created = None;
            wire::usage::CachedTokens { cached, created }
        }),
    });
    said
}

#[test]
fn recorded_streams_say_what_their_server_said() {
    let mut reader = Reader::default();
    let mut streams = 0;
    for path in recorded() {
        let bytes = std::fs::read(&path).unwrap();
        let mut frames = events(&bytes);
        frames.retain(|frame| frame.windows(11).any(|part| part == b"\"meta_info\""));
        let is_native = |frame: &Vec<u8>| !frame.windows(9).any(|part| part == b"\"choices\"");
        if frames.is_empty() || !frames.iter().all(is_native) {
            continue;
        }
        let is_incremental = path.to_string_lossy().contains("/incremental/");
        let (said, samples) = said(&frames, &mut reader);
        assert_eq!(
            said,
            expected(&frames, is_incremental),
            "{}",
            path.display()
        );
        assert_eq!(samples.settle(), None, "{}", path.display());
        let aborts = bytes.windows(15).any(|part| part == b"\"type\":\"abort\",");
        assert_eq!(samples.abort().is_some(), aborts, "{}", path.display());
        streams += 1;
    }
    assert!(streams >= 60, "{streams}");
}

/// What each step adds: a text, and ids, one at least.
fn steps() -> impl Strategy<Value = Vec<(String, Vec<u32>)>> {
    let text = prop_oneof!["[ab]{0,2}", "[\"\\\\\n😀é]{0,3}"];
    prop::collection::vec((text, prop::collection::vec(0_u32..30, 1..4)), 1..12)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Frames {
    New,
    NewIds,
    Whole,
}

fn frames(steps: &[(String, Vec<u32>)], are: Frames) -> Vec<Vec<u8>> {
    let (mut text, mut ids) = (String::new(), Vec::new());
    let frame = |(new, new_ids): &(String, Vec<u32>)| {
        text.push_str(new);
        ids.extend_from_slice(new_ids);
        let text = if are == Frames::New { new } else { &text };
        let shown = if are == Frames::Whole { &ids } else { new_ids };
        let meta = json!({"id": "i", "prompt_tokens": 3, "completion_tokens": ids.len()});
        let frame = json!({"text": text, "output_ids": shown, "meta_info": meta});
        serde_json::to_vec(&frame).unwrap()
    };
    steps.iter().map(frame).collect()
}

proptest! {
    #[test]
    fn frames_add_up_whether_they_are_whole_or_new(
        steps in steps(),
        are in prop::sample::select(vec![Frames::New, Frames::Whole]),
        stop in any::<bool>(),
    ) {
        let mut steps = steps;
        if stop {
            steps.push((String::new(), vec![642]));
        }
        let mut reader = Reader::default();
        let all: Vec<u32> = steps.iter().flat_map(|(_, ids)| ids.clone()).collect();
        for _ in 0..2 {
            let (said, samples) = said(&frames(&steps, are), &mut reader);
            let text: String = steps.iter().map(|(text, _)| &**text).collect();
            prop_assert_eq!(said.text, text);
            prop_assert_eq!(said.chunks, steps.iter().filter(|(text, _)| !text.is_empty()).count());
            prop_assert_eq!(said.ids, Some(all.len() as u64));
            prop_assert_eq!(said.usage.unwrap().completion_tokens, said.ids);
            prop_assert_eq!(samples.said_ids(), Some(all.clone()));
        }
    }

    #[test]
    fn whole_texts_with_new_ids_are_told_at_the_end(
        steps in prop::collection::vec(("[ab\n]{1,3}", prop::collection::vec(0_u32..30, 1..4)), 4..12),
    ) {
        let (said, samples) = said(&frames(&steps, Frames::NewIds), &mut Reader::default());
        let text: String = steps.iter().map(|(text, _)| &**text).collect();
        let count: usize = steps.iter().map(|(_, ids)| ids.len()).sum();
        prop_assert_eq!(said.ids, Some(count as u64));
        let settled = Settled { text: text.into(), was_whole: true };
        prop_assert_eq!(samples.settle(), Some(settled));
    }
}

#[test]
fn the_stop_token_is_no_said_id() {
    let frame = br#"{"text":"a","output_ids":[1,642],"meta_info":{"finish_reason":{"type":"stop","matched":642}}}"#;
    let mut samples = Samples::default();
    samples.read(frame, &mut Reader::default()).unwrap();
    assert_eq!(
        (samples.n_ids(), samples.said_ids()),
        (Some(2), Some(vec![1]))
    );
}

#[test]
fn a_list_of_answers_is_one_answer_of_many_samples() {
    let list =
        br#"[{"text":"a","output_ids":[1],"meta_info":{"prompt_tokens":3,"completion_tokens":1}},
        {"text":"bc","output_ids":[2,3],"meta_info":{"prompt_tokens":3,"completion_tokens":2}}]"#;
    let mut samples = Samples::default();
    let gist = samples.read(list, &mut Reader::default()).unwrap();
    assert_eq!(*gist.content, *b"abc");
    assert_eq!(gist.usage, Some(Usage::new(3, 3)));
    assert_eq!((samples.n_ids(), samples.said_ids()), (Some(3), None));
}

#[test]
fn a_text_that_is_written_anew_is_told_at_the_end() {
    let frame = |text: &str, count: usize| {
        let meta = json!({"completion_tokens": count});
        serde_json::to_vec(&json!({"text": text, "output_ids": vec![1; count], "meta_info": meta}))
            .unwrap()
    };
    let frames = [frame("one", 1), frame("one S", 2), frame("one", 3)];
    let (said, samples) = said(&frames, &mut Reader::default());
    assert_eq!((&*said.text, said.chunks), ("one S", 2));
    let settled = Settled {
        text: b"one".into(),
        was_whole: false,
    };
    assert_eq!(samples.settle(), Some(settled));
}
