//! What to send: a list of cases, or a folder of requests.

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use wire::recording::REQUEST;

use crate::error::UsageError;

/// A request with a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Sent {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// A line or list element of a cases file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case<'a> {
    name: String,
    #[serde(default = "post")]
    method: String,
    path: String,
    #[serde(default, deserialize_with = "in_order")]
    headers: Vec<(String, String)>,
    /// A string is sent as its text, anything else as it is written.
    #[serde(default, borrow)]
    body: Option<&'a RawValue>,
}

fn post() -> String {
    "POST".into()
}

/// Reads a folder of `*.request.http`, a JSON list, an object with a list `cases`, or JSON lines.
pub(super) fn read(path: &Path, authority: &str, prefix: &str) -> Result<Vec<Sent>, UsageError> {
    let wrong = |reason: String| UsageError(format!("--cases {}: {reason}", path.display()));
    let cases = if path.is_dir() {
        folder(path).map_err(|error| wrong(error.to_string()))?
    } else {
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        parse(&text, authority, prefix).map_err(wrong)?
    };
    if cases.is_empty() {
        return Err(wrong(format!("no case, and no *{REQUEST} in a folder")));
    }
    let names: std::collections::HashSet<&str> = cases.iter().map(|case| &*case.name).collect();
    if names.len() < cases.len() {
        return Err(wrong("a name stands twice; names become file names".into()));
    }
    Ok(cases)
}

fn folder(dir: &Path) -> std::io::Result<Vec<Sent>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut cases = Vec::new();
    for path in paths {
        let file = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = file.and_then(|name| name.strip_suffix(REQUEST)) {
            let bytes = std::fs::read(&path)?;
            let name = name.to_owned();
            cases.push(Sent { name, bytes });
        }
    }
    Ok(cases)
}

fn parse(text: &str, authority: &str, prefix: &str) -> Result<Vec<Sent>, String> {
    #[derive(Deserialize)]
    struct Listed<'a> {
        #[serde(borrow)]
        cases: Vec<Case<'a>>,
    }
    let at = |error: serde_json::Error| error.to_string();
    let cases: Vec<Case<'_>> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(at)?
    } else if let Ok(listed) = serde_json::from_str::<Listed<'_>>(text) {
        listed.cases
    } else {
        let lines = (1..).zip(text.lines());
        let lines = lines.filter(|(_, line)| !line.trim().is_empty());
        let case = |(number, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))
        };
        lines.map(case).collect::<Result<_, _>>()?
    };
    cases
        .into_iter()
        .map(|case| case.request(authority, prefix))
        .collect()
}

impl Case<'_> {
    fn request(self, authority: &str, prefix: &str) -> Result<Sent, String> {
        let name = &self.name;
        let is_plain = |text: &str| !text.contains(['\r', '\n']) && !text.is_empty();
        let fits = name
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with('.'));
        if !fits || !is_plain(name) || name.contains('\\') {
            return Err(format!("case name {name:?} is no file name"));
        }
        let is_word = |text: &str| is_plain(text) && !text.contains(' ');
        let headers = self.headers.iter();
        let mut texts = headers.flat_map(|(name, value)| [name, value]);
        if !is_word(&self.method)
            || !is_word(&self.path)
            || texts.any(|text| text.contains(['\r', '\n']))
        {
            return Err(format!(
                "case {name}: method, path or a header breaks the request"
            ));
        }
        // A string is its text, anything else as it is written.
        let body = self.body.map(RawValue::get);
        let body = body.map(|raw| serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned()));
        let mut head = format!("{} {prefix}{} HTTP/1.1\r\n", self.method, self.path);
        let length = body.as_ref().map(|body| body.len().to_string());
        let defaults = [
            ("Host", Some(authority)),
            ("Accept", Some("*/*")),
            ("Content-Type", body.as_ref().map(|_| "application/json")),
            ("Content-Length", length.as_deref()),
        ];
        let is_given = |name: &str| {
            self.headers
                .iter()
                .any(|(given, _)| given.eq_ignore_ascii_case(name))
        };
        for (name, value) in defaults {
            if let (Some(value), false) = (value, is_given(name)) {
                write!(head, "{name}: {value}\r\n").expect("a String takes all");
            }
        }
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").expect("a String takes all");
        }
        head.push_str("\r\n");
        head.push_str(&body.unwrap_or_default());
        Ok(Sent {
            name: self.name,
            bytes: head.into_bytes(),
        })
    }
}

/// An object's members as they are written.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, String)>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("an object of strings")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    deserializer.deserialize_map(Members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Result<Vec<String>, String> {
        let cases = parse(text, "h:1", "/p")?;
        let text = |case: Sent| String::from_utf8(case.bytes).unwrap();
        Ok(cases.into_iter().map(text).collect())
    }

    #[test]
    fn a_case_is_sent_as_it_is_written() {
        let line = r#"{"name":"a","path":"/v1/x","headers":{"X-B":"2","accept":"json"},"body":{"b": 1,"a":[ ]}}"#;
        let expected = "POST /p/v1/x HTTP/1.1\r\nHost: h:1\r\nContent-Type: application/json\r\nContent-Length: 15\r\nX-B: 2\r\naccept: json\r\n\r\n{\"b\": 1,\"a\":[ ]}";
        let lines = format!("{line}\n\n{}", r#"{"name":"b","method":"GET","path":"/h"}"#);
        let get = "GET /p/h HTTP/1.1\r\nHost: h:1\r\nAccept: */*\r\n\r\n";
        let expected = expected.replace("Content-Length: 15", "Content-Length: 16");
        for text in [
            lines,
            format!("[{line}]"),
            format!("{{\"cases\":[{line}]}}"),
        ] {
            let sent = texts(&text).unwrap();
            assert_eq!(sent[0], expected);
            assert!(sent.get(1).is_none_or(|second| second == get));
        }
        let raw = texts(r#"{"name":"b","path":"/h","body":"no { json"}"#).unwrap();
        assert!(raw[0].ends_with("Content-Length: 9\r\n\r\nno { json"));
    }

    #[test]
    fn what_cannot_be_a_request_or_a_file_is_refused() {
        for (text, told) in [
            (r#"{"name":"../a","path":"/h"}"#, "no file name"),
            (r#"{"name":"a","path":"/h h"}"#, "breaks the request"),
            (
                r#"{"name":"a","path":"/h","headers":{"a":"b\r\nc"}}"#,
                "breaks the request",
            ),
            (r#"{"name":"a","url":"/h"}"#, "line 1: unknown field `url`"),
        ] {
            assert!(texts(text).unwrap_err().contains(told), "{text}");
        }
    }
}
