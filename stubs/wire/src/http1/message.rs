//! Whole messages at the front of a byte stream, for what is recorded, played again or passed on.

use std::ops::Range;

use super::{BadHead, BodyDecoder, Framing, RequestHead, ResponseHead};

/// A request whose bytes are all there.
#[derive(Clone, Debug)]
pub struct WholeRequest<'a> {
    /// Its start line and headers.
    pub head: RequestHead<'a>,
    /// Its content, chunk framing taken off.
    pub body: Vec<u8>,
    /// Bytes of the whole message.
    pub length: usize,
}

impl<'a> WholeRequest<'a> {
    /// Reads a request from the front of `bytes`; `None` asks for more.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, BadHead> {
        let Some((head, start)) = RequestHead::parse(bytes)? else {
            return Ok(None);
        };
        let body = body(&bytes[start..], head.framing)?;
        Ok(body.map(|(body, length)| Self {
            head,
            body,
            length: start + length,
        }))
    }
}

/// A response whose bytes are all there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WholeResponse {
    /// The status of the final head.
    pub status: u16,
    /// Bytes of interim responses before it.
    pub interim: usize,
    /// Where its final head stands, the blank line included.
    pub head: Range<usize>,
    /// Its content, chunk framing taken off.
    pub body: Vec<u8>,
    /// The body is chunked.
    pub is_chunked: bool,
    /// The body is an event stream.
    pub is_event_stream: bool,
    /// The connection may serve another request.
    pub keep_alive: bool,
    /// Bytes of the whole message, interim responses included.
    pub length: usize,
}

impl WholeResponse {
    /// Reads a response from the front of `bytes`; `None` asks for more. `to_head` says that it answers
    /// a HEAD request, `closed` that nothing follows `bytes`.
    pub fn parse(bytes: &[u8], to_head: bool, closed: bool) -> Result<Option<Self>, BadHead> {
        let mut interim = 0;
        let (head, length) = loop {
            match ResponseHead::parse(&bytes[interim..])? {
                None => return Ok(None),
                Some((head, length)) if (100..200).contains(&head.status) => interim += length,
                Some(found) => break found,
            }
        };
        let start = interim + length;
        let framing = if to_head {
            Framing::Length(0)
        } else {
            head.framing
        };
        let body = match framing {
            Framing::UntilClose if closed => Some((bytes[start..].to_vec(), bytes.len() - start)),
            _ => body(&bytes[start..], framing)?,
        };
        Ok(body.map(|(body, length)| Self {
            status: head.status,
            interim,
            head: interim..start,
            body,
            is_chunked: framing == Framing::Chunked,
            is_event_stream: head.event_stream,
            keep_alive: head.keep_alive || to_head && head.framing != Framing::UntilClose,
            length: start + length,
        }))
    }
}

fn body(bytes: &[u8], framing: Framing) -> Result<Option<(Vec<u8>, usize)>, BadHead> {
    if let Framing::Length(length) = framing {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        return Ok(bytes.get(..length).map(|body| (body.to_vec(), length)));
    }
    let mut decoder = BodyDecoder::new(framing);
    let mut content = Vec::new();
    let taken = decoder
        .feed(bytes, |part| content.extend_from_slice(part))
        .map_err(|_| BadHead)?;
    Ok(decoder.is_complete().then_some((content, taken)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_once_its_body_is_there() {
        let text = "POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET";
        let whole = WholeRequest::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!((&*whole.body, whole.length), (&b"abc"[..], text.len() - 3));
        let cut = &text.as_bytes()[..text.len() - 4];
        assert!(WholeRequest::parse(cut).unwrap().is_none());
        let chunked = "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
        let whole = WholeRequest::parse(chunked.as_bytes()).unwrap().unwrap();
        assert_eq!((&*whole.body, whole.length), (&b"ab"[..], chunked.len()));
    }

    #[test]
    fn a_response_is_whole_by_its_own_framing() {
        let parse = |text: &str, to_head, closed| {
            WholeResponse::parse(text.as_bytes(), to_head, closed).unwrap()
        };
        let interim = "HTTP/1.1 100 Continue\r\n\r\n";
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
        let whole = parse(&format!("{interim}{head}ab"), false, false).unwrap();
        assert_eq!((whole.interim, whole.status), (interim.len(), 200));
        assert_eq!((&*whole.body, whole.keep_alive), (&b"ab"[..], true));
        assert_eq!(parse(head, false, true), None);
        let bodiless = parse(head, true, false).unwrap();
        assert_eq!((bodiless.length, bodiless.keep_alive), (head.len(), true));
        let open = "HTTP/1.1 200 OK\r\n\r\nabc";
        assert_eq!(parse(open, false, false), None);
        assert_eq!(parse(open, false, true).unwrap().body, b"abc");
    }
}
