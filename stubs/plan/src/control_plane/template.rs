//! How messages become a prompt, and which texts end an answer.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use vocab::{Template, Tokenizer};
use wire::executorch::Message;
use wire::json::{Json, Object};
use wire::python;

/// The texts that end an answer where no tokenizer tells any.
const SPECIALS: [&str; 4] = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>"];
/// Special tokens that end a turn, and not a part of one.
const TERMINATORS: [&str; 8] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "</s>",
];
/// What stands before an assistant's text.
pub(super) const ASSISTANT: &str = "<|im_start|>assistant\n";

/// A model's own template, or plain ChatML.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    /// The model's tokenizer and template.
    tokenizer: Option<Arc<Tokenizer>>,
    /// `enable_thinking` unless a request says otherwise.
    enable_thinking: Option<bool>,
}

/// There is no template, and none in its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no chat template in it")]
pub struct NoTemplate;

/// What a template renders.
pub(super) struct Rendered<'r, 'a> {
    pub(super) kwargs: Option<&'r Object<'a>>,
    pub(super) tools: Option<&'r Json<'a>>,
}

/// Arguments that the server itself passes to the template, or `transformers` does.
const PASSED: [&str; 6] = [
    "add_generation_prompt",
    "conversation",
    "documents",
    "messages",
    "tokenize",
    "tools",
];

impl Rendered<'_, '_> {
    fn kwarg(&self, name: &str) -> Option<&Json<'_>> {
        self.kwargs?.get(name)
    }

    /// What `transformers` fails over before it renders anything.
    fn check(&self, messages: &[Shown<'_, '_>]) -> Result<(), String> {
        if messages.is_empty() {
            return Err("there are no messages".into());
        }
        if let Some(name) = PASSED.iter().find(|name| self.kwarg(name).is_some()) {
            return Err(format!("{name} is given twice"));
        }
        let goes_on = self.kwarg("continue_final_message");
        if goes_on.is_some_and(python::truthy) {
            return Err("the final message cannot go on behind a generation prompt".into());
        }
        Ok(())
    }
}

/// A message as it was sent, or a mark in place of an assistant's.
pub(super) enum Shown<'r, 'a> {
    Mark(String),
    Sent(Message<'r, 'a>),
}

impl ChatTemplate {
    /// Plain ChatML, for texts alone.
    pub fn chatml() -> Self {
        Self {
            enable_thinking: None,
            tokenizer: None,
        }
    }

    /// A model's own.
    pub fn of(tokenizer: Arc<Tokenizer>) -> Result<Self, NoTemplate> {
        if tokenizer.template.is_none() {
            return Err(NoTemplate);
        }
        Ok(Self {
            enable_thinking: None,
            tokenizer: Some(tokenizer),
        })
    }

    /// The same, the model not thinking unless a request asks for it.
    #[must_use]
    pub fn without_thinking(self) -> Self {
        Self {
            enable_thinking: Some(false),
            ..self
        }
    }

    /// Whether prompts can be counted.
    pub fn counts(&self) -> bool {
        self.tokenizer.is_some()
    }

    /// The prompt.
    ///
    /// # Errors
    /// What the template says.
    pub(super) fn render(
        &self,
        messages: &[Shown<'_, '_>],
        rendered: &Rendered<'_, '_>,
    ) -> Result<String, String> {
        let Some(tokenizer) = &self.tokenizer else {
            return Ok(chatml(messages));
        };
        rendered.check(messages)?;
        let context = Context {
            messages,
            rendered,
            template: self,
        };
        let given = rendered.kwarg("chat_template").and_then(Json::as_str);
        let result = if let Some(given) = given {
            Template::new(given.to_owned()).and_then(|given| given.render(context))
        } else {
            let own = tokenizer.template.as_ref().expect("looked at in `of`");
            own.render(context)
        };
        result.map_err(|error| error.to_string())
    }

    /// What stands between the assistant's header and its first token.
    pub(super) fn preamble(&self, rendered: &Rendered<'_, '_>) -> Result<String, String> {
        if self.tokenizer.is_none() {
            return Ok(String::new());
        }
        let empty = Object(vec![
            ("role".into(), Json::String("user".into())),
            ("content".into(), Json::String("".into())),
        ]);
        let prompt = self.render(&[Shown::Sent(Message::new(&empty))], rendered)?;
        let behind = prompt.rsplit_once(ASSISTANT);
        Ok(behind.map_or_else(String::new, |(_, behind)| behind.to_owned()))
    }

    /// Tokens of a text, where there is a tokenizer.
    pub(super) fn count(&self, text: &str) -> Option<u64> {
        let tokenizer = self.tokenizer.as_ref()?;
        Some(tokenizer.vocab.encode(text, false).len() as u64)
    }

    /// Texts that end a turn.
    pub(super) fn terminators(&self) -> Vec<String> {
        let Some(tokenizer) = &self.tokenizer else {
            return SPECIALS.map(ToOwned::to_owned).into();
        };
        let special = &tokenizer.special_tokens;
        let mut found: Vec<String> = Vec::new();
        found.extend(special.named("eos_token").map(ToOwned::to_owned));
        for known in TERMINATORS {
            if special.all().any(|token| token == known) && !found.iter().any(|text| text == known)
            {
                found.push(known.to_owned());
            }
        }
        found.retain(|token| !token.trim().is_empty());
        found
    }

    /// Texts that no answer shows.
    pub(super) fn specials(&self) -> Vec<String> {
        let Some(tokenizer) = &self.tokenizer else {
            return SPECIALS.map(ToOwned::to_owned).into();
        };
        let all = tokenizer.special_tokens.all();
        all.filter(|token| !token.trim().is_empty())
            .map(ToOwned::to_owned)
            .collect()
    }
}

/// ChatML, in which calls and what they gave are not shown.
fn chatml(messages: &[Shown<'_, '_>]) -> String {
    let mut parts = Vec::new();
    for message in messages {
        let (role, text) = match message {
            Shown::Mark(mark) => ("assistant".into(), mark.clone()),
            Shown::Sent(message) => (message.role(), plain_text(message.content())),
        };
        parts.push(format!("<|im_start|>{role}\n{text}<|im_end|>"));
    }
    parts.push(ASSISTANT.to_owned());
    parts.join("\n")
}

/// A content's text, that of its parts one behind the other.
pub(super) fn plain_text(content: Option<&Json<'_>>) -> String {
    let part = |part: &Json<'_>| {
        let part = part.as_object()?;
        if part.get("type")?.as_str()? != "text" {
            return None;
        }
        Some(part.get("text").map_or_else(String::new, python::display))
    };
    match content {
        Some(Json::Array(parts)) => parts.iter().filter_map(part).collect(),
        Some(text) => python::display(text),
        None => String::new(),
    }
}

/// The variables of a template.
struct Context<'r, 'a> {
    messages: &'r [Shown<'r, 'a>],
    rendered: &'r Rendered<'r, 'a>,
    template: &'r ChatTemplate,
}

impl Serialize for Context<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let given = |name: &str| {
            let kwargs = self.rendered.kwargs;
            kwargs.is_some_and(|kwargs| kwargs.get(name).is_some())
        };
        if let Some(tokenizer) = &self.template.tokenizer {
            for (name, token) in tokenizer.special_tokens.names() {
                if !given(name) {
                    map.serialize_entry(name, token)?;
                }
            }
        }
        map.serialize_entry("messages", &Messages(self.messages))?;
        map.serialize_entry("tools", &self.rendered.tools)?;
        map.serialize_entry("add_generation_prompt", &true)?;
        if let Some(flag) = self.template.enable_thinking
            && !given("enable_thinking")
        {
            map.serialize_entry("enable_thinking", &flag)?;
        }
        let kwargs = self.rendered.kwargs.iter().flat_map(|kwargs| &kwargs.0);
        for (name, value) in kwargs.filter(|(name, _)| name != "return_reasoning") {
            map.serialize_entry(&**name, value)?;
        }
        map.end()
    }
}

struct Messages<'r, 'a>(&'r [Shown<'r, 'a>]);

impl Serialize for Messages<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for message in self.0 {
            list.serialize_element(message)?;
        }
        list.end()
    }
}

/// The members that the request model knows, in its order.
impl Serialize for Shown<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let message = match self {
            Self::Mark(mark) => {
                map.serialize_entry("role", "assistant")?;
                map.serialize_entry("content", mark)?;
                return map.end();
            }
            Self::Sent(message) => message,
        };
        for name in ["role", "content", "name", "reasoning_content"] {
            if let Some(value) = message.get(name) {
                map.serialize_entry(name, value)?;
            }
        }
        if message.get("tool_calls").is_some() {
            let calls = message.tool_calls().iter().filter_map(Json::as_object);
            let calls: Vec<SentCall<'_>> = calls.map(SentCall).collect();
            map.serialize_entry("tool_calls", &calls)?;
        }
        if let Some(id) = message.get("tool_call_id") {
            map.serialize_entry("tool_call_id", id)?;
        }
        map.end()
    }
}

struct SentCall<'r>(&'r Object<'r>);

impl Serialize for SentCall<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let there = |value: &&Json<'_>| **value != Json::Null;
        for name in ["index", "id"] {
            if let Some(value) = self.0.get(name).filter(there) {
                map.serialize_entry(name, value)?;
            }
        }
        map.serialize_entry("type", "function")?;
        if let Some(function) = self.0.get("function").and_then(Json::as_object) {
            map.serialize_entry("function", &SentFunction(function))?;
        }
        map.end()
    }
}

/// A function whose arguments are what their text says.
struct SentFunction<'r>(&'r Object<'r>);

impl Serialize for SentFunction<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(name) = self.0.get("name") {
            map.serialize_entry("name", name)?;
        }
        if let Some(text) = self.0.get("arguments").and_then(Json::as_str) {
            match Json::parse(text.as_bytes()) {
                Ok(read) => map.serialize_entry("arguments", &read)?,
                Err(_) => map.serialize_entry("arguments", text)?,
            }
        }
        map.end()
    }
}
