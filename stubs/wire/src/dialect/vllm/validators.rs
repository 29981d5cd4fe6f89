//! The checks that vLLM's request models make before their fields are looked at.

use crate::failure::Failure;
use crate::json::{Json, Object};
use crate::python;
use crate::schema as pydantic;

use super::refusal::refuse;

/// A validator: the first that fails is the whole answer.
type Validator = fn(&Object<'_>) -> Result<(), Failure>;

/// Validators of mode `before`, in the order in which pydantic runs them (the last declared first).
pub(super) fn chat(body: &Object<'_>) -> Result<(), Failure> {
    const VALIDATORS: &[Validator] = &[
        messages_are_iterable,
        generation_prompt,
        tool_usage,
        chat_logprobs,
        stream_options,
        response_format,
        cache_salt,
        thinking_budget,
    ];
    VALIDATORS.iter().try_for_each(|validator| validator(body))
}

pub(super) fn completions(body: &Object<'_>) -> Result<(), Failure> {
    const VALIDATORS: &[Validator] = &[
        prompt_count,
        prompt_is_given,
        stream_options,
        completion_logprobs,
        response_format,
        cache_salt,
        thinking_budget,
    ];
    VALIDATORS.iter().try_for_each(|validator| validator(body))
}

/// The value of a key that is neither absent nor null.
fn given<'j, 'a>(body: &'j Object<'a>, name: &str) -> Option<&'j Json<'a>> {
    body.get(name).filter(|value| **value != Json::Null)
}

pub(super) fn is_truthy(body: &Object<'_>, name: &str) -> bool {
    body.get(name).is_some_and(python::truthy)
}

fn messages_are_iterable(body: &Object<'_>) -> Result<(), Failure> {
    let kind = match body.get("messages") {
        Some(Json::Null) => "NoneType",
        Some(Json::Bool(_)) => "bool",
        Some(Json::Number(text)) => match python::number(text) {
            python::Number::Float(_) => "float",
            python::Number::Int(_) => "int",
        },
        _ => return Ok(()),
    };
    let message = format!("'{kind}' object is not iterable");
    Err(Failure::bad_request(message, None))
}

fn generation_prompt(body: &Object<'_>) -> Result<(), Failure> {
    if is_truthy(body, "continue_final_message") && is_truthy(body, "add_generation_prompt") {
        let message =
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.";
        return Err(refuse(message, None, None));
    }
    Ok(())
}

fn tool_usage(body: &Object<'_>) -> Result<(), Failure> {
    let tools = body.get("tools");
    if matches!(tools, Some(Json::Array(tools)) if tools.is_empty()) {
        let message = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.";
        return Err(refuse(message, Some("tools"), None));
    }
    let choice = match given(body, "tool_choice") {
        None => return Ok(()),
        Some(choice) if choice.as_str() == Some("none") => return Ok(()),
        Some(choice) => choice,
    };
    let Some(tools) = given(body, "tools") else {
        let message = "When using `tool_choice`, `tools` must be set.";
        return Err(refuse(message, Some("tool_choice"), None));
    };
    match choice {
        Json::Object(choice) => named_tool(choice, tools),
        choice if matches!(choice.as_str(), Some("auto" | "required")) => Ok(()),
        choice => {
            let message = format!(
                "Invalid value for `tool_choice`: {}! Only named tools, \"none\", \"auto\" or \"required\" are supported.",
                python::display(choice)
            );
            Err(refuse(&message, Some("tool_choice"), None))
        }
    }
}

fn named_tool(choice: &Object<'_>, tools: &Json<'_>) -> Result<(), Failure> {
    const USAGE: &str =
        r#"Correct usage: `{"type": "function", "function": {"name": "my_function"}}`"#;
    let Some(Json::Object(function)) = choice.get("function") else {
        let found = choice
            .get("function")
            .map_or_else(|| "None".into(), python::display);
        let message = format!("Invalid value for `function`: `{found}` in `tool_choice`! {USAGE}");
        return Err(refuse(&message, Some("tool_choice.function"), None));
    };
    let param = Some("tool_choice.function.name");
    let Some(name) = function.get("name") else {
        let message = format!("Expected field `name` in `function` in `tool_choice`! {USAGE}");
        return Err(refuse(&message, param, None));
    };
    let Some(name) = name.as_str().filter(|name| !name.is_empty()) else {
        let found = python::display(name);
        let message = format!("Invalid `name` in `function`: `{found}` in `tool_choice`! {USAGE}");
        return Err(refuse(&message, param, None));
    };
    let is_named = |tool: &Json<'_>| {
        let function = tool.as_object()?.get("function")?.as_object()?;
        Some(function.get("name")?.as_str()? == name)
    };
    let named = match tools {
        Json::Array(tools) => tools.iter().any(|tool| is_named(tool) == Some(true)),
        _ => false,
    };
    if named {
        return Ok(());
    }
    let message = "The tool specified in `tool_choice` does not match any of the specified `tools`";
    Err(refuse(message, Some("tool_choice"), None))
}

fn logprobs_number(body: &Object<'_>, name: &'static str) -> Result<Option<f64>, Failure> {
    match given(body, name) {
        None => Ok(None),
        Some(value @ (Json::Bool(_) | Json::Number(_))) => Ok(pydantic::float(value).ok()),
        Some(value) => {
            let message = format!("`{name}` must be an integer.");
            Err(refuse(&message, Some(name), Some(&python::display(value))))
        }
    }
}

/// -1 asks for the whole vocabulary.
fn asks_for_logprobs(number: f64) -> bool {
    number > 0.0 || number.total_cmp(&-1.0).is_eq()
}

fn negative_logprobs(
    body: &Object<'_>,
    name: &'static str,
    number: Option<f64>,
) -> Result<(), Failure> {
    match number {
        Some(number) if number < 0.0 && !asks_for_logprobs(number) => {
            let message = format!("`{name}` must be a positive value or -1.");
            let value = body.get(name).map(python::display);
            Err(refuse(&message, Some(name), value.as_deref()))
        }
        _ => Ok(()),
    }
}

fn prompt_logprobs(body: &Object<'_>, number: Option<f64>) -> Result<(), Failure> {
    let wanted = number.is_some_and(asks_for_logprobs);
    if wanted && is_truthy(body, "stream") {
        let message = "`prompt_logprobs` are not available when `stream=True`.";
        return Err(refuse(message, Some("prompt_logprobs"), None));
    }
    negative_logprobs(body, "prompt_logprobs", number)
}

fn logprob_token_ids(body: &Object<'_>) -> Result<(), Failure> {
    if is_truthy(body, "logprob_token_ids") && is_truthy(body, "use_beam_search") {
        let message = "`logprob_token_ids` is not supported with beam search.";
        return Err(refuse(message, Some("logprob_token_ids"), None));
    }
    Ok(())
}

fn chat_logprobs(body: &Object<'_>) -> Result<(), Failure> {
    logprob_token_ids(body)?;
    if is_truthy(body, "logprob_token_ids") && !is_truthy(body, "logprobs") {
        let message = "when using `logprob_token_ids`, `logprobs` must be set to true.";
        return Err(refuse(message, Some("logprob_token_ids"), None));
    }
    let prompt = logprobs_number(body, "prompt_logprobs")?;
    let top = logprobs_number(body, "top_logprobs")?;
    prompt_logprobs(body, prompt)?;
    negative_logprobs(body, "top_logprobs", top)?;
    let wanted = top.is_some_and(asks_for_logprobs);
    if wanted && !is_truthy(body, "logprobs") {
        let message = "when using `top_logprobs`, `logprobs` must be set to true.";
        return Err(refuse(message, Some("top_logprobs"), None));
    }
    Ok(())
}

fn completion_logprobs(body: &Object<'_>) -> Result<(), Failure> {
    logprob_token_ids(body)?;
    let logprobs = given(body, "logprobs");
    if is_truthy(body, "use_beam_search") && is_truthy(body, "echo") && logprobs.is_some() {
        let message = "`echo` with `logprobs` is not supported with beam search because beam search does not compute prompt logprobs.";
        return Err(refuse(message, Some("echo"), None));
    }
    if is_truthy(body, "logprob_token_ids") && logprobs.is_none() {
        let message = "when using `logprob_token_ids`, `logprobs` must be set.";
        return Err(refuse(message, Some("logprob_token_ids"), None));
    }
    let prompt = logprobs_number(body, "prompt_logprobs")?;
    let sampled = logprobs_number(body, "logprobs")?;
    prompt_logprobs(body, prompt)?;
    negative_logprobs(body, "logprobs", sampled)
}

fn stream_options(body: &Object<'_>) -> Result<(), Failure> {
    if is_truthy(body, "stream_options") && !is_truthy(body, "stream") {
        let message = "Stream options can only be defined when `stream=True`.";
        return Err(refuse(message, Some("stream_options"), None));
    }
    Ok(())
}

fn response_format(body: &Object<'_>) -> Result<(), Failure> {
    let Some(Json::Object(format)) = body.get("response_format") else {
        return Ok(());
    };
    let kind = format.get("type").and_then(Json::as_str);
    if kind == Some("json_schema") && given(format, "json_schema").is_none() {
        let message =
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.";
        return Err(refuse(message, Some("response_format"), None));
    }
    Ok(())
}

fn cache_salt(body: &Object<'_>) -> Result<(), Failure> {
    let Some(salt) = given(body, "cache_salt") else {
        return Ok(());
    };
    let message = match salt {
        Json::String(salt) if salt.is_empty() => {
            "Parameter 'cache_salt' must be a non-empty string if provided."
        }
        Json::String(salt)
            if salt.chars().count() > 128 || salt.contains(['@', '/', '\\', '\0']) =>
        {
            r"Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\', or NUL."
        }
        Json::String(_) | Json::Surrogates(_) => return Ok(()),
        _ => "Parameter 'cache_salt' must be a non-empty string if provided.",
    };
    Err(refuse(message, Some("cache_salt"), None))
}

/// A field whose own validator leaves pydantic at once.
fn thinking_budget(body: &Object<'_>) -> Result<(), Failure> {
    let name = "thinking_token_budget";
    let Some(budget) = given(body, name) else {
        return Ok(());
    };
    if let Json::Number(text) = budget
        && matches!(python::number(text), python::Number::Int(-1..))
    {
        return Ok(());
    }
    let message = "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.";
    Err(refuse(message, Some(name), Some(&python::display(budget))))
}

/// `VLLM_MAX_COMPLETION_PROMPTS`
const MAX_PROMPTS: usize = 1024;

fn prompt_count(body: &Object<'_>) -> Result<(), Failure> {
    let Some(Json::Array(prompts)) = body.get("prompt") else {
        return Ok(());
    };
    let is_int = |item: &Json<'_>| match item {
        Json::Bool(_) => true,
        Json::Number(text) => matches!(python::number(text), python::Number::Int(_)),
        _ => false,
    };
    let count = prompts.len();
    if count <= MAX_PROMPTS || prompts.iter().all(is_int) {
        return Ok(());
    }
    let message = format!(
        "prompt list length {count} exceeds the maximum allowed count of {MAX_PROMPTS}. To increase this limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable."
    );
    Err(refuse(&message, Some("prompt"), None))
}

fn prompt_is_given(body: &Object<'_>) -> Result<(), Failure> {
    let prompt = given(body, "prompt").filter(|prompt| prompt.as_str() != Some(""));
    let embeds = given(body, "prompt_embeds");
    let no_embeds = match embeds {
        None => true,
        Some(embeds) => matches!(embeds, Json::Array(items) if items.is_empty()),
    };
    if prompt.is_none() && no_embeds {
        let message = "Either prompt or prompt_embeds must be provided and non-empty.";
        return Err(refuse(message, Some("prompt"), None));
    }
    Ok(())
}
