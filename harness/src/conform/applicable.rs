//! Which recorded cases a server can be held against, and why not the others.

use wire::http1::{WholeRequest, WholeResponse};

use super::corpus::{Corpus, Recorded};
use super::live::Facts;

/// Why a case is not more than sent and answered; for any server, with scripts or without.
pub(super) fn exchange_reason(recorded: &Recorded) -> Option<String> {
    let case = &recorded.case;
    if let Some(exchange) = &case.exchange {
        return Some(format!("more than one plain exchange: {exchange}"));
    }
    let notes = case.notes.as_deref().unwrap_or_default();
    if notes.contains("the client ") {
        return Some("more than one plain exchange: the client closes or shuts its side".into());
    }
    None
}

/// Why a live server without our scripts cannot be held against a case.
pub(super) fn live_reason(
    recorded: &Recorded,
    corpus: &Corpus,
    configuration: &str,
    facts: &Facts,
) -> Option<String> {
    if recorded.configuration != configuration {
        let flags = corpus
            .flags
            .get(&recorded.configuration)
            .map_or("", |flags| flags);
        let common = corpus.manner.common_flags.iter();
        let own = common.fold(flags.to_owned(), |own, common| own.replace(common, ""));
        let own: Vec<&str> = own.split_whitespace().collect();
        let own = if own.is_empty() {
            "another history".into()
        } else {
            own.join(" ")
        };
        let name = &recorded.configuration;
        return Some(format!("needs a server with {own}; say --config {name}"));
    }
    exchange_reason(recorded)
        .or_else(|| one_answer(recorded))
        .or_else(|| cache(recorded))
        .or_else(|| engine(recorded, corpus))
        .or_else(|| model(recorded, facts))
}

fn one_answer(recorded: &Recorded) -> Option<String> {
    let request = WholeRequest::parse(&recorded.request);
    let (single, to_head) = match &request {
        Ok(Some(whole)) => (
            whole.length == recorded.request.len(),
            whole.head.method == "HEAD",
        ),
        Ok(None) => return Some("the request is not complete".into()),
        Err(_) => (true, false),
    };
    if !single {
        return Some("more than one plain exchange: several requests on a connection".into());
    }
    let whole = WholeResponse::parse(&recorded.response, to_head, false);
    let is_whole =
        whole.is_ok_and(|whole| whole.is_some_and(|whole| whole.length == recorded.response.len()));
    (!is_whole).then(|| "the recorded server ended the connection within the answer".into())
}

/// What depends on the prompts that the server has seen.
fn cache(recorded: &Recorded) -> Option<String> {
    let asks = b"\"return_cached_tokens_details\":true";
    let mut parts = recorded.request.windows(asks.len());
    let tells = parts.any(|part| part == asks);
    tells.then(|| "needs an empty prefix cache: the answer tells what it had".into())
}

/// What only a scripted engine does.
fn engine(recorded: &Recorded, corpus: &Corpus) -> Option<String> {
    let script = recorded.case.script.as_deref();
    let keys = script.and_then(|script| corpus.engine.get(script));
    if let (Some(script), Some(keys)) = (script, keys)
        && !keys.is_empty()
    {
        let keys = keys.join(", ");
        return Some(format!(
            "needs the scripted engine: script `{script}` has {keys}"
        ));
    }
    if recorded.case.status != 200 {
        return None;
    }
    let marker = b"[[empty]]";
    let is_empty = recorded
        .request
        .windows(marker.len())
        .any(|part| part == marker);
    if script == Some("empty") || is_empty {
        return Some("needs the scripted engine: the model says nothing".into());
    }
    let flags = corpus
        .flags
        .get(&recorded.configuration)
        .map_or("", |flags| flags);
    let parses = flags.contains("--reasoning-parser") || flags.contains("--tool-call-parser");
    parses.then(|| "needs the scripted engine: reasoning and calls are cut out of the text".into())
}

/// What depends on the model that is served.
fn model(recorded: &Recorded, facts: &Facts) -> Option<String> {
    let body = String::from_utf8_lossy(&recorded.response);
    let manner = facts.manner;
    let is_error = recorded.case.status >= 400 || body.contains("\ndata: {\"error\":");
    let (length, flag) = (manner.max_model_len, manner.length_flag);
    if is_error && body.contains(&length.to_string()) && facts.max_model_len != Some(length) {
        return Some(format!("needs a server with {flag} {length}"));
    }
    let counts = manner.counted.iter().any(|words| body.contains(words));
    if is_error && counts && !facts.has_tokenizer {
        return Some("needs the recording's tokenizer".into());
    }
    None
}
