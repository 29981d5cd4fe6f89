//! The body of `/v1/chat/completions`, as the server's request model takes it.

use std::borrow::Cow;

use crate::failure::Failure;
use crate::json::{Json, JsonError, Object};
use crate::schema::{self, Field, INT, Kind, nullable, optional, required};

const ANY_LENGTH: usize = usize::MAX;
const DICT: Kind = Kind::Dict(&Kind::Any);
const DICTS: Kind = Kind::List(&DICT, ANY_LENGTH);

const TOOL_CALL: &[Field] = &[
    nullable("index", INT),
    nullable("id", Kind::Str),
    optional("type", Kind::Literal(&["function"])),
    required(
        "function",
        Kind::Model(&[
            nullable("name", Kind::Str),
            nullable("arguments", Kind::Str),
        ]),
    ),
];

const MESSAGE: &[Field] = &[
    required("role", Kind::Str),
    nullable(
        "content",
        Kind::Union(&[
            Kind::Member("str", &Kind::Str),
            Kind::Member("list[dict[str,any]]", &DICTS),
        ]),
    ),
    nullable("name", Kind::Str),
    nullable("reasoning_content", Kind::Str),
    nullable(
        "tool_calls",
        Kind::List(&Kind::Model(TOOL_CALL), ANY_LENGTH),
    ),
    nullable("tool_call_id", Kind::Str),
];

const CHAT: &[Field] = &[
    nullable("model", Kind::Str),
    required("messages", Kind::List(&Kind::Model(MESSAGE), ANY_LENGTH)),
    optional("stream", Kind::Bool),
    nullable(
        "stream_options",
        Kind::Model(&[optional("include_usage", Kind::Bool)]),
    ),
    nullable("temperature", Kind::Float),
    nullable("top_p", Kind::Float),
    nullable("max_tokens", INT),
    nullable("max_completion_tokens", INT),
    nullable(
        "stop",
        Kind::Union(&[
            Kind::Member("str", &Kind::Str),
            Kind::Member("list[str]", &Kind::List(&Kind::Str, ANY_LENGTH)),
        ]),
    ),
    optional("n", INT),
    nullable("seed", INT),
    nullable("frequency_penalty", Kind::Float),
    nullable("presence_penalty", Kind::Float),
    nullable("top_k", INT),
    nullable("logit_bias", Kind::Dict(&Kind::Float)),
    nullable("response_format", DICT),
    nullable("logprobs", Kind::Bool),
    nullable("top_logprobs", INT),
    nullable("parallel_tool_calls", Kind::Bool),
    nullable("chat_template_kwargs", DICT),
    nullable("session_id", Kind::Str),
    nullable("tools", DICTS),
    nullable(
        "tool_choice",
        Kind::Union(&[
            Kind::Member("str", &Kind::Str),
            Kind::Member("dict[str,any]", &DICT),
        ]),
    ),
    nullable("reasoning_effort", Kind::Str),
];

/// A chat that fits the request model; what the server does not take is still in it.
#[derive(Clone, Debug)]
pub struct ChatRequest<'a>(Object<'a>);

/// A message of a chat.
#[derive(Clone, Copy, Debug)]
pub struct Message<'r, 'a>(&'r Object<'a>);

/// Reads a body.
///
/// # Errors
/// The web framework's own answer to what does not fit the model; none if it fails over the body.
pub fn parse<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<ChatRequest<'a>, Option<Failure>> {
    let read = match content_type {
        Some(kind) if is_json(kind) && !body.is_empty() => match Json::parse(body) {
            Ok(read) => Some(read),
            Err(JsonError::Syntax { message, offset }) => {
                return Err(schema::json_invalid_plainly(message, offset));
            }
            Err(JsonError::NotUtf8 | JsonError::TooLarge) => {
                return Err(Some(Failure::Detail {
                    status: 400,
                    detail: "There was an error parsing the body",
                }));
            }
        },
        _ if body.is_empty() => None,
        // What is not said to be JSON is taken for a text.
        _ => match std::str::from_utf8(body) {
            Ok(text) => Some(Json::String(text.into())),
            Err(_) => return Err(None),
        },
    };
    schema::check_plainly(read.as_ref(), CHAT)?;
    match read {
        Some(Json::Object(members)) => Ok(ChatRequest(members)),
        _ => unreachable!("a model accepts objects alone"),
    }
}

/// Whether a content type is JSON's, or that of a kind of JSON.
fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let Some((main, sub)) = kind.split_once('/') else {
        return false;
    };
    let sub = sub.to_ascii_lowercase();
    main.eq_ignore_ascii_case("application") && (sub == "json" || sub.ends_with("+json"))
}

impl<'a> ChatRequest<'a> {
    /// A member, unless it is absent or null.
    pub fn get(&self, name: &str) -> Option<&Json<'a>> {
        self.0.get(name).filter(|value| **value != Json::Null)
    }

    /// A member that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// A member that is taken for an integer.
    pub fn int(&self, name: &str) -> Option<i128> {
        schema::int(self.get(name)?).ok()
    }

    /// A member that is taken for a number.
    pub fn float(&self, name: &str) -> Option<f64> {
        schema::float(self.get(name)?).ok()
    }

    /// A member that is taken for a bool.
    pub fn bool(&self, name: &str) -> Option<bool> {
        schema::bool(self.get(name)?).ok()
    }

    /// The messages.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = Message<'_, 'a>> + Clone {
        let messages = match self.0.get("messages") {
            Some(Json::Array(messages)) => &messages[..],
            _ => &[],
        };
        messages.iter().filter_map(Json::as_object).map(Message)
    }

    /// `stream_options.include_usage`
    pub fn include_usage(&self) -> Option<bool> {
        let options = self.get("stream_options")?.as_object()?;
        schema::bool(options.get("include_usage")?).ok()
    }

    /// The tools, if there are any.
    pub fn tools(&self) -> Option<&Json<'a>> {
        self.get("tools")
            .filter(|tools| !matches!(tools, Json::Array(tools) if tools.is_empty()))
    }

    /// Stop strings, empty ones left out.
    pub fn stop(&self) -> Vec<String> {
        let texts: Vec<Cow<'_, str>> = match self.get("stop") {
            Some(Json::Array(stops)) => stops.iter().filter_map(text).collect(),
            Some(one) => text(one).into_iter().collect(),
            None => Vec::new(),
        };
        let kept = texts.into_iter().filter(|stop| !stop.is_empty());
        kept.map(Cow::into_owned).collect()
    }

    /// Most tokens of the answer; `max_completion_tokens` goes before `max_tokens`.
    pub fn max_tokens(&self) -> Option<i128> {
        let newer = self.int("max_completion_tokens");
        newer.or_else(|| self.int("max_tokens"))
    }
}

fn text<'j>(value: &'j Json<'_>) -> Option<Cow<'j, str>> {
    match value {
        Json::String(text) => Some(Cow::Borrowed(text)),
        Json::Surrogates(text) => Some(Cow::Borrowed(text)),
        _ => None,
    }
}

impl<'r, 'a> Message<'r, 'a> {
    /// One of these members.
    pub fn new(members: &'r Object<'a>) -> Self {
        Self(members)
    }

    /// A member, unless it is absent or null.
    pub fn get(&self, name: &str) -> Option<&'r Json<'a>> {
        self.0.get(name).filter(|value| **value != Json::Null)
    }

    /// `role`
    pub fn role(&self) -> Cow<'r, str> {
        self.get("role").and_then(text).unwrap_or_default()
    }

    /// `content`
    pub fn content(&self) -> Option<&'r Json<'a>> {
        self.get("content")
    }

    /// `tool_calls`
    pub fn tool_calls(&self) -> &'r [Json<'a>] {
        match self.get("tool_calls") {
            Some(Json::Array(calls)) => calls,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(content_type: Option<&str>, body: &str) -> String {
        let failure = parse(content_type, body.as_bytes()).unwrap_err();
        failure.unwrap().message().to_owned()
    }

    #[test]
    fn all_members_of_a_union_are_told() {
        let body = r#"{"messages":[{"role":"user","content":[1]},"x"],"stop":7}"#;
        let fitting = "Input should be a valid";
        let expected = [
            r#"{"type":"string_type","loc":["body","messages",0,"content","str"],"msg":""#,
            fitting,
            r#" string","input":[1]},{"type":"dict_type","loc":["body","messages",0,"content","list[dict[str,any]]",0],"msg":""#,
            fitting,
            r#" dictionary","input":1},{"type":"model_attributes_type","loc":["body","messages",1],"msg":""#,
            fitting,
            r#" dictionary or object to extract fields from","input":"x"},{"type":"string_type","loc":["body","stop","str"],"msg":""#,
            fitting,
            r#" string","input":7},{"type":"list_type","loc":["body","stop","list[str]"],"msg":""#,
            fitting,
            r#" list","input":7}"#,
        ];
        assert_eq!(
            refusal(Some("application/json"), body),
            format!("{{\"detail\":[{}]}}", expected.concat())
        );
    }

    #[test]
    fn what_is_not_said_to_be_json_is_a_text() {
        let refused = refusal(None, "{}");
        assert!(refused.contains(r#""input":"{}""#), "{refused}");
        assert_eq!(parse(None, b"\xff").unwrap_err(), None);
        let null = refusal(Some("application/json"), "null");
        assert!(
            null.contains(r#""type":"model_attributes_type","loc":["body"]"#),
            "{null}"
        );
        let body = br#"{"messages":[],"n":NaN}"#;
        assert_eq!(parse(Some("application/json"), body).unwrap_err(), None);
        let body = r#"{"messages":1000000000000000000000000000000}"#;
        let huge = refusal(Some("application/json"), body);
        assert!(
            huge.contains(r#""input":1000000000000000000000000000000}"#),
            "{huge}"
        );
        assert!(parse(Some("application/vnd.x+json; a=b"), br#"{"messages":[]}"#).is_ok());
    }

    #[test]
    fn members_are_coerced() {
        let body = br#"{"messages":[],"max_tokens":"7","stream":1,"stop":["","a"],"top_p":1,"max_completion_tokens":null}"#;
        let request = parse(Some("application/json"), body).unwrap();
        assert_eq!(request.max_tokens(), Some(7));
        assert_eq!(request.bool("stream"), Some(true));
        assert_eq!(request.stop(), ["a"]);
        assert_eq!(request.float("top_p"), Some(1.0));
    }
}
