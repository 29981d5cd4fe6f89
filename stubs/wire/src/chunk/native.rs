//! Frames of SGLang's native `/generate`: the text and token ids of a sample, and how it fares.
//!
//! Most servers send both whole in every frame, so the n-th is n tokens long. What is known of a text
//! or list is compared as it is written, and only what is new is decoded: a frame costs a comparison
//! of its bytes and no more than that.

mod samples;
mod shape;

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::shapes::number;
use super::{DecodeError, Reader, error_message};
use crate::usage::{CachedTokens, Usage, count};

pub use samples::{Samples, Settled};
pub(super) use shape::Shape;

/// A frame, its text and ids as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
struct Frame<'a> {
    /// `meta_info.finish_reason.message` of an answer that was given up, or what stands for it.
    abort: Option<Cow<'a, str>>,
    /// An error in place of a frame: its message.
    error: Option<Cow<'a, str>>,
    /// `output_ids` between the brackets, if they are ids.
    ids: Option<Cow<'a, [u8]>>,
    /// `index`
    index: Option<u32>,
    /// `meta_info.finish_reason.matched`, if it is a token.
    stop_token: Option<u32>,
    /// `text` between the quotes.
    text: Option<&'a [u8]>,
    /// The counts of `meta_info`.
    usage: Option<Usage>,
}

/// The last text and ids of a sample, as they are written: what a frame probably begins with.
#[derive(Clone, Copy, Debug, Default)]
struct Known<'a> {
    ids: &'a [u8],
    text: &'a [u8],
}

impl Reader {
    fn known_frame<'a>(&mut self, json: &'a [u8], known: Known<'_>) -> Option<Frame<'a>> {
        let mut frame = Frame::default();
        self.frames
            .recall(&mut frame, |shape, frame| shape.read(json, known, frame))?;
        Some(frame)
    }

    fn frame<'a>(&mut self, json: &'a [u8], known: Known<'_>) -> Result<Frame<'a>, DecodeError> {
        if let Some(frame) = self.known_frame(json, known) {
            return Ok(frame);
        }
        let raw = RawFrame::read(json)?;
        let frame = raw.frame(known)?;
        if let Some(shape) = Shape::of(json, &raw, &frame) {
            self.frames.remember(shape);
        }
        Ok(frame)
    }
}

#[derive(serde::Deserialize)]
struct RawFrame<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    meta_info: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

#[derive(Default, serde::Deserialize)]
struct RawMeta<'a> {
    #[serde(borrow, default)]
    cached_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_tokens: Option<&'a RawValue>,
}

#[derive(Default, serde::Deserialize)]
struct RawFinish<'a> {
    #[serde(borrow, default)]
    matched: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    r#type: Option<&'a RawValue>,
}

/// Reads an object; serde reads structs from arrays too.
fn object<'a, T: serde::Deserialize<'a>>(value: Option<&'a RawValue>) -> Option<T> {
    let object = value?.get();
    let object = Some(object).filter(|text| text.starts_with('{'))?;
    serde_json::from_str(object).ok()
}

impl<'a> RawFrame<'a> {
    fn read(json: &'a [u8]) -> Result<Self, DecodeError> {
        if !json.trim_ascii_start().starts_with(b"{") {
            return Err(DecodeError(serde::de::Error::custom("not an object")));
        }
        Ok(serde_json::from_slice(json)?)
    }

    fn meta(&self) -> Option<RawMeta<'a>> {
        object(self.meta_info)
    }

    fn frame(&self, known: Known<'_>) -> Result<Frame<'a>, DecodeError> {
        let text = self.text.map(|text| text.get().as_bytes());
        let text = text.filter(|&text| text != b"null").map(between_quotes);
        let meta = self.meta();
        let finish: Option<RawFinish<'_>> =
            object(meta.as_ref().and_then(|meta| meta.finish_reason));
        let finish = finish.unwrap_or_default();
        let aborted = finish.r#type.is_some_and(|kind| kind.get() == "\"abort\"");
        let message = finish.message.map(|message| {
            let text: Result<String, _> = serde_json::from_str(message.get());
            text.map_or_else(|_| Cow::from(message.get()), Cow::from)
        });
        Ok(Frame {
            abort: aborted.then(|| message.unwrap_or(Cow::Borrowed("aborted"))),
            error: self.error.and_then(error_message),
            ids: self.output_ids.and_then(|ids| read_ids(ids, known.ids)),
            index: self.index.and_then(|index| index.get().parse().ok()),
            stop_token: finish
                .matched
                .and_then(|matched| matched.get().parse().ok()),
            text: text.transpose()?,
            usage: meta.map(|meta| meta.usage()),
        })
    }
}

fn between_quotes(string: &[u8]) -> Result<&[u8], serde_json::Error> {
    let string = string.strip_prefix(b"\"");
    string
        .and_then(|string| string.strip_suffix(b"\""))
        .ok_or_else(|| serde::de::Error::custom("the text is not a string"))
}

impl RawMeta<'_> {
    fn usage(&self) -> Usage {
        Usage {
            cache: self.cached_tokens.and_then(count).map(cached),
            completion_tokens: self.completion_tokens.and_then(count),
            prompt_tokens: self.prompt_tokens.and_then(count),
            reasoning_tokens: self.reasoning_tokens.and_then(count),
        }
    }
}

fn cached(cached: u64) -> CachedTokens {
    CachedTokens {
        cached,
        created: None,
    }
}

/// A list of ids between its brackets, written as the server does it that puts no space in it.
fn read_ids<'a>(list: &'a RawValue, known: &[u8]) -> Option<Cow<'a, [u8]>> {
    if let Some(mut rest) = list.get().as_bytes().strip_prefix(b"[")
        && let Some(ids) = ids(&mut rest, known)
        && rest == b"]"
    {
        return Some(ids.into());
    }
    let ids: Vec<u32> = serde_json::from_str(list.get()).ok()?;
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    Some(ids.join(",").into_bytes().into())
}

/// Takes ids with commas between them from the front, up to the bracket behind them.
fn ids<'a>(json: &mut &'a [u8], known: &[u8]) -> Option<&'a [u8]> {
    let begun = json.strip_prefix(known).filter(|_| !known.is_empty());
    let mut rest = *json;
    match begun.and_then(<[u8]>::split_first) {
        Some((b']', _)) => rest = &json[known.len()..],
        Some((b',', behind)) => rest = behind,
        _ => {}
    }
    while rest.first() != Some(&b']') {
        u32::try_from(number(&mut rest)?).ok()?;
        match rest {
            [b']', ..] => break,
            [b',', digit, ..] if digit.is_ascii_digit() => rest = &rest[1..],
            _ => return None,
        }
    }
    let (ids, rest) = json.split_at(json.len() - rest.len());
    *json = rest;
    (ids.last() != Some(&b',')).then_some(ids)
}

/// How many ids there are between the brackets.
fn count_ids(ids: &[u8]) -> u64 {
    let commas = memchr::memchr_iter(b',', ids).count() as u64;
    commas + u64::from(!ids.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Frames as servers spell them: some good, some odd, some damaged.
    fn spelt() -> impl Strategy<Value = Vec<u8>> {
        let shape = prop::sample::select(vec![
            r#"{"text":"TEXT","output_ids":[IDS],"meta_info":{"id":"TEXT","finish_reason":null,"prompt_tokens":N,"completion_tokens":N,"cached_tokens":N,"dp_rank":null}}"#,
            r#"{"text":"TEXT","output_ids":[IDS],"meta_info":{"id":"a1","finish_reason":null,"prompt_tokens":N,"completion_tokens":N,"response_sent_to_client_ts":F},"index":N}"#,
            r#"{"text":"TEXT","meta_info":{"id":"a","finish_reason":{"type":"stop","matched":N},"reasoning_tokens":N,"weight_versions":[{"end":N}],"e2e_latency":F},"output_ids":[IDS]}"#,
            r#"{"text":"TEXT","output_ids":[IDS],"meta_info":{"finish_reason":{"type":"length","length":N},"completion_tokens":F}}"#,
            r#"{"text":"TEXT","meta_info":{"finish_reason":{"type":"abort","message":"TEXT","status_code":N}}}"#,
            r#"{"output_ids":[IDS],"meta_info":{"completion_tokens":N,"completion_tokens":N}}"#,
            r#"{"text":"TEXT","output_ids":[IDS, IDS] ,"meta_info":F}"#,
            r#"{"error":{"message":"TEXT","code":N}}"#,
            "{\"text\":\n\"TEXT\",\"output_ids\":IDS,\"index\":F}",
        ]);
        let text = prop::sample::select(vec![
            "", "a", "ab", "abc", "é", "\\n", "a\\", "\\u0041", "\\ud83d", "\\x", "\"", "\u{1}",
            "a😀",
        ]);
        let ids = prop::sample::select(vec![
            "",
            "1",
            "12",
            "1,2",
            "1,23",
            "01",
            "1,",
            ",1",
            "4294967296",
        ]);
        let number = prop::sample::select(vec!["0", "7", "42", "99999999999", "1099511627777"]);
        let float = prop::sample::select(vec![
            "1.5", "-0.25", "1e16", "0", "8", "2E-7", "1.", "-", "00", "null", "\"7\"", "[8]",
        ]);
        let damage = prop::option::weighted(
            0.2,
            (any::<prop::sample::Index>(), prop::option::of(any::<u8>())),
        );
        (shape, text, ids, number, float, damage).prop_map(
            |(shape, text, ids, number, float, damage)| {
                let json = shape.replace("TEXT", text).replace("IDS", ids);
                let json = json.replace(":N", &format!(":{number}"));
                let mut json = json.replace(":F", &format!(":{float}")).into_bytes();
                if let Some((index, byte)) = damage {
                    let at = index.index(json.len());
                    json.splice(at..=at, byte);
                }
                json
            },
        )
    }

    proptest! {
        #[test]
        fn frames_read_quickly_are_those_that_the_decoder_decodes(
            jsons in prop::collection::vec(spelt(), 1..24),
        ) {
            let mut reader = Reader::default();
            let (mut text, mut ids) = (Vec::new(), Vec::new());
            for json in &jsons {
                let known = Known { ids: &ids, text: &text };
                let decoded = RawFrame::read(json).and_then(|raw| raw.frame(Known::default()));
                let read = reader.frame(json, known);
                prop_assert_eq!(
                    read.as_ref().map_err(ToString::to_string),
                    decoded.as_ref().map_err(ToString::to_string),
                    "{}",
                    String::from_utf8_lossy(json)
                );
                if let Ok(frame) = read {
                    text = frame.text.unwrap_or_default().to_vec();
                    ids = frame.ids.unwrap_or_default().into_owned();
                }
            }
        }
    }

    #[test]
    fn frames_of_many_answers_share_three_shapes() {
        let mut reader = Reader::default();
        for answer in 0..20 {
            for (frame, extra) in [
                (1, r#""ts":1.5"#),
                (2, r#""dp_rank":null"#),
                (3, r#""e2e_latency":0.25,"versions":[{"end":3}]"#),
            ] {
                let json = format!(
                    r#"{{"text":"a\n{answer}","output_ids":[{frame},{answer}],"meta_info":{{"id":"i{answer}","prompt_tokens":{answer},"completion_tokens":{frame},{extra}}},"index":{answer}}}"#
                );
                let frame = reader.frame(json.as_bytes(), Known::default()).unwrap();
                assert_eq!(frame.index, Some(answer));
            }
        }
        assert_eq!(reader.frames.len(), 3);
    }
}
