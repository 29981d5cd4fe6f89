//! How many tokens a frame holds, where a busy machine decided it: neighbouring frames of a sample, joined.
//!
//! What is joined must add up: a frame that says all so far must say what the last one said, and two that
//! say what is new must have all else alike. Whatever does not stays, and so shows.

use std::borrow::Cow;

use super::super::json::{Json, Object};
use super::super::sse;

/// A frame and the line with its size.
type Part<'a> = (String, Cow<'a, [u8]>);

/// Joins frames that a slower machine would have sent as one.
pub(super) fn join(parts: &mut Vec<Part<'_>>) {
    let mut joined: Vec<Part<'_>> = Vec::with_capacity(parts.len());
    for part in parts.drain(..) {
        let content = joined.last().and_then(|last| both(&last.1, &part.1));
        match (content, joined.last_mut()) {
            (Some(content), Some(last)) => {
                let is_lower = |line: &str| line.bytes().any(|byte| byte.is_ascii_lowercase());
                let is_lower = is_lower(&last.0) || is_lower(&part.0);
                last.0 = if is_lower {
                    format!("{:x}", content.len())
                } else {
                    format!("{:X}", content.len())
                };
                last.1 = content.into();
            }
            _ => joined.push(part),
        }
    }
    *parts = joined;
}

/// Two frames as one, if one could have been sent in place of them.
fn both(one: &[u8], next: &[u8]) -> Option<Vec<u8>> {
    let (one, next) = (read(one)?, read(next)?);
    let both = if one.get("meta_info").is_some() {
        said_again(&one, &next)?;
        next
    } else {
        added(one, next)?
    };
    let json = serde_json::to_vec(&Json::Object(both)).ok()?;
    let mut event = Vec::new();
    sse::encode(&json, &mut event);
    Some(event)
}

/// The object of a frame that is spelt as it would be spelt here.
fn read(frame: &[u8]) -> Option<Object<'_>> {
    let text = sse::decode(frame)?;
    let json = Json::parse(text).ok()?;
    let is_plain = serde_json::to_vec(&json).ok()? == text;
    match json {
        Json::Object(members) if is_plain => Some(members),
        _ => None,
    }
}

/// What stands in an object under a key, without the object.
fn object<'o, 'a>(members: &'o Object<'a>, key: &str) -> Option<&'o Object<'a>> {
    members.get(key)?.as_object()
}

/// Whether a frame says all that the one before it has said.
fn said_again(one: &Object<'_>, next: &Object<'_>) -> Option<()> {
    let (meta, next_meta) = (object(one, "meta_info")?, object(next, "meta_info")?);
    let goes_on = *meta.get("finish_reason")? == Json::Null;
    let grows = |members: &Object<'_>, other: &Object<'_>, key: &str| match (
        members.get(key),
        other.get(key),
    ) {
        (Some(Json::String(text)), Some(Json::String(longer))) => longer.starts_with(&**text),
        (Some(Json::Array(items)), Some(Json::Array(more))) => more.starts_with(items),
        (own, other) => own == other,
    };
    let counts = ["completion_tokens", "reasoning_tokens", "finish_reason"];
    let same = |(key, _): &(Cow<'_, str>, Json<'_>)| {
        counts.contains(&&**key) || grows(meta, next_meta, key)
    };
    let all = ["text", "output_ids", "index"];
    let says = all.iter().all(|key| grows(one, next, key)) && meta.0.iter().all(same);
    (goes_on && says).then_some(())
}

/// Two chunks of what is new as one.
fn added<'a>(mut one: Object<'a>, mut next: Object<'a>) -> Option<Object<'a>> {
    let take = |chunk: &mut Object<'a>| {
        let at = chunk.0.iter().position(|(key, _)| key == "choices")?;
        match std::mem::replace(&mut chunk.0[at].1, Json::Null) {
            Json::Array(mut choices) if choices.len() == 1 => Some((at, choices.pop()?)),
            _ => None,
        }
    };
    let ((_, before), (at, behind)) = (take(&mut one)?, take(&mut next)?);
    let without_usage = |chunk: &Object<'a>| {
        let members = chunk.0.iter().filter(|(key, _)| key != "usage");
        members.cloned().collect::<Vec<_>>()
    };
    if without_usage(&one) != without_usage(&next) {
        return None;
    }
    let (Json::Object(before), Json::Object(behind)) = (before, behind) else {
        return None;
    };
    next.0[at].1 = Json::Array(vec![Json::Object(choice(&before, behind)?)]);
    Some(next)
}

/// Two parts of a choice as one, the first of which says something and ends nothing.
fn choice<'a>(before: &Object<'a>, mut behind: Object<'a>) -> Option<Object<'a>> {
    let ends = [before.get("finish_reason"), before.get("matched_stop")];
    if ends.into_iter().flatten().any(|end| *end != Json::Null) {
        return None;
    }
    let is_chat = before.get("delta").is_some();
    let free = ["finish_reason", "matched_stop"];
    for (key, value) in &before.0 {
        let (_, own) = behind.0.iter_mut().find(|(other, _)| other == key)?;
        match (&**key, value, &mut *own) {
            ("delta", Json::Object(delta), Json::Object(more)) => said(delta, more)?,
            ("text", Json::String(text), Json::String(more)) if !is_chat => prepend(text, more),
            ("logprobs", Json::Object(lists), Json::Object(more)) => logprobs(lists, more)?,
            (key, ..) if free.contains(&key) => {}
            (_, value, own) if *own == *value => {}
            _ => return None,
        }
    }
    let is_new =
        |(key, _): &(Cow<'_, str>, Json<'_>)| before.get(key).is_none() && !free.contains(&&**key);
    (!behind.0.iter().any(is_new)).then_some(behind)
}

/// Puts a delta's one text before that of another of the same kind.
fn said<'a>(delta: &Object<'a>, more: &mut Object<'a>) -> Option<()> {
    let keys = |delta: &Object<'a>| {
        delta
            .0
            .iter()
            .map(|(key, _)| key.clone())
            .collect::<Vec<_>>()
    };
    let texts = delta.0.iter().filter(|(_, value)| *value != Json::Null);
    if keys(delta) != keys(more) || texts.count() != 1 {
        return None;
    }
    for ((key, text), (_, longer)) in delta.0.iter().zip(&mut more.0) {
        match (text, longer) {
            (Json::Null, Json::Null) => {}
            (Json::String(text), Json::String(longer)) if key != "role" => prepend(text, longer),
            _ => return None,
        }
    }
    Some(())
}

fn prepend(text: &str, behind: &mut Cow<'_, str>) {
    behind.to_mut().insert_str(0, text);
}

/// Puts the lists of some tokens before those of others.
fn logprobs<'a>(lists: &Object<'a>, more: &mut Object<'a>) -> Option<()> {
    for (key, list) in &lists.0 {
        let (_, own) = more.0.iter_mut().find(|(other, _)| other == key)?;
        match (list, own) {
            (Json::Array(items), Json::Array(own)) => {
                own.splice(0..0, items.iter().cloned());
            }
            (list, own) if *list == *own => {}
            _ => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How frames read once they are joined.
    fn joined(frames: &[&str]) -> Vec<String> {
        let frames = frames.iter().map(|frame| format!("data: {frame}\n\n"));
        let frames: Vec<_> = frames.map(|frame| (frame.len(), frame)).collect();
        let part = |(length, frame): &(usize, String)| {
            let content = frame.as_bytes().to_vec();
            (format!("{length:X}"), Cow::Owned(content))
        };
        let mut parts: Vec<Part<'_>> = frames.iter().map(part).collect();
        join(&mut parts);
        let text = |(size, content): (String, Cow<'_, [u8]>)| {
            assert_eq!(size, format!("{:X}", content.len()));
            let text = String::from_utf8(content.into_owned()).unwrap();
            text[6..].trim_end().to_owned()
        };
        parts.into_iter().map(text).collect()
    }

    fn native(text: &str, ids: &str, end: &str) -> String {
        format!(
            r#"{{"text":"{text}","meta_info":{{"id":"a","completion_tokens":{},"finish_reason":{end},"cached_tokens":0}},"output_ids":[{ids}]}}"#,
            ids.split(',').count()
        )
    }

    #[test]
    fn frames_that_say_all_so_far_leave_the_last() {
        let frames = [
            native("H", "1", "null"),
            native("Hi", "1,2", "null"),
            native("Hi", "1,2,3", "{\"type\":\"stop\"}"),
        ];
        let all = [&*frames[0], &*frames[1], &*frames[2], "[DONE]"];
        assert_eq!(joined(&all), [&*frames[2], "[DONE]"]);
        assert_eq!(joined(&[all[0], all[2], all[3]]), joined(&all));
    }

    #[test]
    fn frames_that_do_not_add_up_stay() {
        let end = native("Hi", "1,2,3", "{\"type\":\"stop\"}");
        for odd in [
            native("x", "1,2", "null"),
            native("Hi", "1,9", "null"),
            native("H", "1", "\"stop\""),
            native("H", "1", "null").replace(":0}", ":1}"),
            native("H", "1", "null").replace(":0}", ": 0}"),
            native("H", "1", "null").replace("\"a\"", "\"b\""),
        ] {
            assert_eq!(joined(&[&odd, &end]), [&*odd, &*end]);
        }
    }

    fn chat(delta: &str, end: &str) -> String {
        format!(
            r#"{{"id":"a","choices":[{{"index":0,"delta":{{{delta}}},"logprobs":{{"content":[1]}},"finish_reason":{end}}}],"created":5}}"#
        )
    }

    #[test]
    fn chunks_of_what_is_new_are_added_up() {
        let role = chat(r#""role":"assistant""#, "null");
        let (one, two) = (
            chat(r#""content":"a""#, "null"),
            chat(r#""content":"b""#, "null"),
        );
        let thought = chat(r#""reasoning_content":"b""#, "null");
        let end = chat("", "\"stop\"");
        let both = chat(r#""content":"ab""#, "null").replace("[1]", "[1,1]");
        assert_eq!(joined(&[&role, &one, &two, &end]), [&*role, &*both, &*end]);
        assert_eq!(joined(&[&one, &thought]), [&*one, &*thought]);
        assert_eq!(joined(&[&end, &one]), [&*end, &*one]);
        let other = two.replace(":5", ":6");
        assert_eq!(joined(&[&one, &other]), [&*one, &*other]);
        let other = two.replace("\"index\":0", "\"index\":1");
        assert_eq!(joined(&[&one, &other]), [&*one, &*other]);
    }

    #[test]
    fn the_end_of_a_completion_takes_up_its_text() {
        let chunk = |text: &str, end: &str, usage: u32| {
            format!(
                r#"{{"choices":[{{"text":"{text}","index":0{end},"matched_stop":null}}],"usage":{{"total_tokens":{usage}}}}}"#
            )
        };
        let frames = [
            chunk("a", "", 1),
            chunk("", "", 2),
            chunk("é", ",\"finish_reason\":\"length\"", 3),
        ];
        let all = [&*frames[0], &*frames[1], &*frames[2]];
        let expected = chunk("aé", ",\"finish_reason\":\"length\"", 3);
        assert_eq!(joined(&all), [&*expected]);
        let with_more = frames[2].replace("\"index\":0", "\"index\":0,\"new\":1");
        assert_eq!(joined(&[all[0], &with_more]), [all[0], &*with_more]);
    }
}
