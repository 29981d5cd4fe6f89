//! Heads as hyper writes them: its own headers behind the application's, `date` last.

use crate::dialect::{Content, Head};
use crate::http1;

const CLOSE: &[u8] = b"connection: close\r\n";
const EMPTY: &[u8] = b"content-length: 0\r\n";

/// Appends a response head.
pub(crate) fn write_head(head: &Head<'_>, out: &mut Vec<u8>) {
    let (bytes, kind) = match head.content {
        Content::Json(bytes) => (Some(bytes), Some("application/json")),
        Content::Stream => (None, Some("text/event-stream; charset=utf-8")),
        Content::Text(bytes) => (Some(bytes), Some("text/plain; charset=utf-8")),
        Content::Empty | Content::Untold => (None, None),
    };
    let headers = head.headers;
    let start = out.len();
    if head.status == 499 {
        out.extend_from_slice(b"HTTP/1.1 499 <none>\r\n");
    } else {
        http1::write_status(head.status, out);
    }
    if head.is_unframed {
        // It answers in the version that it was asked in.
        out[start + "HTTP/1.".len()] = b'0';
    }
    for (name, value) in &headers.first {
        http1::write_header(name, value, out);
    }
    let kind = headers.content_type.or(kind);
    if let Some(kind) = kind.filter(|kind| !kind.is_empty()) {
        http1::write_header("content-type", kind, out);
    }
    if let Some(bytes) = bytes {
        out.extend_from_slice(b"content-length: ");
        http1::write_number(bytes, out);
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in headers.middle.iter().chain(&headers.last) {
        http1::write_header(name, value, out);
    }
    if head.close && !head.is_unframed {
        out.extend_from_slice(CLOSE);
    }
    match head.content {
        Content::Empty => out.extend_from_slice(EMPTY),
        Content::Stream if !head.is_unframed => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        _ => {}
    }
    http1::write_header("date", head.date, out);
    out.extend_from_slice(b"\r\n");
}

/// Appends the whole response to bytes that are no HTTP.
pub(crate) fn write_invalid(date: &str, out: &mut Vec<u8>) {
    http1::write_status(400, out);
    out.extend_from_slice(CLOSE);
    out.extend_from_slice(EMPTY);
    http1::write_header("date", date, out);
    out.extend_from_slice(b"\r\n");
}
