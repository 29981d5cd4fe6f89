//! What may differ between two runs of one server, taken out, so that all else can be compared as bytes.
//!
//! The rules are those of the recordings: `date`, random ids behind their prefixes, creation times, the
//! hash of a fingerprint, measured times, and the lengths that follow from them.

use std::fmt::Write as _;

use super::super::http1::{Framing, ResponseHead, WholeResponse, write_chunk};

/// Prefixes of random ids; `-` or `_` and the digits follow. Longer ones first.
const ID_PREFIXES: [&str; 10] = [
    "chatcmpl-tool",
    "generate-tokens",
    "modelperm",
    "chatcmpl",
    "cmpl",
    "resp",
    "call",
    "msg",
    "rs",
    "fc",
];
/// Digits of a random id, the longer form first.
const ID_LENGTHS: [usize; 2] = [32, 16];
/// Keys whose numbers are times.
const TIME_KEYS: [&str; 4] = [
    "\"created\":",
    "\"created_at\":",
    "\"completed_at\":",
    "\"expires_at\":",
];
/// Keys of an object of measured numbers.
const METRICS_KEYS: [&str; 1] = ["\"metrics\":{"];
/// What a Prometheus page's head holds.
const METRICS_PAGE: &[u8] = b"content-type: text/plain; version=";
/// Headers whose values differ.
const DATE: &str = "date: ";

/// All responses in `bytes`, one behind the other, with what differs between runs replaced.
pub fn normalised(mut bytes: &[u8]) -> String {
    let mut out = String::new();
    while let Ok(Some(whole)) = WholeResponse::parse(bytes, false, true) {
        let (message, rest) = bytes.split_at(whole.length);
        let (head, body) = message.split_at(whole.head.end);
        let is_page = head
            .windows(METRICS_PAGE.len())
            .any(|part| part == METRICS_PAGE);
        let mask = if is_page { without_values } else { masked };
        let body_text = if whole.is_chunked {
            chunks(body, mask)
        } else {
            mask(&String::from_utf8_lossy(body))
        };
        let shifts = body_text.len() != body.len();
        out.push_str(&masked_head(
            &String::from_utf8_lossy(head),
            shifts.then_some(body_text.len()),
        ));
        out.push_str(&body_text);
        bytes = rest;
    }
    // What is no whole response: cut streams, answers to HEAD, garbage.
    let text = String::from_utf8_lossy(bytes);
    if text.starts_with("HTTP/1.") {
        let end = text.find("\r\n\r\n").map_or(text.len(), |end| end + 4);
        out.push_str(&masked_head(&text[..end], None));
        let head = ResponseHead::parse(bytes).ok().flatten();
        let is_chunked = head.is_some_and(|(head, _)| head.framing == Framing::Chunked);
        out.push_str(&match (is_chunked, bytes.get(end..)) {
            (true, Some(body)) => chunks(body, masked),
            _ => masked(&text[end..]),
        });
    } else {
        out.push_str(&masked(&text));
    }
    out
}

/// A chunked body, each chunk masked by itself and framed anew; malformed framing is left.
fn chunks(mut body: &[u8], mask: fn(&str) -> String) -> String {
    let mut out = Vec::with_capacity(body.len());
    while let Some(end) = body.windows(2).position(|pair| pair == b"\r\n") {
        let line = String::from_utf8_lossy(&body[..end]);
        let size = usize::from_str_radix(&line, 16).ok();
        let content = size.and_then(|size| body.get(end + 2..end + 2 + size));
        let Some(content) = content.filter(|content| !content.is_empty()) else {
            break;
        };
        let is_lower = !line.bytes().any(|byte| byte.is_ascii_uppercase());
        let text = mask(&String::from_utf8_lossy(content));
        if is_lower && !line.starts_with('0') {
            write_chunk(&mut out, |out| out.extend_from_slice(text.as_bytes()));
        } else {
            out.extend_from_slice(format!("{line}\r\n{text}\r\n").as_bytes());
        }
        body = body.get(end + 2 + content.len() + 2..).unwrap_or_default();
    }
    String::from_utf8_lossy(&out).into_owned() + &mask(&String::from_utf8_lossy(body))
}

fn masked_head(head: &str, length: Option<usize>) -> String {
    let mut out = String::with_capacity(head.len());
    for line in head.split_inclusive("\r\n") {
        if line.starts_with(DATE) {
            out.push_str("date: DATE\r\n");
        } else if let (Some(length), true) = (length, line.starts_with("content-length: ")) {
            write!(out, "content-length: {length}\r\n").expect("a String takes all");
        } else if let Some(id) = line.strip_prefix("x-request-id: ")
            && hex_digits(id.trim_end()) == 32
            && id.trim_end().len() == 32
        {
            out.push_str("x-request-id: ID\r\n");
        } else {
            out.push_str(&masked(line));
        }
    }
    out
}

/// A text with ids, times and hashes replaced.
fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut word = false;
    while let Some(character) = rest.chars().next() {
        if let Some((shown, length)) = mask(rest, word) {
            out.push_str(&shown);
            rest = &rest[length..];
            word = false;
            continue;
        }
        out.push(character);
        word = character.is_ascii_alphanumeric();
        rest = &rest[character.len_utf8()..];
    }
    out
}

/// A Prometheus page with all values 0.
fn without_values(page: &str) -> String {
    let line = |line: &str| match line.rsplit_once(' ') {
        Some((name, _)) if !line.starts_with('#') => format!("{name} 0\n"),
        _ => format!("{line}\n"),
    };
    page.lines().map(line).collect()
}

/// What replaces the front of `rest`, and how much of it.
fn mask(rest: &str, within_word: bool) -> Option<(String, usize)> {
    match rest.as_bytes()[0] {
        b'"' => {
            if let Some(key) = TIME_KEYS.iter().find(|key| rest.starts_with(**key)) {
                let digits = number(&rest[key.len()..]);
                return (digits > 0).then(|| (format!("{key}0"), key.len() + digits));
            }
            if let Some(behind) = rest.strip_prefix("\"signature\":\"") {
                let is_random = hex_digits(behind) == 32;
                return is_random.then(|| ("\"signature\":\"ID".to_owned(), 13 + 32));
            }
            let key = METRICS_KEYS.iter().find(|key| rest.starts_with(**key))?;
            let object = &rest[key.len()..=rest.find('}')?];
            Some((
                format!("{key}{}", without_numbers(object)),
                key.len() + object.len(),
            ))
        }
        b'v' if !within_word => {
            let behind = rest.strip_prefix("vllm-")?;
            let version = behind
                .bytes()
                .take_while(|byte| byte.is_ascii_digit() || *byte == b'.');
            let length = "vllm-".len() + version.count();
            let hash = rest[length..].strip_prefix('-')?;
            (hex_digits(hash) == 8).then(|| (format!("{}-HASH", &rest[..length]), length + 9))
        }
        _ if !within_word => {
            let (prefix, digits) = random_id(rest)?;
            Some((format!("{}ID", &rest[..prefix]), prefix + digits))
        }
        _ => None,
    }
}

/// The lengths of prefix and digits of a random id at the front of a text.
fn random_id(text: &str) -> Option<(usize, usize)> {
    ID_PREFIXES.iter().find_map(|prefix| {
        let behind = text.strip_prefix(prefix)?.strip_prefix(['-', '_'])?;
        let digits = hex_digits(behind);
        ID_LENGTHS
            .contains(&digits)
            .then_some((prefix.len() + 1, digits))
    })
}

/// What a random id looks like: its prefix and the number of its digits. `None` if it is none.
pub fn id_form(text: &str) -> Option<(&str, usize)> {
    let (prefix, digits) = random_id(text)?;
    (text.len() == prefix + digits).then(|| (&text[..prefix], digits))
}

fn hex_digits(text: &str) -> usize {
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    text.bytes().take_while(|byte| is_hex(byte)).count()
}

/// Bytes of the number at the front of a text.
fn number(text: &str) -> usize {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    text.bytes().take_while(is_part).count()
}

fn without_numbers(mut object: &str) -> String {
    let mut out = String::new();
    while let Some(colon) = object.find(':') {
        out.push_str(&object[..=colon]);
        object = &object[colon + 1..];
        let digits = number(object);
        if digits > 0 {
            out.push('0');
        }
        object = &object[digits..];
    }
    out + object
}

/// The first place where two texts part, with what stands around it; `None` if they are the same.
///
/// Where a length is different, that is what it follows from, if anything is.
pub fn difference(recorded: &str, ours: &str) -> Option<String> {
    if recorded == ours {
        return None;
    }
    let mut at = [parting(recorded, ours); 2];
    while let (Some(one), Some(other)) =
        (behind_length(recorded, at[0]), behind_length(ours, at[1]))
    {
        let same = parting(&recorded[one..], &ours[other..]);
        if recorded.len() == one + same && ours.len() == other + same {
            at = [parting(recorded, ours); 2];
            break;
        }
        at = [one + same, other + same];
    }
    let around = |text: &str, at: usize| {
        let start = text.floor_char_boundary(at.saturating_sub(60));
        let end = text.floor_char_boundary((at + 160).min(text.len()));
        text[start..end].escape_debug().to_string()
    };
    Some(format!(
        "  recorded {}\n  got      {}",
        around(recorded, at[0]),
        around(ours, at[1])
    ))
}

/// Bytes that two texts have in common at their front.
fn parting(one: &str, other: &str) -> usize {
    let bytes = one.bytes().zip(other.bytes());
    let same = bytes.take_while(|(one, other)| one == other).count();
    one.floor_char_boundary(same)
}

/// The end of the line at `at`, if the line is a chunk size or a content length.
fn behind_length(text: &str, at: usize) -> Option<usize> {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end = start + text[start..].find("\r\n")?;
    let line = &text[start..end];
    let digits = line.strip_prefix("content-length: ").unwrap_or(line);
    let is_length = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_length && end >= at).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_runs_is_replaced() {
        let id = "0123456789abcdef";
        for (text, expected) in [
            (
                format!("\"id\":\"chatcmpl-{id}\""),
                "\"id\":\"chatcmpl-ID\"",
            ),
            (format!("\"chatcmpl-tool-{id}\""), "\"chatcmpl-tool-ID\""),
            (format!("\"resp_{id}{id}\""), "\"resp_ID\""),
            (format!("\"farfc_{id}\""), &format!("\"farfc_{id}\"")),
            (
                format!("\"chatcmpl-{id}0\""),
                &format!("\"chatcmpl-{id}0\""),
            ),
            ("\"chatcmpl-mine\"".into(), "\"chatcmpl-mine\""),
            ("\"created\":1796028656,".into(), "\"created\":0,"),
            ("\"created_at\":12.5}".into(), "\"created_at\":0}"),
            ("\"created\":null".into(), "\"created\":null"),
            ("\"vllm-0.33.0-2bce7987\"".into(), "\"vllm-0.33.0-HASH\""),
            (
                format!("\"signature\":\"{id}{id}\""),
                "\"signature\":\"ID\"",
            ),
            (
                "\"metrics\":{\"a_ms\":1.5e-3,\"b\":null}".into(),
                "\"metrics\":{\"a_ms\":0,\"b\":null}",
            ),
            ("date: in a body, café".into(), "date: in a body, café"),
        ] {
            assert_eq!(masked(&text), expected);
        }
    }

    #[test]
    fn lengths_follow_what_was_replaced() {
        let response = |metrics: &str, date: &str| {
            let body = format!("{{\"metrics\":{{\"a\":{metrics}}}}}");
            let length = body.len();
            format!("HTTP/1.1 200 OK\r\ndate: {date}\r\ncontent-length: {length}\r\n\r\n{body}")
        };
        let (one, other) = (response("1.5", "Mon"), response("1.25", "Tue"));
        assert_eq!(normalised(one.as_bytes()), normalised(other.as_bytes()));
        let chunked = |metrics: &str, end: &[u8]| {
            let mut out = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            write_chunk(&mut out, |out| {
                out.extend_from_slice(format!("{{\"metrics\":{{\"a\":{metrics}}}}}").as_bytes());
            });
            out.extend_from_slice(end);
            normalised(&out)
        };
        for end in [&b"0\r\n\r\n"[..], b"", b"5\r\nab"] {
            assert_eq!(chunked("1.5", end), chunked("123.456", end));
        }
    }

    #[test]
    fn values_of_a_metrics_page_are_replaced() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=1.0.0\r\ncontent-length: ";
        let page = |value: &str| {
            let body = format!("# TYPE a gauge 1\na{{b=\"c 1\"}} {value}\n");
            normalised(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes())
        };
        assert_eq!(page("1.0"), page("123.5e-07"));
        assert!(page("1.0").ends_with("# TYPE a gauge 1\na{b=\"c 1\"} 0\n"));
    }

    #[test]
    fn framing_is_compared_too() {
        let response = |chunk: &str| {
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunk}\r\n0\r\n\r\n")
        };
        let normal = normalised(response("a\r\n0123456789").as_bytes());
        for other in [
            "A\r\n0123456789",
            "0a\r\n0123456789",
            "5\r\n01234\r\n5\r\n56789",
        ] {
            assert_ne!(normalised(response(other).as_bytes()), normal, "{other:?}");
        }
        assert_eq!(normal, response("a\r\n0123456789"));
    }

    #[test]
    fn a_difference_shows_both_sides_of_the_first_place() {
        assert_eq!(difference("a", "a"), None);
        let told = difference("same\none", "same\ntwo").unwrap();
        assert_eq!(told, "  recorded same\\none\n  got      same\\ntwo");
        let told = difference("a\r\n5\r\nhello\r\n", "a\r\n6\r\nhelloo\r\n").unwrap();
        assert!(
            told.ends_with("got      a\\r\\n6\\r\\nhelloo\\r\\n"),
            "{told}"
        );
        let told = difference("5\r\nhello", "6\r\nhello").unwrap();
        assert_eq!(told, "  recorded 5\\r\\nhello\n  got      6\\r\\nhello");
    }
}
