//! How requests are read, each server in its way.

use super::{Dialect, ResponsesRequest, body, sglang, vllm};
use crate::failure::Failure;
use crate::request::{Endpoint, Known, Request};

impl Dialect {
    /// Checks that a body is said to be JSON.
    pub fn check_content_type(self, content_type: Option<&str>) -> Result<(), Failure> {
        body::check_content_type(content_type)
    }

    /// Reads a request body.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse<'a>(
        self,
        endpoint: Endpoint,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<Box<Request<'a>>, Failure> {
        self.parse_known(endpoint, content_type, body, &mut Known::default())
    }

    /// The same, quicker where the body is like the last one.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse_known<'a>(
        self,
        endpoint: Endpoint,
        content_type: Option<&str>,
        body: &'a [u8],
        known: &mut Known,
    ) -> Result<Box<Request<'a>>, Failure> {
        match self {
            Self::Sglang(profile) => profile.front.parse(endpoint, content_type, body, known),
            Self::Vllm(_) => vllm::request::parse(endpoint, content_type, body, known),
        }
    }

    /// Reads the body of `/inference/v1/generate`: a completion with an output mode.
    pub fn parse_generate<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<Request<'a>, Failure> {
        vllm::request::parse_generate(content_type, body)
    }

    /// Reads the body of `/v1/responses`.
    pub fn parse_responses<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<ResponsesRequest<'a>, Failure> {
        match self {
            Self::Sglang(_) => sglang::responses_request::parse(content_type, body),
            Self::Vllm(_) => vllm::responses_request::parse(content_type, body),
        }
    }

    /// Reads the body of `/v1/messages`, or of its `count_tokens`; `reasons` says that there is a
    /// reasoning parser.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse_messages<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
        counts: bool,
        reasons: bool,
    ) -> Result<Request<'a>, Failure> {
        match self {
            Self::Sglang(_) => sglang::messages_request::parse(content_type, body, counts, reasons),
            Self::Vllm(_) if counts => vllm::messages_request::parse_count(content_type, body),
            Self::Vllm(_) => vllm::messages_request::parse(content_type, body),
        }
    }

    /// Reads the body of `/tokenize`.
    pub fn parse_tokenize<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<vllm::TokenizeRequest<'a>, Failure> {
        vllm::request::parse_tokenize(content_type, body)
    }

    /// Reads the body of `/detokenize`.
    pub fn parse_detokenize<'a>(
        self,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> Result<vllm::DetokenizeRequest<'a>, Failure> {
        vllm::request::parse_detokenize(content_type, body)
    }
}
