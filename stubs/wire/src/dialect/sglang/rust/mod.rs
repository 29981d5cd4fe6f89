//! SGLang's front end in Rust, `SGLANG_RUST_SERVER=1`: another server on the wire.
//!
//! A usual chat is written as the Python front end writes it. What is typed is not: completions, and chats
//! with tools or with wishes that the quick way does not know, which pass types made for `OpenAI`'s API.

mod body;
mod chat;
mod completion;
mod head;
pub(super) mod info;
pub(super) mod native;
pub(crate) mod refusal;
pub(crate) mod request;
mod routes;
mod schema;
mod usage;

pub(crate) use head::{write_head, write_invalid};

use crate::chunk::Chunk;
use crate::dialect::manner::{Finishes, Manner, Roles};
use crate::dialect::{Envelope, Headers};
use crate::request::{Endpoint, Request};

/// How it behaves where plans are made.
pub(super) const MANNER: Manner = Manner {
    bare_refusals: true,
    fails_given_up: true,
    knows_origins: false,
    latin_names: false,
    routes: routes::ROUTES,
    separates_prompts: true,
    shares_names: true,
    tells_in_brief: true,
    whole_calls: true,
    ..super::MANNER
};

/// The same for what is typed.
pub(super) const TYPED_MANNER: Manner = Manner {
    bare_roles: true,
    finishes: Finishes::WithText,
    roles: Roles::First,
    waits_with_head: false,
    ..MANNER
};

/// Whether the answer to a request is typed; `parses_tools` if there is a tool parser.
pub(crate) fn is_typed(request: &Request<'_>, parses_tools: bool) -> bool {
    let template = &request.template;
    let calls = parses_tools && template.tools.is_some() && template.tool_choice.is_some();
    let wishes = request.wishes.as_deref();
    match request.endpoint {
        Endpoint::Chat => {
            let asks = wishes.is_some_and(|wishes| wishes.is_odd);
            calls || template.has_own_template || asks
        }
        Endpoint::Completions => true,
        Endpoint::Generate => false,
    }
}

/// Headers of a stream.
pub(crate) fn dress_stream(endpoint: Endpoint, is_typed: bool, headers: &mut Headers) {
    if endpoint == Endpoint::Chat && !is_typed {
        return;
    }
    headers.content_type = Some("text/event-stream");
    headers.middle.push(("cache-control", "no-cache".into()));
}

/// Appends the JSON of a typed event.
pub(super) fn encode(envelope: &Envelope, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
    if let Some(message) = &chunk.error {
        return refusal::event(message, out);
    }
    match envelope.endpoint {
        Endpoint::Chat => chat::encode(envelope, chunk, out),
        _ => completion::encode(envelope, chunk, out),
    }
}

/// Appends the JSON of a whole typed answer.
pub(super) fn encode_whole(envelope: &Envelope, answer: &Chunk<'_>, out: &mut Vec<u8>) {
    match envelope.endpoint {
        Endpoint::Chat => chat::encode_whole(envelope, answer, out),
        _ => completion::encode(envelope, answer, out),
    }
}

/// The id of a typed answer.
pub(crate) fn typed_id(endpoint: Endpoint, high: u64, low: u64) -> String {
    let id = super::response_id(high, low);
    match endpoint {
        Endpoint::Chat => format!("chatcmpl-{id}"),
        _ => format!("cmpl-{id}"),
    }
}
