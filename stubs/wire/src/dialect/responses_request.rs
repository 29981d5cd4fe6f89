//! What `/v1/responses` asks for: a chat request in other words, and what its answer repeats.

use std::borrow::Cow;

use crate::json::{Json, Object};
use crate::python;
use crate::request::Request;
use crate::schema as pydantic;

/// A request to `/v1/responses`.
#[derive(Clone, Debug)]
pub struct ResponsesRequest<'a> {
    /// What the answer repeats.
    pub echoed: Echoed<'a>,
    /// The chat that it asks for.
    pub request: Request<'a>,
}

impl ResponsesRequest<'_> {
    /// `background`
    pub(super) fn background(&self) -> bool {
        self.echoed.flag("background", false)
    }

    /// `previous_response_id`, if given.
    pub(super) fn previous_response_id(&self) -> Option<&str> {
        self.echoed.get("previous_response_id")?.as_str()
    }
}

/// The members of a request that its answer repeats.
#[derive(Clone, Debug)]
pub struct Echoed<'a>(Object<'a>);

impl<'a> Echoed<'a> {
    pub(super) fn new(members: Object<'a>) -> Self {
        Self(members)
    }

    /// A member that is neither absent nor null.
    pub(super) fn get(&self, name: &str) -> Option<&Json<'a>> {
        self.0.get(name).filter(|value| **value != Json::Null)
    }

    /// Whether a member is given as null.
    pub(super) fn is_null(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Json::Null)
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

/// How a server reads such a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// Tokens that the answer has less than it is allowed.
    pub(super) headroom: i128,
    /// Stands between the texts of an assistant that speaks several times in a row, and between those of all
    /// system prompts; without it, each speaks for itself.
    pub(super) joins: Option<&'static str>,
    /// Content parts are told by the names that a chat has for them.
    pub(super) names_parts: bool,
    /// What a chat message calls its reasoning.
    pub(super) reasoning: &'static str,
    /// Members that a chat request has by the same name.
    pub(super) same: &'static [&'static str],
    /// Functions say whether they are strict.
    pub(super) tells_strict: bool,
    /// Of reasoning the summary counts, if there is one.
    pub(super) summary_first: bool,
}

/// The members of the chat request that says the same.
pub(super) fn chat<'a>(asked: &Echoed<'a>, habits: &'static Habits) -> Object<'a> {
    let mut members = Vec::new();
    for &name in habits.same {
        members.extend(asked.get(name).map(|value| member(name, value.clone())));
    }
    let reasoning = asked.get("reasoning").and_then(Json::as_object);
    let effort = reasoning.and_then(|reasoning| reasoning.get("effort"));
    members.extend(effort.map(|effort| member("reasoning_effort", effort.clone())));
    let mut messages = Messages::new(habits);
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
    let messages = messages.all().into_iter().map(Json::Object).collect();
    members.push(member("messages", Json::Array(messages)));
    let tools: Vec<Json<'a>> = asked
        .items("tools")
        .iter()
        .filter_map(|item| tool(item, habits))
        .collect();
    if !tools.is_empty() {
        members.push(member("tools", Json::Array(tools)));
        members.extend(asked.get("tool_choice").map(tool_choice));
    }
    Object(members)
}

impl Echoed<'_> {
    /// Gives a chat request the limits and probabilities that are asked for.
    pub(super) fn limit(&self, habits: &Habits, request: &mut Request<'_>) {
        let most = self.get("max_output_tokens");
        let most = most.and_then(|most| pydantic::int(most).ok());
        let most = most.map(|most| most.saturating_sub(habits.headroom));
        request.sampling.max_tokens = most.map(|most| ("max_output_tokens", most));
        let included = self.items("include").iter();
        if included
            .filter_map(Json::as_str)
            .any(|name| name == "message.output_text.logprobs")
        {
            let top = self.get("top_logprobs");
            let top = top.and_then(|top| pydantic::int(top).ok());
            request.sampling.logprobs = Some(top.unwrap_or(0));
        }
    }
}

/// A function tool as a chat request spells it; the others are the server's own.
fn tool<'a>(tool: &Json<'a>, habits: &Habits) -> Option<Json<'a>> {
    let tool = tool.as_object()?;
    if tool.get("type")?.as_str()? != "function" {
        return None;
    }
    let mut function: Vec<_> = ["name", "description", "parameters"]
        .into_iter()
        .filter_map(|name| Some(member(name, tool.get(name)?.clone())))
        .collect();
    if habits.tells_strict {
        let strict = tool.get("strict").cloned().unwrap_or(Json::Bool(false));
        function.push(member("strict", strict));
    }
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
struct Messages<'a> {
    all: Vec<Object<'a>>,
    habits: &'static Habits,
}

impl<'a> Messages<'a> {
    fn new(habits: &'static Habits) -> Self {
        Self {
            all: Vec::new(),
            habits,
        }
    }

    /// All of them; system prompts may be joined in front.
    fn all(self) -> Vec<Object<'a>> {
        let Some(separator) = self.habits.joins else {
            return self.all;
        };
        let is_system = |message: &Object<'_>| {
            let role = message.get("role").and_then(Json::as_str);
            matches!(role, Some("developer" | "system"))
        };
        let (system, mut all): (Vec<_>, Vec<_>) = self.all.into_iter().partition(is_system);
        let contents = system.iter().filter_map(|message| message.get("content"));
        let texts: Vec<&str> = contents.flat_map(texts).collect();
        if !texts.is_empty() {
            let content = Json::String(texts.join(separator).into());
            let role = member("role", word("system"));
            all.insert(0, Object(vec![role, member("content", content)]));
        }
        all
    }

    fn push(&mut self, role: &'static str, mut members: Vec<(Cow<'a, str>, Json<'a>)>) {
        members.insert(0, member("role", word(role)));
        self.all.push(Object(members));
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
                let output = match members.get("output") {
                    Some(output @ Json::Array(_)) if self.habits.names_parts => {
                        Json::String(texts(output).concat().into())
                    }
                    _ => given("output"),
                };
                let output = member("content", output);
                self.push(
                    "tool",
                    vec![output, member("tool_call_id", given("call_id"))],
                );
            }
            (Some("reasoning"), _) => {
                let mut names = ["content", "summary"];
                if self.habits.summary_first {
                    names.reverse();
                }
                let text = names
                    .into_iter()
                    .find_map(|name| first_text(members.get(name)));
                self.assistant(self.habits.reasoning, text.unwrap_or_else(|| word("")));
            }
            (_, Some("assistant")) => {
                let text = match members.get("content") {
                    Some(content) if self.habits.names_parts => {
                        Some(Json::String(texts(content).join(" ").into()))
                    }
                    content => first_text(content),
                };
                self.assistant("content", text.unwrap_or_else(|| word("")));
            }
            _ if self.habits.names_parts => self.all.push(named(members)),
            _ => self.all.push(members.clone()),
        }
    }

    /// Adds to the assistant's message if it is the last and says nothing of the kind yet.
    fn assistant(&mut self, name: &'static str, value: Json<'a>) {
        let joins = self.habits.joins;
        match self.last_assistant() {
            Some(last) if last.get(name).is_none() => last.0.push(member(name, value)),
            Some(last) if joins.is_some() => {
                let before = last.take(name);
                let before = before.as_ref().and_then(Json::as_str).unwrap_or_default();
                let text = [before, value.as_str().unwrap_or_default()];
                let text = text.join(joins.unwrap_or_default());
                last.0.push(member(name, Json::String(text.into())));
            }
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
        let last = self.all.last_mut()?;
        let role = last.get("role").and_then(Json::as_str);
        (role == Some("assistant")).then_some(last)
    }
}

/// A message whose content parts have the names of a chat's.
fn named<'a>(message: &Object<'a>) -> Object<'a> {
    let part = |part: &Json<'a>| {
        let Json::Object(members) = part else {
            return part.clone();
        };
        let given = |name| members.get(name).cloned().unwrap_or(Json::Null);
        let kind = members.get("type").and_then(Json::as_str);
        match kind {
            Some("input_text" | "output_text") => object(vec![
                member("type", word("text")),
                member("text", given("text")),
            ]),
            Some("input_image") => object(vec![
                member("type", word("image_url")),
                member("image_url", given("image_url")),
            ]),
            _ => part.clone(),
        }
    };
    let kept = |(name, _): &&(Cow<'a, str>, Json<'a>)| !matches!(&**name, "id" | "status" | "type");
    let named = |(name, value): &(Cow<'a, str>, Json<'a>)| match value {
        Json::Array(parts) if name == "content" => {
            (name.clone(), Json::Array(parts.iter().map(part).collect()))
        }
        value => (name.clone(), value.clone()),
    };
    Object(message.0.iter().filter(kept).map(named).collect())
}

/// A text, or those of the parts of a list.
fn texts<'j>(content: &'j Json<'_>) -> Vec<&'j str> {
    match content {
        Json::Array(parts) => {
            let text = |part: &'j Json<'_>| part.as_object()?.get("text")?.as_str();
            parts.iter().filter_map(text).collect()
        }
        text => text.as_str().into_iter().collect(),
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
