//! What a request asks for that only some servers know.

use std::borrow::Cow;

/// Members of a body beyond those that most servers share.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "the body's own switches")]
pub struct Wishes<'a> {
    /// What is wrong with the body, where it is refused no earlier than what the engine refuses.
    pub flaw: Option<String>,
    /// The body asks for something that leaves the answer to another way through the server.
    pub is_odd: bool,
    /// The prompts came as a list, so the answers are one, even of a single prompt.
    pub is_list: bool,
    /// `return_logprob` of `/generate` and what goes with it.
    pub logprobs: Option<NativeLogprobs>,
    /// `rid`
    pub names: Names<'a>,
    /// `require_reasoning`
    pub require_reasoning: bool,
    /// `return_meta_info`
    pub return_meta_info: bool,
    /// `return_prompt_token_ids`
    pub return_prompt_token_ids: bool,
    /// `separate_reasoning`
    pub separate_reasoning: bool,
    /// `return_input_ids_in_sglext`
    pub sglext_input_ids: bool,
    /// `return_output_ids_in_sglext`
    pub sglext_output_ids: bool,
    /// `return_cached_tokens_details`
    pub sglext_cached_tokens: bool,
    /// `stop_regex`
    pub stop_regex: Vec<Cow<'a, str>>,
    /// `stream_reasoning`
    pub stream_reasoning: bool,
    /// Sampling parameters that were written as whole numbers, which some refusals repeat as they came.
    pub whole_numbers: Vec<&'static str>,
}

/// The client's own names for a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Names<'a> {
    /// One for each prompt.
    Each(Vec<Cow<'a, str>>),
    /// None.
    #[default]
    Generated,
    /// One; where there are several prompts it begins the name of each.
    One(Cow<'a, str>),
}

/// Logprobs of `/generate`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeLogprobs {
    /// Which top lists are flat.
    pub flat: FlatLogprobs,
    /// `logprob_start_len`: the first prompt token to tell of; none below 0.
    pub start: i128,
    /// `return_text_in_logprobs`
    pub with_text: bool,
    /// `token_ids_logprob`
    pub token_ids: Vec<u32>,
    /// `top_logprobs_num`
    pub top: usize,
}

/// Which top lists of logprobs come as flat arrays.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FlatLogprobs {
    /// `return_flat_raw_top_logprobs`
    pub input: bool,
    /// `return_flat_raw_output_top_logprobs`
    pub output: bool,
}

impl Wishes<'_> {
    /// Nothing is asked for that shows in an answer.
    pub fn are_none(&self) -> bool {
        *self
            == Self {
                whole_numbers: self.whole_numbers.clone(),
                ..Self::default()
            }
    }
}

impl Default for Wishes<'_> {
    fn default() -> Self {
        Self {
            flaw: None,
            is_odd: false,
            is_list: false,
            logprobs: None,
            names: Names::default(),
            require_reasoning: false,
            return_meta_info: false,
            return_prompt_token_ids: false,
            separate_reasoning: true,
            sglext_cached_tokens: false,
            sglext_input_ids: false,
            sglext_output_ids: false,
            stop_regex: Vec::new(),
            stream_reasoning: true,
            whole_numbers: Vec::new(),
        }
    }
}
