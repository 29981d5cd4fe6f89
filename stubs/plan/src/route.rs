//! Which paths a stub serves, and the small answers.

use std::sync::atomic::Ordering;

use serde::Serialize;
use wire::dialect::Content;

use wire::failure::Failure;
use wire::request::Endpoint;
use wire::route::{self, Route};

use crate::front::Front;
use crate::reply::{Body, Reply};
use crate::stub::{Call, Context, Stub};
use crate::{answer, invocations, lesser, messages, prompt, responses, scale_out};

/// The route of a call, or the answer to one that is not there.
pub(crate) fn find(stub: &Stub, call: &Call<'_>) -> Result<Route, Box<Reply>> {
    let (head, path, manner) = (call.head, stub.front.path(call), stub.dialect.manner());
    let found = |path: &str, method: &str| {
        let found = route::find(manner.routes, path, method);
        match found {
            Ok(route) if !is_there(&stub.front, route) => Err(None),
            found => found,
        }
    };
    match found(path, head.method) {
        Ok(Route::Metrics) if head.method == "HEAD" => return Ok(Route::MetricsBelow),
        Ok(route) => return Ok(route),
        Err(Some(methods)) if manner.bare_refusals => {
            let mut reply = Reply::empty(405);
            reply.headers.first.push(("allow", methods.join(",")));
            return Err(reply.into());
        }
        Err(None) if manner.bare_refusals => return Err(bare(404, head.method).into()),
        Err(Some(methods)) => {
            let mut reply = detail(405, "Method Not Allowed");
            reply.headers.first.push(("allow", methods.join(", ")));
            return Err(reply.into());
        }
        Err(None) => {}
    }
    let is_known =
        |path: &&str| found(path, head.method).map_or_else(|methods| methods.is_some(), |_| true);
    let trimmed = path.strip_suffix('/').filter(is_known);
    let (Some(path), Some(host), true) = (trimmed, head.header("host"), manner.redirects_slashes)
    else {
        return Err(detail(404, "Not Found").into());
    };
    let query = head.target.find('?').map_or("", |at| &head.target[at..]);
    let mut reply = Reply::empty(307);
    let location = format!("http://{host}{}{path}{query}", stub.front.root_path);
    reply.headers.middle.push(("location", location));
    Err(reply.into())
}

/// An answer of nothing, whose length an answer to `HEAD` does not tell.
fn bare(status: u16, method: &str) -> Reply {
    let mut reply = Reply::empty(status);
    if method == "HEAD" {
        reply.body = Body::HeadAlone(Content::Untold);
    }
    reply
}

/// Whether the stub was started with what a route needs.
fn is_there(front: &Front, route: Route) -> bool {
    match route {
        Route::Echo => front.serves_echo,
        Route::IsSleeping | Route::ResetPrefixCache => front.dev_mode,
        Route::ServerInfo => front.serves_info || front.dev_mode,
        Route::Metrics | Route::MetricsBelow => front.serves_metrics,
        _ => true,
    }
}

/// The route's answer; `Err` is for the server to give.
pub(crate) fn reply(
    route: Route,
    stub: &Stub,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Route> {
    let reply = match route {
        Route::AbortRequests => scale_out::abort(stub, call),
        Route::Chat => answer::reply(stub, Endpoint::Chat, call, context),
        Route::Completions => answer::reply(stub, Endpoint::Completions, call, context),
        Route::CountTokens => messages::count_tokens(stub, call),
        Route::Detokenize => detokenize(stub, call),
        Route::Echo | Route::Loads | Route::Metrics | Route::MetricsBelow => return Err(route),
        Route::Generate => {
            scale_out::check_on(stub).and_then(|()| answer::generate(stub, call, context))
        }
        Route::Health if stub.engine.dead.load(Ordering::Relaxed) => Ok(Reply::empty(503)),
        Route::Health | Route::Ping => Ok(Reply::empty(200)),
        Route::Invocations => invocations::reply(stub, call, context),
        // Only how long the document is was recorded, so there is none to send.
        Route::OpenApi if call.head.method == "HEAD" => Ok(Reply::head_alone(Content::Json(
            stub.dialect.openapi_bytes(),
        ))),
        Route::OpenApi => Ok(detail(404, "Not Found")),
        Route::IsSleeping => Ok(Reply::json(200, br#"{"is_sleeping":false}"#.to_vec())),
        Route::RenderChat => scale_out::render(stub, Endpoint::Chat, call, context),
        Route::RenderCompletions => scale_out::render(stub, Endpoint::Completions, call, context),
        Route::ResetPrefixCache => {
            if let Some(cache) = &stub.engine.prefix_cache {
                cache.reset();
            }
            Ok(Reply::json(200, br#"{"success":true}"#.to_vec()))
        }
        Route::ServerInfo => Ok(server_info(stub)),
        Route::Load => Ok(Reply::json(200, br#"{"server_load":0}"#.to_vec())),
        Route::Native => answer::reply(stub, Endpoint::Generate, call, context),
        Route::Messages => messages::reply(stub, call, context),
        Route::Models => Ok(models(stub, context)),
        Route::Response => Err(responses::unknown(stub, stub.front.path(call))),
        Route::Responses => responses::reply(stub, call, context),
        Route::Tokenize => tokenize(stub, call),
        Route::Version => Ok(json(&Version {
            version: stub.dialect.version(),
        })),
        lesser => lesser::reply(lesser, stub, call, context),
    };
    Ok(reply.unwrap_or_else(|failure| {
        let mut reply = Reply::refusal(stub.dialect, route.endpoint(), &failure);
        // Without a tokenizer chats end in an exception, which passes the layer that adds `vary`.
        reply.headers.without_vary = stub.front.tokens_only && failure == Failure::internal("");
        reply
    }))
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
}

/// The little of the engine's configuration that a stub has.
fn server_info(stub: &Stub) -> Reply {
    json(&serde_json::json!({"vllm_config": {
        "model": stub.root,
        "max_model_len": stub.engine.max_model_len,
        "served_model_name": stub.names.iter().map(|name| &**name).collect::<Vec<_>>(),
    }}))
}

pub(crate) fn json(value: &impl Serialize) -> Reply {
    let bytes = serde_json::to_vec(value).expect("strings and numbers encode");
    Reply::json(200, bytes)
}

/// The web framework's own answer.
pub(crate) fn detail(status: u16, detail: &'static str) -> Reply {
    let mut out = Vec::new();
    Failure::Detail { status, detail }.encode(&mut out);
    Reply::json(status, out)
}

fn models(stub: &Stub, context: &mut Context) -> Reply {
    let models = stub.models(context.created);
    let mut out = Vec::new();
    let random = &mut context.random;
    stub.dialect
        .encode_models(&models, || random.u64(..), &mut out);
    Reply::json(200, out)
}

#[derive(Serialize)]
struct Tokenized {
    count: usize,
    max_model_len: Option<u64>,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

fn tokenize(stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    let asked = stub
        .dialect
        .parse_tokenize(call.head.content_type(), call.body)?;
    stub.check_model(asked.request.model.as_deref())?;
    let text = prompt::text(stub, &asked.request)?.unwrap_or_default();
    let is_text = asked.request.endpoint == Endpoint::Completions;
    let vocab = &stub.engine.tokenizer.vocab;
    let tokens = vocab.encode(&text, is_text);
    Ok(json(&Tokenized {
        count: tokens.len(),
        max_model_len: stub.engine.max_model_len,
        token_strs: asked.return_token_strs.then(|| vocab.spellings(&tokens)),
        tokens,
    }))
}

#[derive(Serialize)]
struct Detokenized {
    prompt: String,
}

fn detokenize(stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    let asked = stub
        .dialect
        .parse_detokenize(call.head.content_type(), call.body)?;
    stub.check_model(asked.model.as_deref())?;
    Ok(json(&Detokenized {
        prompt: stub.engine.tokenizer.vocab.decode(&asked.tokens),
    }))
}
