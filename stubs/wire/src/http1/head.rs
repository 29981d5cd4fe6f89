//! Start lines and headers, as llhttp reads them.

use std::mem::MaybeUninit;

/// The content type of nearly all requests.
const JSON: &str = "application/json";

/// How the end of a message body is found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// `Transfer-Encoding: chunked`
    Chunked,
    /// `Content-Length`, in bytes; 0 where there is no body.
    Length(u64),
    /// The connection's end, for responses alone.
    UntilClose,
}

/// Bytes that are no HTTP/1 message head.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not an HTTP/1 message head")]
pub struct BadHead;

/// A request's start line and the headers that matter to a stub.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "what headers say")]
pub struct RequestHead<'a> {
    /// `POST`
    pub method: &'a str,
    /// The target as sent, query included.
    pub target: &'a str,
    /// All headers as sent.
    pub(super) headers: Vec<(&'a [u8], &'a [u8])>,
    /// Where the body ends.
    pub framing: Framing,
    /// The connection may serve another request.
    pub keep_alive: bool,
    /// The client waits for `100 Continue`.
    pub expect_continue: bool,
    /// It came as HTTP/1.0, which knows no chunks.
    pub is_http10: bool,
    /// The first `content-type` is `application/json`, as it mostly is.
    pub(super) is_json: bool,
}

impl<'a> RequestHead<'a> {
    /// Reads a head from the front of `bytes` and gives its length; `None` asks for more bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, BadHead> {
        let is_line_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        // llhttp skips line ends before a request, in whatever form.
        let before = bytes.iter().take_while(is_line_end).count();
        let bytes = &bytes[before..];
        let mut few = [const { MaybeUninit::uninit() }; 48];
        match Self::parse_with(bytes, &mut few) {
            Err(httparse::Error::TooManyHeaders) => {
                let mut many = vec![MaybeUninit::uninit(); 2048];
                Self::parse_with(bytes, &mut many).map_err(|_| BadHead)?
            }
            Err(_) => return Err(BadHead),
            Ok(head) => head,
        }
        .map(|(head, length)| {
            let strict = lines_end_in_crlf(&bytes[..length]) && is_method(head.method);
            strict.then_some((head, before + length)).ok_or(BadHead)
        })
        .transpose()
    }

    /// The first header of that name, whatever its case, if it is text.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self
            .headers
            .iter()
            .find(|(known, _)| is_named(known, name))?;
        std::str::from_utf8(value).ok()
    }

    /// The first `content-type`, if it is text.
    pub fn content_type(&self) -> Option<&'a str> {
        if self.is_json {
            return Some(JSON);
        }
        self.header("content-type")
    }

    /// The client asks to go on in another protocol; what follows the head is then not HTTP/1.
    pub fn upgrades(&self) -> bool {
        self.header("upgrade").is_some()
            && self.headers.iter().any(|(name, value)| {
                let mut words = value.split(|byte| *byte == b',');
                name.eq_ignore_ascii_case(b"connection")
                    && words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
            })
    }

    /// The path of the target, without scheme, authority and query.
    pub fn path(&self) -> &'a str {
        let target = match self.target {
            path if path.starts_with('/') => path,
            target => match target.split_once("://") {
                Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
                None => target,
            },
        };
        let end = memchr::memchr2(b'?', b'#', target.as_bytes());
        end.map_or(target, |end| &target[..end])
    }

    fn parse_with<'h>(
        bytes: &'a [u8],
        headers: &'h mut [MaybeUninit<httparse::Header<'a>>],
    ) -> Result<Option<(Self, usize)>, httparse::Error> {
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(bytes, headers)?;
        let httparse::Status::Complete(length) = parsed else {
            return Ok(None);
        };
        let http11 = request.version == Some(1);
        let fields = Fields::read(request.headers, http11)?;
        let target = request.path.ok_or(httparse::Error::Token)?;
        if !(target.starts_with('/') || target == "*" || target.contains("://")) {
            return Err(httparse::Error::Token);
        }
        let head = Self {
            method: request.method.ok_or(httparse::Error::Token)?,
            target,
            headers: request
                .headers
                .iter()
                .map(|header| (header.name.as_bytes(), header.value))
                .collect(),
            framing: match (fields.chunked, fields.length) {
                (true, Some(_)) => return Err(httparse::Error::HeaderValue),
                (true, None) => Framing::Chunked,
                (false, length) => Framing::Length(length.unwrap_or(0)),
            },
            // uvicorn closes behind HTTP/1.0, whatever the client asks for.
            keep_alive: fields.keep_alive && http11,
            expect_continue: fields.expect_continue && http11,
            is_http10: !http11,
            is_json: fields.is_json == Some(true),
        };
        Ok(Some((head, length)))
    }
}

/// A response's status and framing, as a client needs them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ResponseHead {
    /// `200`
    pub status: u16,
    /// Where the body ends.
    pub framing: Framing,
    /// The connection may serve another request.
    pub keep_alive: bool,
    /// The body is an event stream.
    pub event_stream: bool,
}

impl ResponseHead {
    /// Reads a head from the front of `bytes` and gives its length; `None` asks for more bytes.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, BadHead> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = response.parse(bytes).map_err(|_| BadHead)? else {
            return Ok(None);
        };
        let status = response.code.ok_or(BadHead)?;
        let fields = Fields::read(response.headers, response.version == Some(1));
        let fields = fields.map_err(|_| BadHead)?;
        let framing = match (fields.chunked, fields.length) {
            _ if status < 200 || status == 204 || status == 304 => Framing::Length(0),
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::UntilClose,
        };
        let head = Self {
            status,
            framing,
            keep_alive: fields.keep_alive && framing != Framing::UntilClose,
            event_stream: fields.event_stream,
        };
        Ok(Some((head, length)))
    }
}

/// Methods that llhttp knows.
const METHODS: [&str; 35] = [
    "ACL",
    "BIND",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LINK",
    "LOCK",
    "M-SEARCH",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MOVE",
    "NOTIFY",
    "OPTIONS",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "PUT",
    "REBIND",
    "REPORT",
    "SEARCH",
    "SOURCE",
    "SUBSCRIBE",
    "TRACE",
    "UNBIND",
    "UNLINK",
    "UNLOCK",
    "UNSUBSCRIBE",
    "QUERY",
];

/// Whether a header has that name, whatever its case; mostly it is written in lower case.
pub(super) fn is_named(header: &[u8], name: &str) -> bool {
    let name = name.as_bytes();
    header.len() == name.len() && (header == name || header.eq_ignore_ascii_case(name))
}

fn is_method(method: &str) -> bool {
    matches!(method, "POST" | "GET") || METHODS.contains(&method)
}

fn lines_end_in_crlf(head: &[u8]) -> bool {
    let Some(behind) = head.get(1..) else {
        return true;
    };
    // Looking at all is quicker than a search that may stop.
    let is_bare = |(&before, &byte)| u8::from(byte == b'\n') & u8::from(before != b'\r');
    let bare = head.iter().zip(behind).map(is_bare);
    bare.fold(0, |any, one| any | one) == 0
}

/// A number of bytes, digits and nothing else.
pub(super) fn length(value: &[u8]) -> Option<u64> {
    let mut length: u64 = 0;
    for byte in value {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        length = length.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!value.is_empty()).then_some(length)
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts of a head")]
struct Fields {
    chunked: bool,
    event_stream: bool,
    expect_continue: bool,
    /// Of the first content type, if there is one.
    is_json: Option<bool>,
    keep_alive: bool,
    length: Option<u64>,
}

impl Fields {
    fn read(headers: &[httparse::Header<'_>], http11: bool) -> Result<Self, httparse::Error> {
        let mut fields = Self {
            chunked: false,
            event_stream: false,
            expect_continue: false,
            is_json: None,
            keep_alive: http11,
            length: None,
        };
        for header in headers {
            let is = |name: &str| is_named(header.name.as_bytes(), name);
            let value = || header.value.trim_ascii();
            match header.name.len() {
                6 if is("expect") => {
                    fields.expect_continue = value().eq_ignore_ascii_case(b"100-continue");
                }
                10 if is("connection") => {
                    let mut tokens = value().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                    if tokens
                        .clone()
                        .any(|token| token.eq_ignore_ascii_case(b"close"))
                    {
                        fields.keep_alive = false;
                    } else if tokens.any(|token| token.eq_ignore_ascii_case(b"keep-alive")) {
                        fields.keep_alive = true;
                    }
                }
                12 if is("content-type") => {
                    let is_json = header.value == JSON.as_bytes();
                    fields.is_json.get_or_insert(is_json);
                    fields.event_stream = value()
                        .get(..17)
                        .is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"));
                }
                14 if is("content-length") => {
                    let length = length(value()).filter(|_| fields.length.is_none());
                    fields.length = Some(length.ok_or(httparse::Error::HeaderValue)?);
                }
                17 if is("transfer-encoding") => {
                    if fields.chunked || !value().eq_ignore_ascii_case(b"chunked") {
                        return Err(httparse::Error::HeaderValue);
                    }
                    fields.chunked = true;
                }
                _ => {}
            }
        }
        Ok(fields)
    }
}

/// A part of a path without its percent escapes; what is no text then stands there as U+FFFD.
pub fn unescaped(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let is_hex = |digits: &&[u8]| digits.iter().all(u8::is_ascii_hexdigit);
        let digits = behind.get(..2).filter(|_| first == b'%').filter(is_hex);
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = byte.map_or(behind, |_| &behind[2..]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<usize>, BadHead> {
        RequestHead::parse(text.as_bytes()).map(|head| head.map(|(_, length)| length))
    }

    #[test]
    fn heads_that_llhttp_refuses_are_refused() {
        for bad in [
            "GARBAGE\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "GET /version HTTP/1.1\nHost: a\n\n",
            "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length:\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            "GET health HTTP/1.1\r\n\r\n",
            "CONNECT host:1 HTTP/1.1\r\n\r\n",
            "\x16\x03\x01\x02\x00",
        ] {
            assert_eq!(parse(bad), Err(BadHead), "{bad:?}");
        }
        assert_eq!(parse("GET / HTTP/1.1\r\nHost: a"), Ok(None));
    }

    #[test]
    fn line_ends_before_a_request_are_skipped() {
        for before in ["\n", "\r", "\r\n", "\n\n", "\r\n\n", "\r\r\n"] {
            let text = format!("{before}GET / HTTP/1.1\r\n\r\n");
            assert_eq!(parse(&text), Ok(Some(text.len())), "{before:?}");
            assert_eq!(parse(before), Ok(None), "{before:?}");
        }
        assert_eq!(parse(" GET / HTTP/1.1\r\n\r\n"), Err(BadHead));
    }

    #[test]
    fn the_path_is_found_in_every_target_form() {
        for (target, path) in [
            ("/a/b?x=http://c/d", "/a/b"),
            ("http://127.0.0.1:8000/version", "/version"),
            ("http://127.0.0.1:8000", "/"),
            ("*", "*"),
        ] {
            let text = format!("GET {target} HTTP/1.1\r\n\r\n");
            let (head, _) = RequestHead::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(head.path(), path, "{target}");
        }
    }

    #[test]
    fn many_and_long_headers_are_accepted() {
        let many = "x-many: v\r\n".repeat(300);
        let long = "v".repeat(70_000);
        let text = format!("GET / HTTP/1.1\r\n{many}x-long: {long}\r\n\r\n");
        assert_eq!(parse(&text), Ok(Some(text.len())));
    }

    #[test]
    fn keep_alive_follows_version_and_header() {
        for (version, header, expected) in [
            ("1.1", "", true),
            ("1.0", "", false),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: Upgrade, Close\r\n", false),
            ("1.0", "Connection: keep-alive\r\n", false),
        ] {
            let text = format!("GET / HTTP/{version}\r\n{header}\r\n");
            let (head, _) = RequestHead::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(head.keep_alive, expected, "{text:?}");
        }
    }

    #[test]
    fn an_upgrade_needs_both_headers() {
        for (headers, expected) in [
            ("Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\n", true),
            (
                "Connection: close\r\nconnection: upgrade\r\nUpgrade: h2c\r\n",
                true,
            ),
            ("Upgrade: h2c\r\n", false),
            ("Connection: Upgrade\r\n", false),
        ] {
            let bytes = format!("GET / HTTP/1.1\r\n{headers}\r\n");
            let (head, _) = RequestHead::parse(bytes.as_bytes()).unwrap().unwrap();
            assert_eq!(head.upgrades(), expected, "{headers}");
        }
    }
}
