//! The routes beside `/inference/v1/generate` that split a server in two: prompts rendered for
//! another server to answer, and requests given up.

use wire::dialect::Render;
use wire::failure::{ErrorObject, Failure};
use wire::json::Json;
use wire::request::Endpoint;

use crate::invocations::{read_json, refusal};
use crate::reply::Reply;
use crate::stub::{Call, Context, Stub};
use crate::{answer, check};

/// Refuses what is not switched on.
pub(crate) fn check_on(stub: &Stub) -> Result<(), Failure> {
    if stub.front.serves_generate {
        return Ok(());
    }
    Err(Failure::Error(ErrorObject {
        message: "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.".into(),
        kind: "PermissionDeniedError",
        param: None,
        code: 403,
    }))
}

/// Says what a chat or completion request would ask of `/inference/v1/generate`.
pub(crate) fn render(
    stub: &Stub,
    endpoint: Endpoint,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    check_on(stub)?;
    let content_type = call.head.content_type();
    let request = stub.dialect.parse(endpoint, content_type, call.body)?;
    let prompt = check::check(stub, &request)?;
    // Some members pass through as they were sent, which the request does not keep.
    let Ok(Json::Object(members)) = Json::parse(call.body) else {
        unreachable!("the body was read as an object before");
    };
    let id = answer::ids::one(stub, &request, call, context);
    let all_ids = prompt.ids(stub);
    let request_ids: Vec<String> = match all_ids.len() {
        1 => vec![id],
        count => (0..count).map(|number| format!("{id}-{number}")).collect(),
    };
    let asked = request.max_tokens();
    let asked = asked.map(|asked| u64::try_from(asked).unwrap_or(u64::MAX));
    let render = |(ids, request_id)| {
        let ids: &Vec<u32> = ids;
        let request_id: &String = request_id;
        let context = stub.engine.max_model_len;
        let room = context.map(|context| context.saturating_sub(ids.len() as u64));
        Render {
            request_id,
            request: &request,
            members: &members,
            token_ids: ids,
            max_tokens: room.into_iter().chain(asked).min(),
        }
    };
    let renders: Vec<Render<'_>> = all_ids.iter().zip(&request_ids).map(render).collect();
    let mut out = Vec::new();
    stub.dialect.encode_render(&renders, &mut out);
    Ok(Reply::json(200, out))
}

/// `POST /inference/v1/abort_requests`. What it names goes on all the same: an answer ends early only
/// when its own client goes away.
pub(crate) fn abort(stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    check_on(stub)?;
    let body = match read_json(call.body) {
        Ok(body) => body,
        Err(refusal) => return Ok(*refusal),
    };
    Ok(
        match body.as_object().and_then(|body| body.get("request_ids")) {
            None | Some(Json::Null) => refusal("Missing 'request_ids' in request body"),
            Some(_) => Reply::empty(200),
        },
    )
}
