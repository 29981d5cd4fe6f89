//! What vLLM accepts, and what it says to the rest.

use crate::failure::{ErrorObject, Failure};
use crate::json::{Json, JsonError, Object};
use crate::request::{Endpoint, Request};
use crate::schema as pydantic;

use super::{schema, validators};

/// Reads a body that came with a content type; fails with the server's answer.
pub(crate) fn parse<'a>(
    endpoint: Endpoint,
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<Request<'a>, Failure> {
    let mut body = json(content_type, body)?;
    if let Some(Json::Object(members)) = &mut body {
        match endpoint {
            Endpoint::Chat => {
                validators::chat(members)?;
                if validators::is_truthy(members, "tools") && members.get("tool_choice").is_none() {
                    let auto = ("tool_choice".into(), Json::String("auto".into()));
                    members.0.push(auto);
                }
            }
            Endpoint::Completions => validators::completions(members)?,
        }
    }
    let fields = match endpoint {
        Endpoint::Chat => schema::CHAT,
        Endpoint::Completions => schema::COMPLETIONS,
    };
    Ok(Request::from_checked(endpoint, checked(body, fields)?))
}

/// The body of `/tokenize`, with a prompt or with messages.
pub(crate) fn parse_tokenize<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<TokenizeRequest<'a>, Failure> {
    let body = json(content_type, body)?;
    let of_text = body
        .as_ref()
        .and_then(Json::as_object)
        .is_some_and(|body| body.get("prompt").is_some() || body.get("messages").is_none());
    let (endpoint, fields) = if of_text {
        (Endpoint::Completions, schema::TOKENIZE_TEXT)
    } else {
        (Endpoint::Chat, schema::TOKENIZE_CHAT)
    };
    let members = checked(body, fields)?;
    let flag = |name| members.get(name).and_then(|flag| pydantic::bool(flag).ok());
    Ok(TokenizeRequest {
        return_token_strs: flag("return_token_strs").unwrap_or(false),
        request: Request::from_checked(endpoint, members),
    })
}

/// A request to `/tokenize`.
#[derive(Clone, Debug)]
pub struct TokenizeRequest<'a> {
    /// The prompt, model and template options.
    pub request: Request<'a>,
    /// `return_token_strs`
    pub return_token_strs: bool,
}

/// The body of `/detokenize`.
pub(crate) fn parse_detokenize<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<DetokenizeRequest<'a>, Failure> {
    let mut members = checked(json(content_type, body)?, schema::DETOKENIZE)?;
    for (name, _) in &mut members.0 {
        if name == "tokens" {
            *name = "stop_token_ids".into();
        }
    }
    let request = Request::from_checked(Endpoint::Completions, members);
    Ok(DetokenizeRequest {
        model: request.model,
        tokens: request.sampling.stop_token_ids,
    })
}

/// A request to `/detokenize`.
#[derive(Clone, Debug)]
pub struct DetokenizeRequest<'a> {
    /// `model`, if named.
    pub model: Option<std::borrow::Cow<'a, str>>,
    /// `tokens`
    pub tokens: Vec<u32>,
}

fn json<'a>(content_type: Option<&str>, body: &'a [u8]) -> Result<Option<Json<'a>>, Failure> {
    if !content_type.is_some_and(is_json) {
        return Err(Failure::Error(ErrorObject {
            message:
                "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
                    .into(),
            kind: "Bad Request",
            param: None,
            code: 400,
        }));
    }
    if body.is_empty() {
        return Ok(None);
    }
    Json::parse(body).map(Some).map_err(|error| match error {
        JsonError::Syntax { message, offset } => pydantic::json_invalid(message, offset),
        JsonError::NotUtf8 | JsonError::TooLarge => Failure::Detail {
            status: 400,
            detail: "There was an error parsing the body",
        },
    })
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

fn checked<'a>(
    body: Option<Json<'a>>,
    fields: &'static [pydantic::Field],
) -> Result<Object<'a>, Failure> {
    pydantic::check(body.as_ref(), fields)?;
    match body {
        Some(Json::Object(members)) => Ok(members),
        _ => unreachable!("a model accepts objects alone"),
    }
}
