//! The answer to a list of prompts of which some are refused, where each is by itself.

use std::sync::Arc;
use std::time::Duration;

use wire::failure::Failure;
use wire::request::{Endpoint, Request};

use super::whole::MAX_WHOLE_BYTES;
use crate::check::MAX_CHOICES;
use crate::reply::{Body, Reply};
use crate::stub::{Call, Context, Stub};
use crate::work::Work;

/// Whether a request's prompts are as many requests.
pub(super) fn is_separate(stub: &Stub, request: &Request<'_>) -> bool {
    let prompts = request.prompts();
    stub.dialect.manner().separates_prompts
        && request.endpoint == Endpoint::Generate
        && !request.stream
        && (2..=MAX_CHOICES).contains(&(prompts as i128))
}

/// Answers each prompt by itself, or refuses it.
pub(super) fn reply(
    stub: &Stub,
    request: &Request<'_>,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    let (mut bytes, mut due) = (Vec::new(), Duration::ZERO);
    let mut facts = None;
    let mut works: Vec<Work> = Vec::new();
    for one in request.each() {
        bytes.push(if bytes.is_empty() { b'[' } else { b',' });
        match super::reply_to(stub, &one, call, context) {
            Err(failure) => {
                let endpoint = Some(request.endpoint);
                stub.dialect.encode_failure(endpoint, &failure, &mut bytes);
            }
            Ok(reply) => {
                if let Body::Whole(whole) = reply.body {
                    bytes.extend_from_slice(&whole.bytes);
                    due = due.max(whole.due);
                }
                works.extend(reply.works.iter().flat_map(|works| works.iter().copied()));
                facts = facts.or(reply.facts);
            }
        }
        if bytes.len() > MAX_WHOLE_BYTES {
            let message = "The answers are longer than this stub sends at once.";
            return Err(Failure::bad_request(message, None));
        }
    }
    bytes.push(b']');
    let mut reply = Reply::json(200, bytes);
    if let Body::Whole(whole) = &mut reply.body {
        whole.due = due;
    }
    reply.facts = facts;
    reply.works = (!works.is_empty()).then(|| Arc::from(works));
    Ok(reply)
}
