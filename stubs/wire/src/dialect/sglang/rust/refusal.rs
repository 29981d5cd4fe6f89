//! What the front end in Rust says to requests that it cannot serve.

use serde::Serialize;

use crate::dialect::Served;
use crate::dialect::sglang::chunk::{FlatError, Wrapped};
use crate::failure::{ErrorObject, Failure};
use crate::request::{Endpoint, Message, Request, ToolChoice};
use crate::sse;

/// What stands before the words of the engine's own checks.
pub(in crate::dialect::sglang) const FAILED: &str = "validation failed: ";
/// How the engine begins to refuse a prompt and an answer that do not fit together, on which the quick way
/// through the front end leaves the chat to types.
pub(in crate::dialect::sglang) const TOTAL: &str = "Requested token count";

/// Checks what needs no prompt.
pub(crate) fn check_parts(request: &Request<'_>, served: Served) -> Result<(), Failure> {
    let refused = |message: &str| Err(Failure::bad_request(message, None));
    let failed = |message: &str| refused(&format!("{FAILED}{message}"));
    let wishes = request.wishes.as_deref();
    if let Some(flaw) = wishes.and_then(|wishes| wishes.flaw.as_deref()) {
        return failed(flaw);
    }
    let tool_names = request.template.tool_names();
    match &request.template.tool_choice {
        Some(ToolChoice::Required) if tool_names.is_empty() => {
            return refused("tool_choice is \"required\" but tools is empty");
        }
        Some(ToolChoice::Named(_) | ToolChoice::Required) if !served.parses_tools => {
            return refused("tool calls require --tool-call-parser");
        }
        Some(ToolChoice::Named(name)) if !tool_names.iter().any(|known| known == name) => {
            return refused(&format!("Tool '{name}' not found in tools list."));
        }
        _ => {}
    }
    let model = request.model.as_deref().unwrap_or_default();
    if let Some((_, adapter)) = model.split_once(':') {
        return failed(&format!(
            "LoRA adapter '{adapter}' is not loaded; loaded adapters: []"
        ));
    }
    Ok(())
}

/// Checks a chat's messages.
pub(crate) fn check_messages(messages: &[Message<'_>]) -> Result<(), Failure> {
    if messages.iter().any(|message| message.media.is_some()) {
        let message = "image, audio, video, and file message content is not supported";
        return Err(Failure::bad_request(message, None));
    }
    Ok(())
}

/// The answer to a request for a model that is not served.
pub(in crate::dialect::sglang) fn missing_model(name: &str) -> Failure {
    Failure::Error(ErrorObject {
        message: format!("The model `{name}` does not exist"),
        kind: "BadRequestError",
        param: None,
        code: 404,
    })
}

#[derive(Serialize)]
struct NativeError<'a> {
    message: &'a str,
    code: u16,
}

/// Appends a failure as the endpoint's routes write it.
pub(crate) fn encode(endpoint: Option<Endpoint>, failure: &Failure, out: &mut Vec<u8>) {
    let Failure::Error(error) = failure else {
        return failure.encode(out);
    };
    let written = if endpoint == Some(Endpoint::Generate) {
        let (message, code) = (&*error.message, error.code);
        let error = NativeError { message, code };
        serde_json::to_writer(out, &Wrapped { error })
    } else {
        let error = FlatError::from(error);
        serde_json::to_writer(out, &Wrapped { error })
    };
    written.expect("strings and numbers encode");
}

/// What is said of an answer that was given up.
pub(in crate::dialect::sglang) const GIVEN_UP: &str = "client disconnected";

/// The failure that such an answer ends in.
pub(crate) fn given_up(endpoint: Endpoint) -> Failure {
    let error = ErrorObject {
        message: GIVEN_UP.into(),
        kind: "499",
        param: None,
        code: 499,
    };
    if endpoint != Endpoint::Chat {
        return Failure::Error(error);
    }
    let json = serde_json::to_string(&FlatError::from(&error)).expect("strings and numbers encode");
    Failure::Body { status: 499, json }
}

/// How a request is refused: by an event that is appended, behind a chat's role if true, or else by an
/// answer of its own.
pub(crate) fn refuse(
    request: &Request<'_>,
    is_typed: bool,
    failure: Failure,
    out: &mut Vec<u8>,
) -> Result<bool, Failure> {
    let Failure::Error(error) = &failure else {
        return Err(failure);
    };
    let Some(said) = error.message.strip_prefix(FAILED) else {
        return Err(failure);
    };
    let is_chat = request.endpoint == Endpoint::Chat;
    if is_chat && !is_typed && !said.starts_with(TOTAL) {
        let json =
            serde_json::to_string(&FlatError::from(error)).expect("strings and numbers encode");
        let status = error.code;
        return Err(Failure::Body { status, json });
    }
    if !request.stream {
        return Err(failure);
    }
    let mut json = Vec::new();
    encode(Some(request.endpoint), &failure, &mut json);
    sse::encode(&json, out);
    Ok(is_chat)
}

/// Appends the JSON of an error in place of the rest of a typed stream.
pub(super) fn event(message: &str, out: &mut Vec<u8>) {
    encode(None, &Failure::internal(message), out);
}
