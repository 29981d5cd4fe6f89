//! What SGLang's front ends do each in its own way.

use crate::dialect::manner::{Manner, Served};
use crate::dialect::uvicorn::{self, Parser};
use crate::dialect::{Head, Headers};
use crate::failure::Failure;
use crate::http1::Chunking;
use crate::request::{Endpoint, Known, Message, Request};

use super::{refusal, request, rust};

/// A front end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::dialect) enum Front {
    /// The usual one: uvicorn behind an HTTP parser.
    Python(Parser),
    /// That of `SGLANG_RUST_SERVER=1`: hyper.
    Rust,
}

impl Front {
    /// How it behaves where plans are made; what is typed goes another way through the one in Rust.
    pub(in crate::dialect) fn manner(self, is_typed: bool) -> &'static Manner {
        match self {
            Self::Python(_) => &super::MANNER,
            Self::Rust if is_typed => &rust::TYPED_MANNER,
            Self::Rust => &rust::MANNER,
        }
    }

    /// Whether the answer to a request is typed.
    pub(in crate::dialect) fn is_typed(self, request: &Request<'_>, parses_tools: bool) -> bool {
        self == Self::Rust && rust::is_typed(request, parses_tools)
    }

    /// Reads a request body.
    pub(in crate::dialect) fn parse<'a>(
        self,
        endpoint: Endpoint,
        content_type: Option<&str>,
        body: &'a [u8],
        known: &mut Known,
    ) -> Result<Box<Request<'a>>, Failure> {
        match self {
            Self::Python(_) => request::parse(endpoint, content_type, body, known),
            Self::Rust => rust::request::parse(endpoint, content_type, body, known),
        }
    }

    /// Checks what needs no prompt.
    pub(in crate::dialect) fn check_parts(
        self,
        request: &Request<'_>,
        served: Served,
    ) -> Result<(), Failure> {
        match self {
            Self::Python(_) => refusal::check_parts(request, served),
            Self::Rust => rust::refusal::check_parts(request, served),
        }
    }

    /// Checks a chat's messages.
    pub(in crate::dialect) fn check_messages(
        self,
        messages: &[Message<'_>],
    ) -> Result<(), Failure> {
        match self {
            Self::Python(_) => refusal::check_messages(messages),
            Self::Rust => rust::refusal::check_messages(messages),
        }
    }

    /// The answer to a request for a model that is not served.
    pub(in crate::dialect) fn missing_model(self, name: &str) -> Failure {
        match self {
            Self::Python(_) => refusal::missing_model(name),
            Self::Rust => rust::refusal::missing_model(name),
        }
    }

    /// Appends a failure as the endpoint's routes write it.
    pub(in crate::dialect) fn encode_failure(
        self,
        endpoint: Option<Endpoint>,
        failure: &Failure,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Python(_) => refusal::encode(endpoint, failure, out),
            Self::Rust => rust::refusal::encode(endpoint, failure, out),
        }
    }

    /// How a request is refused: by an event that is appended, behind a chat's role if true, or else by an
    /// answer of its own.
    pub(in crate::dialect) fn refuse(
        self,
        request: &Request<'_>,
        is_typed: bool,
        failure: Failure,
        out: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        match self {
            Self::Python(_) => refusal::refuse(request, failure, out),
            Self::Rust => rust::refusal::refuse(request, is_typed, failure, out),
        }
    }

    /// The failure that an answer ends in that is given up, where it does.
    pub(in crate::dialect) fn given_up(self, endpoint: Endpoint) -> Option<Failure> {
        (self == Self::Rust).then(|| rust::refusal::given_up(endpoint))
    }

    /// Adds the headers of a stream.
    pub(in crate::dialect) fn dress_stream(
        self,
        endpoint: Endpoint,
        is_typed: bool,
        headers: &mut Headers,
    ) {
        if self == Self::Rust {
            rust::dress_stream(endpoint, is_typed, headers);
        }
    }

    /// How chunks are framed in an answer to HTTP/1.0 or to HTTP/1.1.
    pub(in crate::dialect) fn chunking(self, is_http10: bool) -> Chunking {
        match self {
            Self::Python(parser) => parser.chunking(is_http10),
            Self::Rust if is_http10 => Chunking::None,
            Self::Rust => Chunking::Upper,
        }
    }

    /// Whether a request of HTTP/1.1 without a host is refused.
    pub(in crate::dialect) fn needs_host(self) -> bool {
        self == Self::Python(Parser::H11)
    }

    /// Appends a response head.
    pub(in crate::dialect) fn write_head(self, head: &Head<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Python(parser) => uvicorn::write_head(parser, head, out),
            Self::Rust => rust::write_head(head, out),
        }
    }

    /// Appends the whole response to bytes that are no HTTP.
    pub(in crate::dialect) fn write_invalid(self, date: &str, out: &mut Vec<u8>) {
        match self {
            Self::Python(parser) => uvicorn::write_invalid(parser, date, out),
            Self::Rust => rust::write_invalid(date, out),
        }
    }
}
