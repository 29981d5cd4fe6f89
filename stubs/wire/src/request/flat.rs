//! Chats as SGLang hands them to a template: contents flat, tools whole.

use std::borrow::Cow;

use super::{Endpoint, Prompt, Request, TemplateOptions, ToolChoice};
use crate::json::{Json, Object};

impl<'a> Request<'a> {
    /// Takes a chat out of a body that SGLang's schema has accepted: text parts are joined with a space,
    /// and the template sees the tools that may be called.
    pub fn flat(members: Object<'a>) -> Self {
        Self::flat_with(members, " ")
    }

    /// The same with something else between text parts.
    pub(crate) fn flat_with(mut members: Object<'a>, between: &str) -> Self {
        let mut roles = Vec::new();
        for (name, value) in &mut members.0 {
            if let (true, Json::Array(messages)) = (name == "messages", value) {
                let role = |message| flatten(message, between);
                roles = messages.iter_mut().map(role).collect();
            }
        }
        let is_choice = |choice: &Json<'_>| *choice != Json::Null;
        let has_choice = members.get("tool_choice").is_some_and(is_choice);
        let mut request = Self::from_checked(Endpoint::Chat, members);
        if let Prompt::Messages(messages) = &mut request.prompt {
            for (message, role) in messages.iter_mut().zip(roles) {
                message.role = role.into();
                for (name, _) in &mut message.rest {
                    if name == "reasoning" {
                        *name = "reasoning_content".into();
                    }
                }
            }
        }
        request.template.flatten(has_choice);
        request
    }
}

impl TemplateOptions<'_> {
    /// Leaves out what SGLang does not know, and puts in its defaults.
    fn flatten(&mut self, has_choice: bool) {
        self.add_generation_prompt = true;
        self.has_own_template = self.kwargs.iter().any(|(name, _)| name == "chat_template");
        let effort = self
            .kwargs
            .iter()
            .find(|(name, _)| name == "reasoning_effort");
        if effort.and_then(|(_, effort)| effort.as_str()) == Some("none") {
            self.kwargs
                .insert(0, ("thinking".into(), Json::Bool(false)));
        }
        if let Some(tools) = &self.tools {
            let default = (!has_choice).then_some(ToolChoice::Auto);
            self.tool_choice = self.tool_choice.take().or(default);
            let choice = self.tool_choice.as_ref();
            self.shown_tools = Some(choice.map_or(Json::Null, |choice| shown(tools, choice)));
        }
    }
}

/// Makes a message's content one text; tells its role, of which the case does not count.
fn flatten(message: &mut Json<'_>, between: &str) -> String {
    let Json::Object(members) = message else {
        return String::new();
    };
    members.0.retain(|(_, value)| *value != Json::Null);
    let content = members.0.iter_mut().find(|(name, _)| name == "content");
    if let Some((_, content)) = content {
        join(content, between);
    }
    let role = members.get("role").and_then(Json::as_str);
    role.unwrap_or_default().to_lowercase()
}

/// Joins the texts of content parts.
fn join(content: &mut Json<'_>, between: &str) {
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
        *content = Json::String(texts.join(between).into());
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
    fn roles_and_defaults_are_the_servers() {
        let body = r#"{"messages":[{"role":"Developer","content":"a","reasoning_content":"r"}],"chat_template":"x","reasoning_effort":"none","add_generation_prompt":false}"#;
        let request = flat(body);
        let Prompt::Messages(messages) = &request.prompt else {
            panic!("a chat has messages");
        };
        assert_eq!(messages[0].role, "developer");
        assert_eq!(messages[0].rest[0].0, "reasoning_content");
        assert!(request.template.add_generation_prompt && !request.template.has_own_template);
        let no = Json::Bool(false);
        for name in ["enable_thinking", "thinking"] {
            assert!(request.template.kwargs.contains(&(name.into(), no.clone())));
        }
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
