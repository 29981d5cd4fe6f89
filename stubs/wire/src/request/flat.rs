//! Chats as SGLang hands them to a template: contents flat, tools whole.

use std::borrow::Cow;

use super::{Endpoint, Request, ToolChoice};
use crate::json::{Json, Object};

impl<'a> Request<'a> {
    /// Takes a chat out of a body that SGLang's schema has accepted: text parts are joined with a space,
    /// and the template sees the tools that may be called.
    pub fn flat(mut members: Object<'a>) -> Self {
        for (name, value) in &mut members.0 {
            if let (true, Json::Array(messages)) = (name == "messages", value) {
                messages.iter_mut().for_each(flatten);
            }
        }
        let is_choice = |choice: &Json<'_>| *choice != Json::Null;
        let has_choice = members.get("tool_choice").is_some_and(is_choice);
        let mut request = Self::from_checked(Endpoint::Chat, members);
        let template = &mut request.template;
        if let Some(tools) = &template.tools {
            let default = (!has_choice).then_some(ToolChoice::Auto);
            template.tool_choice = template.tool_choice.take().or(default);
            let choice = template.tool_choice.as_ref();
            template.shown_tools = Some(choice.map_or(Json::Null, |choice| shown(tools, choice)));
        }
        request
    }
}

fn flatten(message: &mut Json<'_>) {
    let Json::Object(members) = message else {
        return;
    };
    members.0.retain(|(_, value)| *value != Json::Null);
    let content = members.0.iter_mut().find(|(name, _)| name == "content");
    if let Some((_, content)) = content {
        join(content);
    }
}

/// Joins the texts of content parts.
fn join(content: &mut Json<'_>) {
    let Json::Array(parts) = content else {
        return;
    };
    let text = |part: &Json<'_>| {
        let part = part.as_object()?;
        let is_text = part.get("type").and_then(Json::as_str) == Some("text");
        let text = part.get("text").filter(|_| is_text)?;
        text.as_str().map(str::to_owned)
    };
    let texts: Option<Vec<String>> = parts.iter().map(text).collect();
    // A part that is no text stays for the refusal.
    if let Some(texts) = texts {
        *content = Json::String(texts.join(" ").into());
    }
}

/// The tools that may be called, as the server's own types write them.
fn shown<'a>(tools: &Json<'a>, choice: &ToolChoice<'a>) -> Json<'a> {
    let Json::Array(tools) = tools else {
        return Json::Null;
    };
    let tool = |tool: &Json<'a>| {
        let tool = tool.as_object()?;
        let function = tool.get("function")?.as_object()?;
        let is_chosen = match choice {
            ToolChoice::Named(name) => function.get("name")?.as_str() == Some(name),
            _ => true,
        };
        is_chosen.then(|| whole(function, tool.get("defer_loading")))
    };
    Json::Array(tools.iter().filter_map(tool).collect())
}

fn whole<'a>(function: &Object<'a>, defer_loading: Option<&Json<'a>>) -> Json<'a> {
    let given = |name| function.get(name).cloned();
    let mut members: Vec<(Cow<'a, str>, Json<'a>)> = Vec::new();
    for name in ["description", "name", "parameters"] {
        members.push((name.into(), given(name).unwrap_or(Json::Null)));
    }
    for name in ["strict", "defer_loading"] {
        members.extend(given(name).map(|value| (name.into(), value)));
    }
    let defer_loading = defer_loading.cloned().unwrap_or(Json::Null);
    Json::Object(Object(vec![
        ("type".into(), Json::String("function".into())),
        ("function".into(), Json::Object(Object(members))),
        ("defer_loading".into(), defer_loading),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Prompt;

    fn flat(body: &str) -> Request<'_> {
        let Json::Object(members) = Json::parse(body.as_bytes()).unwrap() else {
            panic!("the body is an object");
        };
        Request::flat(members)
    }

    #[test]
    fn texts_are_joined_with_a_space() {
        let body = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":null}]}"#;
        let Prompt::Messages(messages) = flat(body).prompt else {
            panic!("a chat has messages");
        };
        assert_eq!(messages[0].content, "a b");
        assert_eq!(messages[0].rest, []);
    }

    #[test]
    fn the_choice_picks_the_tools_that_show() {
        let tool = |name| format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#);
        let tools = format!(r#""messages":[],"tools":[{},{}]"#, tool("a"), tool("b"));
        let shown = |choice: &str| {
            let body = format!("{{{tools}{choice}}}");
            let shown = flat(&body).template.shown_tools;
            serde_json::to_string(&shown).unwrap()
        };
        let whole = |name| {
            format!(
                r#"{{"type":"function","function":{{"description":null,"name":"{name}","parameters":null}},"defer_loading":null}}"#
            )
        };
        let both = format!("[{},{}]", whole("a"), whole("b"));
        assert_eq!(shown(""), both);
        assert_eq!(shown(r#","tool_choice":"required""#), both);
        assert_eq!(shown(r#","tool_choice":"none""#), "null");
        let named = r#","tool_choice":{"type":"function","function":{"name":"b"}}"#;
        assert_eq!(shown(named), format!("[{}]", whole("b")));
    }
}
