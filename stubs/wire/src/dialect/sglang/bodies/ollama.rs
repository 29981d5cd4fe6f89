//! The bodies of Ollama's routes.

use std::borrow::Cow;

use crate::dialect::responses_request::member;
use crate::failure::Failure;
use crate::json::{Json, Object};
use crate::request::{Endpoint, Request};
use crate::schema::{Field, Kind, nullable, optional, required};

use super::super::schema::{ANY_LENGTH, DICT, STRINGS};
use super::{flag, read, text};

/// `/api/chat` and `/api/generate`
#[derive(Clone, Debug)]
pub struct Ollama<'a> {
    /// What is to be generated; nothing where there is no prompt.
    pub request: Option<Request<'a>>,
    /// `stream`
    pub stream: bool,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Option<&str> = Some("application/json");

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
}
