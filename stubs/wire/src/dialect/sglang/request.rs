//! What SGLang accepts, and what it says to the rest.

use std::borrow::Cow;

use crate::dialect::body::{check_content_type, checked, json};
use crate::failure::Failure;
use crate::json::{Json, Object};
use crate::request::{Endpoint, FlatLogprobs, Known, Names, NativeLogprobs, Request, Wishes};
use crate::{python, schema as pydantic};

use super::schema;

/// Reads a body that came with a content type; fails with the server's answer.
pub(crate) fn parse<'a>(
    endpoint: Endpoint,
    content_type: Option<&str>,
    body: &'a [u8],
    known: &mut Known,
) -> Result<Box<Request<'a>>, Failure> {
    check_content_type(content_type)?;
    if endpoint == Endpoint::Generate {
        let members = checked(json(content_type, body)?, schema::GENERATE)?;
        let request = generate(members).map(|mut request| {
            request.sampling.n = request.sampling.n.max(1);
            request
        });
        return request.map_err(|message| Failure::Body {
            status: 400,
            json: serde_json::json!({"error": message}).to_string(),
        });
    }
    let is_sound =
        |request: &Request<'_>| endpoint == Endpoint::Chat || request.max_tokens() != Some(0);
    if let Some(request) = known.read(endpoint, body, is_sound) {
        return Ok(request);
    }
    let fields = match endpoint {
        Endpoint::Chat => schema::CHAT,
        _ => schema::COMPLETIONS,
    };
    let members = checked(json(content_type, body)?, fields)?;
    Ok(Box::new(read(endpoint, members, " ")))
}

/// The members of a chat or a completion, once they were checked; `between` goes between text parts.
pub(super) fn read<'a>(endpoint: Endpoint, mut members: Object<'a>, between: &str) -> Request<'a> {
    let wishes = wishes(&members);
    rename(
        &mut members,
        &[("no_stop_trim", "include_stop_str_in_output")],
    );
    let request = match endpoint {
        Endpoint::Chat => Request::flat_with(members, between),
        _ => Request::from_checked(endpoint, members),
    };
    Request {
        wishes: Some(Box::new(wishes)),
        ..request
    }
}

/// Gives members the names that they have elsewhere.
fn rename(members: &mut Object<'_>, names: &[(&str, &'static str)]) {
    for (name, _) in &mut members.0 {
        if let Some((_, other)) = names.iter().find(|(own, _)| own == name) {
            *name = Cow::Borrowed(other);
        }
    }
}

/// The members of `/generate`, whose sampling parameters are an object of their own; fails with what is
/// said of one that is not known.
pub(super) fn generate(mut members: Object<'_>) -> Result<Box<Request<'_>>, String> {
    let sampling = match members.take("sampling_params") {
        Some(Json::Array(mut each)) if !each.is_empty() => each.swap_remove(0),
        Some(all) => all,
        None => Json::Null,
    };
    let sampling = match sampling {
        Json::Object(sampling) => sampling,
        _ => Object::default(),
    };
    let mut wishes = wishes(&members);
    wishes.whole_numbers = whole_numbers(&sampling);
    wishes.stop_regex = texts(sampling.get("stop_regex"));
    wishes.logprobs = logprobs(&members);
    let ids = members.take("input_ids");
    let text = members.take("text");
    let prompt = ids
        .filter(|ids| *ids != Json::Null)
        .or(text)
        .filter(|prompt| *prompt != Json::Null);
    wishes.is_list = match &prompt {
        Some(Json::Array(items)) => !matches!(items.first(), Some(Json::Number(_) | Json::Bool(_))),
        _ => false,
    };
    let kept = ["stream", "return_prompt_token_ids"];
    let mut all: Vec<_> = members
        .0
        .into_iter()
        .filter(|(name, _)| kept.contains(&&**name))
        .collect();
    for (name, value) in sampling.0 {
        if !schema::SAMPLING.contains(&&*name) {
            return Err(unknown_parameter(&name));
        }
        all.push((name, value));
    }
    all.extend(prompt.map(|prompt| ("prompt".into(), prompt)));
    let mut members = Object(all);
    rename(
        &mut members,
        &[
            ("max_new_tokens", "max_tokens"),
            ("min_new_tokens", "min_tokens"),
            ("no_stop_trim", "include_stop_str_in_output"),
        ],
    );
    let mut request = Request::from_checked(Endpoint::Generate, members);
    request.sampling.logprobs = wishes
        .logprobs
        .as_ref()
        .map(|asked| i128::try_from(asked.top).unwrap_or(i128::MAX));
    wishes.is_list |= request.sampling.n > 1;
    request.wishes = Some(Box::new(wishes));
    Ok(Box::new(request))
}

fn unknown_parameter(name: &str) -> String {
    let known = schema::SAMPLING.map(|name| format!("`{name}`")).join(", ");
    format!("unknown field `{name}`, expected one of {known}")
}

/// What a body asks for that only SGLang knows.
fn wishes<'a>(members: &Object<'a>) -> Wishes<'a> {
    let given = |name: &str| pydantic::bool(members.get(name)?).ok();
    let flag = |name: &str| given(name).unwrap_or(false);
    Wishes {
        names: names(members.get("rid")),
        require_reasoning: flag("require_reasoning"),
        return_meta_info: flag("return_meta_info"),
        return_prompt_token_ids: flag("return_prompt_token_ids"),
        separate_reasoning: given("separate_reasoning").unwrap_or(true),
        sglext_cached_tokens: flag("return_cached_tokens_details"),
        sglext_input_ids: flag("return_input_ids_in_sglext"),
        sglext_output_ids: flag("return_output_ids_in_sglext"),
        stop_regex: texts(members.get("stop_regex")),
        stream_reasoning: given("stream_reasoning").unwrap_or(true),
        ..Wishes::default()
    }
}

fn names<'a>(rid: Option<&Json<'a>>) -> Names<'a> {
    match rid {
        Some(Json::Array(_)) => Names::Each(texts(rid)),
        rid => match texts(rid).pop() {
            Some(name) => Names::One(name),
            None => Names::Generated,
        },
    }
}

/// A text or a list of them.
fn texts<'a>(value: Option<&Json<'a>>) -> Vec<Cow<'a, str>> {
    let text = |value: &Json<'a>| match value {
        Json::String(text) => Some(text.clone()),
        _ => None,
    };
    match value {
        Some(Json::Array(items)) => items.iter().filter_map(text).collect(),
        value => value.and_then(text).into_iter().collect(),
    }
}

/// What of the parameters that may have a fraction came without one.
fn whole_numbers(sampling: &Object<'_>) -> Vec<&'static str> {
    let is_whole = |name: &&'static str| match sampling.get(name) {
        Some(Json::Number(text)) => matches!(python::number(text), python::Number::Int(_)),
        _ => false,
    };
    let names = [
        "temperature",
        "top_p",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
    ];
    names.into_iter().filter(is_whole).collect()
}

fn logprobs(members: &Object<'_>) -> Option<NativeLogprobs> {
    let first = |name: &str| match members.get(name) {
        Some(Json::Array(items)) => items.first(),
        value => value,
    };
    let flag = |name: &str| first(name).and_then(|value| pydantic::bool(value).ok());
    let number = |name: &str| first(name).and_then(|value| pydantic::int(value).ok());
    if !flag("return_logprob").unwrap_or(false) {
        return None;
    }
    let ids = match first("token_ids_logprob") {
        Some(Json::Array(_)) => first("token_ids_logprob"),
        _ => members.get("token_ids_logprob"),
    };
    let id = |id: &Json<'_>| u32::try_from(pydantic::int(id).ok()?).ok();
    Some(NativeLogprobs {
        flat: FlatLogprobs {
            input: flag("return_flat_raw_top_logprobs").unwrap_or(false),
            output: flag("return_flat_raw_output_top_logprobs").unwrap_or(false),
        },
        start: number("logprob_start_len").unwrap_or(-1),
        with_text: flag("return_text_in_logprobs").unwrap_or(false),
        token_ids: match ids {
            Some(Json::Array(ids)) => ids.iter().filter_map(id).collect(),
            _ => Vec::new(),
        },
        top: usize::try_from(number("top_logprobs_num").unwrap_or(0)).unwrap_or(0),
    })
}
