//! What `/v1/messages` accepts: a chat request in Anthropic's words.

use crate::dialect::body::{checked, json};
use crate::failure::Failure;
use crate::json::{Json, Object};
use crate::python;
use crate::request::{Endpoint, Request};
use crate::schema::{self as pydantic, Field, INT, Kind, nullable, required};

use super::responses_request::{member, object, word};

/// `AnthropicMessagesRequest`
const MESSAGES: &[Field] = &[
    required("model", Kind::Str),
    required("messages", Kind::List(&MESSAGE, usize::MAX)),
    required("max_tokens", INT),
    nullable("metadata", DICT),
    nullable("output_config", DICT),
    // `VLLM_MAX_STOP_STRINGS` is 4.
    nullable("stop_sequences", Kind::List(&Kind::Str, 4)),
    nullable("stream", Kind::Bool),
    nullable("system", TEXT),
    nullable("temperature", Kind::Float),
    nullable("tool_choice", TOOL_CHOICE),
    nullable("tools", Kind::List(&TOOL, usize::MAX)),
    nullable("top_k", INT),
    nullable("top_p", Kind::Float),
    nullable("kv_transfer_params", DICT),
    nullable("chat_template_kwargs", DICT),
];

/// `AnthropicCountTokensRequest`
const COUNT_TOKENS: &[Field] = &[
    required("model", Kind::Str),
    required("messages", Kind::List(&MESSAGE, usize::MAX)),
    nullable("system", TEXT),
    nullable("tool_choice", TOOL_CHOICE),
    nullable("tools", Kind::List(&TOOL, usize::MAX)),
    nullable("chat_template_kwargs", DICT),
];

const DICT: Kind = Kind::Dict(&Kind::Any);

const BLOCK: Kind = Kind::Model(&[
    required(
        "type",
        Kind::Literal(&[
            "text",
            "image",
            "tool_use",
            "tool_result",
            "tool_reference",
            "thinking",
            "redacted_thinking",
        ]),
    ),
    nullable("text", Kind::Str),
    nullable("source", DICT),
    nullable("id", Kind::Str),
    nullable("tool_use_id", Kind::Str),
    nullable("name", Kind::Str),
    nullable("input", DICT),
    nullable(
        "content",
        Kind::Union(&[Kind::Str, Kind::List(&DICT, usize::MAX)]),
    ),
    nullable("thinking", Kind::Str),
    nullable("signature", Kind::Str),
]);

const TEXT: Kind = Kind::Union(&[Kind::Str, Kind::List(&BLOCK, usize::MAX)]);

const MESSAGE: Kind = Kind::Model(&[
    required("role", Kind::Literal(&["user", "assistant", "system"])),
    required("content", TEXT),
]);

const TOOL: Kind = Kind::Model(&[
    required("name", Kind::Str),
    nullable("description", Kind::Str),
    required("input_schema", DICT),
]);

const TOOL_CHOICE: Kind = Kind::Model(&[
    required("type", Kind::Literal(&["auto", "any", "tool", "none"])),
    nullable("name", Kind::Str),
    nullable("disable_parallel_tool_use", Kind::Bool),
]);

/// Members that a chat request has too, by their names here and there.
const SAME: &[(&str, &str)] = &[
    ("chat_template_kwargs", "chat_template_kwargs"),
    ("max_tokens", "max_completion_tokens"),
    ("model", "model"),
    ("stop_sequences", "stop"),
    ("stream", "stream"),
    ("temperature", "temperature"),
    ("top_k", "top_k"),
    ("top_p", "top_p"),
];

/// Reads the body of `/v1/messages`; fails with the server's answer.
pub(crate) fn parse<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<Request<'a>, Failure> {
    Ok(chat(&checked(json(content_type, body)?, MESSAGES)?))
}

/// Reads the body of `/v1/messages/count_tokens`; fails with the server's answer.
pub(crate) fn parse_count<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<Request<'a>, Failure> {
    Ok(chat(&checked(json(content_type, body)?, COUNT_TOKENS)?))
}

/// The chat request that says the same.
fn chat<'a>(asked: &Object<'a>) -> Request<'a> {
    let given = |name| asked.get(name).filter(|value| **value != Json::Null);
    let mut members = Vec::new();
    for &(name, chat_name) in SAME {
        members.extend(given(name).map(|value| member(chat_name, value.clone())));
    }
    let effort = given("output_config").and_then(Json::as_object);
    let effort = effort.and_then(|config| config.get("effort"));
    members.extend(effort.map(|effort| member("reasoning_effort", effort.clone())));
    members.push(member("messages", Json::Array(messages(asked))));
    if let Some(Json::Array(tools)) = given("tools") {
        let tools = tools.iter().filter_map(tool).collect();
        members.push(member("tools", Json::Array(tools)));
        let choice = given("tool_choice").and_then(Json::as_object);
        members.push(member("tool_choice", tool_choice(choice)));
        members.extend(choice.map(|choice| member("parallel_tool_calls", parallel(choice))));
    }
    Request::from_checked(Endpoint::Chat, Object(members))
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

fn messages<'a>(asked: &Object<'a>) -> Vec<Json<'a>> {
    let given: &[Json<'a>] = match asked.get("messages") {
        Some(Json::Array(messages)) => messages,
        _ => &[],
    };
    let of_role = |message: &&Json<'a>| role(message) == Some("system");
    let mut system = String::new();
    let contents = given.iter().filter(of_role).filter_map(content);
    for content in asked.get("system").into_iter().chain(contents) {
        system.extend(system_texts(content));
    }
    let mut out = Vec::new();
    if !system.is_empty() {
        let content = member("content", Json::String(system.into()));
        out.push(object(vec![member("role", word("system")), content]));
    }
    for message in given.iter().filter(|message| !of_role(message)) {
        self::message(message, &mut out);
    }
    out
}

fn role<'j>(message: &'j Json<'_>) -> Option<&'j str> {
    message.as_object()?.get("role")?.as_str()
}

fn content<'j, 'a>(message: &'j Json<'a>) -> Option<&'j Json<'a>> {
    message.as_object()?.get("content")
}

/// The texts of a system prompt. A header of a client's own, different with every request, is left
/// out by the server for its prefix cache's sake.
fn system_texts<'j>(content: &'j Json<'_>) -> Vec<&'j str> {
    match content {
        Json::Array(blocks) => blocks
            .iter()
            .filter_map(|block| block.as_object()?.get("text")?.as_str())
            .filter(|text| !text.starts_with("x-anthropic-billing-header"))
            .collect(),
        content => content.as_str().into_iter().collect(),
    }
}

/// A message of a user or the assistant; results of tools are messages of their own before it.
fn message<'a>(message: &Json<'a>, out: &mut Vec<Json<'a>>) {
    let is_user = role(message) == Some("user");
    let role = word(if is_user { "user" } else { "assistant" });
    let mut members = vec![member("role", role)];
    match content(message) {
        Some(Json::Array(blocks)) => {
            let mut parts = Parts::default();
            for block in blocks.iter().filter_map(Json::as_object) {
                out.extend(parts.take(block, is_user));
            }
            members.extend(parts.members());
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
    fn take(&mut self, block: &Object<'a>, is_user: bool) -> Option<Json<'a>> {
        let text = |name| block.get(name).and_then(Json::as_str).unwrap_or_default();
        let given = |name| block.get(name).cloned();
        match text("type") {
            "text" if !text("text").is_empty() => self.content.push(text_part(given("text")?)),
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

    fn members(self) -> Vec<(std::borrow::Cow<'a, str>, Json<'a>)> {
        let mut members = Vec::new();
        if !self.reasoning.is_empty() {
            members.push(member("reasoning", Json::String(self.reasoning.into())));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Prompt, ToolChoice};

    fn parsed(body: &str) -> Request<'_> {
        parse(Some("application/json"), body.as_bytes()).unwrap()
    }

    #[test]
    fn blocks_become_chat_messages() {
        let request = parsed(
            r#"{"model":"m","max_tokens":5,"system":[{"type":"text","text":"Be "},{"type":"text","text":"brief."}],"messages":[
                {"role":"user","content":"hi"},
                {"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"},
                    {"type":"tool_use","id":"t","name":"f","input":{"b":[1,2]}}]},
                {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"7"}]}]},
                {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"8"},{"type":"text","text":"go on"}]}]}"#,
        );
        let Prompt::Messages(messages) = request.prompt else {
            panic!("a chat has messages");
        };
        let said: Vec<_> = messages
            .iter()
            .map(|message| (&*message.role, &*message.content))
            .collect();
        let expected = [
            ("system", "Be brief."),
            ("user", "hi"),
            ("assistant", "a"),
            ("tool", "7"),
            ("tool", "8"),
            ("user", "go on"),
        ];
        assert_eq!(said, expected);
        let calls = &messages[2]
            .rest
            .iter()
            .find(|(name, _)| name == "tool_calls");
        assert!(python::dumps(&calls.unwrap().1).contains(r#"{\"b\": [1, 2]}"#));
    }

    #[test]
    fn names_are_translated() {
        let request = parsed(
            r#"{"model":"m","max_tokens":5,"stop_sequences":["x"],"messages":[],
                "tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}}"#,
        );
        assert_eq!(request.sampling.stop, ["x"]);
        assert_eq!(
            request.sampling.max_tokens,
            Some(("max_completion_tokens", 5))
        );
        assert!(matches!(
            request.template.tool_choice,
            Some(ToolChoice::Required)
        ));
    }
    #[test]
    fn four_stop_strings_are_allowed() {
        let body = |stops: &str| {
            format!(r#"{{"model":"m","max_tokens":5,"messages":[],"stop_sequences":[{stops}]}}"#)
        };
        let accepts = |stops| parse(Some("application/json"), body(stops).as_bytes()).is_ok();
        assert!(accepts(r#""a","b","c","d""#));
        assert!(!accepts(r#""a","b","c","d","e""#));
    }

    #[test]
    fn parallel_calls_are_disabled() {
        for (choice, expected) in [
            (r#"{"type":"any"}"#, true),
            (r#"{"type":"any","disable_parallel_tool_use":null}"#, true),
            (
                r#"{"type":"tool","name":"f","disable_parallel_tool_use":true}"#,
                false,
            ),
        ] {
            let body = format!(
                r#"{{"model":"m","max_tokens":5,"messages":[],"tool_choice":{choice},
                    "tools":[{{"name":"f","input_schema":{{}}}}]}}"#
            );
            assert_eq!(parsed(&body).parallel_tool_calls, expected, "{choice}");
        }
    }
}
