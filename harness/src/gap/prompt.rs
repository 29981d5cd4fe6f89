//! A prompt of messages, as the model gets it and as clients count it.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use vocab::{Template, Tokenizer};
use wire::json::{Json, Object};

use super::trace::count;

/// Tokens of a prompt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Prompt {
    /// Tools as SGLang writes them, and the template's arguments.
    pub(crate) rewritten: i64,
    /// Tools as they were sent, and the template's arguments.
    pub(crate) whole: i64,
    /// Messages alone through the template.
    pub(super) messages: i64,
    /// The messages' texts alone.
    pub(super) text: i64,
}

impl Prompt {
    /// Counts the prompt of a chat's body, if the tokenizer has a template that renders it.
    pub(crate) fn count(body: &str, tokenizer: &Tokenizer) -> Option<Self> {
        let template = tokenizer.template.as_ref()?;
        let body = Json::parse(body.as_bytes()).ok()?;
        let body = body.as_object()?;
        let context = Context {
            messages: body.get("messages")?,
            tools: body.get("tools").cloned(),
            arguments: body.get("chat_template_kwargs").and_then(Json::as_object),
        };
        let rewritten = Context {
            tools: context.tools.as_ref().map(rewrite),
            ..context
        };
        let alone = Context {
            tools: None,
            arguments: None,
            ..context
        };
        let tokens = |context: &Context<'_>| context.tokens(template, tokenizer);
        Some(Self {
            rewritten: tokens(&rewritten)?,
            whole: tokens(&context)?,
            messages: tokens(&alone)?,
            text: texts(context.messages)
                .map(|text| count(&tokenizer.vocab, text))
                .sum(),
        })
    }
}

/// The variables of a chat template.
struct Context<'a> {
    messages: &'a Json<'a>,
    tools: Option<Json<'a>>,
    arguments: Option<&'a Object<'a>>,
}

impl Context<'_> {
    fn tokens(&self, template: &Template, tokenizer: &Tokenizer) -> Option<i64> {
        let text = template.render(self).ok()?;
        Some(count(&tokenizer.vocab, &text))
    }
}

impl Serialize for Context<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("messages", self.messages)?;
        map.serialize_entry("add_generation_prompt", &true)?;
        if let Some(tools) = &self.tools {
            map.serialize_entry("tools", tools)?;
        }
        for (name, value) in self.arguments.iter().flat_map(|given| &given.0) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

fn texts<'a>(messages: &'a Json<'a>) -> impl Iterator<Item = &'a str> {
    let messages = match messages {
        Json::Array(messages) => &messages[..],
        _ => &[],
    };
    let contents = messages
        .iter()
        .filter_map(|message| message.as_object()?.get("content"));
    contents.filter_map(Json::as_str)
}

/// Tools with the keys that SGLang's own types give them.
fn rewrite<'a>(tools: &Json<'a>) -> Json<'a> {
    let Json::Array(tools) = tools else {
        return Json::Null;
    };
    let tools = tools.iter().filter_map(|tool| {
        let given = tool.as_object()?;
        let function = given.get("function")?.as_object()?;
        let or_null = |object: &Object<'a>, name: &'static str| {
            let value = object.get(name).cloned();
            (Cow::from(name), value.unwrap_or(Json::Null))
        };
        let mut members: Vec<_> = ["description", "name", "parameters"]
            .map(|name| or_null(function, name))
            .into();
        for name in ["strict", "defer_loading"] {
            members.extend(function.get(name).map(|value| (name.into(), value.clone())));
        }
        Some(Json::Object(Object(vec![
            ("type".into(), Json::String("function".into())),
            ("function".into(), Json::Object(Object(members))),
            or_null(given, "defer_loading"),
        ])))
    });
    Json::Array(tools.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gap::files;

    #[test]
    fn each_part_of_a_prompt_costs_its_tokens() {
        let tokenizer = files::tokenizer("bpe").unwrap();
        let of = |more: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{more}}}"#);
            Prompt::count(&body, &tokenizer).unwrap()
        };
        let plain = of("");
        assert_eq!((plain.text, plain.messages), (1, 11));
        assert_eq!((plain.whole, plain.rewritten), (11, 11));
        let thinks = of(r#","chat_template_kwargs":{"enable_thinking":false}"#);
        assert_eq!((thinks.messages, thinks.whole), (11, 15));
        let tools = of(r#","tools":[{"type":"function","function":{"name":"a"}}]"#);
        assert!(
            tools.whole > 11 && tools.rewritten > tools.whole,
            "{tools:?}"
        );
    }
}
