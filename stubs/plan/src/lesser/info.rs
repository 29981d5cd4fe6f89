//! What SGLang tells of itself.

use std::sync::atomic::Ordering;

use wire::dialect::sglang::info::{Served, encode_model_info, encode_server_info};
use wire::failure::Failure;
use wire::http1;

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

/// One model by its name.
pub(super) fn model(stub: &Stub, call: &Call<'_>, context: &Context) -> Result<Reply, Failure> {
    let path = stub.front.path(call);
    let name = http1::unescaped(path.strip_prefix("/v1/models/").unwrap_or_default());
    if name != *stub.names[0] {
        return Err(stub.dialect.missing_model(&name));
    }
    let models = stub.models(context.created);
    let mut out = Vec::new();
    stub.dialect.encode_model(&models, &name, &mut out);
    Ok(Reply::json(200, out))
}

fn served(stub: &Stub) -> Served<'_> {
    Served {
        context: stub.engine.max_model_len,
        in_brief: stub.dialect.manner().tells_in_brief,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_where_they_are_whole() {
        for (part, expected) in [
            ("a%20b", "a b"),
            ("%e4%BD%a0", "你"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("%+1", "%+1"),
            ("%ff", "\u{fffd}"),
        ] {
            assert_eq!(http1::unescaped(part), expected);
        }
    }
}
