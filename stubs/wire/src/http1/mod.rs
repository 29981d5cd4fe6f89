//! HTTP/1.1 as far as the imitated servers and their clients speak it: heads and message bodies.
//!
//! Strictness follows llhttp, which is what uvicorn reads requests with: line ends are CRLF, methods
//! are known ones, a content length is digits.

mod body;
mod head;
mod known;
mod message;

pub use body::{BadChunk, BodyDecoder};
pub use head::{BadHead, Framing, RequestHead, ResponseHead, unescaped};
pub use known::KnownHead;
pub use message::{WholeRequest, WholeResponse};

/// Appends a status line and headers, in order, and the blank line.
pub fn write_head<'h>(
    status: u16,
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    out: &mut Vec<u8>,
) {
    write_status(status, out);
    for (name, value) in headers {
        write_header(name, value, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a status line.
pub fn write_status(status: u16, out: &mut Vec<u8>) {
    if status == 200 {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    write_number(usize::from(status), out);
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a header.
pub fn write_header(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends what `content` writes as one chunk of a chunked body, its size in lower-case hex.
pub fn write_chunk(out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    const SIZE: &[u8] = b"ffffffffffffffff\r\n";
    let start = out.len();
    out.extend_from_slice(SIZE);
    let content_at = out.len();
    content(out);
    let (size, from) = chunk_size(out.len() - content_at);
    let size = &size[from..];
    out[start..start + size.len()].copy_from_slice(size);
    out.copy_within(content_at.., start + size.len());
    out.truncate(out.len() - (SIZE.len() - size.len()));
    out.extend_from_slice(b"\r\n");
}

/// How a body's chunks are framed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Chunking {
    /// Sizes in lower-case hex, as [`write_chunk`] writes them.
    #[default]
    Lower,
    /// Not at all: the body ends with the connection.
    None,
    /// Sizes in upper-case hex.
    Upper,
}

impl Chunking {
    /// Frames the chunks in `bytes` from `start` on anew, which [`write_chunk`] has framed.
    pub fn apply(self, bytes: &mut Vec<u8>, start: usize) {
        if self == Self::Lower {
            return;
        }
        let mut at = start;
        let mut kept = start;
        while let Some(line) = memchr::memchr(b'\r', &bytes[at..]) {
            let size = bytes[at..at + line].iter().fold(0, |size, digit| {
                size * 16 + char::from(*digit).to_digit(16).unwrap_or(0) as usize
            });
            let content = at + line + 2;
            match self {
                Self::None => {
                    bytes.copy_within(content..content + size, kept);
                    kept += size;
                }
                _ => bytes[at..at + line].make_ascii_uppercase(),
            }
            at = content + size + 2;
        }
        if self == Self::None {
            bytes.truncate(kept);
        }
    }
}

/// The size line of a chunk of so many bytes, in lower-case hex: the array's end from an index on.
fn chunk_size(bytes: usize) -> ([u8; 18], usize) {
    let mut line = *b"0000000000000000\r\n";
    let digits = (usize::BITS - bytes.leading_zeros()).div_ceil(4).max(1) as usize;
    for digit in 0..digits {
        line[15 - digit] = hex_digit(bytes >> (4 * digit));
    }
    (line, 16 - digits)
}

/// Appends the size line of a chunk of a chunked body.
pub(crate) fn write_chunk_size(bytes: usize, out: &mut Vec<u8>) {
    let low = hex_digit(bytes);
    let middle = hex_digit(bytes >> 4);
    match bytes {
        0x10..0x100 => out.extend_from_slice(&[middle, low, b'\r', b'\n']),
        0x100..0x1000 => {
            let high = hex_digit(bytes >> 8);
            out.extend_from_slice(&[high, middle, low, b'\r', b'\n']);
        }
        _ => {
            let (size, from) = chunk_size(bytes);
            out.extend_from_slice(&size[from..]);
        }
    }
}

/// The digit for a number's lowest four bits.
fn hex_digit(number: usize) -> u8 {
    b"0123456789abcdef"[number & 15]
}

/// The chunk that ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The interim answer to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends a decimal number.
pub fn write_number(mut number: usize, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut from = digits.len();
    while number > 0 || from == digits.len() {
        from -= 1;
        digits[from] += u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
    out.extend_from_slice(&digits[from..]);
}

/// The reason phrase as Python's `http.HTTPStatus` has it.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Request Entity Too Large",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "",
    }
}
