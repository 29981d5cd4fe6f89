//! What SGLang says to requests that it cannot serve.

use serde::Serialize;

use crate::dialect::Served;
use crate::failure::{ErrorObject, Failure};
use crate::python;
use crate::request::{Endpoint, Message, Prompt, Request, ToolChoice};
use crate::sse;

use super::Front;
use super::chunk::{FlatError, Wrapped};
use super::native::QUEUE_FULL;
use super::rust::refusal::{FAILED, TOTAL};

impl Front {
    /// A request that the engine's checks refuse.
    fn refused(self, message: &str) -> Failure {
        let before = match self {
            Self::Python(_) => "",
            Self::Rust => FAILED,
        };
        Failure::bad_request(format!("{before}{message}"), None)
    }
}

/// Checks what needs no prompt.
pub(crate) fn check_parts(request: &Request<'_>, served: Served) -> Result<(), Failure> {
    if served.tokens_only {
        check_tokens_alone(request)?;
    }
    let plain = |message: String| Err(Failure::bad_request(message, None));
    let model = request.model.as_deref().unwrap_or_default();
    if let Some((_, adapter)) = model.split_once(':') {
        return plain(format!(
            "LoRA adapter '{adapter}' was requested, but LoRA is not enabled. Please launch the server with --enable-lora flag and preload adapters using --lora-paths or /load_lora_adapter endpoint."
        ));
    }
    let tool_names = request.template.tool_names();
    match &request.template.tool_choice {
        Some(ToolChoice::Required) if tool_names.is_empty() => {
            return plain("Tools cannot be empty if tool choice is set to required.".into());
        }
        Some(ToolChoice::Named(name)) if !tool_names.iter().any(|known| known == name) => {
            return plain(format!("Tool '{name}' not found in tools list."));
        }
        _ => {}
    }
    if request.template.has_own_template {
        return plain("Request-supplied chat_template is not allowed. Start the server with --trust-request-chat-template to permit it.".into());
    }
    Ok(())
}

/// Checks a chat's messages.
pub(crate) fn check_messages(messages: &[Message<'_>]) -> Result<(), Failure> {
    let mut media = messages
        .iter()
        .filter_map(|message| message.media.as_deref());
    let message = if messages.is_empty() {
        "Messages cannot be empty.".into()
    } else if let Some(kind) = media.next() {
        format!("Model only supports text input; received unsupported content type '{kind}'.")
    } else {
        return Ok(());
    };
    Err(Failure::bad_request(message, None))
}

/// What a server without a tokenizer says to texts.
const NO_TEXTS: &str = "The engine initialized with skip_tokenizer_init=True cannot accept text prompts. Please provide input_ids or re-initialize the engine with skip_tokenizer_init=False.";

/// Checks what a server without a tokenizer can do.
fn check_tokens_alone(request: &Request<'_>) -> Result<(), Failure> {
    let missing = |what: &str| Failure::internal(format!("Internal server error: {what}"));
    match &request.prompt {
        Prompt::Messages(_) => Err(missing(
            "'NoneType' object has no attribute 'apply_chat_template'",
        )),
        Prompt::Texts(texts) if !texts.is_empty() => Err(Failure::bad_request(NO_TEXTS, None)),
        // The answer has ids, and the route looks for its text.
        Prompt::Ids(_) if request.endpoint == Endpoint::Completions => Err(missing("'text'")),
        _ => Ok(()),
    }
}

/// Checks sampling parameters, in the server's order; `prompt` tokens stand in a context of `context`.
pub(crate) fn check_sampling(
    front: Front,
    request: &Request<'_>,
    prompt: u64,
    context: Option<u64>,
) -> Result<(), Failure> {
    let sampling = &request.sampling;
    let plain = |message: String| Err(front.refused(&message));
    let asked = sampling.max_tokens.map_or(0, |(_, asked)| asked);
    let total = asked.max(0) + i128::from(prompt);
    if let Some(context) = context.filter(|context| total > i128::from(*context)) {
        return plain(format!(
            "{TOTAL} exceeds the model's maximum context length of {context} tokens. You requested a total of {total} tokens: {prompt} tokens from the input messages and {asked} tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit."
        ));
    }
    let shown = |name: &str, number: f64| {
        let wishes = request.wishes.as_deref();
        match front {
            Front::Rust => number.to_string(),
            _ if wishes.is_some_and(|wishes| wishes.whole_numbers.contains(&name)) => {
                format!("{number:.0}.")
            }
            Front::Python(_) => format!("{}.", python::float(number)),
        }
    };
    if !(sampling.temperature.is_finite() && sampling.temperature >= 0.0) {
        let shown = shown("temperature", sampling.temperature);
        return plain(format!(
            "temperature must be a non-negative finite number, got {shown}"
        ));
    }
    if !(sampling.top_p > 0.0 && sampling.top_p <= 1.0) {
        let shown = shown("top_p", sampling.top_p);
        return plain(format!("top_p must be in (0, 1], got {shown}"));
    }
    if !(0.0..=1.0).contains(&sampling.min_p) {
        let shown = shown("min_p", sampling.min_p);
        return plain(format!("min_p must be in [0, 1], got {shown}"));
    }
    if asked < 0 {
        let end = if front == Front::Rust { "" } else { "." };
        return plain(format!(
            "max_new_tokens must be at least 0, got {asked}{end}"
        ));
    }
    if request.endpoint != Endpoint::Generate && sampling.n == 0 {
        return Err(Failure::Error(ErrorObject {
            message: "range() arg 3 must not be zero".into(),
            kind: "BadRequest",
            param: None,
            code: 400,
        }));
    }
    Ok(())
}

/// The answer to a prompt of `tokens` tokens beyond a context of `context`.
pub(crate) fn prompt_too_long(front: Front, tokens: u64, context: u64) -> Failure {
    let message = format!(
        "The input ({tokens} tokens) is longer than the model's context length ({context} tokens)."
    );
    front.refused(&message)
}

/// The answer to a request without a prompt.
pub(crate) fn no_prompts(front: Front, endpoint: Endpoint) -> Failure {
    let message = match endpoint {
        Endpoint::Generate if front == Front::Rust => {
            "either `text` or `input_ids` must be provided"
        }
        Endpoint::Generate => "Either text, input_ids or input_embeds should be provided.",
        _ => "Prompt cannot be empty",
    };
    front.refused(message)
}

#[derive(Serialize)]
struct MissingModel<'a> {
    message: String,
    #[serde(rename = "type")]
    kind: &'a str,
    param: &'a str,
    code: &'a str,
}

/// The answer to a request for a model that is not served.
pub(super) fn missing_model(name: &str) -> Failure {
    let error = MissingModel {
        message: format!("The model '{name}' does not exist"),
        kind: "invalid_request_error",
        param: "model",
        code: "model_not_found",
    };
    Failure::Body {
        status: 404,
        json: serde_json::to_string(&Wrapped { error }).expect("strings encode"),
    }
}

/// The answer to a token id beyond the vocabulary's `size`.
pub(crate) fn unknown_id(front: Front, id: u32, size: usize) -> Failure {
    // Ids are signed.
    let id = id.cast_signed();
    front.refused(&format!(
        "input_ids contains out-of-vocabulary token id {id}; valid range is [0, {size})"
    ))
}

/// The answer to a request of a name that another has.
pub(crate) fn duplicate_name(name: &str) -> Failure {
    Failure::bad_request(format!("Duplicate request ID detected: {name}"), None)
}

/// The answer to a request that finds the queue full.
pub(crate) fn queue_full() -> Failure {
    Failure::Error(ErrorObject {
        message: QUEUE_FULL.into(),
        kind: "503",
        param: None,
        code: 503,
    })
}

#[derive(Serialize)]
struct NativeError<'a> {
    message: &'a str,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
}

/// Appends a failure as the endpoint's routes write it.
pub(crate) fn encode(endpoint: Option<Endpoint>, failure: &Failure, out: &mut Vec<u8>) {
    let Failure::Error(error) = failure else {
        return failure.encode(out);
    };
    let is_checked = error.kind == "BadRequestError";
    let written = if endpoint == Some(Endpoint::Generate) && is_checked {
        let error = NativeError {
            message: &error.message,
            kind: None,
            code: None,
            retryable: None,
        };
        serde_json::to_writer(out, &Wrapped { error })
    } else {
        serde_json::to_writer(out, &FlatError::from(error))
    };
    written.expect("strings and numbers encode");
}

/// How a request is refused: a stream of `/generate` by an event that is appended, unless it is refused
/// before it is known to stream.
pub(crate) fn refuse(
    request: &Request<'_>,
    failure: Failure,
    out: &mut Vec<u8>,
) -> Result<bool, Failure> {
    let error = match &failure {
        Failure::Error(error) if request.endpoint == Endpoint::Generate && request.stream => error,
        _ => return Err(failure),
    };
    if error.kind != "BadRequestError" {
        return Err(failure);
    }
    let error = NativeError {
        message: &error.message,
        kind: Some("invalid_request_error"),
        code: Some(error.code),
        retryable: Some(false),
    };
    let json = serde_json::to_vec(&Wrapped { error }).expect("strings and numbers encode");
    sse::encode(&json, out);
    Ok(false)
}
