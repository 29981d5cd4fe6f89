//! The reply to a chat or completion request.

mod plain;
mod play;
mod whole;

use std::sync::Arc;
use std::time::Duration;

use wire::dialect::Envelope;
use wire::failure::Failure;
use wire::request::{Endpoint, Request, UsagePolicy};

use crate::check;
use crate::front::Front;
use crate::pace::Pace;
use crate::prompt::Counted;
use crate::reply::{Body, Facts, Rendered, Reply};
use crate::stub::{Call, Context, MAX_RENDERED, RenderKey, Stub};
use crate::timeline::{Plan, Track};

use plain::Quick;

/// Answers a request, or says why not.
pub(crate) fn reply(
    stub: &Stub,
    endpoint: Endpoint,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    let content_type = call.head.content_type();
    let (dialect, known) = (stub.dialect, &mut context.known);
    let request = dialect.parse_known(endpoint, content_type, call.body, known)?;
    reply_to(stub, &request, call, context)
}

/// Answers a request to `/inference/v1/generate`, or says why not.
pub(crate) fn generate(
    stub: &Stub,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    let content_type = call.head.content_type();
    let request = stub.dialect.parse_generate(content_type, call.body)?;
    reply_to(stub, &request, call, context)
}

fn reply_to(
    stub: &Stub,
    request: &Request<'_>,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    let (endpoint, is_generate) = (request.endpoint, request.output_mode.is_some());
    let prompt = check::check(stub, request)?;
    let policy = match UsagePolicy::from(request.stream_options) {
        _ if stub.streaming.force_include_usage && !is_generate => stub.dialect.forced_usage(),
        policy => policy,
    };
    let key = RenderKey {
        endpoint,
        prompt_tokens: prompt.tokens,
        stream: request.stream,
        usage: policy,
    };
    let facts = |facts: Facts| Facts {
        include_usage: request.stream_options.include_usage,
        prompt: call.wants_facts.then(|| {
            let decisive = request.prompt.decisive_text();
            let decoded = || Some(&*prompt[0].text);
            decisive.or_else(decoded).unwrap_or_default().to_owned()
        }),
        ..facts
    };
    // What shows of a request beside its key is answered by itself.
    let is_usual = is_usual(request, &prompt);
    // What is rendered is sent at once.
    let is_burst = stub.engine.pace == Pace::Burst;
    let renders_once = stub.streaming.renders_once && is_burst && is_usual;
    if renders_once && let Some((rendered, known)) = context.rendered.get(&key) {
        return Ok(Reply::rendered(rendered, facts(known.clone())));
    }
    let envelope = envelope(stub, request, &prompt, call, context, policy);
    let may_be_plain = is_usual && plain::may_be(stub, request, policy);
    let script = may_be_plain.then(|| play::script(stub, request, &prompt[0].text));
    let script = script.as_deref();
    let quick = script.and_then(|script| Quick::new(stub, request, &prompt, script, &envelope));
    let mut reply = if let Some(quick) = quick {
        quick.reply(stub, request, &prompt, envelope)
    } else {
        let mut answer = Answer::new(stub, request, &prompt, envelope, &mut context.random);
        answer.play()?;
        answer.reply()
    };
    if renders_once {
        let (rendered, known) = render(reply);
        if context.rendered.len() < MAX_RENDERED {
            let entry = (Arc::clone(&rendered), known.clone());
            context.rendered.insert(key, entry);
        }
        reply = Reply::rendered(&rendered, known);
    }
    if !request.stream && !is_generate {
        reply.headers.first.extend(Front::load_metrics(call));
    }
    reply.facts = facts(std::mem::take(&mut reply.facts));
    Ok(reply)
}

/// One answer to one prompt with nothing asked for beside its text and usage.
fn is_usual(request: &Request<'_>, prompt: &Counted<'_>) -> bool {
    let sampling = &request.sampling;
    sampling.n == 1
        && prompt.count() == 1
        && sampling.logprobs.is_none()
        && sampling.prompt_logprobs.is_none()
        && request.output_mode.is_none()
        && request.stream_interval.is_none()
        && request.template.add_generation_prompt
        && !(request.echo || request.return_token_ids || request.return_prompt_text)
}

/// What all chunks of the answer share.
fn envelope(
    stub: &Stub,
    request: &Request<'_>,
    prompt: &Counted<'_>,
    call: &Call<'_>,
    context: &mut Context,
    usage: UsagePolicy,
) -> Envelope {
    let id = response_id(stub, request, call, context);
    Envelope {
        created: context.created,
        fingerprint: stub.fingerprint.clone(),
        output_mode: request.output_mode,
        prompt_text: request
            .return_prompt_text
            .then(|| prompt.iter().map(|one| &*one.text).collect()),
        usage,
        ..Envelope::new(request.endpoint, id, stub.names[0].clone())
    }
}

/// The answer's `id`, with the client's own name for the request if there is one.
pub(crate) fn response_id(
    stub: &Stub,
    request: &Request<'_>,
    call: &Call<'_>,
    context: &mut Context,
) -> String {
    let given = call.head.header("x-request-id");
    let given = given.or(request.request_id.as_deref());
    // An answer for all has nobody's name.
    let given = given.filter(|_| !stub.streaming.renders_once);
    let random = context.random.u64(..);
    match request.output_mode {
        Some(_) => stub.dialect.generate_id(random, given),
        None => stub.dialect.response_id(request.endpoint, random, given),
    }
}

/// An answer in the making: every choice of every prompt.
pub(crate) struct Answer<'a> {
    stub: &'a Stub,
    request: &'a Request<'a>,
    prompt: &'a Counted<'a>,
    pub(crate) envelope: Envelope,
    pub(crate) plan: Plan,
    /// Ids of each prompt, where something needs them.
    prompt_ids: Option<Vec<Vec<u32>>>,
    pub(crate) random: &'a mut fastrand::Rng,
    /// Tokens of each prompt that the cache had, where there is one.
    cached: Vec<u64>,
    /// Most tokens of an answer to each prompt.
    limits: Vec<Option<u64>>,
    pub(crate) tracks: Vec<Track>,
}

/// A reply's bytes, all at once.
fn render(reply: Reply) -> (Arc<Rendered>, Facts) {
    let content = reply.content();
    let mut bytes = Vec::new();
    let mut steps = Vec::new();
    match reply.body {
        Body::Empty | Body::HeadAlone(_) => {}
        Body::Rendered(rendered) => return (rendered, reply.facts),
        Body::Stream(mut timeline) => {
            timeline.steps(Duration::MAX, usize::MAX, &mut bytes, &mut steps);
        }
        Body::Whole(whole) => {
            steps.push(whole.step());
            bytes.extend_from_slice(&whole.bytes);
        }
    }
    let rendered = Rendered {
        bytes,
        content,
        steps,
    };
    (Arc::new(rendered), reply.facts)
}

impl Reply {
    fn rendered(rendered: &Arc<Rendered>, facts: Facts) -> Self {
        Self {
            body: Body::Rendered(Arc::clone(rendered)),
            facts,
            ..Self::empty(200)
        }
    }
}
