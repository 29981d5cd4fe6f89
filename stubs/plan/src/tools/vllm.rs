//! Calls as vLLM finds them.

use wire::chunk::ToolCall;
use wire::json::Json;
use wire::python;
use wire::request::ToolChoice;

use super::{CLOSE, Called, OPEN, begun, number};

/// How a request's calls are found in the text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// The arguments alone, of the function of that name.
    Arguments(String),
    /// Tagged, as the parser has it.
    Hermes,
    /// A JSON list of calls.
    List,
}

impl Form {
    /// The form for a choice; `strict` is vLLM's way of holding the model to the parser's own format.
    pub(crate) fn new(choice: &ToolChoice<'_>, strict: bool) -> Self {
        match choice {
            ToolChoice::Named(name) if !strict => Self::Arguments(name.to_string()),
            ToolChoice::Required if !strict => Self::List,
            _ => Self::Hermes,
        }
    }
}

/// Finds one choice's calls as its content comes.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    form: Form,
    parallel: bool,
    ids: fastrand::Rng,
    /// Content so far.
    text: String,
    /// Bytes of content before the first call that were given out.
    content_end: usize,
    /// The last call's number and where it begins behind its tag.
    call: Option<(usize, usize)>,
    /// What was given out of each call.
    told: Vec<Told>,
}

#[derive(Clone, Debug, Default)]
struct Told {
    named: bool,
    /// Bytes of the arguments.
    arguments: usize,
}

impl Caller {
    pub(crate) fn new(form: Form, parallel: bool, seed: u64) -> Self {
        Self {
            form,
            parallel,
            ids: fastrand::Rng::with_seed(seed),
            text: String::new(),
            content_end: 0,
            call: None,
            told: Vec::new(),
        }
    }

    /// Some part of a call has been given out.
    pub(crate) fn has_called(&self) -> bool {
        !self.told.is_empty()
    }

    /// Takes the next content and says what it adds.
    pub(crate) fn feed(&mut self, content: &str, is_last: bool) -> Called {
        self.text.push_str(content);
        match &self.form {
            Form::Arguments(name) => {
                let name = name.clone();
                self.arguments(&name, content, is_last)
            }
            Form::Hermes => self.hermes(is_last),
            Form::List => self.list(),
        }
    }

    fn hermes(&mut self, is_last: bool) -> Called {
        let mut called = Called::default();
        if self.call.is_none() {
            called.content = self.before_calls(is_last);
        }
        let mut dropped = false;
        while let Some((index, start)) = self.call {
            let rest = &self.text[start..];
            let next = rest.find(OPEN);
            let call = &rest[..next.unwrap_or(rest.len())];
            let call = call.split(CLOSE).next().unwrap_or(call);
            let entries = self.tell(index, &Partial::read(call, "arguments"));
            if self.parallel || index == 0 {
                called.calls.extend(entries);
            } else {
                dropped |= !entries.is_empty();
            }
            let Some(next) = next else { break };
            self.call = Some((index + 1, start + next + OPEN.len()));
        }
        let only_calls = !called.calls.is_empty() && called.content.is_none();
        called.nulls.content = only_calls || (dropped && called.says_nothing());
        called
    }

    /// What is new of the content before the first call, which may begin with the end of it.
    fn before_calls(&mut self, is_last: bool) -> Option<String> {
        let new = &self.text[self.content_end..];
        let found = new.find(OPEN);
        let held = if is_last { 0 } else { begun(new, OPEN) };
        let content = &new[..found.unwrap_or(new.len() - held)];
        self.call = found.map(|at| (0, self.content_end + at + OPEN.len()));
        self.content_end += content.len();
        Some(content.to_owned()).filter(|content| !content.is_empty())
    }

    /// What is new of a call: an entry with its name, one with arguments.
    fn tell(&mut self, index: usize, call: &Partial) -> Vec<ToolCall<'static>> {
        let Some(name) = &call.name else {
            return Vec::new();
        };
        if self.told.len() <= index {
            self.told.resize_with(index + 1, Told::default);
        }
        let told = &mut self.told[index];
        let mut entries = Vec::new();
        if !told.named {
            told.named = true;
            entries.push(ToolCall {
                arguments: None,
                id: Some(call_id(&mut self.ids).into()),
                index: number(index),
                name: Some(name.clone().into()),
            });
        }
        if call.arguments.len() > told.arguments {
            let arguments = call.arguments[told.arguments..].to_owned();
            told.arguments = call.arguments.len();
            entries.push(ToolCall {
                arguments: Some(arguments.into()),
                id: None,
                index: number(index),
                name: None,
            });
        }
        entries
    }

    fn arguments(&mut self, name: &str, content: &str, is_last: bool) -> Called {
        if content.is_empty() && !is_last {
            return Called::default();
        }
        let first = self.told.is_empty();
        self.told = vec![Told::default()];
        let call = ToolCall {
            arguments: Some(content.to_owned().into()),
            id: first.then(|| call_id(&mut self.ids).into()),
            index: 0,
            name: first.then(|| name.to_owned().into()),
        };
        Called {
            calls: vec![call],
            ..Called::default()
        }
    }

    /// Calls of a JSON list: the first entry of a call has its name and its first arguments.
    fn list(&mut self) -> Called {
        let mut called = Called::default();
        called.nulls.call_name = true;
        let items = list_items(&self.text).into_iter();
        let calls: Vec<Partial> = items
            .map(|call| Partial::read(call, "parameters"))
            .collect();
        for (index, partial) in calls.into_iter().enumerate() {
            if partial.arguments.is_empty() {
                continue;
            }
            let mut entries = self.tell(index, &partial);
            if entries.len() == 2 {
                let arguments = entries.pop().and_then(|entry| entry.arguments);
                entries[0].arguments = arguments;
            }
            called.calls.extend(entries);
        }
        called
    }

    /// The calls of a whole answer and what is left as content.
    pub(crate) fn whole(&mut self, text: &str) -> (Option<String>, Vec<ToolCall<'static>>) {
        let calls = match &self.form {
            Form::Arguments(name) => {
                vec![(name.clone(), text.to_owned())]
            }
            Form::Hermes => {
                let calls = text.split(OPEN).skip(1);
                let complete =
                    calls.map(|call| call.split_once(CLOSE).map_or(call, |(call, _)| call));
                match complete
                    .map(|call| complete_call(call, "arguments"))
                    .collect()
                {
                    Some(calls) => calls,
                    None => return (Some(text.to_owned()), Vec::new()),
                }
            }
            Form::List => match Json::parse(text.as_bytes()) {
                Ok(Json::Array(items)) => items
                    .iter()
                    .filter_map(|item| call_of(item, "parameters"))
                    .collect(),
                _ => Vec::new(),
            },
        };
        let kept = if self.parallel { calls.len() } else { 1 };
        let calls: Vec<ToolCall<'static>> = calls
            .into_iter()
            .take(kept)
            .enumerate()
            .map(|(index, (name, arguments))| ToolCall {
                arguments: Some(arguments.into()),
                id: Some(call_id(&mut self.ids).into()),
                index: number(index),
                name: Some(name.into()),
            })
            .collect();
        let before = match (&self.form, text.split_once(OPEN)) {
            (Form::Hermes, Some((before, _))) => before,
            (Form::Hermes, None) => text,
            _ => "",
        };
        self.told = vec![Told::default(); calls.len()];
        let is_blank = before.is_empty() || (!calls.is_empty() && before.trim().is_empty());
        (Some(before.to_owned()).filter(|_| !is_blank), calls)
    }
}

fn call_id(random: &mut fastrand::Rng) -> String {
    format!("chatcmpl-tool-{:016x}", random.u64(..))
}

/// As much of a call's JSON object as has come.
#[derive(Debug, Default)]
struct Partial {
    name: Option<String>,
    /// Raw text, white space at its end kept back.
    arguments: String,
}

impl Partial {
    fn read(text: &str, key: &str) -> Self {
        let after = |key: &str| {
            let at = text.find(&format!("\"{key}\""))?;
            let rest = text[at + key.len() + 2..].trim_start();
            Some(rest.strip_prefix(':')?.trim_start())
        };
        let name = after("name").and_then(|rest| {
            let end = rest.strip_prefix('"')?.find('"')?;
            Some(rest[1..=end].to_owned())
        });
        let arguments = after(key).unwrap_or_default();
        Self {
            name,
            arguments: value_prefix(arguments).trim_end().to_owned(),
        }
    }
}

/// The beginning of `text` that belongs to its first JSON object.
fn value_prefix(text: &str) -> &str {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '{' | '[' if !in_string => depth += 1,
            '}' | ']' if !in_string => {
                // The end of what holds a value that is no object.
                if depth == 0 {
                    return &text[..at];
                }
                depth -= 1;
                if depth == 0 {
                    return &text[..=at];
                }
            }
            _ => {}
        }
    }
    text
}

/// The objects of a JSON list that is still growing.
fn list_items(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let mut rest = text.trim_start().strip_prefix('[').unwrap_or_default();
    while let Some(start) = rest.find('{') {
        let item = value_prefix(&rest[start..]);
        items.push(item);
        rest = &rest[start + item.len()..];
    }
    items
}

fn complete_call(text: &str, key: &str) -> Option<(String, String)> {
    call_of(&Json::parse(text.as_bytes()).ok()?, key)
}

fn call_of(json: &Json<'_>, key: &str) -> Option<(String, String)> {
    let members = json.as_object()?;
    let name = members.get("name")?.as_str()?.to_owned();
    Some((name, python::dumps(members.get(key)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::voice::cuts;

    fn caller(form: Form) -> Caller {
        Caller::new(form, true, 1)
    }

    #[test]
    fn a_call_is_told_name_first_then_its_raw_arguments() {
        let mut caller = caller(Form::Hermes);
        let parts = [
            "Hi ",
            "<tool_call>",
            "\n{\"name\": \"f",
            "\", \"arguments\": {",
            "\"a\":",
            " 1",
            "}}\n",
            "</tool_call>",
        ];
        let mut told = String::new();
        for part in parts {
            let found = caller.feed(part, false);
            told.extend(found.content);
            for call in found.calls {
                let (name, arguments) = (call.name, call.arguments);
                let [name, arguments] = [name, arguments].map(Option::unwrap_or_default);
                told.extend(["<", &name, &arguments, ">"]);
            }
        }
        assert_eq!(told, "Hi <f><{><\"a\":>< 1><}>");
    }

    #[test]
    fn a_broken_call_is_content_when_whole() {
        let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\n</tool_call>";
        let (content, calls) = caller(Form::Hermes).whole(text);
        assert_eq!((content.as_deref(), calls.len()), (Some(text), 0));
    }

    #[test]
    fn lists_and_bare_arguments_are_the_old_way() {
        let text = r#"[{"name": "f", "parameters": {"a":1}}, {"name": "g", "parameters": {}}]"#;
        let (content, calls) = caller(Form::List).whole(text);
        let arguments: Vec<_> = calls
            .iter()
            .map(|call| call.arguments.as_deref().unwrap())
            .collect();
        assert_eq!((content, arguments), (None, vec!["{\"a\": 1}", "{}"]));
        let mut growing = caller(Form::List);
        let first = growing.feed(r#"[{"name": "f", "parameters": {"#, false);
        assert_eq!(first.calls[0].name.as_deref(), Some("f"));
        assert_eq!(first.calls[0].arguments.as_deref(), Some("{"));
    }

    proptest! {
        #[test]
        fn content_does_not_depend_on_cuts(
            text in "[aé<{\"]{0,8}(<tool_call>[aé{}\":, \\\\]{0,20}(</tool_call>)?){0,3}[aé<t]{0,6}",
            list in any::<bool>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let parts = cuts::parts(&text, &cuts);
            let form = || if list { Form::List } else { Form::Hermes };
            let mut whole = caller(form());
            let expected = whole.feed(&text, true).content.unwrap_or_default();
            let mut growing = caller(form());
            let mut content = String::new();
            for (index, part) in parts.iter().enumerate() {
                content.extend(growing.feed(part, index + 1 == parts.len()).content);
            }
            prop_assert_eq!(content, expected);
            caller(form()).whole(&text);
        }
    }
}
