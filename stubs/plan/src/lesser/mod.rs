//! SGLang's lesser routes: what stands beside its answers.

mod info;
mod ollama;
mod parsers;
mod score;
mod tokens;

use wire::dialect::sglang::bodies;
use wire::failure::Failure;
use wire::json::Json;
use wire::request::Endpoint;
use wire::route::Route;

use crate::answer;
use crate::reply::{Body, Reply};
use crate::route::detail;
use crate::stub::{Call, Context, Stub};

/// The answer of a lesser route.
pub(crate) fn reply(
    route: Route,
    stub: &Stub,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    match route {
        Route::AbortRequest => {
            abort(stub, call.body);
            Ok(Reply::empty(200))
        }
        Route::Embeddings | Route::Encode => embeddings(stub, call),
        Route::FlushCache => Ok(flush(stub)),
        Route::FullServerInfo => Ok(info::server(stub)),
        Route::HealthGenerate => Ok(info::health(stub)),
        Route::Model => info::model(stub, call, context),
        Route::ModelInfo => Ok(info::of_model(stub)),
        Route::NativeDetokenize => tokens::detokenize(stub, call),
        Route::NativeTokenize => tokens::tokenize(stub, call),
        Route::OllamaChat | Route::OllamaGenerate => ollama::reply(route, stub, call, context),
        Route::OllamaTags => Ok(ollama::tags(stub, context)),
        Route::ParseFunctionCall => parsers::function_call(call),
        Route::Root => Ok(Reply::json(200, br#""SGLang is running""#.to_vec())),
        Route::Score => score::reply(stub, call),
        Route::SeparateReasoning => parsers::reasoning(call),
        Route::SetInternalState => {
            bodies::check_internal_state(call.head.content_type(), call.body)?;
            Ok(Reply::json(200, b"[true]".to_vec()))
        }
        Route::VertexGenerate => vertex(stub, call, context),
        _ => Ok(detail(404, "Not Found")),
    }
}

/// Gives up the requests that a body names.
fn abort(stub: &Stub, body: &[u8]) {
    let (Some(under_way), Ok(body)) = (&stub.engine.under_way, Json::parse(body)) else {
        return;
    };
    let Some(members) = body.as_object() else {
        return;
    };
    if members.get("abort_all") == Some(&Json::Bool(true)) {
        under_way.abort_all();
    } else if let Some(name) = members.get("rid").and_then(Json::as_str) {
        under_way.abort(name);
    }
}

/// What a flush is answered with.
const FLUSHED: &str = "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the operation will not be performed.)\n";

fn flush(stub: &Stub) -> Reply {
    if let Some(cache) = &stub.engine.prefix_cache {
        cache.reset();
    }
    let mut reply = Reply::text(FLUSHED.as_bytes().to_vec());
    reply.headers.content_type = Some("");
    reply
}

/// The refusal of what needs an embedding model.
fn embeddings(stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    let path = stub.front.path(call);
    bodies::check_embeddings(call.head.content_type(), call.body, path)?;
    let message = "This model does not appear to be an embedding model by default. Please add `--is-embedding` when launching the server or try another model.";
    Err(Failure::bad_request(message, None))
}

/// The predictions for instances: a native answer in a wrapping.
fn vertex(stub: &Stub, call: &Call<'_>, context: &mut Context) -> Result<Reply, Failure> {
    let Some(body) = bodies::of_vertex(call.head.content_type(), call.body)? else {
        return Ok(Reply::json(200, b"[]".to_vec()));
    };
    let call = Call {
        body: &body,
        ..*call
    };
    let mut reply = answer::reply(stub, Endpoint::Generate, &call, context)?;
    if let (200, Body::Whole(whole)) = (reply.status, &mut reply.body) {
        whole.bytes = [b"{\"predictions\":", &*whole.bytes, b"}"].concat();
    }
    Ok(reply)
}

/// The answer to what the server did not foresee.
fn internal() -> Reply {
    let mut reply = Reply::text(b"Internal Server Error".to_vec());
    reply.status = 500;
    // It is made outside the layer that adds `vary`.
    reply.headers.without_vary = true;
    reply
}
