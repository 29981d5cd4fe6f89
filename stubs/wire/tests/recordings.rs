//! What the recordings' rules let differ, and nothing else, on every recorded response of SGLang.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;

use wire::http1::RequestHead;
use wire::recording::{REQUEST, RESPONSE, Rules, normalised};

/// A recorded response, with the rules for what was asked.
struct Recorded {
    name: String,
    response: Vec<u8>,
    rules: Rules,
}

fn recordings() -> Vec<Recorded> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/wire/sglang-0.5.23");
    let mut paths = Vec::new();
    for folder in std::fs::read_dir(corpus).unwrap() {
        let folder = folder.unwrap().path();
        if folder.is_dir() {
            let files = std::fs::read_dir(folder).unwrap();
            paths.extend(files.map(|file| file.unwrap().path()));
        }
    }
    let paths = paths.into_iter();
    paths.filter_map(|path| recorded(&path)).collect()
}

fn recorded(path: &Path) -> Option<Recorded> {
    let name = path.to_str().unwrap().strip_suffix(RESPONSE)?.to_owned();
    let request = std::fs::read(name.clone() + REQUEST).unwrap();
    let rules = match RequestHead::parse(&request) {
        Ok(Some((head, _))) => Rules::SGLANG.of_page(head.path()),
        _ => Rules::SGLANG,
    };
    let response = std::fs::read(path).unwrap();
    Some(Recorded {
        name,
        response,
        rules,
    })
}

#[test]
fn normalising_twice_changes_nothing() {
    for recorded in recordings() {
        let once = normalised(&recorded.response, &recorded.rules);
        let twice = normalised(once.as_bytes(), &recorded.rules);
        assert_eq!(once, twice, "{}", recorded.name);
    }
}

/// A letter beyond `f` is in no id, number or size.
#[test]
fn a_changed_letter_shows() {
    let mut count = 0;
    for recorded in recordings() {
        let text = String::from_utf8_lossy(&recorded.response);
        let is_page = ["-info", "-loads", "-metrics"].map(|end| recorded.name.ends_with(end));
        if is_page.contains(&true) || text.contains(" validation error") {
            continue;
        }
        let normal = normalised(&recorded.response, &recorded.rules);
        let date = text.find("date: ").map_or(0..0, |at| at + 6..at + 35);
        let letters = recorded.response.iter().enumerate();
        let letters: Vec<usize> = letters
            .filter(|(at, byte)| (b'g'..=b'y').contains(byte) && !date.contains(at))
            .map(|(at, _)| at)
            .collect();
        for &at in letters.iter().step_by(letters.len() / 5 + 1) {
            let mut changed = recorded.response.clone();
            changed[at] += 1;
            let shown = String::from_utf8_lossy(&changed[at.saturating_sub(20)..=at]);
            let is_same = normal == normalised(&changed, &recorded.rules);
            assert!(!is_same, "{}: {shown:?}", recorded.name);
            count += 1;
        }
    }
    assert!(count > 3000, "{count} were looked at");
}

/// The native shape is another with `--incremental-streaming-output`, all else is the same.
#[test]
fn two_recordings_of_one_thing_are_the_same() {
    let recordings = recordings();
    let normal = |name: &str| {
        let found = recordings
            .iter()
            .find(|recorded| recorded.name.ends_with(name));
        found.map(|found| normalised(&found.response, &found.rules))
    };
    let mut count = 0;
    for recorded in &recordings {
        let path = Path::new(&recorded.name);
        let (folder, case) = (path.parent().unwrap(), path.file_name().unwrap());
        let case = case.to_str().unwrap();
        if folder.ends_with("incremental") && !case.starts_with("gen-") {
            let [one, other] =
                ["default", "incremental"].map(|config| normal(&format!("/{config}/{case}")));
            assert_eq!(one, other, "{case}");
            count += 1;
        }
    }
    assert!(count > 10, "{count} were looked at");
}

/// Frames of two samples, every second pair of neighbours swapped.
fn swapped(response: &[u8], are_swapped: impl Fn(&str, &str) -> bool) -> String {
    let text = String::from_utf8(response.to_vec()).unwrap();
    let mut frames: Vec<&str> = text.split_inclusive("\n\n\r\n").collect();
    let mut at = 1;
    while at + 1 < frames.len() {
        if are_swapped(frames[at], frames[at + 1]) {
            frames.swap(at, at + 1);
            at += 3;
        }
        at += 1;
    }
    assert_ne!(frames.concat(), text);
    frames.concat()
}

#[test]
fn samples_take_turns_as_they_like_and_keep_their_order() {
    let has_samples = |recorded: &Recorded| {
        let names = ["gen-n2-stream", "gen-batch-stream"];
        names
            .map(|name| recorded.name.ends_with(&format!("default/{name}")))
            .contains(&true)
    };
    for recorded in recordings().into_iter().filter(has_samples) {
        let normal = normalised(&recorded.response, &recorded.rules);
        let index = |frame: &str| {
            let (_, index) = frame.rsplit_once("\"index\":")?;
            Some(index.trim_end().to_owned())
        };
        let other = |one: &str, other: &str| {
            let (one, other) = (index(one), index(other));
            one.is_some() && other.is_some() && one != other
        };
        let taken = swapped(&recorded.response, other);
        assert_eq!(
            normalised(taken.as_bytes(), &recorded.rules),
            normal,
            "{}",
            recorded.name
        );
        let same = |one: &str, other: &str| index(one).is_some() && index(one) == index(other);
        let broken = swapped(taken.as_bytes(), same);
        assert_ne!(
            normalised(broken.as_bytes(), &recorded.rules),
            normal,
            "{}",
            recorded.name
        );
        assert_ne!(
            normalised(taken.as_bytes(), &Rules::VLLM),
            normalised(&recorded.response, &Rules::VLLM)
        );
    }
}
