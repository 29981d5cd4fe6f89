//! What `/v1/messages` asks for: a chat request in Anthropic's words.

use std::borrow::Cow;

use crate::json::{Json, Object};
use crate::python;
use crate::schema as pydantic;

use super::responses_request::{member, object, word};

/// How a server reads such a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// Texts without anything in them count.
    pub(super) has_empty_texts: bool,
    /// What a chat request calls the limit.
    pub(super) limit: &'static str,
    /// What a chat message calls its reasoning; without a name, it stands in the text between tags.
    pub(super) reasoning: Option<&'static str>,
    /// Stands between the texts of a system prompt.
    pub(super) separator: &'static str,
    /// A header of a client's own in the system prompt is left out.
    pub(super) skips_header: bool,
}

/// Members that a chat request has too, by their names here and there.
const SAME: &[(&str, &str)] = &[
    ("chat_template_kwargs", "chat_template_kwargs"),
    ("model", "model"),
    ("stop_sequences", "stop"),
    ("stream", "stream"),
    ("temperature", "temperature"),
    ("top_k", "top_k"),
    ("top_p", "top_p"),
];

/// The members of the chat request that says the same.
pub(super) fn chat<'a>(asked: &Object<'a>, habits: &Habits) -> Object<'a> {
    let given = |name| asked.get(name).filter(|value| **value != Json::Null);
    let mut members = Vec::new();
    for &(name, chat_name) in SAME {
        members.extend(given(name).map(|value| member(chat_name, value.clone())));
    }
    members.extend(given("max_tokens").map(|value| member(habits.limit, value.clone())));
    let effort = given("output_config").and_then(Json::as_object);
    let effort = effort.and_then(|config| config.get("effort"));
    members.extend(effort.map(|effort| member("reasoning_effort", effort.clone())));
    members.push(member("messages", Json::Array(messages(asked, habits))));
    if let Some(Json::Array(tools)) = given("tools") {
        let tools = tools.iter().filter_map(tool).collect();
        members.push(member("tools", Json::Array(tools)));
        let choice = given("tool_choice").and_then(Json::as_object);
        members.push(member("tool_choice", tool_choice(choice)));
        members.extend(choice.map(|choice| member("parallel_tool_calls", parallel(choice))));
    }
    Object(members)
}

fn tool<'a>(tool: &Json<'a>) -> Option<Json<'a>> {
    let tool = tool.as_object()?;
    let mut function = Vec::new();
    for (name, chat_name) in [
        ("name", "name"),
        ("description", "description"),
        ("input_schema", "parameters"),
    ] {
        function.extend(tool.get(name).map(|value| member(chat_name, value.clone())));
    }
    Some(object(vec![
        member("type", word("function")),
        member("function", object(function)),
    ]))
}

/// Several calls may come at once unless that is disabled.
fn parallel<'a>(choice: &Object<'a>) -> Json<'a> {
    let disabled = choice.get("disable_parallel_tool_use");
    let is_disabled = disabled.is_some_and(|value| pydantic::bool(value).unwrap_or(false));
    Json::Bool(!is_disabled)
}

fn tool_choice<'a>(choice: Option<&Object<'a>>) -> Json<'a> {
    let get = |name| choice.and_then(|choice| choice.get(name));
    match (get("type").and_then(Json::as_str), get("name")) {
        (Some("any"), _) => word("required"),
        (Some("none"), _) => word("none"),
        (Some("tool"), Some(name)) => object(vec![
            member("type", word("function")),
            member("function", object(vec![member("name", name.clone())])),
        ]),
        _ => word("auto"),
    }
}

fn messages<'a>(asked: &Object<'a>, habits: &Habits) -> Vec<Json<'a>> {
    let given: &[Json<'a>] = match asked.get("messages") {
        Some(Json::Array(messages)) => messages,
        _ => &[],
    };
    let of_role = |message: &&Json<'a>| role(message) == Some("system");
    let contents = given.iter().filter(of_role).filter_map(content);
    let contents = asked.get("system").into_iter().chain(contents);
    let texts = contents.flat_map(|content| system_texts(content, habits));
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    let mut out = Vec::new();
    if !texts.is_empty() {
        let system = texts.join(habits.separator);
        let content = member("content", Json::String(system.into()));
        out.push(object(vec![member("role", word("system")), content]));
    }
    for message in given.iter().filter(|message| !of_role(message)) {
        self::message(message, habits, &mut out);
    }
    out
}

fn role<'j>(message: &'j Json<'_>) -> Option<&'j str> {
    message.as_object()?.get("role")?.as_str()
}

fn content<'j, 'a>(message: &'j Json<'a>) -> Option<&'j Json<'a>> {
    message.as_object()?.get("content")
}

/// The texts of a system prompt. A header of a client's own, different with every request, may be left
/// out for the prefix cache's sake.
fn system_texts<'j>(content: &'j Json<'_>, habits: &Habits) -> Vec<&'j str> {
    let is_skipped =
        |text: &str| habits.skips_header && text.starts_with("x-anthropic-billing-header");
    match content {
        Json::Array(blocks) => blocks
            .iter()
            .filter_map(|block| block.as_object()?.get("text")?.as_str())
            .filter(|text| !is_skipped(text))
            .collect(),
        content => content.as_str().into_iter().collect(),
    }
}

/// A message of a user or the assistant; results of tools are messages of their own before it.
fn message<'a>(message: &Json<'a>, habits: &Habits, out: &mut Vec<Json<'a>>) {
    let is_user = role(message) == Some("user");
    let role = word(if is_user { "user" } else { "assistant" });
    let mut members = vec![member("role", role)];
    match content(message) {
        Some(Json::Array(blocks)) => {
            let mut parts = Parts::default();
            for block in blocks.iter().filter_map(Json::as_object) {
                out.extend(parts.take(block, is_user, habits));
            }
            members.extend(parts.members(habits));
            if is_user && members.len() == 1 {
                return;
            }
        }
        Some(text) => members.push(member("content", text.clone())),
        None => {}
    }
    out.push(object(members));
}

/// What the blocks of one message say.
#[derive(Default)]
struct Parts<'a> {
    calls: Vec<Json<'a>>,
    content: Vec<Json<'a>>,
    reasoning: String,
}

impl<'a> Parts<'a> {
    /// Takes a block; a user's tool result is a message of its own.
    fn take(&mut self, block: &Object<'a>, is_user: bool, habits: &Habits) -> Option<Json<'a>> {
        let text = |name| block.get(name).and_then(Json::as_str).unwrap_or_default();
        let given = |name| block.get(name).cloned();
        match text("type") {
            "text" if habits.has_empty_texts || !text("text").is_empty() => {
                self.content.push(text_part(given("text")?));
            }
            "image" => self.content.push(object(vec![
                member("type", word("image_url")),
                member("image_url", given("source").unwrap_or(Json::Null)),
            ])),
            "thinking" => self.reasoning += text("thinking"),
            "tool_use" => self.calls.push(call(block)),
            "tool_result" if is_user => {
                return Some(object(vec![
                    member("role", word("tool")),
                    member(
                        "tool_call_id",
                        given("tool_use_id").unwrap_or_else(|| word("")),
                    ),
                    member("content", Json::String(result_text(block).into())),
                ]));
            }
            "tool_result" => {
                let content = block
                    .get("content")
                    .filter(|content| python::truthy(content));
                let text = format!(
                    "Tool result: {}",
                    content.map_or_else(String::new, python::display)
                );
                self.content.push(text_part(Json::String(text.into())));
            }
            _ => {}
        }
        None
    }

    fn members(mut self, habits: &Habits) -> Vec<(Cow<'a, str>, Json<'a>)> {
        let mut members = Vec::new();
        match habits.reasoning {
            _ if self.reasoning.is_empty() => {}
            Some(name) => members.push(member(name, Json::String(self.reasoning.into()))),
            None => {
                let text = format!("<think>{}\n</think>", self.reasoning);
                self.content.insert(0, text_part(Json::String(text.into())));
            }
        }
        if !self.calls.is_empty() {
            members.push(member("tool_calls", Json::Array(self.calls)));
        }
        if !self.content.is_empty() {
            members.push(member("content", Json::Array(self.content)));
        }
        members
    }
}

fn text_part(text: Json<'_>) -> Json<'_> {
    object(vec![member("type", word("text")), member("text", text)])
}

fn call<'a>(block: &Object<'a>) -> Json<'a> {
    let given = |name| block.get(name).cloned().unwrap_or_else(|| word(""));
    let input = block.get("input").filter(|input| **input != Json::Null);
    let arguments = input.map_or_else(|| "{}".to_owned(), python::dumps);
    object(vec![
        member("id", given("id")),
        member("type", word("function")),
        member(
            "function",
            object(vec![
                member("name", given("name")),
                member("arguments", Json::String(arguments.into())),
            ]),
        ),
    ])
}

/// The text of a tool's result, that of several blocks on lines of their own.
fn result_text(block: &Object<'_>) -> String {
    match block.get("content") {
        Some(Json::Array(items)) => {
            let items = items.iter().filter_map(Json::as_object);
            let texts =
                items.filter(|item| item.get("type").and_then(Json::as_str) == Some("text"));
            let texts: Vec<&str> = texts
                .map(|item| item.get("text").and_then(Json::as_str).unwrap_or_default())
                .collect();
            texts.join("\n")
        }
        Some(text) => text.as_str().unwrap_or_default().to_owned(),
        None => String::new(),
    }
}
