//! The bodies of SGLang's lesser routes.

use std::borrow::Cow;

use crate::dialect::body::{checked, json};
use crate::dialect::responses_request::member;
use crate::failure::Failure;
use crate::json::{Json, Object};
use crate::request::{Endpoint, Request};
use crate::schema::{self as pydantic, Field, Kind, nullable, optional, required};

use super::schema::{ANY_LENGTH, DICT, IDS, INTS, MESSAGE, STRINGS, TEXTS, TOOL, TOOL_CHOICE};

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

/// `/v1/score`
#[derive(Clone, Debug)]
pub struct Score<'a> {
    /// `apply_softmax`
    pub applies_softmax: bool,
    /// `item_first`
    pub item_first: bool,
    /// `items`, each behind the query.
    pub items: Items<'a>,
    /// `label_token_ids`: one list for all items, or one for each.
    pub labels: Option<Labels>,
    /// `model`
    pub model: Cow<'a, str>,
    /// `return_token_logprobs`
    pub tells_logprobs: bool,
    /// `temperature`
    pub temperature: f64,
}

/// What is scored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Items<'a> {
    /// Token ids behind token ids.
    Ids(Vec<u32>, Vec<Vec<u32>>),
    /// One of them has ids and the other a text.
    Mixed,
    /// Nothing was given.
    None,
    /// Texts behind a text.
    Texts(Cow<'a, str>, Vec<Cow<'a, str>>),
}

/// The tokens whose probability is asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Labels {
    /// The same for all items.
    All(Vec<i128>),
    /// A list for each item.
    Each(Vec<Vec<i128>>),
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

/// `/api/chat` and `/api/generate`
#[derive(Clone, Debug)]
pub struct Ollama<'a> {
    /// What is to be generated; nothing where there is no prompt.
    pub request: Option<Request<'a>>,
    /// `stream`
    pub stream: bool,
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
const SCORE: &[Field] = &[
    nullable("query", Kind::Union(&[Kind::Str, INTS])),
    nullable(
        "items",
        Kind::Union(&[Kind::Str, STRINGS, Kind::List(&INTS, ANY_LENGTH)]),
    ),
    nullable("label_token_ids", IDS),
    optional("apply_softmax", Kind::Bool),
    optional("temperature", Kind::Float),
    optional("return_token_logprobs", Kind::Bool),
    optional("item_first", Kind::Bool),
    optional("model", Kind::Str),
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
const OLLAMA_CHAT: &[Field] = &[
    required("model", Kind::Str),
    required("messages", Kind::List(&OLLAMA_MESSAGE, ANY_LENGTH)),
    optional("stream", Kind::Bool),
    nullable("options", DICT),
];
const OLLAMA_MESSAGE: Kind = Kind::Model(&[
    required("role", Kind::Str),
    required("content", Kind::Str),
    nullable("images", STRINGS),
]);
const OLLAMA_GENERATE: &[Field] = &[
    required("model", Kind::Str),
    required("prompt", Kind::Str),
    nullable("system", Kind::Str),
    optional("stream", Kind::Bool),
    nullable("options", DICT),
];

/// Ollama's options that there are, by their names there and here.
const OPTIONS: [(&str, &str); 7] = [
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("top_k", "top_k"),
    ("num_predict", "max_tokens"),
    ("stop", "stop"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
];
/// Tokens of an answer where Ollama's options say nothing.
const OLLAMA_LIMIT: &str = "2048";

fn read<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
    fields: &'static [Field],
) -> Result<Object<'a>, Failure> {
    checked(json(content_type, body)?, fields)
}

fn text<'a>(members: &mut Object<'a>, name: &str) -> Option<Cow<'a, str>> {
    match members.take(name)? {
        Json::String(text) => Some(text),
        Json::Surrogates(text) => Some(text.into()),
        _ => None,
    }
}

fn flag(members: &Object<'_>, name: &str, default: bool) -> bool {
    let given = members.get(name);
    given
        .and_then(|value| pydantic::bool(value).ok())
        .unwrap_or(default)
}

fn texts(items: Vec<Json<'_>>) -> Vec<Cow<'_, str>> {
    let text = |item| match item {
        Json::String(text) => Some(text),
        Json::Surrogates(text) => Some(text.into()),
        _ => None,
    };
    items.into_iter().filter_map(text).collect()
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

impl<'a> Score<'a> {
    /// Reads a body that came with a content type.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse(content_type: Option<&str>, body: &'a [u8]) -> Result<Self, Failure> {
        let mut members = read(content_type, body, SCORE)?;
        let temperature = members.get("temperature");
        let temperature = temperature.map_or(Ok(1.0), pydantic::float);
        let labels = members.get("label_token_ids");
        let labels = labels.filter(|labels| **labels != Json::Null).map(numbers);
        let labels = labels.map(|(mut lists, is_list)| match lists.pop() {
            Some(list) if !is_list => Labels::All(list),
            Some(list) => {
                lists.push(list);
                Labels::Each(lists)
            }
            None => Labels::Each(lists),
        });
        let (query, items) = (members.take("query"), members.take("items"));
        let asked = Self {
            applies_softmax: flag(&members, "apply_softmax", false),
            item_first: flag(&members, "item_first", false),
            items: Items::new(query, items),
            labels,
            model: text(&mut members, "model").unwrap_or_else(|| "default".into()),
            tells_logprobs: flag(&members, "return_token_logprobs", false),
            temperature: temperature.unwrap_or(1.0),
        };
        if !(asked.temperature > 0.0 && asked.temperature.is_finite()) {
            return Err(invalid(
                "1 validation error:\n  Input should be greater than 0",
            ));
        }
        Ok(asked)
    }
}

impl<'a> Items<'a> {
    fn new(query: Option<Json<'a>>, items: Option<Json<'a>>) -> Self {
        let items = match items {
            None | Some(Json::Null) => return Self::None,
            Some(items) => items,
        };
        let has_ids =
            matches!(&items, Json::Array(items) if matches!(items.first(), Some(Json::Array(_))));
        match (query, has_ids) {
            (None | Some(Json::Null), true) => Self::Ids(Vec::new(), id_lists(&items)),
            (Some(Json::Array(query)), _) => {
                let (query, _) = numbers(&Json::Array(query));
                let is_empty = matches!(&items, Json::Array(items) if items.is_empty());
                if has_ids || is_empty {
                    Self::Ids(ids(&query.concat()), id_lists(&items))
                } else {
                    Self::Mixed
                }
            }
            (Some(_), true) => Self::Mixed,
            (query, false) => {
                let query = match query {
                    Some(Json::String(text)) => text,
                    Some(Json::Surrogates(text)) => text.into(),
                    _ => "".into(),
                };
                let items = match items {
                    Json::Array(items) => texts(items),
                    text => texts(vec![text]),
                };
                Self::Texts(query, items)
            }
        }
    }
}

fn id_lists(items: &Json<'_>) -> Vec<Vec<u32>> {
    match numbers(items) {
        (lists, true) => lists.iter().map(|numbers| ids(numbers)).collect(),
        _ => Vec::new(),
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

impl<'a> Ollama<'a> {
    /// Reads the body of `/api/chat`.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn chat(content_type: Option<&str>, body: &'a [u8]) -> Result<Self, Failure> {
        let mut members = read(content_type, body, OLLAMA_CHAT)?;
        let stream = flag(&members, "stream", true);
        let messages = members.take("messages").unwrap_or(Json::Null);
        let mut chat = options(&members, stream);
        chat.push(member("messages", messages));
        let mut request = Request::flat(Object(chat));
        // What the model says is not looked at, as in a native answer.
        request.endpoint = Endpoint::Generate;
        Ok(Self {
            request: Some(request),
            stream,
        })
    }

    /// Reads the body of `/api/generate`.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn generate(content_type: Option<&str>, body: &'a [u8]) -> Result<Self, Failure> {
        let mut members = read(content_type, body, OLLAMA_GENERATE)?;
        let stream = flag(&members, "stream", true);
        let prompt = text(&mut members, "prompt").unwrap_or_default();
        let prompt = match text(&mut members, "system") {
            Some(system) if !system.is_empty() => format!("{system}\n\n{prompt}").into(),
            _ => prompt,
        };
        let is_empty = prompt.trim().is_empty();
        let mut completion = options(&members, stream);
        completion.push(member("prompt", Json::String(prompt)));
        let request = Request::from_checked(Endpoint::Generate, Object(completion));
        Ok(Self {
            request: (!is_empty).then_some(request),
            stream,
        })
    }
}

/// How Ollama's options are called elsewhere.
fn options<'a>(asked: &Object<'a>, stream: bool) -> Vec<(Cow<'a, str>, Json<'a>)> {
    let options = asked.get("options").and_then(Json::as_object);
    let given = |(name, own): &(&str, &'static str)| Some(member(own, options?.get(name)?.clone()));
    let mut members: Vec<_> = OPTIONS.iter().filter_map(given).collect();
    if !members.iter().any(|(name, _)| name == "max_tokens") {
        members.push(member("max_tokens", Json::Number(OLLAMA_LIMIT)));
    }
    members.push(member("stream", Json::Bool(stream)));
    members
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
    fn items_stand_behind_their_query() {
        let items = |body: &'static str| Score::parse(KIND, body.as_bytes()).unwrap().items;
        let texts = Items::Texts("a".into(), vec!["b".into()]);
        assert_eq!(items(r#"{"query":"a","items":"b"}"#), texts);
        assert_eq!(items(r#"{"query":"a","items":["b"]}"#), texts);
        let lists = Items::Ids(vec![1], vec![vec![2], vec![]]);
        assert_eq!(items(r#"{"query":[1],"items":[[2],[]]}"#), lists);
        assert_eq!(items(r#"{"query":"a","items":[[2]]}"#), Items::Mixed);
        assert_eq!(items(r#"{"query":[1],"items":["b"]}"#), Items::Mixed);
        assert_eq!(items(r#"{"query":[1]}"#), Items::None);
        let none = Score::parse(KIND, br#"{"items":"b","temperature":0}"#);
        assert!(none.is_err());
    }

    #[test]
    fn options_are_those_of_sampling() {
        let body =
            br#"{"model":"m","prompt":"a","system":"s","options":{"num_predict":3,"stop":["x"]}}"#;
        let asked = Ollama::generate(KIND, body).unwrap();
        let request = asked.request.unwrap();
        assert_eq!(request.max_tokens(), Some(3));
        assert_eq!(request.sampling.stop, ["x"]);
        assert_eq!(request.prompt.decisive_text(), Some("s\n\na"));
        assert!(request.stream && asked.stream);
        let body = br#"{"model":"m","messages":[{"role":"user","content":"a"}],"stream":false}"#;
        let asked = Ollama::chat(KIND, body).unwrap();
        assert_eq!(asked.request.unwrap().max_tokens(), Some(2048));
        let body = br#"{"model":"m","prompt":" "}"#;
        assert!(Ollama::generate(KIND, body).unwrap().request.is_none());
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
