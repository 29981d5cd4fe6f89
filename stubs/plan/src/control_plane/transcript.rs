//! What was said in each session, so that the next turn can go on from the tokens that the worker has.

use std::collections::HashMap;

use wire::executorch::{ChatRequest, Message, ToolCall};
use wire::json::Json;
use wire::python;
use wire::worker_lines::{Part, Prompted};

use super::template::{ASSISTANT, ChatTemplate, Rendered, Shown};

/// The turns of each session, in order.
#[derive(Debug, Default)]
pub(super) struct Transcripts {
    next: u64,
    sessions: HashMap<String, Session>,
}

/// A session, until it is forgotten.
#[derive(Debug)]
struct Session {
    /// Told apart from others of its name.
    number: u64,
    turns: Vec<Remembered>,
}

/// An assistant's turn.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    /// What it said, as it is known again.
    pub(super) fingerprint: String,
    /// Its tokens, if the worker told them.
    pub(super) ids: Option<Vec<i64>>,
    /// What stood between the assistant's header and its first token.
    pub(super) preamble: String,
}

impl Transcripts {
    pub(super) fn forget(&mut self, session_id: &str) {
        self.sessions.remove(session_id);
    }

    /// Forgets a session in which nothing was said, since the worker does not take it.
    pub(super) fn withdraw(&mut self, session_id: &str) {
        let is_empty = |session: &Session| session.turns.is_empty();
        if self.sessions.get(session_id).is_some_and(is_empty) {
            self.sessions.remove(session_id);
        }
    }

    /// The number of the session of that name, which is new if there is none.
    pub(super) fn number(&mut self, session_id: &str) -> u64 {
        let next = &mut self.next;
        let new = || {
            *next += 1;
            Session {
                number: *next,
                turns: Vec::new(),
            }
        };
        let session = self.sessions.entry(session_id.to_owned());
        session.or_insert_with(new).number
    }

    /// Notes a turn that answers a request with so many assistant's turns in it, unless its session has
    /// been forgotten.
    pub(super) fn note(
        &mut self,
        session_id: &str,
        number: u64,
        prior_turns: usize,
        said: Remembered,
    ) {
        let session = self.sessions.get_mut(session_id);
        if let Some(session) = session.filter(|session| session.number == number) {
            session.turns.truncate(prior_turns);
            session.turns.push(said);
        }
    }

    /// The turns of a request that are known again, with their tokens, by the message's number. The first
    /// one that is another makes the server forget it and all behind it.
    fn known(&mut self, session_id: &str, request: &ChatRequest<'_>) -> Vec<(usize, Remembered)> {
        let Some(session) = self.sessions.get_mut(session_id) else {
            return Vec::new();
        };
        let turns = &mut session.turns;
        let messages = request.messages().enumerate();
        let assistants = messages.filter(|(_, message)| message.role() == "assistant");
        let mut known = Vec::new();
        let mut is_same = turns.len();
        for ((turn, said), (number, message)) in turns.iter().enumerate().zip(assistants) {
            if of_message(message) != said.fingerprint {
                is_same = turn;
                break;
            }
            if said.ids.is_some() {
                known.push((number, said.clone()));
            }
        }
        turns.truncate(is_same);
        known
    }

    /// The prompt, with the tokens of earlier turns where they are known; `mark` is a text that is
    /// nowhere in it.
    ///
    /// # Errors
    /// What the template says.
    pub(super) fn prompt(
        &mut self,
        template: &ChatTemplate,
        request: &ChatRequest<'_>,
        session_id: Option<&str>,
        rendered: &Rendered<'_, '_>,
        mark: u128,
    ) -> Result<Prompted, String> {
        let sent: Vec<Shown<'_, '_>> = request.messages().map(Shown::Sent).collect();
        let plain = template.render(&sent, rendered)?;
        let known = session_id.map(|session_id| self.known(session_id, request));
        let known = known.unwrap_or_default();
        if known.is_empty() {
            return Ok(Prompted::Text(plain));
        }
        let mark = |number: usize| format!("<<ETSEG{number}_{mark:032x}>>");
        let mut marked = sent;
        for (number, _) in &known {
            marked[*number] = Shown::Mark(mark(*number));
        }
        let text = template.render(&marked, rendered)?;
        let is_free = known
            .iter()
            .all(|(number, _)| !plain.contains(&mark(*number)));
        let parts = split(&text, &known, mark).filter(|_| is_free);
        Ok(parts.map_or(Prompted::Text(plain), Prompted::Segments))
    }
}

/// A rendered text with the turns' tokens where their marks are; none if one of them has gone or come twice,
/// or if what stands before it is not what stood there.
fn split(
    text: &str,
    known: &[(usize, Remembered)],
    mark: impl Fn(usize) -> String,
) -> Option<Vec<Part>> {
    let mut places = Vec::new();
    for (number, said) in known {
        let mark = mark(*number);
        let mut found = text.match_indices(&*mark);
        let (at, _) = found.next()?;
        if found.next().is_some() {
            return None;
        }
        places.push((at, at + mark.len(), said));
    }
    places.sort_unstable_by_key(|(at, ..)| *at);
    let mut parts = Vec::new();
    let mut behind = 0;
    for (at, end, said) in places {
        let before = with_preamble(&text[behind..at], &said.preamble)?;
        if !before.is_empty() {
            parts.push(Part::Text(before));
        }
        parts.push(Part::Ids(said.ids.clone()?));
        behind = end;
    }
    if behind < text.len() {
        parts.push(Part::Text(text[behind..].to_owned()));
    }
    Some(parts)
}

/// A text that ends in the preamble of the turn behind it, which templates drop from earlier turns.
fn with_preamble(text: &str, preamble: &str) -> Option<String> {
    if preamble.is_empty() {
        return Some(text.to_owned());
    }
    let base = text.rfind(ASSISTANT)? + ASSISTANT.len();
    let (front, shown) = text.split_at(base);
    let is_scaffold = matches!(shown, "" | "<think>\n\n</think>\n\n" | "<think>\n");
    (is_scaffold || shown == preamble).then(|| [front, preamble].concat())
}

/// How an answer is known again: its text, and its calls with their arguments read.
pub(super) fn fingerprint(content: &str, calls: &[ToolCall]) -> String {
    let calls = calls.iter().map(|call| {
        let name = Json::String((&*call.name).into());
        (name, Json::String((&*call.arguments).into()))
    });
    spelt(&Json::String(content.into()), calls)
}

fn of_message(message: Message<'_, '_>) -> String {
    let empty = Json::String("".into());
    let content = message.content().filter(|content| python::truthy(content));
    let calls = message.tool_calls().iter().filter_map(|call| {
        let function = call.as_object()?.get("function")?.as_object()?;
        let member = |name| function.get(name).cloned().unwrap_or(Json::Null);
        Some((member("name"), member("arguments")))
    });
    spelt(content.unwrap_or(&empty), calls)
}

fn spelt<'j>(content: &Json<'j>, calls: impl Iterator<Item = (Json<'j>, Json<'j>)>) -> String {
    let call = |(name, arguments): (Json<'j>, Json<'j>)| {
        let read = arguments.as_str().map(|text| Json::parse(text.as_bytes()));
        let arguments = match &read {
            Some(Ok(read)) => python::sorted_dumps(read),
            // What cannot be read is compared as it is.
            Some(Err(_)) | None => python::sorted_dumps(&arguments),
        };
        format!("[{}, {arguments}]", python::sorted_dumps(&name))
    };
    let calls: Vec<String> = calls.map(call).collect();
    let content = python::sorted_dumps(content);
    format!("[{content}, [{}]]", calls.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> ChatRequest<'_> {
        wire::executorch::parse(Some("application/json"), body.as_bytes()).unwrap()
    }

    fn said(text: &str, ids: Option<Vec<i64>>) -> Remembered {
        Remembered {
            fingerprint: fingerprint(text, &[]),
            ids,
            preamble: String::new(),
        }
    }

    fn note(transcripts: &mut Transcripts, prior_turns: usize, said: Remembered) {
        let number = transcripts.number("s");
        transcripts.note("s", number, prior_turns, said);
    }

    #[test]
    fn what_a_forgotten_session_still_said_is_not_noted() {
        let mut transcripts = Transcripts::default();
        let number = transcripts.number("s");
        transcripts.forget("s");
        transcripts.note("s", number, 0, said("b", Some(vec![1])));
        assert!(transcripts.sessions.is_empty());
        assert_ne!(transcripts.number("s"), number);
        transcripts.note("s", number, 0, said("b", Some(vec![1])));
        assert!(transcripts.sessions["s"].turns.is_empty());
        transcripts.withdraw("s");
        assert!(transcripts.sessions.is_empty());
    }

    fn prompt(transcripts: &mut Transcripts, body: &str) -> Prompted {
        let rendered = Rendered {
            kwargs: None,
            tools: None,
        };
        let request = request(body);
        let template = ChatTemplate::chatml();
        let prompt = transcripts.prompt(&template, &request, Some("s"), &rendered, 7);
        prompt.unwrap()
    }

    const TURNS: &str = r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},
        {"role":"user","content":"c"},{"role":"assistant","content":"d"},{"role":"user","content":"e"}]}"#;

    #[test]
    fn known_turns_are_told_by_their_tokens() {
        let mut transcripts = Transcripts::default();
        note(&mut transcripts, 0, said("b", Some(vec![1])));
        note(&mut transcripts, 1, said("d", Some(vec![2, 3])));
        let text = |text: &str| Part::Text(text.into());
        assert_eq!(
            prompt(&mut transcripts, TURNS),
            Prompted::Segments(vec![
                text("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"),
                Part::Ids(vec![1]),
                text("<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"),
                Part::Ids(vec![2, 3]),
                text("<|im_end|>\n<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\n"),
            ])
        );
    }

    #[test]
    fn another_history_is_told_by_its_text() {
        let mut transcripts = Transcripts::default();
        note(&mut transcripts, 0, said("x", Some(vec![1])));
        note(&mut transcripts, 1, said("d", Some(vec![2])));
        let Prompted::Text(_) = prompt(&mut transcripts, TURNS) else {
            panic!("nothing is known");
        };
        assert!(transcripts.sessions["s"].turns.is_empty());
    }

    #[test]
    fn a_turn_without_tokens_stays_text_and_those_behind_it_do_not() {
        let mut transcripts = Transcripts::default();
        note(&mut transcripts, 0, said("b", None));
        note(&mut transcripts, 1, said("d", Some(vec![2])));
        let Prompted::Segments(parts) = prompt(&mut transcripts, TURNS) else {
            panic!("the second is known");
        };
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[1], Part::Ids(vec![2]));
    }

    #[test]
    fn arguments_are_known_again_by_what_they_say() {
        let call = ToolCall {
            index: 0,
            id: "call-1".into(),
            name: "f".into(),
            arguments: r#"{"b": 1, "a": "é"}"#.into(),
        };
        let body = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"x","type":"function",
            "function":{"name":"f","arguments":"{\"a\":\"\\u00e9\",\"b\":1}"}}]}]}"#;
        let request = request(body);
        let message = request.messages().next().unwrap();
        assert_eq!(of_message(message), fingerprint("", &[call]));
    }

    #[test]
    fn a_preamble_is_put_back_where_a_template_dropped_it() {
        let preamble = "<think>\n\n</think>\n\n";
        let header = "x<|im_start|>assistant\n";
        for shown in ["", preamble, "<think>\n"] {
            let text = with_preamble(&[header, shown].concat(), preamble);
            assert_eq!(text, Some([header, preamble].concat()));
        }
        assert_eq!(with_preamble("x<|im_start|>assistant\nnew", preamble), None);
        assert_eq!(with_preamble("x", preamble), None);
    }
}
