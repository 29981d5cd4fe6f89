//! What vLLM checks of a request beside its schema, in its order.

use crate::dialect::Served;
use crate::failure::{ErrorObject, Failure};
use crate::request::{Message, OutputMode, Request, ToolChoice};

use super::{refusal, sampling};

/// Most alternatives that may be asked for with a token.
const MAX_LOGPROBS: i128 = 20;

/// Checks what needs no prompt.
pub(crate) fn before_prompt(request: &Request<'_>, served: Served) -> Result<(), Failure> {
    if served.tokens_only {
        tokens_only(request)?;
    }
    parts(request, served)?;
    if let (Some(context), Some((name, asked))) = (served.context, request.sampling.max_tokens)
        && asked > i128::from(context)
        && request.output_mode.is_none()
    {
        return Err(refusal::length_too_large(name, asked, context));
    }
    Ok(())
}

/// Checks the sampling parameters behind a prompt of so many tokens.
pub(crate) fn behind_prompt(
    request: &Request<'_>,
    prompt: u64,
    context: Option<u64>,
) -> Result<(), Failure> {
    let room = context.map(|context| i128::from(context) - i128::from(prompt));
    let asked = request.max_tokens().unwrap_or(i128::MAX);
    let limit = room.map_or(asked, |room| room.min(asked));
    let asked = &request.sampling;
    sampling::check(asked, limit)?;
    logprobs("sample", "logprobs", asked.logprobs)?;
    logprobs("prompt", "prompt_logprobs", asked.prompt_logprobs)
}

/// Checks a chat's messages, for the model of that name.
pub(crate) fn messages(messages: &[Message<'_>], model: &str) -> Result<(), Failure> {
    let message = if messages.is_empty() {
        "Cannot apply chat template to an empty conversation. Provide at least one message.".into()
    } else if messages.iter().any(|message| message.media.is_some()) {
        format!("{model} is not a multimodal model")
    } else if messages.iter().any(|message| message.has_surrogates) {
        "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"
            .into()
    } else {
        return Ok(());
    };
    Err(Failure::bad_request(message, None))
}

/// The answer to a request that finds the queue full.
pub(crate) fn queue_full() -> Failure {
    Failure::Error(ErrorObject {
        message: "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.".into(),
        kind: "Service Unavailable",
        param: None,
        code: 503,
    })
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

fn parts(request: &Request<'_>, served: Served) -> Result<(), Failure> {
    if request.suffix.is_some() {
        let message = "suffix is only supported for models with FIM completion rendering";
        return Err(Failure::bad_request(message, Some("suffix")));
    }
    if let Some(choice) = &request.template.tool_choice
        && !served.parses_tools
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
