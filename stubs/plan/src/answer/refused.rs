//! The answer to a request that the server refuses, which may be a stream that says so.

use std::sync::Arc;

use wire::chunk::{Choice, Chunk, Delta};
use wire::dialect::{Encoder, Envelope};
use wire::failure::Failure;
use wire::request::{Endpoint, Request};
use wire::sse;
use wire::usage::Usage;

use super::{Answer, ids};
use crate::prompt::Counted;
use crate::reply::Reply;
use crate::stub::{Context, Stub};
use crate::timeline::Kind;
use crate::under_way::Refused;

/// Refuses a request in the server's way.
pub(super) fn reply(
    stub: &Stub,
    request: &Request<'_>,
    is_typed: bool,
    failure: Failure,
    context: &mut Context,
) -> Result<Reply, Failure> {
    let (mut event, mut role) = (Vec::new(), Vec::new());
    let (dialect, endpoint) = (stub.dialect, request.endpoint);
    let has_role = dialect.refuse(request, is_typed, failure, &mut event)?;
    let mut events: Vec<(Kind, &[u8])> = Vec::new();
    if has_role {
        write_role(stub, request, context, &mut role);
        events.push((Kind::Role, &role));
    }
    events.extend([(Kind::Error, &*event), (Kind::Done, sse::DONE)]);
    let mut reply = Reply::events(&events);
    dialect.dress_stream(endpoint, is_typed || has_role, &mut reply.headers);
    Ok(reply)
}

/// Appends the event of a typed chat's role.
fn write_role(stub: &Stub, request: &Request<'_>, context: &mut Context, out: &mut Vec<u8>) {
    let endpoint = request.endpoint;
    let id = ids::typed(stub, endpoint, context);
    let envelope = Envelope {
        created: context.created,
        is_typed: true,
        ..Envelope::new(endpoint, id, super::model(stub, request))
    };
    let chunk = Chunk {
        choices: vec![Choice {
            delta: Delta {
                role: Some("assistant".into()),
                ..Delta::default()
            },
            ..Choice::default()
        }],
        ..Chunk::default()
    };
    Encoder::new(stub.dialect, envelope, Arc::clone(&stub.patterns)).event(&chunk, out);
}

/// The answer to a request that is not let in.
pub(super) fn not_let_in(
    stub: &Stub,
    request: &Request<'_>,
    prompt: &Counted<'_>,
    envelope: Envelope,
    why: &Refused,
) -> Result<Reply, Failure> {
    let dialect = stub.dialect;
    let failure = why.failure(dialect);
    if *why != Refused::Full {
        let mut event = Vec::new();
        dialect.refuse(request, envelope.is_typed, failure, &mut event)?;
        return Ok(Reply::events(&[
            (Kind::Error, &event),
            (Kind::Done, sse::DONE),
        ]));
    }
    if !request.stream {
        return Err(failure);
    }
    if request.endpoint == Endpoint::Generate {
        let mut random = fastrand::Rng::with_seed(0);
        let answer = Answer::new(stub, request, prompt, envelope, &mut random);
        return Ok(answer.unstarted());
    }
    let usage = request.endpoint == Endpoint::Chat && envelope.usage.is_told_at_end();
    let patterns = Arc::clone(&stub.patterns);
    let mut encoder = Encoder::new(dialect, envelope, patterns);
    let mut event = |chunk: &Chunk<'_>| {
        let mut out = Vec::new();
        encoder.event(chunk, &mut out);
        out
    };
    let error = event(&Chunk {
        error: Some(failure.message().into()),
        ..Chunk::default()
    });
    let usage = usage.then(|| {
        event(&Chunk {
            usage: Some(Usage::new(0, 0)),
            ..Chunk::default()
        })
    });
    let mut events = vec![(Kind::Error, &*error)];
    events.extend(usage.as_deref().map(|usage| (Kind::Usage, usage)));
    events.push((Kind::Done, sse::DONE));
    Ok(Reply::events(&events))
}
