//! What SGLang accepts at `/v1/responses`.

use std::sync::Arc;

use crate::dialect::body::{checked, json};
use crate::dialect::responses_request::{Echoed, Habits, ResponsesRequest, chat};
use crate::failure::{ErrorObject, Failure};
use crate::json::Json;
use crate::python;
use crate::request::Request;
use crate::schema::{Field, INT, Kind, nullable, optional, required};

use super::schema::{ANY_LENGTH, DICT, TEXTS};

const LIST: Kind = Kind::List(&Kind::Any, ANY_LENGTH);

/// `ResponsesRequest`, the fields that are looked at.
const FIELDS: &[Field] = &[
    nullable("background", Kind::Bool),
    nullable("include", LIST),
    required("input", Kind::Union(&[Kind::Str, LIST])),
    nullable("instructions", Kind::Str),
    nullable("max_output_tokens", INT),
    nullable("max_tool_calls", INT),
    nullable("metadata", DICT),
    nullable("model", Kind::Str),
    nullable("parallel_tool_calls", Kind::Bool),
    nullable("previous_response_id", Kind::Str),
    nullable("reasoning", DICT),
    nullable("store", Kind::Bool),
    nullable("stream", Kind::Bool),
    nullable("temperature", Kind::Float),
    nullable("text", DICT),
    optional("tool_choice", Kind::Union(&[Kind::Str, DICT])),
    optional("tools", Kind::List(&TOOL, ANY_LENGTH)),
    nullable("top_logprobs", INT),
    nullable("top_p", Kind::Float),
    nullable("truncation", Kind::Literal(&["auto", "disabled"])),
    nullable("user", Kind::Str),
    nullable("chat_template_kwargs", DICT),
    optional("request_id", Kind::Str),
    optional("frequency_penalty", Kind::Float),
    optional("presence_penalty", Kind::Float),
    nullable("stop", TEXTS),
    nullable("top_k", INT),
    nullable("min_p", Kind::Float),
    nullable("repetition_penalty", Kind::Float),
];

const TOOL: Kind = Kind::Model(&[
    required("type", Kind::Str),
    nullable("name", Kind::Str),
    nullable("description", Kind::Str),
    nullable("parameters", DICT),
    optional("strict", Kind::Bool),
]);

/// How its requests are read. The two tokens are for what the engine may put around prompt and answer.
const HABITS: Habits = Habits {
    headroom: 2,
    joins: Some("\n\n"),
    names_parts: true,
    reasoning: "reasoning_content",
    same: &[
        "chat_template_kwargs",
        "frequency_penalty",
        "min_p",
        "model",
        "parallel_tool_calls",
        "presence_penalty",
        "repetition_penalty",
        "request_id",
        "stop",
        "stream",
        "temperature",
        "top_k",
        "top_p",
    ],
    tells_strict: true,
    summary_first: true,
};

/// Reads a body that came with a content type; fails with the server's answer.
pub(crate) fn parse<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<ResponsesRequest<'a>, Failure> {
    let members = json(content_type, body).and_then(|body| checked(body, FIELDS));
    let echoed = Echoed::new(members.map_err(nested)?);
    let mut request = Request::flat(chat(&echoed, &HABITS));
    echoed.limit(&HABITS, &mut request);
    Ok(ResponsesRequest { echoed, request })
}

/// Checks what needs no prompt.
pub(crate) fn check(asked: &ResponsesRequest<'_>, served: &[Arc<str>]) -> Result<(), Failure> {
    if asked.previous_response_id().is_some() {
        return Err(not_kept("previous_response_id"));
    }
    if asked.background() {
        return Err(not_kept("background"));
    }
    check_model(asked, served)?;
    let tools = || {
        asked
            .echoed
            .items("tools")
            .iter()
            .filter_map(Json::as_object)
    };
    let text = |tool: &crate::json::Object<'_>, name: &str| {
        tool.get(name).and_then(Json::as_str).map(str::to_owned)
    };
    let mut callable =
        tools().filter(|tool| matches!(text(tool, "type").as_deref(), Some("function" | "custom")));
    match asked.echoed.tool_choice() {
        Choice::Word("required") if callable.next().is_none() => Err(refusal(
            "tool_choice=\"required\" requires at least one tool with type=\"function\" or type=\"custom\"; other built-in tool types cannot be forced.".into(),
            None,
            400,
        )),
        Choice::Tool { name, .. }
            if !callable.any(|tool| text(tool, "name").as_deref() == Some(name)) =>
        {
            let message = format!("Tool {} is not declared in tools", python::repr(name));
            Err(refusal(message, Some("tool_choice"), 400))
        }
        _ if asked.request.stream && asked.request.sampling.logprobs.is_some() => Err(refusal(
            "logprobs are not supported in streaming mode".into(),
            Some("logprobs"),
            400,
        )),
        _ => Ok(()),
    }
}

/// The names that may be asked for: those that are served, an adapter behind them.
fn check_model(asked: &ResponsesRequest<'_>, served: &[Arc<str>]) -> Result<(), Failure> {
    let Some(model) = asked.request.model.as_deref() else {
        return Ok(());
    };
    let base = model.split_once(':').map_or(model, |(base, _)| base.trim());
    if served
        .iter()
        .any(|name| **name == *model || **name == *base)
    {
        return Ok(());
    }
    let message = format!("The model '{model}' does not exist");
    Err(refusal(message, Some("model"), 404))
}

/// The answer where a response would have to be kept.
pub(crate) fn not_kept(param: &str) -> Failure {
    refusal(
        "Response store is disabled. Stateful Responses require --enable-response-store on a standalone server; response storage is unavailable in PD mode.".into(),
        Some(param),
        400,
    )
}

fn refusal(message: String, param: Option<&str>, code: u16) -> Failure {
    nested(Failure::Error(ErrorObject {
        message,
        kind: "invalid_request_error",
        param: param.map(Into::into),
        code,
    }))
}

/// A failure as these routes have it: in an object of its own.
pub(crate) fn nested(failure: Failure) -> Failure {
    let Failure::Error(mut error) = failure else {
        return failure;
    };
    if error.kind == "Bad Request" {
        error.param = None;
    } else {
        error.kind = "invalid_request_error";
    }
    let mut json = Vec::new();
    let status = error.code;
    // What the other routes write flat is written as others do it.
    Failure::Error(error).encode(&mut json);
    Failure::Body {
        status,
        json: String::from_utf8(json).expect("JSON is UTF-8"),
    }
}

/// `tool_choice` as far as the server can honour it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Choice<'c> {
    /// A tool by its name.
    Tool {
        /// `function` or `custom`
        kind: &'c str,
        /// Its name.
        name: &'c str,
    },
    /// A word.
    Word(&'c str),
}

impl Echoed<'_> {
    /// `tool_choice` as far as the server can honour it.
    pub(super) fn tool_choice(&self) -> Choice<'_> {
        let choice = match self.get("tool_choice") {
            Some(Json::Object(choice)) => choice,
            choice => return Choice::Word(choice.and_then(Json::as_str).unwrap_or("auto")),
        };
        let nested = || choice.get("function").and_then(Json::as_object);
        let name = choice.get("name").or_else(|| nested()?.get("name"));
        let kind = choice.get("type").and_then(Json::as_str);
        match (kind, name.and_then(Json::as_str)) {
            (Some(kind @ ("function" | "custom")), Some(name)) if !name.is_empty() => {
                Choice::Tool { kind, name }
            }
            _ => Choice::Word("auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Prompt;

    fn read(body: &str) -> Result<ResponsesRequest<'_>, Failure> {
        parse(Some("application/json"), body.as_bytes())
    }

    fn refused(body: &str) -> (u16, String) {
        let served = ["m".into()];
        match read(body).and_then(|asked| check(&asked, &served)) {
            Err(Failure::Body { status, json }) => (status, json),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refusals_are_nested() {
        for (body, status, part) in [
            (
                "{}",
                400,
                r#""type":"Bad Request","param":null,"code":400}}"#,
            ),
            ("{", 400, "JSON decode error"),
            (
                r#"{"input":"a","model":"n"}"#,
                404,
                "The model 'n' does not exist",
            ),
            (
                r#"{"input":"a","background":true}"#,
                400,
                r#""param":"background""#,
            ),
            (
                r#"{"input":"a","previous_response_id":"r"}"#,
                400,
                "Response store is disabled",
            ),
            (
                r#"{"input":"a","tool_choice":"required"}"#,
                400,
                "requires at least one tool",
            ),
            (
                r#"{"input":"a","tool_choice":{"type":"function","name":"f"}}"#,
                400,
                "Tool 'f' is not declared in tools",
            ),
            (
                r#"{"input":"a","stream":true,"include":["message.output_text.logprobs"]}"#,
                400,
                "not supported in streaming mode",
            ),
        ] {
            let (code, json) = refused(body);
            assert_eq!(code, status, "{body}");
            assert!(
                json.starts_with(r#"{"error":{"message":"#) && json.contains(part),
                "{json}"
            );
        }
        let adapter = read(r#"{"input":"a","model":"m:x"}"#).unwrap();
        assert_eq!(check(&adapter, &["m".into()]), Ok(()));
    }

    #[test]
    fn input_becomes_a_chat() {
        let asked = read(
            r#"{"instructions":"A","max_output_tokens":9,"input":[
                {"role":"developer","content":"B"},
                {"role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_text","text":"ho"}]},
                {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
                {"type":"message","role":"assistant","id":"msg_1","content":[{"type":"output_text","text":"a"}]},
                {"type":"message","role":"assistant","content":"b"},
                {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
                {"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"7"}]}]}"#,
        )
        .unwrap();
        let Prompt::Messages(messages) = &asked.request.prompt else {
            panic!("a chat has messages");
        };
        let said = messages
            .iter()
            .map(|message| (&*message.role, &*message.content));
        let expected = [
            ("system", "A\n\nB"),
            ("user", "hi ho"),
            ("assistant", "a\n\nb"),
            ("tool", "7"),
        ];
        assert_eq!(said.collect::<Vec<_>>(), expected);
        let names = messages[2].rest.iter().map(|(name, _)| &**name);
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["reasoning_content", "tool_calls"]
        );
        assert_eq!(asked.request.max_tokens(), Some(7));
    }
}
