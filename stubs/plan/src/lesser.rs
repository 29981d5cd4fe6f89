//! SGLang's lesser routes: what stands beside its answers.

use wire::failure::Failure;
use wire::json::Json;
use wire::route::Route;

use crate::reply::Reply;
use crate::route::detail;
use crate::stub::{Call, Stub};

/// The answer of a lesser route.
pub(crate) fn reply(route: Route, stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    Ok(match route {
        Route::AbortRequest => {
            abort(stub, call.body);
            Reply::empty(200)
        }
        Route::HealthGenerate => Reply::empty(200),
        Route::FlushCache => {
            if let Some(cache) = &stub.engine.prefix_cache {
                cache.reset();
            }
            let mut reply = Reply::text(FLUSHED.as_bytes().to_vec());
            reply.headers.content_type = Some("");
            reply
        }
        Route::Root => Reply::json(200, br#""SGLang is running""#.to_vec()),
        _ => detail(404, "Not Found"),
    })
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
