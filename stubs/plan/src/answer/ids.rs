//! Names of answers: the server's own, or the client's.

use wire::request::{Endpoint, Names, Request};

use crate::stub::{Call, Context, Stub};

/// The ids of an answer: that of the first choice, and those of the others where each has its own.
pub(crate) fn ids(
    stub: &Stub,
    request: &Request<'_>,
    prompts: usize,
    call: &Call<'_>,
    context: &mut Context,
) -> (String, Vec<String>) {
    if !stub.dialect.manner().tells_choices {
        return (one(stub, request, call, context), Vec::new());
    }
    let choices = request.sampling.choices();
    let random = &mut context.random;
    let mut id = |name: Option<&str>| {
        stub.dialect
            .response_id(request.endpoint, || random.u64(..), name)
    };
    // An answer for all has nobody's name.
    let names = request.wishes.as_ref().map(|wishes| &wishes.names);
    let names = names.filter(|_| !stub.streaming.renders_once && choices == 1);
    let count = prompts * choices;
    let mut all = (0..count).map(|number| match names {
        Some(Names::One(name)) if prompts == 1 => id(Some(name)),
        Some(Names::One(name)) => format!("{name}_{number}"),
        Some(Names::Each(names)) if names.len() == prompts => id(Some(&names[number])),
        _ => id(None),
    });
    let first = all.next().unwrap_or_default();
    (first, all.collect())
}

/// The one id of a typed answer.
pub(super) fn typed(stub: &Stub, endpoint: Endpoint, context: &mut Context) -> String {
    stub.dialect.typed_id(endpoint, || context.random.u64(..))
}

/// The one id, with the client's own name for the request if there is one.
pub(crate) fn one(
    stub: &Stub,
    request: &Request<'_>,
    call: &Call<'_>,
    context: &mut Context,
) -> String {
    let given = call.head.header("x-request-id");
    let given = given.or(request.request_id.as_deref());
    // An answer for all has nobody's name.
    let given = given.filter(|_| !stub.streaming.renders_once);
    if request.output_mode.is_some() {
        return stub.dialect.generate_id(context.random.u64(..), given);
    }
    let random = || context.random.u64(..);
    stub.dialect.response_id(request.endpoint, random, given)
}
