//! What may differ between two runs of one server, taken out, so that all else can be compared as bytes.
//!
//! The rules are those of the recordings: `date`, random ids, creation times, measured times, and the
//! lengths that follow from them.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::super::http1::{Framing, ResponseHead, WholeResponse};
use super::frames;
use super::keys::keys;
use super::mask::Mask;
use super::rules::{Rules, hex_digits};
use super::turns;

/// What a Prometheus page's head holds.
const METRICS_PAGE: &[u8] = b"content-type: text/plain; version=";
/// Headers whose values differ.
const DATE: &str = "date: ";
const ALLOW: &str = "allow: ";

/// All responses in `bytes`, one behind the other, with what differs between runs replaced.
pub fn normalised(mut bytes: &[u8], rules: &Rules) -> String {
    let mut out = String::new();
    let mut mask = Mask::new(rules);
    while let Ok(Some(whole)) = WholeResponse::parse(bytes, false, true) {
        let (message, rest) = bytes.split_at(whole.length);
        let (head, body) = message.split_at(whole.head.end);
        let is_page = head
            .windows(METRICS_PAGE.len())
            .any(|part| part == METRICS_PAGE);
        let mut content = |text: &str| match (is_page, rules.only_keys && whole.status == 200) {
            (true, _) => without_values(text),
            (_, true) => keys(text),
            _ => mask.text(text),
        };
        let body_text = if whole.is_chunked {
            chunks(body, rules, &mut content)
        } else {
            content(&String::from_utf8_lossy(&events(body, rules)))
        };
        let shifts = body_text.len() != body.len();
        let head = String::from_utf8_lossy(head);
        let length = shifts.then_some(body_text.len());
        out.push_str(&masked_head(&head, length, &mut mask, rules));
        out.push_str(&body_text);
        bytes = rest;
    }
    // What is no whole response: cut streams, answers to HEAD, garbage.
    let text = String::from_utf8_lossy(bytes);
    if text.starts_with("HTTP/1.") {
        let end = text.find("\r\n\r\n").map_or(text.len(), |end| end + 4);
        out.push_str(&masked_head(&text[..end], None, &mut mask, rules));
        let head = ResponseHead::parse(bytes).ok().flatten();
        let is_chunked = head.is_some_and(|(head, _)| head.framing == Framing::Chunked);
        out.push_str(&match (is_chunked, bytes.get(end..)) {
            (true, Some(body)) => chunks(body, rules, &mut |text| mask.text(text)),
            _ => mask.text(&text[end..]),
        });
    } else {
        out.push_str(&mask.text(&text));
    }
    out
}

/// A body of events without chunks, where it depends on the machine how many there are; others as they are.
fn events<'b>(body: &'b [u8], rules: &Rules) -> Cow<'b, [u8]> {
    if !(rules.has_free_frames && body.starts_with(b"data: ")) {
        return Cow::Borrowed(body);
    }
    let mut parts = Vec::new();
    let mut rest = body;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") {
        let (event, behind) = rest.split_at(end + 2);
        parts.push((String::new(), Cow::Borrowed(event)));
        rest = behind;
    }
    frames::join(&mut parts);
    parts.push((String::new(), Cow::Borrowed(rest)));
    let parts: Vec<_> = parts.into_iter().map(|(_, event)| event).collect();
    Cow::Owned(parts.concat())
}

/// A chunked body, each chunk masked by itself and framed anew; malformed framing is left.
fn chunks(mut body: &[u8], rules: &Rules, mask: &mut dyn FnMut(&str) -> String) -> String {
    let mut parts = Vec::new();
    while let Some(end) = body.windows(2).position(|pair| pair == b"\r\n") {
        let line = String::from_utf8_lossy(&body[..end]).into_owned();
        let size = usize::from_str_radix(&line, 16).ok();
        let content = size.and_then(|size| body.get(end + 2..end + 2 + size));
        let Some(content) = content.filter(|content| !content.is_empty()) else {
            break;
        };
        parts.push((line, Cow::Borrowed(content)));
        body = body.get(end + 2 + content.len() + 2..).unwrap_or_default();
    }
    if rules.has_free_order {
        turns::sort(&mut parts, |(_, content)| content);
    }
    if rules.has_free_frames {
        frames::join(&mut parts);
    }
    let is_upper = rules.has_upper_sizes
        && parts
            .iter()
            .flat_map(|(line, _)| line.bytes())
            .find(u8::is_ascii_alphabetic)
            .is_some_and(|letter| letter.is_ascii_uppercase());
    let mut out = String::new();
    for (line, content) in parts {
        let text = mask(&String::from_utf8_lossy(&content));
        let is_odd =
            |letter: u8| letter.is_ascii_alphabetic() && letter.is_ascii_uppercase() != is_upper;
        let size = match () {
            () if text.len() == content.len() || line.starts_with('0') => line,
            () if line.bytes().any(is_odd) => line,
            () if is_upper => format!("{:X}", text.len()),
            () => format!("{:x}", text.len()),
        };
        write!(out, "{size}\r\n{text}\r\n").expect("a String takes all");
    }
    out + &mask(&String::from_utf8_lossy(body))
}

fn masked_head(head: &str, length: Option<usize>, mask: &mut Mask<'_>, rules: &Rules) -> String {
    let mut out = String::with_capacity(head.len());
    for line in head.split_inclusive("\r\n") {
        if line.starts_with(DATE) {
            out.push_str("date: DATE\r\n");
        } else if let (Some(length), true) = (length, line.starts_with("content-length: ")) {
            write!(out, "content-length: {length}\r\n").expect("a String takes all");
        } else if let (Some(methods), true) = (line.strip_prefix(ALLOW), rules.has_free_order) {
            let mut methods: Vec<&str> = methods.trim_end().split(", ").collect();
            methods.sort_unstable();
            write!(out, "{ALLOW}{}\r\n", methods.join(", ")).expect("a String takes all");
        } else if let Some(id) = line.strip_prefix("x-request-id: ")
            && hex_digits(id.trim_end()) == 32
            && id.trim_end().len() == 32
        {
            out.push_str("x-request-id: ID\r\n");
        } else {
            out.push_str(&mask.text(line));
        }
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

#[cfg(test)]
mod tests {
    use super::super::super::http1::write_chunk;
    use super::*;

    fn normalised(bytes: &[u8]) -> String {
        super::normalised(bytes, &Rules::VLLM)
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
    fn events_without_chunks_are_joined_too() {
        let stream = |texts: &[&str]| {
            let event = |text: &&str| {
                format!("data: {{\"choices\":[{{\"text\":\"{text}\",\"index\":0}}]}}\n\n")
            };
            let events: String = texts.iter().map(event).collect();
            let text = format!("HTTP/1.0 200 OK\r\n\r\n{events}data: [DONE]\n\n");
            super::normalised(text.as_bytes(), &Rules::SGLANG_RUST)
        };
        assert_eq!(stream(&["H", "i"]), stream(&["Hi"]));
        assert_ne!(stream(&["H", "i"]), stream(&["Ha"]));
        assert!(stream(&["H", "i"]).ends_with("[DONE]\n\n"));
    }

    #[test]
    fn a_size_keeps_its_case_when_it_is_computed_anew() {
        let chunked = |sizes: [&str; 2], latency: &str| {
            let text = format!("{:x<1$}{{\"e2e_latency\":{latency}}}", "", 154);
            let [first, last] = sizes;
            let text = format!("{first}\r\n{text}\r\n{last}\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            super::normalised((head.to_owned() + &text).as_bytes(), &Rules::SGLANG)
        };
        let upper = chunked(["AD", "E"], "0.5");
        assert!(upper.contains("\r\nAB\r\n"), "{upper}");
        assert_eq!(upper, chunked(["B0", "E"], "0.5555"));
        let lower = chunked(["ad", "e"], "0.5");
        assert!(lower.contains("\r\nab\r\n"), "{lower}");
        for other in [["AD", "e"], ["ad", "E"]] {
            assert!(
                ![&upper, &lower].contains(&&chunked(other, "0.5")),
                "{other:?}"
            );
        }
    }
}
