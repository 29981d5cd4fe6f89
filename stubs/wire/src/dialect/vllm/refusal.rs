//! What vLLM says to requests that it cannot serve.

use std::sync::Arc;

use super::Profile;
use crate::failure::{ErrorObject, Failure};

/// vLLM's own error, whose text names the parameter and its value.
pub(super) fn refuse(message: &str, param: Option<&str>, value: Option<&str>) -> Failure {
    let suffix = match (param, value) {
        (None, _) => String::new(),
        (Some(param), None) => format!(" (parameter={param})"),
        (Some(param), Some(value)) => format!(" (parameter={param}, value={value})"),
    };
    Failure::bad_request(format!("{message}{suffix}"), param)
}

/// The answer to a model name that is not served.
pub(crate) fn unknown_model(profile: &Profile, model: &str, served: &[Arc<str>]) -> Failure {
    let mut message = format!("The model `{model}` does not exist.");
    if profile.lists_models {
        message.extend([" Valid aliases: ", &served.join(", "), "."]);
    }
    Failure::Error(ErrorObject {
        message,
        kind: "NotFoundError",
        param: Some("model".into()),
        code: 404,
    })
}

/// The answer to an answer length beyond the context.
pub(crate) fn length_too_large(name: &str, asked: i128, context: u64) -> Failure {
    let message = format!(
        "{name}={asked} cannot be greater than max_model_len={context}. Please request fewer output tokens."
    );
    refuse(&message, Some(name), Some(&asked.to_string()))
}

/// The answer to a prompt beyond the context; `tokens` as far as the tokenizer counted.
pub(crate) fn prompt_too_long(tokens: u64, context: u64) -> Failure {
    let at_least = if tokens == context + 1 {
        "at least "
    } else {
        ""
    };
    let message = format!(
        "This model's maximum context length is {context} tokens. However, your prompt contains {at_least}{tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
    );
    refuse(&message, Some("input_tokens"), Some(&tokens.to_string()))
}

/// The answer to a token id beyond the vocabulary.
pub(crate) fn unknown_id(id: u32) -> Failure {
    Failure::bad_request(format!("Token id {id} is out of vocabulary"), None)
}
