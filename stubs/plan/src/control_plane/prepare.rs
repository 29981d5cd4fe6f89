//! From a chat to a turn: what is refused, and what is asked of the worker.

use std::borrow::Cow;

use wire::executorch::{ChatRequest, Error};
use wire::json::{Json, Object};
use wire::python;
use wire::worker_lines::{Ask, Part, Prompted};

use super::ControlPlane;
use super::template::Rendered;
use super::tools::Tool;
use super::turn::{Ends, Scene, Turn};

/// Why a request comes to no turn.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The server says why.
    Error(Error),
    /// It fails without a word.
    Internal,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

const MAX_SESSION_ID: usize = 128;

/// Checks the name of a session.
///
/// # Errors
/// If it is empty, too long, or has other characters than visible ASCII.
pub fn check_session_id(session_id: &str) -> Result<(), Error> {
    let refused = |detail: &str| {
        let message = format!("Invalid session_id: {detail}");
        Error::invalid(400, message, "invalid_session_id")
    };
    let characters = session_id.chars().count();
    if !(1..=MAX_SESSION_ID).contains(&characters) {
        return Err(refused("must be 1-128 characters"));
    }
    if !session_id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refused("must be printable ASCII with no spaces"));
    }
    Ok(())
}

fn invalid_value(message: String) -> Error {
    Error::invalid(400, message, "invalid_value")
}

/// Refuses values that are out of range.
fn check_values(request: &ChatRequest<'_>) -> Result<(), Error> {
    let float = |name| request.float(name);
    if let Some(given) = float("temperature").filter(|given| !(0.0..=2.0).contains(given)) {
        let given = python::float(given);
        return Err(invalid_value(format!(
            "temperature must be between 0 and 2 (got {given})."
        )));
    }
    if let Some(given) = float("top_p").filter(|given| !(*given > 0.0 && *given <= 1.0)) {
        let given = python::float(given);
        return Err(invalid_value(format!(
            "top_p must be between 0 (exclusive) and 1 (got {given})."
        )));
    }
    let bounds = [
        ("top_k", 0, i128::from(i32::MAX)),
        ("seed", 1, i128::from(i64::MAX)),
    ];
    for (name, least, most) in bounds {
        if let Some(given) = request
            .int(name)
            .filter(|given| !(least..=most).contains(given))
        {
            return Err(invalid_value(format!(
                "{name} must be between {least} and {most} (got {given})."
            )));
        }
    }
    for name in ["max_tokens", "max_completion_tokens"] {
        if let Some(given) = request.int(name).filter(|given| *given <= 0) {
            return Err(invalid_value(format!(
                "{name} must be a positive integer (got {given})."
            )));
        }
    }
    Ok(())
}

/// Refuses what the server does not do, all of it in one message.
fn check_parameters(request: &ChatRequest<'_>) -> Result<(), Error> {
    let is_given = |name: &str| request.get(name).is_some();
    let is_not_zero = |name: &str| request.float(name).is_some_and(|number| number != 0.0);
    let is_not_text = |format: &Json<'_>| {
        let kind = format.as_object().and_then(|format| format.get("type"));
        python::truthy(format) && kind.is_some_and(|kind| kind.as_str() != Some("text"))
    };
    let chooses = |choice: &Json<'_>| !matches!(choice.as_str(), Some("none" | "auto"));
    let asked = [
        (request.int("n").is_some_and(|n| n != 1), "n>1"),
        (is_given("reasoning_effort"), "reasoning_effort"),
        (is_not_zero("frequency_penalty"), "frequency_penalty"),
        (is_not_zero("presence_penalty"), "presence_penalty"),
        (
            request.get("logit_bias").is_some_and(python::truthy),
            "logit_bias",
        ),
        (
            request.get("response_format").is_some_and(is_not_text),
            "response_format (only 'text')",
        ),
        (request.bool("logprobs") == Some(true), "logprobs"),
        (is_given("top_logprobs"), "top_logprobs"),
        (
            request.bool("parallel_tool_calls") == Some(false),
            "parallel_tool_calls=false",
        ),
        (
            request.get("tool_choice").is_some_and(chooses),
            "tool_choice (only 'none' or 'auto')",
        ),
    ];
    let unsupported: Vec<&str> = asked
        .iter()
        .filter_map(|(is_asked, name)| is_asked.then_some(*name))
        .collect();
    if unsupported.is_empty() {
        return Ok(());
    }
    let message = format!(
        "Unsupported parameter(s): {}. This server honors temperature, top_p, top_k, seed, \
         max_tokens/max_completion_tokens, stop, and tools for the configured tool-call format.",
        unsupported.join(", ")
    );
    Err(Error::invalid(400, message, "unsupported_parameter"))
}

impl ControlPlane {
    /// Makes a turn of a chat; `session_id` is what its headers name. `id` is the answer's, `mark` any number
    /// that no prompt has in it.
    ///
    /// # Errors
    /// The server's answer to a chat that it refuses.
    pub fn prepare(
        &self,
        request: &ChatRequest<'_>,
        session_id: Option<&str>,
        id: String,
        mark: u128,
    ) -> Result<Turn, Refusal> {
        if let Some(model) = request.text("model").filter(|model| *model != self.model) {
            let (asked, served) = (python::repr(model), python::repr(&self.model));
            let message = format!("Model {asked} not found. This server serves {served}.");
            return Err(Error::invalid(404, message, "model_not_found").into());
        }
        check_values(request)?;
        check_parameters(request)?;
        let session_id = session_of(request, session_id);
        if let Some(session_id) = &session_id {
            check_session_id(session_id)?;
        }
        let hides_tools = request.text("tool_choice") == Some("none");
        let tools = request.get("tools").filter(|_| !hides_tools);
        let rendered = Rendered {
            kwargs: kwargs(request),
            tools,
        };
        let mut transcripts = self.transcripts();
        let session = session_id.as_deref();
        let prompt = transcripts.prompt(&self.template, request, session, &rendered, mark);
        drop(transcripts);
        // The server keeps to itself what a template says.
        let prompt = prompt.map_err(|_| Refusal::Internal)?;
        self.check_context(request, &prompt)?;
        let preamble = self
            .template
            .preamble(&rendered)
            .map_err(|_| Refusal::Internal)?;
        let tools = request.tools().filter(|_| !hides_tools).map(Tool::all);
        let ends = Ends::new(self, request.stop(), tools.is_some());
        let ask = Ask {
            max_new_tokens: request.max_tokens().unwrap_or(-1),
            temperature: request.float("temperature").unwrap_or(0.0),
            top_p: request.float("top_p").unwrap_or(1.0),
            top_k: request.int("top_k").unwrap_or(0),
            seed: request.int("seed").unwrap_or(0),
            stop: ends.stops(),
            prompt,
            session_id,
        };
        let number = ask.session_id.as_deref();
        let number = number.map(|session| self.transcripts().number(session));
        let scene = Scene {
            number: number.unwrap_or(0),
            preamble,
            tools,
        };
        Ok(Turn::new(self, request, (ask, ends), id, scene))
    }

    /// Refuses what does not fit the context, as far as there is a tokenizer to tell.
    fn check_context(&self, request: &ChatRequest<'_>, prompt: &Prompted) -> Result<(), Error> {
        let limit = self.max_context.filter(|most| *most > 0);
        let Some((most, count)) = limit.zip(self.count(prompt)) else {
            return Ok(());
        };
        let limit = format!("This model's maximum context length is {most} tokens");
        let asked = request.max_tokens().unwrap_or(-1);
        let all = i128::from(count) + asked;
        let message = if count >= most {
            format!("{limit}, but the request has {count} prompt tokens.")
        } else if asked > 0 && all > i128::from(most) {
            format!(
                "{limit}. However, you requested {all} tokens ({count} in the messages, {asked} in \
                 the completion). Please reduce the length of the messages or completion."
            )
        } else {
            return Ok(());
        };
        Err(Error::invalid(400, message, "context_length_exceeded"))
    }

    fn count(&self, prompt: &Prompted) -> Option<u64> {
        match prompt {
            Prompted::Text(text) => self.template.count(text),
            Prompted::Segments(parts) => parts
                .iter()
                .map(|part| match part {
                    Part::Ids(ids) => Some(ids.len() as u64),
                    Part::Text(text) => self.template.count(text),
                })
                .sum(),
        }
    }
}

/// The session of the body, or failing that of the headers.
fn session_of(request: &ChatRequest<'_>, named: Option<&str>) -> Option<String> {
    let of_body = match request.get("session_id") {
        Some(Json::String(id)) => Some(id.clone()),
        Some(Json::Surrogates(id)) => Some(Cow::Borrowed(&**id)),
        _ => None,
    };
    let session_id = of_body.or_else(|| named.map(Cow::Borrowed));
    session_id.map(Cow::into_owned)
}

fn kwargs<'r, 'a>(request: &'r ChatRequest<'a>) -> Option<&'r Object<'a>> {
    request.get("chat_template_kwargs")?.as_object()
}
