//! `replies SCENARIO COUNT` turns the bytes of one request into those of its response, COUNT times.
//!
//! `perf/instructions` counts its instructions. No socket, no clock, ids from a fixed seed: nothing but
//! the stub, its head parsed and its response appended to a buffer as the server does.

mod scenario;

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use plan::reply::Body;
use plan::stub::{Call, Context};
use wire::dialect::Head;
use wire::http1::{KnownHead, RequestHead};

use scenario::Scenario;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(count)) = (arguments.next(), arguments.next()) else {
        bail!("usage: replies SCENARIO COUNT");
    };
    let scenario = Scenario::named(&name)?;
    let count: usize = count.parse().context("COUNT is a number")?;
    let mut context = Context::new(0);
    context.created = 1_700_000_000;
    let mut out = Vec::new();
    let mut known = KnownHead::default();
    for _ in 0..count {
        out.clear();
        let (head, length) = known
            .parse(&scenario.request)?
            .context("the head is whole")?;
        let body = &scenario.request[length..];
        let events = reply(&scenario, &head, body, &mut context, &mut out)?;
        ensure!(events == scenario.events, "{events} events instead");
    }
    Ok(())
}

/// Appends the response; gives its number of events.
fn reply(
    scenario: &Scenario,
    head: &RequestHead<'_>,
    body: &[u8],
    context: &mut Context,
    out: &mut Vec<u8>,
) -> anyhow::Result<usize> {
    let call = Call {
        body,
        head,
        wants_facts: false,
    };
    let reply = scenario.stub.reply(&call, context);
    let reply = reply.ok().context("a chat is for the stub to answer")?;
    ensure!(reply.status == 200, "status {}", reply.status);
    let head = Head {
        is_unframed: false,
        close: !head.keep_alive,
        content: reply.content(),
        date: "Tue, 14 Nov 2023 22:13:20 GMT",
        headers: &reply.headers,
        status: reply.status,
    };
    scenario.stub.dialect.write_head(&head, out);
    let mut events = 0;
    match reply.body {
        Body::Empty | Body::HeadAlone(_) => {}
        Body::Rendered(rendered) => {
            out.extend_from_slice(&rendered.bytes);
            events = rendered.steps.len();
        }
        Body::Stream(mut timeline) => {
            let mut steps = Vec::new();
            timeline.steps(Duration::ZERO, usize::MAX, out, &mut steps);
            events = steps.len();
        }
        Body::Whole(whole) => {
            out.extend_from_slice(&whole.bytes);
            events = 1;
        }
    }
    Ok(events)
}
