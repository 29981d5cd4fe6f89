//! The bodies of SGLang's lesser routes.

mod ollama;
mod score;

pub use ollama::Ollama;
pub use score::{Items, Labels, Score};

use std::borrow::Cow;

use crate::dialect::body::{checked, json};
use crate::dialect::responses_request::member;
use crate::failure::Failure;
use crate::json::{Json, Object};
use crate::request::{self, Request};
use crate::schema::{self as pydantic, Field, Kind, nullable, optional, required};

use super::schema::{ANY_LENGTH, DICT, IDS, MESSAGE, TEXTS, TOOL, TOOL_CHOICE};

/// `/tokenize`
#[derive(Clone, Debug)]
pub struct Tokenize<'a> {
    /// `add_special_tokens`
    pub adds_special: bool,
    /// What is to be cut into tokens.
    pub given: ToTokenize<'a>,
}

/// What is to be cut into tokens.
#[derive(Clone, Debug)]
pub enum ToTokenize<'a> {
    /// A chat, as the template renders it.
    Chat(Box<Request<'a>>),
    /// A text.
    Text(Cow<'a, str>),
    /// Several.
    Texts(Vec<Cow<'a, str>>),
}

/// `/detokenize`
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Detokenize {
    /// They came as a list of lists.
    pub is_list: bool,
    /// The tokens of each text.
    pub lists: Vec<Vec<u32>>,
    /// `skip_special_tokens`
    pub skips_special: bool,
}

/// `/parse_function_call`
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParseFunctionCall<'a> {
    /// Names of the tools that there are.
    pub names: Vec<String>,
    /// `tool_call_parser`
    pub parser: Option<Cow<'a, str>>,
    /// `text`
    pub text: Cow<'a, str>,
}

/// `/separate_reasoning`
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SeparateReasoning<'a> {
    /// `reasoning_parser`
    pub parser: Cow<'a, str>,
    /// `return_blocks`
    pub returns_blocks: bool,
    /// `text`
    pub text: Cow<'a, str>,
}

const TOKENIZE: &[Field] = &[
    optional("model", Kind::Str),
    nullable("prompt", TEXTS),
    nullable("messages", Kind::List(&MESSAGE, ANY_LENGTH)),
    nullable("tools", Kind::List(&TOOL, ANY_LENGTH)),
    nullable("tool_choice", TOOL_CHOICE),
    optional("continue_final_message", Kind::Bool),
    nullable("chat_template_kwargs", DICT),
    optional("add_special_tokens", Kind::Bool),
];
const DETOKENIZE: &[Field] = &[
    optional("model", Kind::Str),
    required("tokens", IDS),
    optional("skip_special_tokens", Kind::Bool),
];
const PARSE_FUNCTION_CALL: &[Field] = &[
    required("text", Kind::Str),
    optional("tools", Kind::List(&TOOL, ANY_LENGTH)),
    nullable("tool_call_parser", Kind::Str),
];
const SEPARATE_REASONING: &[Field] = &[
    required("text", Kind::Str),
    required("reasoning_parser", Kind::Str),
    optional("return_blocks", Kind::Bool),
];
const EMBEDDINGS: &[Field] = &[required("input", Kind::Any), optional("model", Kind::Str)];
const RERANK: &[Field] = &[
    required("query", Kind::Any),
    required("documents", Kind::List(&Kind::Any, ANY_LENGTH)),
];
const ENCODE: &[Field] = &[nullable("text", Kind::Any), nullable("input_ids", IDS)];
const SET_INTERNAL_STATE: &[Field] = &[required("server_args", Kind::Dict(&Kind::Float))];
const VERTEX: &[Field] = &[
    required("instances", Kind::List(&DICT, ANY_LENGTH)),
    nullable("parameters", DICT),
];
fn read<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
    fields: &'static [Field],
) -> Result<Object<'a>, Failure> {
    checked(json(content_type, body)?, fields)
}

fn text<'a>(members: &mut Object<'a>, name: &str) -> Option<Cow<'a, str>> {
    members.take(name).and_then(request::text)
}

fn flag(members: &Object<'_>, name: &str, default: bool) -> bool {
    let given = members.get(name);
    given
        .and_then(|value| pydantic::bool(value).ok())
        .unwrap_or(default)
}

fn texts(items: Vec<Json<'_>>) -> Vec<Cow<'_, str>> {
    items.into_iter().filter_map(request::text).collect()
}

/// Whole numbers, and whether there is a list of them or one of lists.
fn numbers(value: &Json<'_>) -> (Vec<Vec<i128>>, bool) {
    let Json::Array(items) = value else {
        return (Vec::new(), false);
    };
    let is_list = matches!(items.first(), Some(Json::Array(_)));
    let list = |items: &[Json<'_>]| {
        let numbers = items.iter().map(pydantic::int);
        numbers.filter_map(Result::ok).collect()
    };
    let lists = items.iter().filter_map(|item| match item {
        Json::Array(items) => Some(list(items)),
        _ => None,
    });
    if is_list {
        (lists.collect(), true)
    } else {
        (vec![list(items)], false)
    }
}

/// Token ids; what can be none is beyond any vocabulary.
fn ids(numbers: &[i128]) -> Vec<u32> {
    let id = |number: &i128| u32::try_from(*number).unwrap_or(u32::MAX);
    numbers.iter().map(id).collect()
}

impl<'a> Tokenize<'a> {
    /// Reads a body that came with a content type.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse(content_type: Option<&str>, body: &'a [u8]) -> Result<Self, Failure> {
        let mut members = read(content_type, body, TOKENIZE)?;
        let adds_special = flag(&members, "add_special_tokens", true);
        let prompt = members.take("prompt").filter(|it| *it != Json::Null);
        let messages = members.get("messages").filter(|it| **it != Json::Null);
        let given = match (prompt, messages) {
            (Some(Json::Array(items)), None) => ToTokenize::Texts(texts(items)),
            (Some(Json::String(text)), None) => ToTokenize::Text(text),
            (Some(Json::Surrogates(text)), None) => ToTokenize::Text(text.into()),
            (None, Some(_)) => ToTokenize::Chat(Request::flat(members).into()),
            _ => {
                let message = "1 validation error:\n  Value error, Exactly one of 'prompt' or 'messages' must be provided.";
                return Err(invalid(message));
            }
        };
        Ok(Self {
            adds_special,
            given,
        })
    }
}

/// What the schema refuses.
fn invalid(message: &str) -> Failure {
    Failure::Error(crate::failure::ErrorObject {
        message: message.into(),
        kind: "Bad Request",
        param: None,
        code: 400,
    })
}

impl Detokenize {
    /// Reads a body that came with a content type.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse(content_type: Option<&str>, body: &[u8]) -> Result<Self, Failure> {
        let members = read(content_type, body, DETOKENIZE)?;
        let (lists, is_list) = numbers(members.get("tokens").unwrap_or(&Json::Null));
        Ok(Self {
            is_list,
            lists: lists.iter().map(|numbers| ids(numbers)).collect(),
            skips_special: flag(&members, "skip_special_tokens", true),
        })
    }
}

impl<'a> ParseFunctionCall<'a> {
    /// Reads a body that came with a content type.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse(content_type: Option<&str>, body: &'a [u8]) -> Result<Self, Failure> {
        let mut members = read(content_type, body, PARSE_FUNCTION_CALL)?;
        let name = |tool: &Json<'_>| {
            let function = tool.as_object()?.get("function")?.as_object()?;
            function.get("name")?.as_str().map(str::to_owned)
        };
        let names = match members.get("tools") {
            Some(Json::Array(tools)) => tools.iter().filter_map(name).collect(),
            _ => Vec::new(),
        };
        Ok(Self {
            names,
            parser: text(&mut members, "tool_call_parser"),
            text: text(&mut members, "text").unwrap_or_default(),
        })
    }
}

impl<'a> SeparateReasoning<'a> {
    /// Reads a body that came with a content type.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse(content_type: Option<&str>, body: &'a [u8]) -> Result<Self, Failure> {
        let mut members = read(content_type, body, SEPARATE_REASONING)?;
        Ok(Self {
            parser: text(&mut members, "reasoning_parser").unwrap_or_default(),
            returns_blocks: flag(&members, "return_blocks", false),
            text: text(&mut members, "text").unwrap_or_default(),
        })
    }
}

/// Checks the body of a route that needs an embedding model.
///
/// # Errors
/// The server's answer to a body that it refuses.
pub fn check_embeddings(
    content_type: Option<&str>,
    body: &[u8],
    path: &str,
) -> Result<(), Failure> {
    let fields = match path {
        "/encode" => ENCODE,
        "/v1/rerank" => RERANK,
        _ => EMBEDDINGS,
    };
    read(content_type, body, fields).map(drop)
}

/// Checks the body of `/set_internal_state`.
///
/// # Errors
/// The server's answer to a body that it refuses.
pub fn check_internal_state(content_type: Option<&str>, body: &[u8]) -> Result<(), Failure> {
    read(content_type, body, SET_INTERNAL_STATE).map(drop)
}

/// The body of `/generate` that the one of `/vertex_generate` asks for; none without instances.
///
/// # Errors
/// The server's answer to a body that it refuses.
pub fn of_vertex(content_type: Option<&str>, body: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    let mut members = read(content_type, body, VERTEX)?;
    let Some(Json::Array(instances)) = members.take("instances") else {
        return Ok(None);
    };
    let get =
        |instance: &Json<'_>, name: &str| instance.as_object()?.get(name).is_some().then_some(());
    let Some(first) = instances.first() else {
        return Ok(None);
    };
    let mut asked = Vec::new();
    let names = ["text", "input_ids", "input_embeds"];
    if let Some(name) = names.into_iter().find(|name| get(first, name).is_some()) {
        let values = instances.into_iter().map(|instance| match instance {
            Json::Object(mut instance) => instance.take(name).unwrap_or(Json::Null),
            _ => Json::Null,
        });
        asked.push(member(name, Json::Array(values.collect())));
    }
    if let Some(Json::Object(parameters)) = members.take("parameters") {
        asked.extend(parameters.0);
    }
    let asked = Json::Object(Object(asked));
    Ok(Some(serde_json::to_vec(&asked).expect("JSON encodes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Option<&str> = Some("application/json");

    #[test]
    fn instances_become_a_batch() {
        let read = |body: &str| {
            let body = of_vertex(KIND, body.as_bytes()).unwrap();
            body.map(|body| String::from_utf8(body).unwrap())
        };
        assert_eq!(read(r#"{"instances":[]}"#), None);
        assert_eq!(
            read(r#"{"instances":[{"text":"a"},{"text":"b"}],"parameters":{"stream":true}}"#),
            Some(r#"{"text":["a","b"],"stream":true}"#.into())
        );
        assert_eq!(read(r#"{"instances":[{}]}"#), Some("{}".into()));
    }

    #[test]
    fn either_a_prompt_or_messages_are_cut() {
        let read = |body: &'static str| Tokenize::parse(KIND, body.as_bytes());
        assert!(matches!(
            read(r#"{"prompt":"a"}"#).unwrap().given,
            ToTokenize::Text(_)
        ));
        assert!(matches!(
            read(r#"{"prompt":["a"]}"#).unwrap().given,
            ToTokenize::Texts(_)
        ));
        let chat = read(r#"{"messages":[{"role":"user","content":"a"}]}"#);
        assert!(matches!(chat.unwrap().given, ToTokenize::Chat(_)));
        assert!(read("{}").is_err());
        assert!(read(r#"{"prompt":"a","messages":[]}"#).is_err());
    }
}
