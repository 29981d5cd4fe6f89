//! Whether a live server's response is built like the recorded one.

use wire::http1::WholeResponse;
use wire::recording::{Rules, normalised};

use super::json::Json;
use super::live::Facts;
use super::{shape, stream};

/// Headers whose values are the moment's.
const FREE_HEADERS: [&str; 3] = ["content-length", "date", "location"];

/// The first differences of head and body in words; `None` if all is as recorded.
pub(super) fn difference(
    recorded: &[u8],
    actual: &[u8],
    to_head: bool,
    facts: &Facts,
) -> Option<String> {
    let parse = |bytes| WholeResponse::parse(bytes, to_head, true).ok().flatten();
    let wanted = parse(recorded)?;
    let Some(found) = parse(actual) else {
        return Some(match actual.len() {
            0 => "no answer came".into(),
            _ => "the answer is no whole HTTP/1 response".into(),
        });
    };
    if (wanted.interim > 0) != (found.interim > 0) {
        let is = if found.interim > 0 {
            "comes"
        } else {
            "is missing"
        };
        return Some(format!("an interim `100 Continue` {is}"));
    }
    let head = |bytes: &[u8], whole: &WholeResponse| -> String {
        String::from_utf8_lossy(&bytes[whole.head.clone()]).into_owned()
    };
    let body = |bytes: &[u8], whole: &WholeResponse| bytes[whole.head.end..whole.length].to_vec();
    let told = heads(&head(recorded, &wanted), &head(actual, &found));
    let mut told: Vec<String> = told.into_iter().collect();
    if wanted.status == found.status {
        let (recorded_body, actual_body) = (body(recorded, &wanted), body(actual, &found));
        told.extend(if wanted.is_event_stream && wanted.is_chunked {
            streams(&recorded_body, &actual_body, facts)
        } else {
            bodies(&wanted, &found, facts)
        });
    }
    let told = (!told.is_empty()).then(|| told.join("\n"))?;
    Some(match error_message(&found) {
        Some(message) if wanted.status < 400 => format!("{told} (the server says: {message})"),
        _ => told,
    })
}

/// What an error body says.
fn error_message(found: &WholeResponse) -> Option<String> {
    if found.status < 400 {
        return None;
    }
    let json = Json::parse(std::str::from_utf8(&found.body).ok()?)?;
    let message = json.get("error").and_then(|error| error.get("message"));
    let message = message
        .or_else(|| json.get("message"))
        .or_else(|| json.get("detail"))?;
    message.text().map(|text| text.chars().take(200).collect())
}

fn heads(recorded: &str, actual: &str) -> Option<String> {
    let lines =
        |head: &str| -> Vec<String> { head.trim_end().split("\r\n").map(str::to_owned).collect() };
    let (wanted, found) = (lines(recorded), lines(actual));
    if wanted[0] != found[0] {
        return Some(format!(
            "the status line is `{}`, recorded is `{}`",
            found[0], wanted[0]
        ));
    }
    let name = |line: &String| line.split(':').next().unwrap_or_default().to_owned();
    let names = |lines: &[String]| -> Vec<String> { lines[1..].iter().map(name).collect() };
    if names(&wanted) != names(&found) {
        return Some(format!(
            "the headers are {}; recorded are {}",
            names(&found).join(", "),
            names(&wanted).join(", ")
        ));
    }
    let mut pairs = wanted[1..].iter().zip(&found[1..]);
    let differs = pairs.find(|(wanted, found)| {
        let is_free = FREE_HEADERS.contains(&&*name(wanted));
        !is_free && masked(wanted) != masked(found)
    })?;
    Some(format!(
        "header `{}`, recorded is `{}`",
        differs.1, differs.0
    ))
}

/// A header line without measured numbers and random ids.
fn masked(line: &str) -> String {
    let is_measured = line.starts_with("endpoint-load-metrics:");
    let is_id = line.starts_with("x-request-id: ") && line.len() == 14 + 32;
    match (is_measured, is_id) {
        (true, _) => line
            .chars()
            .filter(|character| !character.is_ascii_digit())
            .collect(),
        (_, true) => "x-request-id".into(),
        _ => line.to_owned(),
    }
}

fn streams(recorded: &[u8], actual: &[u8], facts: &Facts) -> Option<String> {
    let read = |body: &[u8]| stream::chunks(body).and_then(|chunks| stream::events(&chunks));
    let recorded = read(recorded);
    match (recorded, read(actual)) {
        (Ok(recorded), Ok(actual)) => stream::difference(&recorded, &actual, &facts.model),
        (_, Err(told)) => Some(told),
        (Err(told), _) => Some(format!("the recording is not understood: {told}")),
    }
}

fn bodies(wanted: &WholeResponse, found: &WholeResponse, facts: &Facts) -> Option<String> {
    let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
    let (recorded, actual) = (text(&wanted.body), text(&found.body));
    if wanted.status >= 400 {
        let recorded = facts.own_words(&recorded);
        let same = normalised(recorded.as_bytes(), &Rules::VLLM)
            == normalised(actual.as_bytes(), &Rules::VLLM);
        return (!same).then(|| format!("the body is {actual}; recorded is {recorded}"));
    }
    match (Json::parse(&recorded), Json::parse(&actual)) {
        (Some(recorded), Some(json)) => {
            let told = shape::difference(&recorded, &json, &facts.model);
            let spaced = || "the JSON has spaces between tokens, recorded has none".to_owned();
            told.or_else(|| (!stream::is_compact(&actual)).then(spaced))
        }
        (Some(_), None) => Some("the body is no JSON".into()),
        (None, _) if recorded.starts_with("# HELP") => metrics(&recorded, &actual),
        (None, _) => (recorded != actual)
            .then(|| format!("the body is {actual:?}; recorded is {recorded:?}")),
    }
}

/// Names and types of a metrics page; what the Python process itself counts depends on the machine.
fn metrics(recorded: &str, actual: &str) -> Option<String> {
    let types = recorded
        .lines()
        .filter(|line| line.starts_with("# TYPE vllm:"));
    let missing: Vec<&str> = types
        .filter(|line| !actual.lines().any(|own| own == *line))
        .collect();
    let first = missing.first()?;
    let count = missing.len();
    Some(format!("the page lacks `{first}`, {count} types in all"))
}
