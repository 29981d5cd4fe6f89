//! What vLLM accepts at `/v1/responses`.

use crate::dialect::body::{checked, json};
use crate::dialect::responses_request::{Echoed, Habits, ResponsesRequest, chat, member, word};
use crate::failure::{ErrorObject, Failure};
use crate::json::Json;
use crate::python;
use crate::request::{Endpoint, Request};
use crate::schema::{Field, INT, INT64, Kind, nullable, optional, required};

use super::refusal::refuse;
use super::validators;

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

/// How its requests are read.
const HABITS: Habits = Habits {
    headroom: 0,
    joins: None,
    names_parts: false,
    reasoning: "reasoning",
    same: SAME,
    tells_strict: false,
    summary_first: false,
};

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
    let echoed = Echoed::new(checked(body, FIELDS)?);
    let mut request = Request::from_checked(Endpoint::Chat, chat(&echoed, &HABITS));
    echoed.limit(&HABITS, &mut request);
    Ok(ResponsesRequest { echoed, request })
}

/// Refuses what needs kept responses.
pub(crate) fn check(asked: &ResponsesRequest<'_>) -> Result<(), Failure> {
    if asked.background() {
        return Err(refusal(
            "This vLLM engine does not support `store=True` and therefore does not support the background mode. To enable these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when launching the vLLM server.".into(),
            "background",
            400,
        ));
    }
    match asked.previous_response_id() {
        Some(id) => Err(unknown(id)),
        None => Ok(()),
    }
}

/// The answer to a question for a response: none is kept.
pub(crate) fn unknown(id: &str) -> Failure {
    let message = format!("Response with id '{id}' not found.");
    refusal(message, "response_id", 404)
}

fn refusal(message: String, param: &str, code: u16) -> Failure {
    Failure::Error(ErrorObject {
        message,
        kind: "invalid_request_error",
        param: Some(param.into()),
        code,
    })
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
