//! Calls as SGLang finds them in a stream: by what a parser of unfinished JSON makes of them.

use std::sync::Arc;

use wire::chunk::ToolCall;
use wire::json::{Json, Object};
use wire::python;

use super::growing::Growing;
use super::whole::entries;
use super::{CLOSE, Called, ToolParser, begun, find, number};

/// Finds one choice's calls as its content comes, and says at most one thing of them for each piece.
///
/// Thus cuts matter, as they do to SGLang: `qwen25` loses text that comes in one piece with a tag behind
/// it, the name of an unknown tool takes away what came with it and nothing more, arguments that come
/// with the end are not told, and text that may begin a tag at the end is lost.
#[derive(Clone, Debug)]
pub(crate) struct Detector {
    parser: ToolParser,
    /// Names of the request's tools.
    names: Arc<[String]>,
    ids: fastrand::Rng,
    /// Content that nothing has been made of yet.
    pending: String,
    /// Content that may turn out to begin a closing tag.
    held: String,
    /// The call in the making.
    call: Option<usize>,
    /// Its name has been told.
    is_named: bool,
    /// The arguments told of each call.
    told: Vec<String>,
    /// The arguments of each call as they were read last.
    read: Vec<Arguments>,
}

/// Arguments as far as they have come.
#[derive(Clone, Debug, Default)]
struct Arguments {
    dumped: String,
    /// Python takes them for true.
    is_truthy: bool,
    /// Their text, if they are a string.
    text: Option<String>,
}

/// What stands between two calls of `qwen25`.
const BETWEEN: &str = "\n";

impl Detector {
    pub(crate) fn new(parser: ToolParser, names: Arc<[String]>, seed: u64) -> Self {
        Self {
            parser,
            names,
            ids: fastrand::Rng::with_seed(seed),
            pending: String::new(),
            held: String::new(),
            call: None,
            is_named: false,
            told: Vec::new(),
            read: Vec::new(),
        }
    }

    /// Takes the next content, which may be empty, and says what it adds.
    pub(crate) fn feed(&mut self, content: &str, is_last: bool) -> Called {
        self.pending.push_str(content);
        let mut called = match self.parser {
            ToolParser::Hermes => self.hermes(),
            ToolParser::Qwen25 => self.qwen25(),
        };
        called.content = called.content.filter(|content| !content.is_empty());
        if is_last {
            called.calls.extend(self.rest());
        }
        called
    }

    /// The content and the calls of a whole answer.
    pub(crate) fn whole(&mut self, text: &str) -> (Option<String>, Vec<ToolCall<'static>>) {
        let whole = find(self.parser, text, &self.names);
        let calls = entries(whole.calls, 0, || call_id(&mut self.ids));
        (Some(whole.content), calls)
    }

    fn hermes(&mut self) -> Called {
        match self.pending.find(self.parser.open()) {
            Some(0) => self.in_call(false),
            Some(at) => {
                let behind = self.pending.split_off(at);
                Called::content(std::mem::replace(&mut self.pending, behind))
            }
            None => {
                let kept = begun(&self.pending, self.parser.open());
                let kept = self.pending.split_off(self.pending.len() - kept);
                let said = std::mem::replace(&mut self.pending, kept);
                Called::content(self.without_close(&said))
            }
        }
    }

    fn qwen25(&mut self) -> Called {
        let goes_on = self.call > Some(0) && self.pending.starts_with(BETWEEN);
        if goes_on || self.pending.contains(self.parser.open()) {
            return self.in_call(goes_on);
        }
        if begun(&self.pending, self.parser.open()) > 0 {
            return Called::default();
        }
        let said = std::mem::take(&mut self.pending).replace(self.parser.close(), "");
        Called::content(self.without_close(&said))
    }

    /// Content without closing tags, the last of which may come in pieces.
    fn without_close(&mut self, said: &str) -> String {
        if said.is_empty() {
            return String::new();
        }
        self.held.push_str(said);
        if self.held.contains(CLOSE) {
            return std::mem::take(&mut self.held).replace(CLOSE, "");
        }
        let kept = begun(&self.held, CLOSE);
        let kept = self.held.split_off(self.held.len() - kept);
        std::mem::replace(&mut self.held, kept)
    }

    /// What is new of a call that has begun, or that follows the last one.
    fn in_call(&mut self, goes_on: bool) -> Called {
        let mut text = std::mem::take(&mut self.pending);
        let open = self.parser.open();
        let behind_tag = text.find(open).map(|at| at + open.len());
        let read = |start: usize| {
            let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
            Some((start, Growing::read(rest, self.is_named)?))
        };
        let between = goes_on.then(|| read(BETWEEN.len())).flatten();
        let growing = between.or_else(|| read(behind_tag?));
        let mut calls = Vec::new();
        let mut used = 0;
        if let Some((start, growing)) = &growing
            && let Ok(json) = Json::parse(growing.closed.as_bytes())
            && let Some(call) = json.as_object()
        {
            let progress = self.tell(call, growing.is_whole);
            used = match progress.next {
                Next::Drop => text.len(),
                Next::Stay => 0,
                Next::Leave => start + growing.length,
            };
            calls.extend(progress.entry);
        }
        text.drain(..used);
        self.pending = text;
        Called {
            calls,
            ..Called::default()
        }
    }

    /// What is new of a call: first its name, then its arguments.
    fn tell(&mut self, call: &Object<'_>, is_whole: bool) -> Progress {
        let name = call.get("name");
        let known = |name: &str| self.names.iter().any(|known| known == name);
        match name {
            Some(Json::Array(_) | Json::Object(_)) => return Progress::default(),
            Some(name) if !name.as_str().is_some_and(known) => {
                self.call = None;
                self.is_named = false;
                self.told.pop();
                return Progress {
                    entry: None,
                    next: Next::Drop,
                };
            }
            _ => {}
        }
        let arguments = match (call.get("parameters"), call.get("arguments")) {
            (Some(_), Some(_)) => return Progress::default(),
            (parameters, arguments) => parameters.or(arguments),
        };
        match (name.and_then(Json::as_str), arguments) {
            (Some(name), _) if !self.is_named => Progress {
                entry: Some(self.name(name)),
                next: Next::Stay,
            },
            (_, Some(arguments)) if self.is_named && *arguments != Json::Null => {
                self.arguments(arguments, is_whole)
            }
            _ => Progress::default(),
        }
    }

    fn name(&mut self, name: &str) -> ToolCall<'static> {
        let index = *self.call.get_or_insert_with(|| {
            self.told.push(String::new());
            0
        });
        if self.told.len() <= index {
            self.told.resize(index + 1, String::new());
        }
        self.is_named = true;
        ToolCall {
            arguments: Some("".into()),
            id: Some(call_id(&mut self.ids).into()),
            index: number(index),
            name: Some(name.to_owned().into()),
        }
    }

    fn arguments(&mut self, arguments: &Json<'_>, is_whole: bool) -> Progress {
        let index = self.call.unwrap_or_default();
        if self.read.len() <= index {
            self.read.resize_with(index + 1, Arguments::default);
        }
        let read = Arguments {
            dumped: python::dumps(arguments),
            is_truthy: python::truthy(arguments),
            text: arguments.as_str().map(str::to_owned),
        };
        let before = std::mem::replace(&mut self.read[index], read);
        let (read, told) = (&self.read[index].dumped, &mut self.told[index]);
        let sure = if is_whole {
            Some(&**read)
        } else if before.is_truthy && before.dumped != *read {
            Some(common(&before.dumped, read))
        } else {
            None
        };
        let new = sure.map(|sure| behind(sure, told.chars().count()).to_owned());
        told.extend(new.as_deref());
        if is_whole {
            self.is_named = false;
            self.call = Some(index + 1);
        }
        Progress {
            entry: new.map(|new| more(index, new)),
            next: if is_whole { Next::Leave } else { Next::Stay },
        }
    }

    /// Arguments of the last call that were read but not told.
    fn rest(&self) -> Option<ToolCall<'static>> {
        let read = self.read.last()?;
        let index = self.read.len() - 1;
        let told = self.told.get(index)?;
        let text = read.text.as_ref().unwrap_or(&read.dumped);
        let rest = text.strip_prefix(&**told)?;
        (!rest.is_empty()).then(|| more(index, rest.to_owned()))
    }
}

/// What a look at a call led to.
#[derive(Debug, Default)]
struct Progress {
    entry: Option<ToolCall<'static>>,
    next: Next,
}

/// What becomes of the text looked at.
#[derive(Debug, Default)]
enum Next {
    Drop,
    /// What stands behind the call stays.
    Leave,
    #[default]
    Stay,
}

/// An entry with arguments alone.
fn more(index: usize, arguments: String) -> ToolCall<'static> {
    ToolCall {
        arguments: Some(arguments.into()),
        id: None,
        index: number(index),
        name: None,
    }
}

/// An id as SGLang's Python front end makes them.
fn call_id(random: &mut fastrand::Rng) -> String {
    format!("call_{:024x}", random.u128(..) >> 32)
}

/// What two texts begin with.
fn common<'t>(one: &str, other: &'t str) -> &'t str {
    let pairs = one.chars().zip(other.chars());
    let alike = pairs.take_while(|(one, other)| one == other);
    &other[..alike.map(|(one, _)| one.len_utf8()).sum()]
}

/// The text without so many characters at its front.
fn behind(text: &str, characters: usize) -> &str {
    let at = text.char_indices().nth(characters).map(|(at, _)| at);
    &text[at.unwrap_or(text.len())..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::voice::cuts;

    const PARSERS: [ToolParser; 2] = [ToolParser::Hermes, ToolParser::Qwen25];

    fn detector(parser: ToolParser) -> Detector {
        Detector::new(parser, Arc::new(["f".to_owned(), "g".to_owned()]), 1)
    }

    /// What is told of pieces: content, and each call's name and arguments.
    fn told(parser: ToolParser, parts: &[&str]) -> (String, Vec<(String, String)>) {
        let mut detector = detector(parser);
        let (mut content, mut calls) = (String::new(), Vec::new());
        for (index, part) in parts.iter().enumerate() {
            let called = detector.feed(part, index + 1 == parts.len());
            content.extend(called.content);
            for call in called.calls {
                let arguments = call.arguments.unwrap();
                match call.name {
                    Some(name) => calls.push((name.into_owned(), arguments.into_owned())),
                    None => calls[call.index as usize].1.push_str(&arguments),
                }
            }
        }
        (content, calls)
    }

    #[test]
    fn what_comes_in_one_piece_is_told_piece_by_piece_or_lost() {
        let text = "a<tool_call>\n{\"name\":\"f\",\"arguments\":{\"x\":1}}\n</tool_call>";
        let [hermes, qwen25] = PARSERS;
        let name = ("f".to_owned(), String::new());
        let all = ("f".to_owned(), "{\"x\": 1}".to_owned());
        assert_eq!(told(hermes, &[text]), ("a".into(), vec![]));
        assert_eq!(told(hermes, &[text, ""]), ("a".into(), vec![name.clone()]));
        assert_eq!(
            told(hermes, &[text, "", ""]),
            ("a".into(), vec![all.clone()])
        );
        assert_eq!(told(qwen25, &[text]), (String::new(), vec![name]));
        assert_eq!(told(qwen25, &[text, ""]), (String::new(), vec![all]));
    }

    #[test]
    fn a_call_after_an_unknown_one_takes_its_number() {
        let text = "<tool_call>\n{\"name\":\"h\",\"arguments\":{}}\n</tool_call>\n<tool_call>\n{\"name\":\"g\",\"arguments\":{}}\n</tool_call>";
        let characters: Vec<&str> = text.split_inclusive(|_| true).collect();
        for parser in PARSERS {
            let (_, calls) = told(parser, &characters);
            assert_eq!(calls, [("g".to_owned(), "{}".to_owned())]);
        }
    }

    proptest! {
        #[test]
        fn characters_add_up_to_the_whole(
            calls in prop::collection::vec(
                r#"(f|g)", "(arguments|parameters)": \{("a": (\[1, (true|-2\.5|"é \\u00e9\\n")\]|\{"b": "[x ]{0,3}"\})(, "c": (null|"\\\\"|12))?)?\}"#,
                1..4,
            ),
            parser in prop::sample::select(&PARSERS[..]),
        ) {
            let calls: Vec<String> = calls.iter().map(|call| format!("<tool_call>\n{{\"name\": \"{call}}}\n</tool_call>")).collect();
            let text = calls.join("\n");
            let characters: Vec<&str> = text.split_inclusive(|_| true).collect();
            let whole = find(parser, &text, &["f".to_owned(), "g".to_owned()]).calls.into_iter();
            let whole: Vec<_> = whole.map(|call| (call.name, call.arguments)).collect();
            prop_assert_eq!(whole.len(), calls.len());
            prop_assert_eq!(told(parser, &characters).1, whole);
        }

        #[test]
        fn content_without_tags_does_not_depend_on_cuts(
            text in "[aé<\n{\"]{0,8}(<tool_cal)?[aé\n]{1,6}",
            cuts in prop::collection::vec(any::<Index>(), 0..6),
            parser in prop::sample::select(&PARSERS[..]),
        ) {
            let parts = cuts::parts(&text, &cuts);
            prop_assert_eq!(told(parser, &parts).0, text);
        }

        #[test]
        fn no_text_is_too_odd(
            text in r#"[aé<{"]{0,4}(<tool_call>\n?\{?("name": ?("f"|"h"|\[\]|null),? ?)?("(arguments|parameters)": ?)?[aé{}":, \\u0-9e\[\]]{0,12}(\n?</tool_call>\n?)?){0,3}[a<t]{0,4}"#,
            cuts in prop::collection::vec(any::<Index>(), 0..40),
            parser in prop::sample::select(&PARSERS[..]),
        ) {
            let mut detector = detector(parser);
            for part in cuts::parts(&text, &cuts) {
                detector.feed(part, false);
            }
            detector.feed("", true);
            find(parser, &text, &["f".to_owned()]);
        }
    }
}
