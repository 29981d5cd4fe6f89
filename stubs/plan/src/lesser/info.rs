//! What SGLang tells of itself.

use std::sync::atomic::Ordering;

use serde::Serialize;
use wire::dialect::Models;
use wire::dialect::sglang::info::{Served, encode_model_info, encode_server_info};
use wire::failure::Failure;

use crate::reply::{Body, Reply};
use crate::stub::{Call, Context, Stub};

/// Whether it is well: it takes a token, and so a while.
pub(super) fn health(stub: &Stub) -> Reply {
    let takes = stub.front.health_takes;
    let status = if stub.engine.dead.load(Ordering::Relaxed) {
        503
    } else {
        200
    };
    if takes.is_zero() {
        return Reply::empty(status);
    }
    let mut reply = Reply::text(Vec::new());
    reply.status = status;
    reply.headers.content_type = Some("");
    if let Body::Whole(whole) = &mut reply.body {
        whole.due = takes;
    }
    reply
}

#[derive(Serialize)]
struct Missing<'a> {
    error: MissingModel<'a>,
}

#[derive(Serialize)]
struct MissingModel<'a> {
    message: String,
    #[serde(rename = "type")]
    kind: &'a str,
    param: &'a str,
    code: &'a str,
}

/// One model by its name.
pub(super) fn model(stub: &Stub, call: &Call<'_>, context: &Context) -> Result<Reply, Failure> {
    let path = stub.front.path(call);
    let name = path.strip_prefix("/v1/models/").unwrap_or_default();
    if *name != *stub.names[0] {
        let error = MissingModel {
            message: format!("The model '{name}' does not exist"),
            kind: "invalid_request_error",
            param: "model",
            code: "model_not_found",
        };
        return Err(Failure::Body {
            status: 404,
            json: serde_json::to_string(&Missing { error }).expect("strings encode"),
        });
    }
    let models = Models {
        created: context.created,
        max_model_len: stub.engine.max_model_len,
        names: &stub.names,
        root: &stub.root,
    };
    let mut out = Vec::new();
    stub.dialect.encode_model(&models, name, &mut out);
    Ok(Reply::json(200, out))
}

fn served(stub: &Stub) -> Served<'_> {
    Served {
        context: stub.engine.max_model_len,
        model: &stub.names[0],
        version: stub.dialect.version(),
    }
}

pub(super) fn of_model(stub: &Stub) -> Reply {
    let mut out = Vec::new();
    encode_model_info(&stub.info, served(stub), &mut out);
    Reply::json(200, out)
}

pub(super) fn server(stub: &Stub) -> Reply {
    let mut out = Vec::new();
    encode_server_info(&stub.info, served(stub), &mut out);
    Reply::json(200, out)
}
