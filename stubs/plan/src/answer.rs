//! The reply to a chat or completion request.

mod choice;
mod each;
pub(crate) mod ids;
mod kept;
mod plain;
mod play;
mod refused;
mod whole;

use std::sync::Arc;
use std::time::Duration;

use wire::dialect::{Envelope, Meta};
use wire::failure::Failure;
use wire::request::{Endpoint, Request, UsagePolicy};

use crate::check;
use crate::front::Front;
use crate::pace::Pace;
use crate::prompt::Counted;
use crate::reply::{Body, Rendered, Reply};
use crate::stub::{Call, Context, MAX_RENDERED, RenderKey, RenderedOnce, Stub};
use crate::timeline::{Plan, Track};
use crate::under_way::{self, Ticket, Turn};

pub(crate) use kept::Kept;
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
    let dialect = stub.dialect;
    let is_typed = dialect.is_typed(request, stub.parsers.tools.is_some());
    let prompt = match check::check(stub, request) {
        Ok(prompt) => prompt,
        Err(_) if each::is_separate(stub, request) => {
            return each::reply(stub, request, call, context);
        }
        Err(failure) => return refused::reply(stub, request, is_typed, failure, context),
    };
    let mut reply = answered(stub, request, &prompt, call, context)?;
    if request.stream {
        dialect.dress_stream(request.endpoint, is_typed, &mut reply.headers);
    } else if request.output_mode.is_none() {
        reply.headers.first.extend(Front::load_metrics(call));
    }
    Ok(reply)
}

/// The answer to a request that is not refused.
#[inline] // a whole reply would be moved once more
fn answered(
    stub: &Stub,
    request: &Request<'_>,
    prompt: &Counted<'_>,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    let policy = usage_policy(stub, request);
    let key = RenderKey {
        endpoint: request.endpoint,
        prompt_tokens: prompt.tokens,
        stream: request.stream,
        usage: policy,
    };
    let add_asked = |reply: &mut Reply| {
        if let Some(facts) = reply.facts.as_mut().filter(|_| call.wants_facts) {
            facts.include_usage = request.stream_options.include_usage;
            let decisive = request.prompt.decisive_text();
            let decoded = || Some(&*prompt[0].text);
            facts.prompt = Some(decisive.or_else(decoded).unwrap_or_default().to_owned());
        }
    };
    // What shows of a request beside its key is answered by itself.
    let is_usual = is_usual(request, prompt);
    // What is rendered is sent at once.
    let is_burst = stub.engine.pace == Pace::Burst;
    let renders_once = stub.streaming.renders_once && is_burst && is_usual;
    if renders_once && let Some(rendered) = context.rendered.get(&key) {
        let mut reply = rendered.clone().reply();
        add_asked(&mut reply);
        return Ok(reply);
    }
    let envelope = envelope(stub, request, prompt, call, context, policy);
    let is_typed_chat = envelope.is_typed && request.endpoint == Endpoint::Chat;
    let may_be_plain = is_usual && !is_typed_chat && plain::may_be(stub, request, policy);
    let script = may_be_plain.then(|| play::script(stub, request, &prompt[0].text));
    let script = script.as_deref();
    let quick = script.and_then(|script| Quick::new(stub, request, prompt, script, &envelope));
    let ticket = match under_way::enter(stub, &envelope, quick.is_some()) {
        Ok(ticket) => ticket,
        Err(why) => return refused::not_let_in(stub, request, prompt, envelope, &why),
    };
    let named = ticket.as_deref().filter(|ticket| ticket.has_names());
    let turn = named.map(Ticket::turn);
    let quick = quick.filter(|_| turn != Some(Turn::Waiting));
    let mut reply = if let Some(quick) = quick {
        quick.take_up(stub, prompt);
        let spare = context.take_spare();
        quick.reply(stub, request, prompt, envelope, spare, call.wants_facts)
    } else {
        let mut answer = Answer::new(stub, request, prompt, envelope, &mut context.random);
        answer.turn = turn;
        answer.play()?;
        answer.reply()
    };
    if renders_once {
        reply = rendered_once(reply, key, context);
    }
    add_asked(&mut reply);
    reply.ticket = ticket;
    Ok(reply)
}

/// An answer rendered for all requests that differ in nothing but their key.
fn rendered_once(reply: Reply, key: RenderKey, context: &mut Context) -> Reply {
    let rendered = render(reply);
    if context.rendered.len() < MAX_RENDERED {
        context.rendered.insert(key, rendered.clone());
    }
    rendered.reply()
}

/// Which chunks of the answer carry usage.
fn usage_policy(stub: &Stub, request: &Request<'_>) -> UsagePolicy {
    let options = request.stream_options;
    let asked = match UsagePolicy::from(options) {
        _ if request.endpoint == Endpoint::Generate => return UsagePolicy::Running,
        UsagePolicy::Omit
            if options.continuous_usage_stats && !stub.dialect.manner().usage_needs_asking =>
        {
            UsagePolicy::Running
        }
        asked => asked,
    };
    if stub.streaming.force_include_usage && request.output_mode.is_none() {
        return stub.dialect.forced_usage(asked);
    }
    asked
}

/// One answer to one prompt with nothing asked for beside its text and usage.
fn is_usual(request: &Request<'_>, prompt: &Counted<'_>) -> bool {
    let sampling = &request.sampling;
    sampling.n == 1
        && prompt.count() == 1
        && sampling.logprobs.is_none()
        && sampling.prompt_logprobs.is_none()
        && request.output_mode.is_none()
        && request
            .wishes
            .as_ref()
            .is_none_or(|wishes| wishes.are_none())
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
    let is_typed = stub.dialect.is_typed(request, stub.parsers.tools.is_some());
    let (id, further_ids) = if is_typed {
        let id = ids::typed(stub, request.endpoint, context);
        (id, Vec::new())
    } else {
        ids::ids(stub, request, prompt.count(), call, context)
    };
    Envelope {
        further_ids,
        is_typed,
        meta: meta(stub, request, prompt, context),
        created: context.created,
        fingerprint: stub.fingerprint.clone(),
        output_mode: request.output_mode,
        prompt_text: request
            .return_prompt_text
            .then(|| prompt.iter().map(|one| &*one.text).collect()),
        usage,
        ..Envelope::new(request.endpoint, id, model(stub, request))
    }
}

/// The model's name in the answer.
pub(crate) fn model(stub: &Stub, request: &Request<'_>) -> Arc<str> {
    // An answer for all repeats nobody's words.
    if !stub.dialect.manner().repeats_model || stub.streaming.renders_once {
        return stub.names[0].clone();
    }
    match request.model.as_deref() {
        Some(name) if *name == *stub.names[0] => stub.names[0].clone(),
        Some(name) => name.into(),
        None => "default".into(),
    }
}

/// The model's name in a response, which never goes without one.
pub(crate) fn response_model(stub: &Stub, request: &Request<'_>) -> Arc<str> {
    match request.model {
        Some(_) => model(stub, request),
        None => stub.names[0].clone(),
    }
}

/// What each choice tells of itself, where it does.
fn meta(
    stub: &Stub,
    request: &Request<'_>,
    prompt: &Counted<'_>,
    context: &Context,
) -> Option<Box<Meta>> {
    let wishes = request.wishes.as_deref();
    let is_native = request.endpoint == Endpoint::Generate;
    let is_asked = wishes.is_some_and(|wishes| wishes.return_meta_info) && !request.stream;
    (is_native || is_asked).then(|| {
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970")]
        let started = context.created as f64;
        Box::new(Meta {
            incremental: stub.streaming.incremental,
            is_list: prompt.count() > 1 || wishes.is_some_and(|wishes| wishes.is_list),
            logprobs: wishes.and_then(|wishes| wishes.logprobs.clone()),
            started: started + f64::from(context.created_nanos) / 1e9,
            tells_stages: stub.streaming.tells_stages,
            without_text: stub.streaming.without_text,
        })
    })
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
    /// Whether it has its turn, where it may be given up.
    pub(crate) turn: Option<Turn>,
}

/// A reply's bytes, all at once.
fn render(reply: Reply) -> RenderedOnce {
    let mut own = Rendered {
        content: reply.content(),
        ..Rendered::default()
    };
    let rendered = match reply.body {
        Body::Rendered(rendered) => rendered,
        Body::Empty | Body::HeadAlone(_) => own.into(),
        Body::Stream(mut timeline) => {
            timeline.steps(Duration::MAX, usize::MAX, &mut own.bytes, &mut own.steps);
            own.into()
        }
        Body::Whole(whole) => {
            own.steps.push(whole.step());
            own.bytes = whole.bytes;
            own.into()
        }
    };
    RenderedOnce {
        facts: reply.facts,
        rendered,
        works: reply.works,
    }
}

impl RenderedOnce {
    fn reply(self) -> Reply {
        Reply {
            body: Body::Rendered(self.rendered),
            facts: self.facts,
            works: self.works,
            ..Reply::empty(200)
        }
    }
}
