//! What requests are refused for, and in which words.

use std::sync::Arc;

use super::{Dialect, ResponsesRequest, Served, messages, sglang, vllm};
use crate::failure::{ErrorObject, Failure};
use crate::finish::Finish;
use crate::request::{Endpoint, Message, Request};

impl Dialect {
    /// Checks what needs no prompt.
    ///
    /// # Errors
    /// The server's answer to a request that it refuses.
    pub fn check_parts(self, request: &Request<'_>, served: Served) -> Result<(), Failure> {
        match self {
            Self::Sglang(profile) => profile.front.check_parts(request, served),
            Self::Vllm(_) => vllm::checks::before_prompt(request, served),
        }
    }

    /// Checks the length asked for, and sampling parameters, behind a prompt of so many tokens.
    ///
    /// # Errors
    /// The server's answer to a request that it refuses.
    pub fn check_sampling(
        self,
        request: &Request<'_>,
        prompt: u64,
        context: Option<u64>,
    ) -> Result<(), Failure> {
        match self {
            Self::Sglang(profile) => {
                sglang::refusal::check_sampling(profile.front, request, prompt, context)
            }
            Self::Vllm(_) => vllm::checks::behind_prompt(request, prompt, context),
        }
    }

    /// The answer to a model name that is not served, if the server minds.
    pub fn unknown_model(self, model: &str, served: &[Arc<str>]) -> Option<Failure> {
        match self {
            Self::Sglang(_) => None,
            Self::Vllm(profile) => Some(vllm::refusal::unknown_model(profile, model, served)),
        }
    }

    /// The answer to a request for a model that is not served, where one can be asked for.
    pub fn missing_model(self, name: &str) -> Failure {
        match self {
            Self::Sglang(profile) => profile.front.missing_model(name),
            Self::Vllm(profile) => vllm::refusal::unknown_model(profile, name, &[]),
        }
    }

    /// The answer to a prompt of `tokens` tokens beyond a context of `context`.
    pub fn prompt_too_long(self, tokens: u64, is_text: bool, context: u64) -> Failure {
        match self {
            Self::Sglang(profile) => {
                sglang::refusal::prompt_too_long(profile.front, tokens, context)
            }
            // The tokenizer stops one token behind the limit; lists of ids are counted whole.
            Self::Vllm(_) if is_text => vllm::refusal::prompt_too_long(context + 1, context),
            Self::Vllm(_) => vllm::refusal::prompt_too_long(tokens, context),
        }
    }

    /// Checks a chat's messages, for the model of that name.
    ///
    /// # Errors
    /// The server's answer to messages that it cannot show to a model.
    pub fn check_messages(self, messages: &[Message<'_>], model: &str) -> Result<(), Failure> {
        match self {
            Self::Sglang(profile) => profile.front.check_messages(messages),
            Self::Vllm(_) => vllm::checks::messages(messages, model),
        }
    }

    /// The answer to a prompt with a token id beyond a vocabulary of `size`.
    pub fn unknown_id(self, id: u32, size: usize) -> Failure {
        match self {
            Self::Sglang(profile) => sglang::refusal::unknown_id(profile.front, id, size),
            Self::Vllm(_) => vllm::refusal::unknown_id(id),
        }
    }

    /// The answer to a request that finds the queue full.
    pub fn queue_full(self) -> Failure {
        match self {
            Self::Sglang(_) => sglang::refusal::queue_full(),
            Self::Vllm(_) => vllm::checks::queue_full(),
        }
    }

    /// The answer to a request of a name that another has which is under way, where names are kept.
    pub fn duplicate_name(self, name: &str) -> Failure {
        sglang::refusal::duplicate_name(name)
    }

    /// The end of a request that never ran, since the queue was full or it was given up there.
    pub fn unstarted(self, is_full: bool) -> Finish<'static> {
        sglang::native::unstarted(is_full)
    }

    /// The failure that an answer ends in that is given up, where it does.
    pub fn given_up(self, endpoint: Endpoint) -> Option<Failure> {
        match self {
            Self::Sglang(profile) => profile.front.given_up(endpoint),
            Self::Vllm(_) => None,
        }
    }

    /// The answer to a request without a prompt.
    pub fn no_prompts(self, endpoint: Endpoint) -> Failure {
        match self {
            Self::Sglang(profile) => sglang::refusal::no_prompts(profile.front, endpoint),
            Self::Vllm(profile) => profile.no_prompts(),
        }
    }

    /// What is said when the engine has died.
    pub fn dead_engine(self) -> &'static str {
        self.vllm().dead_engine
    }

    /// Appends a failure as the server writes it on the routes of an endpoint, or on others.
    pub fn encode_failure(self, endpoint: Option<Endpoint>, failure: &Failure, out: &mut Vec<u8>) {
        match self {
            Self::Sglang(profile) => profile.front.encode_failure(endpoint, failure, out),
            Self::Vllm(_) => failure.encode(out),
        }
    }

    /// How a request is refused: by the event of a stream, which is appended and stands behind a chat's
    /// role if true.
    ///
    /// # Errors
    /// The failure, where it is answered with a status of its own.
    pub fn refuse(
        self,
        request: &Request<'_>,
        is_typed: bool,
        failure: Failure,
        out: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        match self {
            Self::Sglang(profile) => profile.front.refuse(request, is_typed, failure, out),
            Self::Vllm(_) => Err(failure),
        }
    }

    /// Checks what of a request to `/v1/responses` needs no prompt.
    ///
    /// # Errors
    /// The server's answer to a request that it refuses.
    pub fn check_response(
        self,
        asked: &ResponsesRequest<'_>,
        served: &[Arc<str>],
    ) -> Result<(), Failure> {
        match self {
            Self::Sglang(_) => sglang::responses_request::check(asked, served),
            Self::Vllm(_) => vllm::responses_request::check(asked),
        }
    }

    /// The answer to a question for a response of that id: none is kept.
    pub fn unknown_response(self, id: &str) -> Failure {
        match self {
            Self::Sglang(_) => sglang::responses_request::not_kept("response_id"),
            Self::Vllm(_) => vllm::responses_request::unknown(id),
        }
    }

    /// A failure as `/v1/responses` has it.
    pub fn response_failure(self, failure: Failure) -> Failure {
        match self {
            Self::Sglang(_) => sglang::responses_request::nested(failure),
            Self::Vllm(_) => failure,
        }
    }

    /// Appends the JSON of an error of `/v1/messages`; `generating` refused the request, which was good.
    pub fn encode_message_error(self, error: &ErrorObject, generating: bool, out: &mut Vec<u8>) {
        messages::encode_error(self.messages(), error, generating, out);
    }
}
