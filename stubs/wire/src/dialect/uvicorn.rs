//! Heads as uvicorn writes them, behind either of its HTTP parsers.

use super::{Content, Head};
use crate::http1::{self, Chunking};

/// Which HTTP parser it runs on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parser {
    /// h11 adds its own headers last and capitalised, and frames nothing for HTTP/1.0.
    H11,
    /// httptools
    Httptools,
}

impl Parser {
    /// How chunks are framed in an answer to HTTP/1.0 or to HTTP/1.1.
    pub fn chunking(self, is_http10: bool) -> Chunking {
        match self {
            Self::H11 if is_http10 => Chunking::None,
            Self::H11 | Self::Httptools => Chunking::Lower,
        }
    }
}

/// Appends a response head.
pub fn write_head(parser: Parser, head: &Head<'_>, out: &mut Vec<u8>) {
    let (bytes, kind) = match head.content {
        Content::Empty => (Some(0), None),
        Content::Json(bytes) => (Some(bytes), Some("application/json")),
        Content::Stream => (None, Some("text/event-stream; charset=utf-8")),
        Content::Untold => (None, None),
        Content::Text(bytes) => (Some(bytes), Some("text/plain; charset=utf-8")),
    };
    let headers = head.headers;
    http1::write_status(head.status, out);
    out.extend_from_slice(b"date: ");
    out.extend_from_slice(head.date.as_bytes());
    out.extend_from_slice(b"\r\nserver: uvicorn\r\n");
    write_headers(&headers.first, out);
    if let Some(bytes) = bytes {
        out.extend_from_slice(b"content-length: ");
        http1::write_number(bytes, out);
        out.extend_from_slice(b"\r\n");
    }
    if let Some(kind) = headers
        .content_type
        .or(kind)
        .filter(|kind| !kind.is_empty())
    {
        let name = if headers.is_capitalised && parser == Parser::H11 {
            "Content-Type"
        } else {
            "content-type"
        };
        http1::write_header(name, kind, out);
    }
    write_headers(&headers.middle, out);
    if !headers.without_vary {
        out.extend_from_slice(b"vary: Origin\r\n");
    }
    write_headers(&headers.last, out);
    let is_chunked = head.content == Content::Stream;
    match parser {
        Parser::H11 => {
            if is_chunked && !head.is_unframed {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
            if head.close {
                out.extend_from_slice(b"Connection: close\r\n");
            }
        }
        Parser::Httptools => {
            if head.close {
                out.extend_from_slice(b"connection: close\r\n");
            }
            if is_chunked {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            }
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn write_headers(headers: &[(&'static str, String)], out: &mut Vec<u8>) {
    for (name, value) in headers {
        http1::write_header(name, value, out);
    }
}

/// Appends the whole response to bytes that are no HTTP.
pub fn write_invalid(parser: Parser, date: &str, out: &mut Vec<u8>) {
    let kind = ("content-type", "text/plain; charset=utf-8");
    match parser {
        Parser::H11 => http1::write_head(400, [kind, ("Connection", "close")], out),
        Parser::Httptools => {
            let headers = [
                ("date", date),
                ("server", "uvicorn"),
                kind,
                ("content-length", "30"),
                ("connection", "close"),
            ];
            http1::write_head(400, headers, out);
        }
    }
    out.extend_from_slice(b"Invalid HTTP request received.");
}
