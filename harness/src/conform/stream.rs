//! An event stream taken apart: what each event is, and in which order.

use super::framing::is_compact;
use super::json::Json;
use super::live::Facts;
use super::{native, shape};

/// An event and what it says.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// What it is for, in a word or its own name.
    kind: String,
    /// The choice that it is about.
    index: Option<i128>,
    json: Option<Json>,
}

/// Kinds that come as often as the text has it.
fn is_text(kind: &str) -> bool {
    ["content", "reasoning", "tool call", "nothing"].contains(&kind)
        || kind.contains("delta")
        || native::is_text(kind)
}

/// Reads one event from each chunk.
pub(super) fn events(chunks: &[String]) -> Result<Vec<Event>, String> {
    let read = |(number, chunk): (usize, &String)| {
        Event::parse(chunk).map_err(|told| format!("chunk {}: {told}", number + 1))
    };
    chunks.iter().enumerate().map(read).collect()
}

impl Event {
    fn parse(chunk: &str) -> Result<Self, String> {
        let events = chunk.matches("\n\n").count();
        if events != 1 || !chunk.ends_with("\n\n") {
            return Err(format!(
                "it holds {events} whole events, recorded is one event a chunk"
            ));
        }
        let lines: Vec<&str> = chunk.trim_end_matches('\n').split('\n').collect();
        let (name, data) = match lines[..] {
            [comment] if comment.starts_with(':') => (Some("comment"), ""),
            [data] => (None, data),
            [event, data] => (event.strip_prefix("event: "), data),
            _ => return Err(format!("it has {} lines", lines.len())),
        };
        if name == Some("comment") {
            return Ok(Self::bare("comment"));
        }
        let Some(data) = data.strip_prefix("data: ") else {
            return Err(format!(
                "its line begins with {:?}, not `data: `",
                data.get(..6)
            ));
        };
        if data == "[DONE]" {
            return Ok(Self::bare("[DONE]"));
        }
        let Some(json) = Json::parse(data) else {
            return Err("its data is no JSON".into());
        };
        if data.starts_with("{\"error\":") && !is_compact(data) {
            return Err(format!("it is an error event: {data}"));
        }
        if !is_compact(data) {
            return Err("its JSON has spaces between tokens, recorded has none".into());
        }
        let (kind, index) = match name {
            Some(name) => (name.to_owned(), None),
            None => kind(&json),
        };
        Ok(Self {
            kind,
            index,
            json: Some(json),
        })
    }

    fn bare(kind: &str) -> Self {
        Self {
            kind: kind.into(),
            index: None,
            json: None,
        }
    }
}

fn kind(json: &Json) -> (String, Option<i128>) {
    if json.get("error").is_some() {
        return ("error".into(), None);
    }
    if let Some(frame) = native::kind(json) {
        return frame;
    }
    if json.get("sglext").is_some() {
        return ("sglext".into(), None);
    }
    let choices = json.get("choices").map(Json::items).unwrap_or_default();
    let Some(choice) = choices.first() else {
        return ("usage".into(), None);
    };
    let index = choice.get("index").and_then(Json::integer);
    let delta = choice.get("delta");
    let says = |key: &str| {
        delta
            .and_then(|delta| delta.get(key))
            .is_some_and(|value| *value != Json::Null)
    };
    let is_finish = choice
        .get("finish_reason")
        .is_some_and(|reason| *reason != Json::Null);
    let kind = match () {
        () if is_finish => "finish",
        () if says("role") => "role",
        () if says("tool_calls") => "tool call",
        () if says("reasoning") || says("reasoning_content") => "reasoning",
        () if says("content") || choice.get("text").is_some() => "content",
        () => "nothing",
    };
    (kind.into(), index)
}

/// The first way in which a stream's events differ from recorded ones, in words.
pub(super) fn difference(recorded: &[Event], actual: &[Event], facts: &Facts) -> Option<String> {
    let events = || {
        actual.iter().enumerate().find_map(|(number, event)| {
            let told = event.difference(recorded, facts)?;
            Some(format!("event {} ({}): {told}", number + 1, event.kind))
        })
    };
    order(recorded, actual)
        .or_else(events)
        .or_else(|| frames(recorded, actual))
}

/// How the native frames of each sample add up.
fn frames(recorded: &[Event], actual: &[Event]) -> Option<String> {
    fn of(events: &[Event], index: i128) -> Vec<&Json> {
        let own = events.iter().filter(|event| event.index == Some(index));
        let own = own.filter(|event| native::is_frame(&event.kind));
        own.filter_map(|event| event.json.as_ref()).collect()
    }
    indexes(recorded)
        .into_iter()
        .find_map(|index| native::difference(&of(recorded, index), &of(actual, index)))
}

fn order(recorded: &[Event], actual: &[Event]) -> Option<String> {
    let fixed = |events: &[Event]| {
        let mut kinds: Vec<String> = Vec::new();
        for event in events {
            // When a sample begins and ends among the others depends on the machine.
            let is_frame = native::is_frame(&event.kind);
            let kind = if is_frame { "frames" } else { &event.kind };
            if !is_text(kind) && kinds.last().is_none_or(|last| last != kind) {
                kinds.push(kind.to_owned());
            }
        }
        kinds.join(", ")
    };
    let (wanted, found) = (fixed(recorded), fixed(actual));
    if wanted != found {
        return Some(format!("the events are {found}; recorded are {wanted}"));
    }
    indexes(recorded)
        .into_iter()
        .find_map(|index| of_choice(index, recorded, actual))
}

fn indexes(events: &[Event]) -> Vec<i128> {
    let mut indexes: Vec<_> = events.iter().filter_map(|event| event.index).collect();
    indexes.sort_unstable();
    indexes.dedup();
    indexes
}

/// One choice's events: its role first, text in between, its end last, each as often as recorded.
fn of_choice(index: i128, recorded: &[Event], actual: &[Event]) -> Option<String> {
    let kinds = |events: &[Event]| -> Vec<String> {
        let own = events.iter().filter(|event| event.index == Some(index));
        own.map(|event| event.kind.clone()).collect()
    };
    let (wanted, found) = (kinds(recorded), kinds(actual));
    let fixed = |kinds: &[String]| -> Vec<String> {
        kinds
            .iter()
            .filter(|kind| !is_text(kind))
            .cloned()
            .collect()
    };
    if fixed(&wanted) != fixed(&found) {
        let (wanted, found) = (fixed(&wanted).join(", "), fixed(&found).join(", "));
        return Some(format!(
            "choice {index} has the events {found}; recorded are {wanted}"
        ));
    }
    let last = found
        .last()
        .filter(|kind| is_text(kind) && **kind != wanted[wanted.len() - 1]);
    if let Some(kind) = last {
        return Some(format!(
            "choice {index} ends with {kind}, recorded is {}",
            wanted[wanted.len() - 1]
        ));
    }
    let first = found
        .first()
        .filter(|kind| is_text(kind) && !is_text(&wanted[0]));
    first.map(|kind| {
        format!(
            "choice {index} begins with {kind}, recorded is {}",
            wanted[0]
        )
    })
}

impl Event {
    fn difference(&self, recorded: &[Self], facts: &Facts) -> Option<String> {
        let alike: Vec<&Self> = recorded
            .iter()
            .filter(|known| known.kind == self.kind)
            .collect();
        let Some(first) = alike.first() else {
            return Some("no such event is in the recording".into());
        };
        let told = self.against(first, facts)?;
        let fits = |known: &&&Self| self.against(known, facts).is_none();
        alike.iter().find(fits).is_none().then_some(told)
    }

    fn against(&self, known: &Self, facts: &Facts) -> Option<String> {
        match (&known.json, &self.json) {
            (Some(recorded), Some(actual)) if self.kind == "error" && recorded != actual => {
                let message = |json: &Json| {
                    let message = json.get("error").and_then(|error| error.get("message"));
                    message.and_then(Json::text).map(str::to_owned)
                };
                let (recorded, actual) = (message(recorded), message(actual));
                Some(format!("it says {actual:?}, recorded is {recorded:?}"))
            }
            (Some(recorded), Some(actual)) => {
                let recorded = recorded.with_index(self.index);
                shape::difference(&recorded, actual, facts)
            }
            _ => None,
        }
    }
}

impl Json {
    /// The same for another choice: choices differ in nothing else.
    fn with_index(&self, index: Option<i128>) -> Self {
        let mut json = self.clone();
        if let (Some(index), Self::Object(members)) = (index, &mut json) {
            let own = members.iter_mut().filter(|(key, _)| key == "index");
            own.for_each(|(_, own)| *own = Self::Integer(index));
            let choices = members.iter_mut().filter(|(key, _)| key == "choices");
            for (_, choices) in choices {
                let Self::Array(choices) = choices else {
                    continue;
                };
                for choice in choices {
                    let Self::Object(members) = choice else {
                        continue;
                    };
                    for (_, own) in members.iter_mut().filter(|(key, _)| key == "index") {
                        *own = Self::Integer(index);
                    }
                }
            }
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
    const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    const END: &str = r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}"#;
    const USAGE: &str = r#"{"choices":[],"usage":{"a":1}}"#;

    fn stream(data: &[&str]) -> Vec<Event> {
        let chunks: Vec<String> = data
            .iter()
            .map(|data| format!("data: {data}\n\n"))
            .collect();
        events(&chunks).unwrap()
    }

    fn told(actual: &[&str]) -> Option<String> {
        let recorded = stream(&[ROLE, TEXT, TEXT, END, USAGE, "[DONE]"]);
        difference(&recorded, &stream(actual), &Facts::default())
    }

    #[test]
    fn any_number_of_text_chunks_is_right() {
        assert_eq!(told(&[ROLE, TEXT, END, USAGE, "[DONE]"]), None);
        assert_eq!(told(&[ROLE, END, USAGE, "[DONE]"]), None);
        assert_eq!(
            told(&[ROLE, TEXT, TEXT, TEXT, TEXT, END, USAGE, "[DONE]"]),
            None
        );
    }

    #[test]
    fn order_and_kinds_are_held() {
        for (actual, expected) in [
            (
                &[ROLE, TEXT, END, "[DONE]"][..],
                "the events are role, finish, [DONE]; recorded are role, finish, usage, [DONE]",
            ),
            (
                &[ROLE, TEXT, END, USAGE],
                "the events are role, finish, usage; recorded are role, finish, usage, [DONE]",
            ),
            (
                &[TEXT, ROLE, END, USAGE, "[DONE]"],
                "choice 0 begins with content, recorded is role",
            ),
            (
                &[ROLE, END, TEXT, USAGE, "[DONE]"],
                "choice 0 ends with content, recorded is finish",
            ),
            (
                &[
                    ROLE,
                    r#"{"choices":[{"index":0,"delta":{"reasoning":"a"}}]}"#,
                    END,
                    USAGE,
                    "[DONE]",
                ],
                "event 2 (reasoning): no such event is in the recording",
            ),
            (
                &[
                    ROLE,
                    r#"{"choices":[{"delta":{"content":"a"},"index":0}]}"#,
                    END,
                    USAGE,
                    "[DONE]",
                ],
                "event 2 (content): in `choices[0]` key `delta` stands where `index` is recorded",
            ),
        ] {
            assert_eq!(told(actual).as_deref(), Some(expected));
        }
    }

    #[test]
    fn an_event_is_a_chunk_of_compact_json() {
        let two = events(&["data: 1\n\ndata: 2\n\n".into()]).unwrap_err();
        assert_eq!(
            two,
            "chunk 1: it holds 2 whole events, recorded is one event a chunk"
        );
        let spaced = events(&["data: {\"a\": 1}\n\n".into()]).unwrap_err();
        assert!(spaced.contains("spaces between tokens"));
    }
}
