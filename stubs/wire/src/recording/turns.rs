//! Whose turn it was: the frames of a request's samples, sorted.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::sse;

/// Sorts frames by the sample that they belong to and keeps the order within a sample.
///
/// What belongs to no sample stays where it is, and the ends that chat sends after all else stay behind it.
pub(super) fn sort<T>(frames: &mut [T], content: impl Fn(&T) -> &[u8]) {
    let turns: Vec<Option<Turn>> = frames.iter().map(|frame| turn(content(frame))).collect();
    let mut start = 0;
    while start < frames.len() {
        let kind = |turn: &Option<Turn>| turn.as_ref().map(|turn| turn.is_late_end);
        let same = turns[start..]
            .iter()
            .take_while(|turn| kind(turn) == kind(&turns[start]));
        let end = start + same.count();
        if turns[start].is_some() {
            frames[start..end].sort_by_key(|frame| turn(content(frame)).map(|turn| turn.index));
        }
        start = end;
    }
}

struct Turn {
    index: u32,
    /// The end of a sample of chat, in a chunk of its own.
    is_late_end: bool,
}

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    choices: Vec<Choice>,
    index: Option<u32>,
    meta_info: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice {
    index: u32,
    delta: Option<IgnoredAny>,
    finish_reason: Option<IgnoredAny>,
}

fn turn(event: &[u8]) -> Option<Turn> {
    let mut found = None;
    let mut decoder = sse::Decoder::default();
    decoder.feed(event, |data| {
        if found.is_none() {
            found = serde_json::from_slice::<Frame>(data).ok();
        }
    });
    let frame = found?;
    match frame.choices.first() {
        Some(choice) => Some(Turn {
            index: choice.index,
            is_late_end: choice.delta.is_some() && choice.finish_reason.is_some(),
        }),
        None if frame.meta_info.is_some() => frame.index.map(|index| Turn {
            index,
            is_late_end: false,
        }),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(frames: &[&str]) -> Vec<String> {
        let mut frames: Vec<String> = frames
            .iter()
            .map(|frame| format!("data: {frame}\n\n"))
            .collect();
        sort(&mut frames, |frame| frame.as_bytes());
        let data = |frame: String| frame[6..].trim_end().to_owned();
        frames.into_iter().map(data).collect()
    }

    #[test]
    fn samples_are_told_apart_and_keep_their_own_order() {
        let [a1, a2, b1, b2] = [(0, 1), (0, 2), (1, 1), (1, 2)].map(|(index, text)| {
            format!(r#"{{"text":"{text}","meta_info":{{}},"index":{index}}}"#)
        });
        let expected = [&*a1, &*a2, &*b1, &*b2, "[DONE]"];
        assert_eq!(sorted(&[&b1, &a1, &b2, &a2, "[DONE]"]), expected);
        assert_eq!(sorted(&expected), expected);
        assert_eq!(sorted(&[&a2, &a1, &b1, "[DONE]"])[..2], [&*a2, &*a1]);
    }

    #[test]
    fn ends_of_chat_stay_behind_all_text() {
        let chunk = |index: u32, end: &str| {
            format!(r#"{{"choices":[{{"index":{index},"delta":{{}},"finish_reason":{end}}}]}}"#)
        };
        let (text, early) = (chunk(1, "null"), chunk(0, "\"stop\""));
        let usage = r#"{"choices":[],"usage":null}"#;
        let late = chunk(1, "\"stop\"");
        assert_eq!(
            sorted(&[&text, &chunk(0, "null"), &late, &early, usage]),
            [&*chunk(0, "null"), &text, &early, &late, usage]
        );
        assert_eq!(sorted(&[&early, &text]), [&*early, &text]);
    }
}
