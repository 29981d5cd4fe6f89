//! One choice of an answer: its parsers, and what goes with its tokens.

use std::sync::Arc;

use wire::dialect::{Probabilities, Voices};
use wire::json::Json;
use wire::request::{Endpoint, NativeLogprobs, ToolChoice, Wishes};

use super::Answer;
use crate::generate::Said;
use crate::logprobs::{self, Rule, Style};
use crate::reasoning::{self, ReasoningParser, Splitter, Tags};
use crate::stub::Stub;
use crate::timeline::{Opening, Track};
use crate::tools::{self, Caller, Form};
use crate::voice::Voice;
use crate::voice::sglang::{Manner, Tools};

impl Answer<'_> {
    /// One choice with its parsers and what goes with its tokens.
    pub(super) fn track(&self, number: usize, said: Said) -> Track {
        let vocab = &self.stub.engine.tokenizer.vocab;
        let style = self.style();
        let opening = self.opening(number, style);
        let before = opening.iter().flat_map(|opening| &opening.logprobs);
        let offset = before.map(|token| token.token.chars().count()).sum();
        let mut logprobs = style.map(|style| logprobs::of_answer(vocab, &said.ids, style, offset));
        if let (Some(asked), Some(logprobs)) = (self.asked_logprobs(), &mut logprobs) {
            logprobs::name_asked(vocab, asked, &said.ids, logprobs);
        }
        let (voice, reasoning_tokens) = match self.plan.manner.voices {
            Voices::Sglang => (Voice::default(), Some(self.thoughts(&said))),
            Voices::Vllm => self.vllm_voice(number, &said),
        };
        let mut track = Track::new(said, voice);
        track.cached = self.cached.get(number).copied();
        track.logprobs = logprobs.map(Into::into);
        track.opening = opening;
        if self
            .wishes()
            .is_some_and(|wishes| wishes.return_prompt_token_ids)
        {
            let ids = self.prompt_ids.as_ref().map(|ids| &ids[number]);
            track.prompt_ids = ids.map(|ids| ids[..].into());
        }
        let parsers = &self.stub.parsers;
        track.told_without_text = parsers.reasoning.is_some() || parsers.tools.is_some();
        track.prompt_tokens = self.prompt[number].tokens;
        track.reasoning_tokens = reasoning_tokens.map(Into::into);
        track
    }

    pub(super) fn wishes(&self) -> Option<&Wishes<'_>> {
        self.request.wishes.as_deref()
    }

    /// Logprobs of `/generate`, if asked for.
    fn asked_logprobs(&self) -> Option<&NativeLogprobs> {
        self.wishes()?.logprobs.as_ref()
    }

    /// How logprobs are shown, if asked for.
    fn style(&self) -> Option<Style> {
        let (request, manner) = (self.request, self.plan.manner);
        let asked = request.sampling.logprobs?;
        let is_completion = request.endpoint == Endpoint::Completions;
        let (rule, least) = match manner.probabilities {
            Probabilities::Logits => (
                Rule::Sglang {
                    latin: is_completion && manner.latin_names,
                },
                0,
            ),
            // A completion lists the sampled token even if no more is asked for.
            Probabilities::Places => (Rule::Vllm, i128::from(is_completion)),
        };
        Some(Style {
            as_ids: request
                .tokens_as_ids
                .unwrap_or(self.stub.streaming.tokens_as_ids),
            rule,
            top: usize::try_from(asked.max(least)).unwrap_or(0),
        })
    }

    /// A choice of vLLM's on its way through the parsers, and the tokens of its reasoning.
    fn vllm_voice(&self, number: usize, said: &Said) -> (Voice, Option<Vec<u64>>) {
        let is_chat = self.request.endpoint == Endpoint::Chat;
        let parsers = &self.stub.parsers;
        let vocab = &self.stub.engine.tokenizer.vocab;
        let is_over = || ReasoningParser::is_over(&self.prompt[number].text);
        let parser = parsers.reasoning.filter(|_| is_chat);
        let parser = parser.map(|parser| (parser, is_over()));
        let voice = Voice {
            drops_empty: is_chat && parsers.tools.is_some(),
            hides_reasoning: parser.is_some() && !self.request.include_reasoning,
            names_calls: !matches!(
                self.request.template.tool_choice,
                Some(ToolChoice::Named(_))
            ),
            splitter: parser
                .map(|(parser, is_over)| Splitter::new(parser, Tags::find(vocab), is_over)),
            ..Voice::default()
        };
        let tokens =
            parser.map(|(parser, is_over)| reasoning_tokens(self.stub, parser, said, is_over));
        (voice, tokens)
    }

    /// A choice of SGLang's on its way through the parsers.
    fn sglang_voice(&mut self) -> Voice {
        let is_chat = self.request.endpoint == Endpoint::Chat;
        let tools = self.tools().filter(|_| is_chat);
        let seed = if tools.is_some() {
            self.random.u64(..)
        } else {
            0
        };
        let wishes = self.wishes();
        Voice::sglang(Manner {
            reasoning: self.stub.parsers.reasoning.filter(|_| is_chat),
            separate_reasoning: wishes.is_none_or(|wishes| wishes.separate_reasoning),
            stream_reasoning: wishes.is_none_or(|wishes| wishes.stream_reasoning),
            thinks: self.thinks(),
            tools,
            whole_calls: self.plan.manner.whole_calls,
            seed,
        })
    }

    /// The request has the model think.
    fn thinks(&self) -> bool {
        let is_off = |(name, value): &(_, Json<'_>)| {
            let name: &std::borrow::Cow<'_, str> = name;
            name == "enable_thinking" && *value == Json::Bool(false)
        };
        match self.request.endpoint {
            Endpoint::Chat => {
                let kwargs = &self.request.template.kwargs;
                self.stub.parsers.reasoning.is_some() && !kwargs.iter().any(is_off)
            }
            Endpoint::Completions => false,
            Endpoint::Generate => self.wishes().is_some_and(|wishes| wishes.require_reasoning),
        }
    }

    /// Tokens of a choice's reasoning by each step, as SGLang counts them.
    fn thoughts(&self, said: &Said) -> Vec<u64> {
        let vocab = &self.stub.engine.tokenizer.vocab;
        let thinks = self.thinks();
        let close = if thinks {
            vocab.encode(ReasoningParser::CLOSE, false)
        } else {
            Vec::new()
        };
        let ends = said.outputs.iter().map(|output| output.ids_end());
        reasoning::sglang::tokens(&said.ids, ends, &close, thinks)
    }

    /// Gives a choice what is its own of the parsers: ids of tool calls.
    pub(super) fn give_caller(&mut self, voice: &mut Voice) {
        match self.plan.manner.voices {
            Voices::Sglang => *voice = self.sglang_voice(),
            Voices::Vllm => voice.caller = self.caller(),
        }
    }

    /// What finds SGLang's tool calls, if the request has tools that may be called.
    fn tools(&self) -> Option<Tools> {
        let template = &self.request.template;
        template.tool_choice.as_ref()?;
        let parser = self.stub.parsers.tools?;
        let names = template.tool_names().into_iter().map(Into::into);
        Some(Tools {
            parser,
            names: names.collect(),
            parallel: self.request.parallel_tool_calls,
        })
    }

    /// What finds vLLM's tool calls, if the request has tools.
    fn caller(&mut self) -> Option<Caller> {
        let template = &self.request.template;
        let choice = template.tool_choice.as_ref()?;
        template.tools.as_ref()?;
        self.stub.parsers.tools?;
        let form = Form::new(choice, !self.stub.parsers.lax_tool_calls);
        let parallel = self.request.parallel_tool_calls;
        Some(Caller::new(form, parallel, self.random.u64(..)))
    }

    /// What stands before a completion.
    fn opening(&self, number: usize, style: Option<Style>) -> Option<Arc<Opening>> {
        let ids = &self.prompt_ids.as_ref()?[number];
        if self.request.endpoint == Endpoint::Chat {
            return None;
        }
        let echo = self.request.echo;
        let vocab = &self.stub.engine.tokenizer.vocab;
        let told = |asked: &NativeLogprobs| {
            let start = usize::try_from(asked.start).ok()?;
            let style = style?;
            let mut tokens = logprobs::of_prompt(vocab, ids, style);
            logprobs::name_asked_of_prompt(vocab, asked, ids, &mut tokens);
            tokens.drain(..start.min(tokens.len()));
            Some(tokens.into_iter().map(Some).collect())
        };
        let asked = self.asked_logprobs();
        let with_echo = echo && !self.plan.manner.tells_choices;
        let opening = Opening {
            prompt_logprobs: asked.and_then(told),
            logprobs: match style.filter(|_| echo) {
                Some(style) => logprobs::of_prompt(vocab, ids, style),
                None => Vec::new(),
            },
            prompt_token_ids: (with_echo || self.request.return_token_ids && self.tells_prompt())
                .then(|| ids.clone()),
            text: if echo {
                self.prompt[number].text.to_string()
            } else {
                String::new()
            },
        };
        Some(opening.into())
    }

    /// Whether the choice in the making has the prompt's ids: of a generate answer only the first.
    fn tells_prompt(&self) -> bool {
        self.request.output_mode.is_none() || self.tracks.is_empty()
    }
}

/// Tokens of reasoning by each step, tags left out: `qwen3` counts all before the closing tag but the
/// end token, `deepseek_r1` all between the tags.
fn reasoning_tokens(stub: &Stub, parser: ReasoningParser, said: &Said, is_over: bool) -> Vec<u64> {
    let tokenizer = &stub.engine.tokenizer;
    let Tags { open, close } = Tags::find(&tokenizer.vocab);
    let call = tokenizer.vocab.added(tools::OPEN);
    let unopened = parser.counts_unopened();
    let mut reasons = unopened && !is_over;
    let mut count = 0;
    let mut start = 0;
    let mut counts = Vec::with_capacity(said.outputs.len());
    for output in &said.outputs {
        for &id in &said.ids[start..output.ids_end()] {
            if Some(id) == close || (unopened && Some(id) == call) {
                reasons = false;
            } else if Some(id) == open {
                reasons |= !unopened;
            } else {
                let is_end = tokenizer.eos_token_ids.contains(&id);
                count += u64::from(reasons && !(unopened && is_end));
            }
        }
        start = output.ids_end();
        counts.push(count);
    }
    counts
}
