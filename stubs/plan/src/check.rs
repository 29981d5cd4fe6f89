//! What a server checks of a request beside its schema, in the server's order.

use std::sync::atomic::Ordering;

use wire::failure::{ErrorObject, Failure};
use wire::request::{Endpoint, OutputMode, Request, ToolChoice};

use crate::prompt::{self, Counted};
use crate::stub::Stub;

/// Most alternatives that may be asked for with a token.
const MAX_LOGPROBS: i128 = 20;

/// Most choices of one request, of all its prompts.
const MAX_CHOICES: i128 = 1 << 16;

/// Checks what the schema cannot, and counts the prompt.
pub(crate) fn check<'r>(stub: &Stub, request: &'r Request<'_>) -> Result<Counted<'r>, Failure> {
    stub.check_model(request.model.as_deref())?;
    if stub.engine.dead.load(Ordering::Relaxed) {
        return Err(Failure::internal(stub.dialect.dead_engine()));
    }
    if stub.front.tokens_only {
        tokens_only(request)?;
    }
    parts(stub, request)?;
    let sampling = &request.sampling;
    if let (Some(context), Some((name, asked))) = (stub.engine.max_model_len, sampling.max_tokens)
        && asked > i128::from(context)
        && request.output_mode.is_none()
    {
        return Err(stub.dialect.length_too_large(name, asked, context));
    }
    let prompt = prompt::counted(stub, request)?;
    let room = stub
        .engine
        .max_model_len
        .map(|context| i128::from(context) - i128::from(prompt.longest));
    let asked = max_tokens(request).unwrap_or(i128::MAX);
    let limit = room.map_or(asked, |room| room.min(asked));
    stub.dialect.check_sampling(sampling, limit)?;
    logprobs("sample", "logprobs", sampling.logprobs)?;
    logprobs("prompt", "prompt_logprobs", sampling.prompt_logprobs)?;
    let waiting = sampling.n.saturating_mul(prompt.count() as i128);
    if waiting > MAX_CHOICES {
        let message = format!(
            "{waiting} choices are more than the {MAX_CHOICES} that this stub plays at once."
        );
        return Err(Failure::bad_request(message, Some("n")));
    }
    if stub
        .engine
        .max_queued
        .is_some_and(|most| waiting > i128::from(most))
    {
        return Err(Failure::Error(ErrorObject {
            message: "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.".into(),
            kind: "Service Unavailable",
            param: None,
            code: 503,
        }));
    }
    Ok(prompt)
}

fn logprobs(kind: &str, param: &str, asked: Option<i128>) -> Result<(), Failure> {
    let Some(asked) = asked.filter(|asked| *asked > MAX_LOGPROBS) else {
        return Ok(());
    };
    let message = format!(
        "Requested {kind} logprobs of {asked}, which is greater than max allowed: {MAX_LOGPROBS} (parameter={param}, value={asked})"
    );
    Err(Failure::bad_request(message, Some(param)))
}

/// The answer length asked for; completions default to 16. An echo without an answer generates a
/// token that does not show.
pub(crate) fn max_tokens(request: &Request<'_>) -> Option<i128> {
    let asked = request.sampling.max_tokens.map(|(_, asked)| asked);
    match request.endpoint {
        Endpoint::Chat => asked,
        Endpoint::Completions if request.output_mode.is_some() => asked,
        Endpoint::Completions if echoes_alone(request) => Some(1),
        Endpoint::Completions => asked.or(Some(16)),
    }
}

/// A completion that says the prompt again and nothing else.
pub(crate) fn echoes_alone(request: &Request<'_>) -> bool {
    let asked = request.sampling.max_tokens.map(|(_, asked)| asked);
    request.endpoint == Endpoint::Completions && request.echo && asked == Some(0)
}

/// What a server without a tokenizer refuses.
fn tokens_only(request: &Request<'_>) -> Result<(), Failure> {
    let Some(mode) = request.output_mode else {
        return Err(Failure::internal(""));
    };
    let message = if !request.sampling.stop.is_empty() {
        "stop strings are not supported on a --tokens-only server because detokenization is disabled. Check stop strings on the coordinator, or use stop_token_ids."
    } else if mode == OutputMode::Text {
        "output_mode='text' requires a tokenizer, but this server does not load one (--tokens-only or --skip-tokenizer-init). Send the request to a server that loads a tokenizer, or use output_mode='tokens'."
    } else {
        return Ok(());
    };
    Err(Failure::bad_request(message, None))
}

fn parts(stub: &Stub, request: &Request<'_>) -> Result<(), Failure> {
    if request.suffix.is_some() {
        let message = "suffix is only supported for models with FIM completion rendering";
        return Err(Failure::bad_request(message, Some("suffix")));
    }
    if let Some(choice) = &request.template.tool_choice
        && stub.parsers.tools.is_none()
    {
        let message = match choice {
            ToolChoice::Auto => "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set".into(),
            ToolChoice::Required => "tool_choice=\"required\" requires --tool-call-parser to be set".into(),
            ToolChoice::Named(name) => format!("tool_choice=function \"{name}\" requires --tool-call-parser to be set"),
        };
        return Err(Failure::bad_request(message, None));
    }
    if request.template.has_own_template {
        let message = "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with untrusted chat template.";
        return Err(Failure::bad_request(message, None));
    }
    Ok(())
}
