//! What `/v1/responses` accepts: a chat request in other words, and what its answer repeats.

use std::borrow::Cow;

use crate::dialect::body::{checked, json};
use crate::failure::Failure;
use crate::json::{Json, Object};
use crate::python;
use crate::request::{Endpoint, Request};
use crate::schema::{self as pydantic, Field, INT, INT64, Kind, nullable, optional, required};

use super::refusal::refuse;
use super::validators;

/// A request to `/v1/responses`.
#[derive(Clone, Debug)]
pub struct ResponsesRequest<'a> {
    /// `background`
    pub background: bool,
    /// What the answer repeats.
    pub echoed: Echoed<'a>,
    /// `previous_response_id`, if given.
    pub previous_response_id: Option<Cow<'a, str>>,
    /// The chat that it asks for.
    pub request: Request<'a>,
}

/// The members of a request that its answer repeats.
#[derive(Clone, Debug)]
pub struct Echoed<'a>(Object<'a>);

impl<'a> Echoed<'a> {
    /// A member that is neither absent nor null.
    pub(super) fn get(&self, name: &str) -> Option<&Json<'a>> {
        self.0.get(name).filter(|value| **value != Json::Null)
    }

    /// A switch, `default` where it is not given.
    pub(super) fn flag(&self, name: &str, default: bool) -> bool {
        let flag = self.get(name).and_then(|value| pydantic::bool(value).ok());
        flag.unwrap_or(default)
    }

    /// The items of a list, none where it is not given.
    pub(super) fn items(&self, name: &str) -> &[Json<'a>] {
        match self.get(name) {
            Some(Json::Array(items)) => items,
            _ => &[],
        }
    }
}

/// `ResponsesRequest`, the fields that are looked at, in declaration order.
const FIELDS: &[Field] = &[
    nullable("background", Kind::Bool),
    nullable("include", LIST),
    required("input", Kind::Union(&[Kind::Str, LIST])),
    nullable("instructions", Kind::Str),
    nullable("max_output_tokens", INT),
    nullable("max_tool_calls", INT),
    nullable("metadata", Kind::Dict(&Kind::Str)),
    nullable("model", Kind::Str),
    nullable("logit_bias", Kind::Dict(&Kind::Float)),
    nullable("parallel_tool_calls", Kind::Bool),
    nullable("previous_response_id", Kind::Str),
    nullable("reasoning", DICT),
    optional(
        "service_tier",
        Kind::Literal(&["auto", "default", "flex", "scale", "priority"]),
    ),
    nullable("store", Kind::Bool),
    nullable("stream", Kind::Bool),
    nullable("temperature", Kind::Float),
    nullable("text", DICT),
    optional("tools", Kind::List(&DICT, usize::MAX)),
    nullable("top_logprobs", INT),
    nullable("top_p", Kind::Float),
    nullable("top_k", INT),
    nullable("truncation", Kind::Literal(&["auto", "disabled"])),
    nullable("user", Kind::Str),
    optional("skip_special_tokens", Kind::Bool),
    optional("include_stop_str_in_output", Kind::Bool),
    nullable("prompt_cache_key", Kind::Str),
    optional("request_id", Kind::Str),
    optional("priority", INT64),
    nullable("cache_salt", Kind::Str),
    nullable("presence_penalty", Kind::Float),
    nullable("frequency_penalty", Kind::Float),
    nullable("repetition_penalty", Kind::Float),
    nullable("seed", INT64),
    nullable(
        "stop",
        Kind::Union(&[Kind::Str, Kind::List(&Kind::Str, usize::MAX)]),
    ),
    optional("ignore_eos", Kind::Bool),
];

const DICT: Kind = Kind::Dict(&Kind::Any);
const LIST: Kind = Kind::List(&Kind::Any, usize::MAX);

/// Members that a chat request has by the same name.
const SAME: &[&str] = &[
    "frequency_penalty",
    "ignore_eos",
    "include_stop_str_in_output",
    "logit_bias",
    "model",
    "parallel_tool_calls",
    "presence_penalty",
    "repetition_penalty",
    "request_id",
    "skip_special_tokens",
    "stop",
    "stream",
    "temperature",
    "top_k",
    "top_p",
];

/// Reads a body that came with a content type; fails with the server's answer.
pub(crate) fn parse<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<ResponsesRequest<'a>, Failure> {
    let mut body = json(content_type, body)?;
    if let Some(Json::Object(members)) = &mut body {
        if validators::is_truthy(members, "background")
            && members
                .get("store")
                .is_some_and(|store| !python::truthy(store))
        {
            let message = "background can only be used when `store` is true";
            return Err(Failure::bad_request(message, None));
        }
        if members
            .get("prompt")
            .is_some_and(|prompt| *prompt != Json::Null)
        {
            return Err(refuse(
                "prompt template is not supported",
                Some("prompt"),
                None,
            ));
        }
        if members.get("tool_choice").is_none() {
            let has_tools = validators::is_truthy(members, "tools");
            let choice = if has_tools { "auto" } else { "none" };
            members.0.push(member("tool_choice", word(choice)));
        }
    }
    let echoed = Echoed(checked(body, FIELDS)?);
    let text = |name| echoed.get(name).and_then(Json::as_str);
    Ok(ResponsesRequest {
        background: echoed.flag("background", false),
        previous_response_id: text("previous_response_id").map(|id| id.to_owned().into()),
        request: chat(&echoed),
        echoed,
    })
}

/// The chat request that says the same.
fn chat<'a>(asked: &Echoed<'a>) -> Request<'a> {
    let mut members = Vec::new();
    for &name in SAME {
        members.extend(asked.get(name).map(|value| member(name, value.clone())));
    }
    let reasoning = asked.get("reasoning").and_then(Json::as_object);
    let effort = reasoning.and_then(|reasoning| reasoning.get("effort"));
    members.extend(effort.map(|effort| member("reasoning_effort", effort.clone())));
    let mut messages = Messages::default();
    if let Some(instructions) = asked
        .get("instructions")
        .filter(|text| python::truthy(text))
    {
        messages.push("system", vec![member("content", instructions.clone())]);
    }
    match asked.get("input") {
        Some(Json::Array(items)) => items.iter().for_each(|item| messages.take(item)),
        Some(text) => messages.push("user", vec![member("content", text.clone())]),
        None => {}
    }
    let messages = messages.0.into_iter().map(Json::Object).collect();
    members.push(member("messages", Json::Array(messages)));
    let tools: Vec<Json<'a>> = asked.items("tools").iter().filter_map(tool).collect();
    if !tools.is_empty() {
        members.push(member("tools", Json::Array(tools)));
        members.extend(asked.get("tool_choice").map(tool_choice));
    }
    let mut request = Request::from_checked(Endpoint::Chat, Object(members));
    let most = asked.get("max_output_tokens");
    let most = most.and_then(|most| pydantic::int(most).ok());
    request.sampling.max_tokens = most.map(|most| ("max_output_tokens", most));
    let included = asked.items("include").iter();
    if included
        .filter_map(Json::as_str)
        .any(|name| name == "message.output_text.logprobs")
    {
        let top = asked.get("top_logprobs");
        let top = top.and_then(|top| pydantic::int(top).ok());
        request.sampling.logprobs = Some(top.unwrap_or(0));
    }
    request
}

/// A function tool as a chat request spells it; the others are the server's own.
fn tool<'a>(tool: &Json<'a>) -> Option<Json<'a>> {
    let tool = tool.as_object()?;
    if tool.get("type")?.as_str()? != "function" {
        return None;
    }
    let function = ["name", "description", "parameters"]
        .into_iter()
        .filter_map(|name| Some(member(name, tool.get(name)?.clone())))
        .collect();
    Some(object(vec![
        member("type", word("function")),
        member("function", object(function)),
    ]))
}

fn tool_choice<'a>(choice: &Json<'a>) -> (Cow<'a, str>, Json<'a>) {
    let name = choice.as_object().and_then(|choice| choice.get("name"));
    let choice = match name {
        Some(name) => object(vec![
            member("type", word("function")),
            member("function", object(vec![member("name", name.clone())])),
        ]),
        None => choice.clone(),
    };
    member("tool_choice", choice)
}

/// Chat messages in the making. An assistant's reasoning, text and calls come as items of their own
/// and are one message.
#[derive(Default)]
struct Messages<'a>(Vec<Object<'a>>);

impl<'a> Messages<'a> {
    fn push(&mut self, role: &'static str, mut members: Vec<(Cow<'a, str>, Json<'a>)>) {
        members.insert(0, member("role", word(role)));
        self.0.push(Object(members));
    }

    fn take(&mut self, item: &Json<'a>) {
        let Json::Object(members) = item else {
            return;
        };
        let text = |name| members.get(name).and_then(Json::as_str);
        let given = |name| members.get(name).cloned().unwrap_or(Json::Null);
        match (text("type"), text("role")) {
            (Some("function_call"), _) => self.call(members),
            (Some("function_call_output"), _) => {
                let output = member("content", given("output"));
                self.push(
                    "tool",
                    vec![output, member("tool_call_id", given("call_id"))],
                );
            }
            (Some("reasoning"), _) => {
                let content = first_text(members.get("content"));
                let text = content.or_else(|| first_text(members.get("summary")));
                self.assistant("reasoning", text.unwrap_or_else(|| word("")));
            }
            (_, Some("assistant")) => {
                let text = first_text(members.get("content"));
                self.assistant("content", text.unwrap_or_else(|| word("")));
            }
            _ => self.0.push(members.clone()),
        }
    }

    /// Adds to the assistant's message if it is the last and says nothing of the kind yet.
    fn assistant(&mut self, name: &'static str, value: Json<'a>) {
        match self.last_assistant() {
            Some(last) if last.get(name).is_none() => last.0.push(member(name, value)),
            _ => self.push("assistant", vec![member(name, value)]),
        }
    }

    fn call(&mut self, call: &Object<'a>) {
        let given = |name| call.get(name).cloned().unwrap_or(Json::Null);
        let function = ["name", "arguments"].map(|name| member(name, given(name)));
        let call = object(vec![
            member("id", given("call_id")),
            member("type", word("function")),
            member("function", object(function.into())),
        ]);
        if let Some(last) = self.last_assistant() {
            let calls = last.0.iter_mut().find(|(name, _)| name == "tool_calls");
            if let Some((_, Json::Array(calls))) = calls {
                calls.push(call);
            } else {
                last.0.push(member("tool_calls", Json::Array(vec![call])));
            }
        } else {
            let calls = Json::Array(vec![call]);
            self.push("assistant", vec![member("tool_calls", calls)]);
        }
    }

    fn last_assistant(&mut self) -> Option<&mut Object<'a>> {
        let last = self.0.last_mut()?;
        let role = last.get("role").and_then(Json::as_str);
        (role == Some("assistant")).then_some(last)
    }
}

/// A text, or that of the first part of a list.
fn first_text<'a>(content: Option<&Json<'a>>) -> Option<Json<'a>> {
    match content? {
        Json::Array(parts) => match parts.first()? {
            Json::Object(part) => part.get("text").cloned(),
            part => Some(part.clone()),
        },
        Json::Null => None,
        text => Some(text.clone()),
    }
}

pub(super) fn member<'a>(name: &'static str, value: Json<'a>) -> (Cow<'a, str>, Json<'a>) {
    (name.into(), value)
}

pub(super) fn object<'a>(members: Vec<(Cow<'a, str>, Json<'a>)>) -> Json<'a> {
    Json::Object(Object(members))
}

pub(super) fn word(text: &'static str) -> Json<'static> {
    Json::String(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Prompt;

    fn parsed(body: &str) -> ResponsesRequest<'_> {
        parse(Some("application/json"), body.as_bytes()).unwrap()
    }

    #[test]
    fn items_of_an_assistant_are_one_message() {
        let asked = parsed(
            r#"{"instructions":"Be brief.","input":[
                {"role":"user","content":[{"type":"input_text","text":"hi"}]},
                {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
                {"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]},
                {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
                {"type":"function_call_output","call_id":"c","output":"7"}]}"#,
        );
        let Prompt::Messages(messages) = asked.request.prompt else {
            panic!("a chat has messages");
        };
        let said: Vec<_> = messages
            .iter()
            .map(|message| (&*message.role, &*message.content))
            .collect();
        assert_eq!(
            said,
            [
                ("system", "Be brief."),
                ("user", "hi"),
                ("assistant", "a"),
                ("tool", "7")
            ]
        );
        let names: Vec<_> = messages[2].rest.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["reasoning", "tool_calls"]);
    }

    #[test]
    fn tools_decide_the_tool_choice() {
        assert!(
            parsed(r#"{"input":"a"}"#)
                .request
                .template
                .tool_choice
                .is_none()
        );
        let asked = parsed(r#"{"input":"a","tools":[{"type":"function","name":"f"}]}"#);
        assert!(asked.request.template.tool_choice.is_some());
        assert_eq!(
            asked.echoed.get("tool_choice").unwrap().as_str(),
            Some("auto")
        );
    }

    #[test]
    fn the_limit_keeps_its_own_name() {
        let asked = parsed(r#"{"input":"a","max_output_tokens":"5"}"#);
        assert_eq!(
            asked.request.sampling.max_tokens,
            Some(("max_output_tokens", 5))
        );
    }
}
