//! What SGLang accepts at `/v1/messages`, and how it refuses the rest.

use crate::dialect::body::{check_content_type, json};
use crate::dialect::messages::refusal;
use crate::dialect::messages_request::{Habits, chat};
use crate::dialect::responses_request::{member, object, word};
use crate::failure::Failure;
use crate::json::{Json, Object};
use crate::python;
use crate::request::Request;
use crate::schema::{self, Field, INT, Kind, nullable, optional, required};

use super::schema::{ANY_LENGTH, DICT, STRINGS};

const BLOCKS: Kind = Kind::List(&BLOCK, ANY_LENGTH);
const CONTENT: Kind = Kind::Union(&[Kind::Str, BLOCKS]);

const BLOCK: Kind = Kind::Model(&[required(
    "type",
    Kind::Literal(&[
        "text",
        "image",
        "tool_use",
        "tool_result",
        "tool_reference",
        "search_result",
        "thinking",
        "redacted_thinking",
    ]),
)]);

const MESSAGE: Kind = Kind::Model(&[
    required("role", Kind::Literal(&["user", "assistant", "system"])),
    required("content", CONTENT),
]);

const TOOL: Kind = Kind::Model(&[
    required("name", Kind::Str),
    nullable("description", Kind::Str),
    nullable("input_schema", DICT),
]);

const TOOL_CHOICE: Kind = Kind::Model(&[
    required("type", Kind::Literal(&["auto", "any", "tool", "none"])),
    nullable("name", Kind::Str),
    optional("disable_parallel_tool_use", Kind::Bool),
]);

const THINKING: Kind = Kind::Model(&[
    required("type", Kind::Literal(&["enabled", "disabled", "adaptive"])),
    nullable("budget_tokens", INT),
]);

/// `AnthropicMessagesRequest`
const MESSAGES: &[Field] = &[
    required("model", Kind::Str),
    required("messages", Kind::List(&MESSAGE, ANY_LENGTH)),
    required("max_tokens", INT),
    nullable("metadata", DICT),
    nullable("stop_sequences", STRINGS),
    nullable("stream", Kind::Bool),
    nullable("system", CONTENT),
    nullable("temperature", Kind::Float),
    nullable("thinking", THINKING),
    nullable("tool_choice", TOOL_CHOICE),
    nullable("tools", Kind::List(&TOOL, ANY_LENGTH)),
    nullable("top_k", INT),
    nullable("top_p", Kind::Float),
    nullable("output_config", DICT),
    nullable("betas", STRINGS),
];

/// `AnthropicCountTokensRequest`
const COUNT_TOKENS: &[Field] = &[
    required("model", Kind::Str),
    required("messages", Kind::List(&MESSAGE, ANY_LENGTH)),
    nullable("system", CONTENT),
    nullable("thinking", THINKING),
    nullable("tool_choice", TOOL_CHOICE),
    nullable("tools", Kind::List(&TOOL, ANY_LENGTH)),
    nullable("output_config", DICT),
    nullable("betas", STRINGS),
];

/// How its requests are read.
const HABITS: Habits = Habits {
    has_empty_texts: true,
    limit: "max_tokens",
    reasoning: None,
    separator: "\n",
    skips_header: false,
};

/// Characters of a refusal; more are cut off.
const MAX_MESSAGE: usize = 500;

/// Reads the body of `/v1/messages` or of its `count_tokens`; fails with the server's answer.
pub(crate) fn parse<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
    counts: bool,
    reasons: bool,
) -> Result<Request<'a>, Failure> {
    let fields = if counts { COUNT_TOKENS } else { MESSAGES };
    let mut asked = read(content_type, body, fields)?;
    check_limits(&asked)?;
    check_thinking(&asked, reasons)?;
    let has_tools = keep_custom_tools(&mut asked);
    let mut members = chat(&asked, &HABITS);
    choose_tool(&asked, has_tools, &mut members)?;
    if let Some(thinks) = thinks(&asked).filter(|_| reasons) {
        let kwargs = object(vec![member("enable_thinking", Json::Bool(thinks))]);
        members.0.push(member("chat_template_kwargs", kwargs));
    }
    Ok(Request::flat(members))
}

/// The members of a body that the schema accepts.
fn read<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
    fields: &'static [Field],
) -> Result<Object<'a>, Failure> {
    if check_content_type(content_type).is_err() {
        return Err(refused(
            "header.content-type: Unsupported Media Type: Only 'application/json' is allowed",
        ));
    }
    let body = json(content_type, body).map_err(|failure| match failure {
        Failure::Error(_) => refused("JSON decode error"),
        _ => refused("There was an error parsing the body"),
    })?;
    if let Some(message) = schema::digest(body.as_ref(), fields) {
        return Err(refused(&message));
    }
    match body {
        Some(Json::Object(members)) => Ok(members),
        _ => unreachable!("a model accepts objects alone"),
    }
}

/// A request that is refused before anything is generated.
fn refused(message: &str) -> Failure {
    let mut text: String = message.chars().take(MAX_MESSAGE).collect();
    if text.len() < message.len() {
        text.push('…');
    }
    Failure::Body {
        status: 400,
        json: refusal(&text),
    }
}

fn check_limits(asked: &Object<'_>) -> Result<(), Failure> {
    if asked.get("model").and_then(Json::as_str) == Some("") {
        return Err(refused("model: Value error, Model is required"));
    }
    let most = asked.get("max_tokens").map(schema::int);
    if most.is_some_and(|most| most.is_ok_and(|most| most <= 0)) {
        return Err(refused(
            "max_tokens: Value error, max_tokens must be positive",
        ));
    }
    Ok(())
}

fn thinking<'j>(asked: &'j Object<'_>, name: &str) -> Option<&'j Json<'j>> {
    let thinking = asked.get("thinking")?.as_object()?;
    thinking.get(name).filter(|value| **value != Json::Null)
}

/// Whether the model shall think, if that is said.
fn thinks(asked: &Object<'_>) -> Option<bool> {
    Some(thinking(asked, "type")?.as_str()? != "disabled")
}

fn check_thinking(asked: &Object<'_>, reasons: bool) -> Result<(), Failure> {
    let kind = thinking(asked, "type").and_then(Json::as_str);
    let budget = thinking(asked, "budget_tokens").and_then(|budget| schema::int(budget).ok());
    let wrong = |what: &str| Err(refused(&format!("thinking: Value error, {what}")));
    match (kind, budget) {
        (Some("enabled"), None) => {
            wrong("thinking.budget_tokens is required when thinking.type is 'enabled'")
        }
        (Some("enabled"), Some(budget)) if budget < 1024 => wrong(&format!(
            "thinking.budget_tokens must be >= 1024 (got {budget})"
        )),
        (Some(kind @ ("adaptive" | "disabled")), Some(_)) => wrong(&format!(
            "thinking.budget_tokens is not allowed when thinking.type is '{kind}'"
        )),
        (Some("adaptive" | "enabled"), _) if !reasons => Err(refused(
            "Anthropic thinking is not supported for models without a reasoning parser",
        )),
        _ => Ok(()),
    }
}

/// Leaves out the tools that Anthropic has itself, and gives the others what they lack; says whether there
/// are any.
fn keep_custom_tools(asked: &mut Object<'_>) -> bool {
    let tools = asked.0.iter_mut().find(|(name, _)| name == "tools");
    let Some((_, Json::Array(tools))) = tools else {
        return false;
    };
    tools.retain(|tool| {
        let kind = tool.as_object().and_then(|tool| tool.get("type"));
        let kind = kind.and_then(Json::as_str).unwrap_or_default();
        let families = ["web_search_", "computer_", "bash_", "text_editor_"];
        !families.iter().any(|family| kind.starts_with(family))
    });
    for tool in tools.iter_mut() {
        let Json::Object(tool) = tool else { continue };
        if tool
            .get("description")
            .is_none_or(|text| *text == Json::Null)
        {
            tool.take("description");
            tool.0.push(member("description", word("")));
        }
        for (name, schema) in &mut tool.0 {
            if let (true, Json::Object(schema)) = (name == "input_schema", schema)
                && schema.get("type").is_none()
            {
                schema.0.push(member("type", word("object")));
            }
        }
    }
    !tools.is_empty()
}

/// Checks that the tool that must be called is there.
fn choose_tool(
    asked: &Object<'_>,
    has_tools: bool,
    members: &mut Object<'_>,
) -> Result<(), Failure> {
    if !has_tools {
        members.take("tools");
        members.take("tool_choice");
    }
    let Some(Json::Object(choice)) = asked.get("tool_choice") else {
        return Ok(());
    };
    let kind = choice
        .get("type")
        .and_then(Json::as_str)
        .unwrap_or_default();
    let name = choice
        .get("name")
        .and_then(Json::as_str)
        .unwrap_or_default();
    let named = |tool: &Json<'_>| {
        let tool = tool.as_object();
        tool.and_then(|tool| tool.get("name")?.as_str()) == Some(name)
    };
    match asked.get("tools") {
        Some(Json::Array(tools)) if has_tools => {
            if kind != "tool" || tools.iter().any(named) {
                return Ok(());
            }
            let name = python::repr(name);
            return Err(refused(&format!(
                "tool_choice references tool {name} but it is not in the forwarded tools list (server-side Anthropic tools cannot be selected)"
            )));
        }
        _ if matches!(kind, "any" | "tool") => {
            return Err(refused(&format!(
                "tool_choice='{kind}' requires at least one custom tool; all supplied tools were server-side Anthropic built-ins which the OpenAI-compatible backend cannot invoke"
            )));
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Prompt, ToolChoice};

    fn read(body: &str, reasons: bool) -> Result<Request<'_>, Failure> {
        parse(Some("application/json"), body.as_bytes(), false, reasons)
    }

    fn refused(rest: &str) -> String {
        let body = format!(r#"{{"model":"m","max_tokens":5,"messages":[]{rest}}}"#);
        match read(&body, false) {
            Err(Failure::Body { status: 400, json }) => json,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refusals_have_anthropics_form() {
        for (rest, part) in [
            (
                r#","max_tokens":0"#,
                "max_tokens: Value error, max_tokens must be positive",
            ),
            (r#","model":"""#, "Model is required"),
            (
                r#","stream":"x","top_k":"y""#,
                "stream: Input should be a valid boolean, unable to interpret input; top_k: ",
            ),
            (r#","thinking":{"type":"enabled"}"#, "is required when"),
            (
                r#","thinking":{"type":"enabled","budget_tokens":3}"#,
                "(got 3)",
            ),
            (
                r#","thinking":{"type":"adaptive"}"#,
                "without a reasoning parser",
            ),
            (
                r#","tool_choice":{"type":"any"}"#,
                "tool_choice='any' requires",
            ),
            (
                r#","tool_choice":{"type":"tool","name":"g"},"tools":[{"name":"f","input_schema":{}}]"#,
                "tool 'g' but it",
            ),
        ] {
            let json = refused(rest);
            let start = r#"{"type":"error","error":{"type":"invalid_request_error","message":""#;
            assert!(json.starts_with(start) && json.contains(part), "{json}");
        }
    }

    #[test]
    fn blocks_become_chat_messages() {
        let request = read(
            r#"{"model":"m","max_tokens":5,"stop_sequences":["x"],"thinking":{"type":"disabled"},
                "system":[{"type":"text","text":"A"},{"type":"text","text":"B"}],
                "tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash"}],
                "tool_choice":{"type":"any"},
                "messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"text","text":"ho"}]},
                    {"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"}]}]}"#,
            true,
        )
        .unwrap();
        let Prompt::Messages(messages) = &request.prompt else {
            panic!("a chat has messages");
        };
        let said = messages.iter().map(|message| &*message.content);
        let expected = ["A\nB", "hi ho", "<think>hm\n</think> a"];
        assert_eq!(said.collect::<Vec<_>>(), expected);
        assert_eq!(request.template.tool_names(), ["f"]);
        assert!(matches!(
            request.template.tool_choice,
            Some(ToolChoice::Required)
        ));
        assert!(
            request
                .template
                .kwargs
                .iter()
                .any(|(name, _)| name == "enable_thinking")
        );
        assert_eq!(request.sampling.stop, ["x"]);
        assert_eq!(request.max_tokens(), Some(5));
    }
}
