//! Requests as the front end in Rust reads them.

use crate::dialect::sglang::request::{generate, read};
use crate::failure::Failure;
use crate::json::{Json, Object};
use crate::request::{Endpoint, Known, Names, Prompt, Request, Wishes};

use super::body;

/// Most tokens that can be asked for.
const MAX_TOKENS: i128 = u32::MAX as i128;
/// Most answers that can be asked for.
const MAX_N: i128 = u8::MAX as i128;

/// Reads a body that came with a content type; fails with the server's answer.
pub(crate) fn parse<'a>(
    endpoint: Endpoint,
    content_type: Option<&str>,
    body: &'a [u8],
    known: &mut Known,
) -> Result<Box<Request<'a>>, Failure> {
    if endpoint == Endpoint::Generate {
        return native(content_type, body);
    }
    if let Some(request) = known.read(endpoint, body, is_sound) {
        return Ok(request);
    }
    body::check(endpoint, body)?;
    let mut request = read(endpoint, members(body)?, "\n");
    check(&request)?;
    forget(&mut request);
    Ok(Box::new(request))
}

/// What was read the quick way is not refused by its types.
fn is_sound(request: &Request<'_>) -> bool {
    let tokens = request.sampling.max_tokens;
    request.model.is_some()
        && request.sampling.n <= MAX_N
        && tokens.is_none_or(|(_, tokens)| tokens <= MAX_TOKENS)
        && check(request).is_ok()
}

/// A body's members, once its types were checked.
fn members(body: &[u8]) -> Result<Object<'_>, Failure> {
    match Json::parse(body) {
        Ok(Json::Object(members)) => Ok(members),
        _ => Err(Failure::bad_request("expected value", None)),
    }
}

/// Checks what types do not.
fn check(request: &Request<'_>) -> Result<(), Failure> {
    let refused = |message| Err(Failure::bad_request(message, None));
    let is_empty = match &request.prompt {
        Prompt::Messages(messages) if messages.is_empty() => {
            return refused("messages cannot be empty");
        }
        Prompt::Messages(_) => false,
        Prompt::Ids(ids) => ids.is_empty(),
        Prompt::Texts(texts) => texts.iter().all(|text| text.is_empty()),
    };
    let asked = request.sampling.max_tokens;
    if is_empty {
        return refused("Prompt cannot be empty");
    }
    if request.sampling.n == 0 {
        return refused("n must be at least 1");
    }
    if request.endpoint == Endpoint::Completions && asked.is_some_and(|(_, asked)| asked == 0) {
        return refused("max_tokens must be positive");
    }
    Ok(())
}

/// Forgets what a request asks for in vain; that a chat has asked is remembered.
fn forget(request: &mut Request<'_>) {
    let is_chat = request.endpoint == Endpoint::Chat;
    let returns_ids = std::mem::take(&mut request.return_token_ids);
    let Some(wishes) = request.wishes.as_deref_mut() else {
        return;
    };
    let in_vain = [
        &mut wishes.return_meta_info,
        &mut wishes.return_prompt_token_ids,
        &mut wishes.sglext_cached_tokens,
        &mut wishes.sglext_input_ids,
        &mut wishes.sglext_output_ids,
    ];
    let asked = in_vain.into_iter().map(std::mem::take);
    let asked = asked.fold(returns_ids, |any, one| any | one);
    wishes.is_odd = is_chat && asked;
    if !is_chat {
        wishes.names = Names::Generated;
    }
}

/// The body of `/generate`.
fn native<'a>(content_type: Option<&str>, body: &'a [u8]) -> Result<Box<Request<'a>>, Failure> {
    if !content_type.is_some_and(crate::dialect::body::is_json) {
        let message = "Expected request with `Content-Type: application/json`";
        return Err(Failure::bad_request(message, None));
    }
    body::check(Endpoint::Generate, body)?;
    let members = members(body)?;
    let is_given = |name: &str| members.get(name).is_some_and(|value| *value != Json::Null);
    let is_double = is_given("text") && is_given("input_ids");
    let mut request = generate(members).map_err(|message| Failure::bad_request(message, None))?;
    let n = request.sampling.n;
    let flaw = match n {
        _ if is_double => Some("provide either `text` or `input_ids`, not both".to_owned()),
        1 => None,
        n => Some(format!(
            "n must be 1 (parallel sampling is not supported), got {n}"
        )),
    };
    let wishes = request
        .wishes
        .get_or_insert_with(|| Box::new(Wishes::default()));
    wishes.flaw = flaw;
    wishes.return_prompt_token_ids = false;
    Ok(request)
}
