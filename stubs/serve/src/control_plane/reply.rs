//! Answers that are sent whole, and heads.

use plan::control_plane::Refusal;
use wire::dialect::uvicorn::{self, Parser};
use wire::dialect::{Content, Head, Headers};
use wire::executorch::Error;
use wire::failure::Failure;

use super::call::{Call, Manner};

/// An answer that is sent whole.
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    pub(super) content: Content,
    pub(super) headers: Headers,
    pub(super) status: u16,
}

impl Reply {
    pub(super) fn json(status: u16, bytes: Vec<u8>) -> Self {
        Self {
            content: Content::Json(bytes.len()),
            bytes,
            headers: plain(),
            status,
        }
    }

    pub(super) fn text(status: u16, bytes: Vec<u8>) -> Self {
        Self {
            content: Content::Text(bytes.len()),
            ..Self::json(status, bytes)
        }
    }

    /// What the web framework says of a failure that nothing caught.
    pub(super) fn internal() -> Self {
        Self::text(500, b"Internal Server Error".into())
    }

    pub(super) fn error(error: &Error) -> Self {
        let mut bytes = Vec::new();
        error.encode(&mut bytes);
        Self::json(error.status, bytes)
    }

    pub(super) fn failure(failure: &Failure) -> Self {
        let mut bytes = Vec::new();
        failure.encode(&mut bytes);
        Self::json(failure.status(), bytes)
    }

    pub(super) fn detail(status: u16, detail: &'static str) -> Self {
        Self::failure(&Failure::Detail { status, detail })
    }

    pub(super) fn not_allowed(method: &'static str) -> Self {
        let mut reply = Self::detail(405, "Method Not Allowed");
        reply.headers.first.push(("allow", method.into()));
        reply
    }

    /// Leads to the path without its last slash.
    pub(super) fn elsewhere(call: &Call) -> Self {
        let host = call.host.as_deref().unwrap_or_default();
        let path = call.path.strip_suffix('/').unwrap_or(&call.path);
        let location = format!("http://{host}{path}{}", call.query);
        let mut headers = plain();
        headers.middle.push(("location", location));
        Self {
            bytes: Vec::new(),
            content: Content::Empty,
            headers,
            status: 307,
        }
    }

    /// The head and, unless it answers `HEAD`, the body.
    pub(super) fn bytes(&self, parser: Parser, manner: Manner, date: &str) -> Vec<u8> {
        let mut out = Vec::new();
        write_head(
            parser,
            manner,
            (self.status, self.content, &self.headers),
            date,
            &mut out,
        );
        if !manner.is_head {
            out.extend_from_slice(&self.bytes);
        }
        out
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Error(error) => Self::error(&error),
            Refusal::Internal => Self::internal(),
        }
    }
}

/// The head of a stream.
pub(super) fn stream_head(parser: Parser, manner: Manner, date: &str, out: &mut Vec<u8>) {
    write_head(parser, manner, (200, Content::Stream, &plain()), date, out);
}

/// There are no layers that add headers.
fn plain() -> Headers {
    Headers {
        without_vary: true,
        ..Headers::default()
    }
}

fn write_head(
    parser: Parser,
    manner: Manner,
    (status, content, headers): (u16, Content, &Headers),
    date: &str,
    out: &mut Vec<u8>,
) {
    let head = Head {
        close: manner.closes,
        content,
        date,
        headers,
        is_unframed: parser == Parser::H11 && manner.is_http10,
        status,
    };
    uvicorn::write_head(parser, &head, out);
}
