//! What servers take out of a text, and where texts agree.

use std::ops::Range;

use serde_json::value::RawValue;

use super::pieces::Pieces;
use super::{Cause, Flavour};

/// Text that servers take out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    Call(usize),
    Cause(Cause),
    ThinkClose,
    ThinkOpen,
}

/// Where delimiters, calls and special tokens begin; of several at a place the longest.
pub(super) fn marks(pieces: &Pieces, flavour: &Flavour) -> Vec<(usize, usize, Mark)> {
    let mut marks = Vec::new();
    let mut find = |text: &str, mark: Mark| {
        let found = pieces.text.match_indices(text).filter(|_| !text.is_empty());
        marks.extend(found.map(|(at, text)| (at, text.len(), mark)));
    };
    find(&flavour.think.open, Mark::ThinkOpen);
    find(&flavour.think.close, Mark::ThinkClose);
    for (number, call) in flavour.calls.iter().enumerate() {
        find(&call.open, Mark::Call(number));
    }
    for &(number, cause) in &pieces.special {
        let range = pieces.range(number);
        if !range.is_empty() {
            marks.push((range.start, range.len(), Mark::Cause(cause)));
        }
    }
    // Of equals the first stays.
    marks.sort_by_key(|mark| (mark.0, std::cmp::Reverse(mark.1)));
    marks.dedup_by_key(|mark| mark.0);
    marks
}

/// Bytes that two texts have in common at their start, whole characters.
pub(super) fn common_prefix(one: &str, other: &str) -> usize {
    let bytes = one.bytes().zip(other.bytes());
    let same = bytes.take_while(|(one, other)| one == other).count();
    one.floor_char_boundary(same)
}

/// The signs for broken characters that a text begins with.
pub(super) fn signs(text: &str) -> &str {
    let behind = text.trim_start_matches(char::REPLACEMENT_CHARACTER);
    &text[..text.len() - behind.len()]
}

/// The first characters of a text.
pub(super) fn first(text: &str, characters: usize) -> &str {
    let end = text.char_indices().nth(characters);
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

/// Where the values of `arguments` or `parameters` are in tool calls as models write them.
pub(super) fn arguments(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((key, length)) = ["\"arguments\"", "\"parameters\""]
        .iter()
        .filter_map(|key| Some((at + text[at..].find(key)?, key.len())))
        .min()
    {
        let behind = &text[key + length..];
        let value = behind.trim_start().strip_prefix(':').map(str::trim_start);
        let Some(value) = value else {
            at = key + length;
            continue;
        };
        let start = text.len() - value.len();
        let mut values = serde_json::Deserializer::from_str(value).into_iter::<&RawValue>();
        let end = match values.next() {
            Some(Ok(raw)) => start + raw.get().len(),
            // Cut or broken: what is there of it, up to the end of the call.
            _ => start + value.find("\n</").unwrap_or(value.len()),
        };
        found.push(start..end);
        at = end.max(key + length);
    }
    found
}
