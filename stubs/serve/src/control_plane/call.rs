//! A request as it was read.

use tokio::time::Instant;
use wire::dialect::uvicorn::Parser;
use wire::http1::WholeRequest;

use crate::truth::Record;
use crate::worker::Shared;

/// How a request is answered, whatever it asks.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// The connection ends with the answer.
    pub(super) closes: bool,
    /// The answer has no body.
    pub(super) is_head: bool,
    /// Its HTTP version knows no chunks.
    pub(super) is_http10: bool,
}

impl Manner {
    /// That of what could not be read.
    pub(super) const REFUSED: Self = Self {
        closes: true,
        is_head: false,
        is_http10: false,
    };
}

/// A request, taken out of the input.
pub(super) struct Call {
    pub(super) body: Vec<u8>,
    pub(super) content_type: Option<String>,
    pub(super) host: Option<String>,
    pub(super) manner: Manner,
    pub(super) method: String,
    pub(super) path: String,
    /// What stands behind the path, the question mark included.
    pub(super) query: String,
    pub(super) received: Instant,
    pub(super) request_id: String,
    /// The session that the headers name.
    pub(super) session_id: Option<String>,
}

/// Headers that name a session; the first that says something counts.
const SESSION_HEADERS: [&str; 3] = [
    "x-executorch-session-id",
    "session_id",
    "x-session-affinity",
];

impl Call {
    /// Takes the whole request at the front of the input; `None` if the HTTP parser refuses it.
    pub(super) fn take(input: &mut Vec<u8>, parser: Parser) -> Option<Self> {
        let whole = WholeRequest::parse(input).ok().flatten()?;
        let WholeRequest { head, body, length } = whole;
        let header = |name: &str| head.header(name).map(ToOwned::to_owned);
        let host = header("host");
        if parser == Parser::H11 && !head.is_http10 && host.is_none() {
            return None;
        }
        let named = SESSION_HEADERS.iter().filter_map(|name| header(name));
        let query = head.target.find('?').map_or("", |at| &head.target[at..]);
        let call = Self {
            body,
            content_type: head.content_type().map(ToOwned::to_owned),
            host,
            manner: Manner {
                closes: !head.keep_alive,
                is_head: head.method == "HEAD",
                is_http10: head.is_http10,
            },
            method: head.method.to_owned(),
            path: head.path().to_owned(),
            query: query.to_owned(),
            received: Instant::now(),
            request_id: header("x-request-id")
                .unwrap_or_else(|| format!("{:032x}", fastrand::u128(..))),
            session_id: { named }.find(|id| !id.is_empty()),
        };
        // What stands behind an upgrade is not read.
        let used = if head.upgrades() { input.len() } else { length };
        input.drain(..used);
        Some(call)
    }

    /// What the truth file says of it, as far as it is known by now.
    pub(super) fn record(&self, shared: &Shared, connection: u64) -> Record {
        Record {
            method: Some(self.method.clone()),
            request_id: self.request_id.clone(),
            route: Some(self.path.clone()),
            ..record(shared, connection, self.received)
        }
    }
}

/// What the truth file says of any request.
pub(super) fn record(shared: &Shared, connection: u64, received: Instant) -> Record {
    shared.record("executorch", connection, received)
}
