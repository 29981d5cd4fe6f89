//! Whether a live server's response is built like the recorded one.

use wire::http1::WholeResponse;
use wire::recording::normalised;

use super::corpus::Recorded;
use super::json::Json;
use super::live::Facts;
use super::{framing, native, shape, stream};

/// The first differences of head and body in words; `None` if all is as recorded.
pub(super) fn difference(
    case: &Recorded,
    actual: &[u8],
    to_head: bool,
    facts: &Facts,
) -> Option<String> {
    let recorded = &case.response[..];
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
    let told = heads(&head(recorded, &wanted), &head(actual, &found), facts);
    let mut told: Vec<String> = told.into_iter().collect();
    if wanted.status == found.status {
        let (recorded_body, actual_body) = (body(recorded, &wanted), body(actual, &found));
        told.extend(if wanted.is_event_stream && wanted.is_chunked {
            streams(&recorded_body, &actual_body, facts)
        } else {
            bodies(&wanted, &found, &case.target(), facts)
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

fn heads(recorded: &str, actual: &str, facts: &Facts) -> Option<String> {
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
        let is_free = facts.manner.free_headers.contains(&&*name(wanted));
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
    let is_upper = facts.manner.has_upper_sizes;
    let read =
        |body: &[u8]| framing::chunks(body, is_upper).and_then(|chunks| stream::events(&chunks));
    let recorded = read(recorded);
    match (recorded, read(actual)) {
        (Ok(recorded), Ok(actual)) => stream::difference(&recorded, &actual, facts),
        (_, Err(told)) => Some(told),
        (Err(told), _) => Some(format!("the recording is not understood: {told}")),
    }
}

fn bodies(
    wanted: &WholeResponse,
    found: &WholeResponse,
    path: &str,
    facts: &Facts,
) -> Option<String> {
    let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
    let (recorded, actual) = (text(&wanted.body), text(&found.body));
    if wanted.status >= 400 {
        let recorded = facts.own_words(&recorded);
        let rules = &facts.manner.rules;
        let same = normalised(recorded.as_bytes(), rules) == normalised(actual.as_bytes(), rules);
        return (!same).then(|| format!("the body is {actual}; recorded is {recorded}"));
    }
    match (Json::parse(&recorded), Json::parse(&actual)) {
        (Some(recorded), Some(json)) if facts.manner.facts.contains(&path) => {
            shape::keys_difference(&recorded, &json)
        }
        (Some(recorded), Some(json)) => {
            let told = shape::difference(&recorded, &json, facts);
            let told = told.or_else(|| answers(&recorded, &json));
            let spaced = || "the JSON has spaces between tokens, recorded has none".to_owned();
            told.or_else(|| (!framing::is_compact(&actual)).then(spaced))
        }
        (Some(_), None) => Some("the body is no JSON".into()),
        (None, _) if recorded.starts_with("# HELP") => metrics(&recorded, &actual, facts),
        (None, _) if recorded.starts_with('{') => lines(&recorded, &actual, facts),
        (None, _) => (recorded != actual)
            .then(|| format!("the body is {actual:?}; recorded is {recorded:?}")),
    }
}

/// Names and types of a metrics page; what the Python process itself counts depends on the machine.
fn metrics(recorded: &str, actual: &str, facts: &Facts) -> Option<String> {
    let types = recorded
        .lines()
        .filter(|line| line.starts_with(facts.manner.metric_types));
    let missing: Vec<&str> = types
        .filter(|line| !actual.lines().any(|own| own == *line))
        .collect();
    let first = missing.first()?;
    let count = missing.len();
    Some(format!("the page lacks `{first}`, {count} types in all"))
}

/// The native answers of a body, one or a list of as many as were asked for.
fn answers(recorded: &Json, actual: &Json) -> Option<String> {
    fn all(json: &Json) -> Vec<&Json> {
        match json {
            Json::Array(items) => items.iter().collect(),
            _ => vec![json],
        }
    }
    let (recorded, actual) = (all(recorded), all(actual));
    recorded.first()?.get("meta_info")?;
    let (wanted, found) = (recorded.len(), actual.len());
    if wanted != found {
        return Some(format!(
            "the body has {found} answers, recorded are {wanted}"
        ));
    }
    let mut pairs = recorded.into_iter().zip(actual);
    pairs.find_map(|(recorded, actual)| native::difference(&[recorded], &[actual]))
}

/// A stream of one JSON object a line, the last of which says that it is.
fn lines(recorded: &str, actual: &str, facts: &Facts) -> Option<String> {
    let read = |body: &str| -> Option<Vec<Json>> { body.lines().map(Json::parse).collect() };
    let recorded = read(recorded)?;
    let Some(actual) = read(actual) else {
        return Some("a line of the body is no JSON".into());
    };
    let is_done = |line: &Json| line.get("done") == Some(&Json::Bool(true));
    let dones = actual.iter().filter(|line| is_done(line)).count();
    if dones != 1 || !actual.last().is_some_and(is_done) {
        return Some("it is not the last line, and no other, that is done".into());
    }
    actual.iter().enumerate().find_map(|(number, line)| {
        let mut known = recorded.iter();
        let known = known.find(|known| is_done(known) == is_done(line))?;
        let told = shape::difference(known, line, facts)?;
        Some(format!("line {}: {told}", number + 1))
    })
}
