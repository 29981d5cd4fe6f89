//! What a server checks of a request beside its schema, in the server's order.

use std::sync::atomic::Ordering;

use wire::dialect::Served;
use wire::failure::Failure;
use wire::request::Request;

use crate::prompt::{self, Counted};
use crate::stub::Stub;

/// Most choices of one request, of all its prompts.
pub(crate) const MAX_CHOICES: i128 = 1 << 16;

/// Checks what the schema cannot, and counts the prompt.
pub(crate) fn check<'r>(stub: &Stub, request: &'r Request<'_>) -> Result<Counted<'r>, Failure> {
    stub.check_model(request.model.as_deref())?;
    if stub.engine.dead.load(Ordering::Relaxed) {
        return Err(Failure::internal(stub.dialect.dead_engine()));
    }
    let context = stub.engine.max_model_len;
    parts(stub, request)?;
    let prompt = prompt::counted(stub, request)?;
    stub.dialect
        .check_sampling(request, prompt.longest, context)?;
    let waiting = request.sampling.n.saturating_mul(prompt.count() as i128);
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
        return Err(stub.dialect.queue_full());
    }
    Ok(prompt)
}

/// Checks what needs no prompt.
pub(crate) fn parts(stub: &Stub, request: &Request<'_>) -> Result<(), Failure> {
    let served = Served {
        context: stub.engine.max_model_len,
        parses_tools: stub.parsers.tools.is_some(),
        tokens_only: stub.front.tokens_only || stub.streaming.without_text,
    };
    stub.dialect.check_parts(request, served)
}
