//! What vLLM accepts at `/v1/messages`.

use crate::dialect::body::{checked, json};
use crate::dialect::messages_request::{Habits, chat};
use crate::failure::Failure;
use crate::request::{Endpoint, Request};
use crate::schema::{Field, INT, Kind, nullable, required};

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

/// How its requests are read.
const HABITS: Habits = Habits {
    has_empty_texts: false,
    limit: "max_completion_tokens",
    reasoning: Some("reasoning"),
    separator: "",
    skips_header: true,
};

/// Reads the body of `/v1/messages`; fails with the server's answer.
pub(crate) fn parse<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<Request<'a>, Failure> {
    read(content_type, body, MESSAGES)
}

/// Reads the body of `/v1/messages/count_tokens`; fails with the server's answer.
pub(crate) fn parse_count<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<Request<'a>, Failure> {
    read(content_type, body, COUNT_TOKENS)
}

fn read<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
    fields: &'static [Field],
) -> Result<Request<'a>, Failure> {
    let asked = checked(json(content_type, body)?, fields)?;
    Ok(Request::from_checked(Endpoint::Chat, chat(&asked, &HABITS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python;
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
