//! From a script to the choices of an answer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use regex::Regex;
use wire::chunk::Extension;
use wire::dialect::{Encoder, Envelope, Metrics};
use wire::failure::Failure;
use wire::request::{Endpoint, NativeLogprobs, Prompt, Request, ToolChoice, UsagePolicy};
use wire::usage::CachedTokens;

use super::Answer;
use crate::generate::{Grouping, Rules, Said, say};
use crate::logprobs::{self, Style};
use crate::prompt::Counted;
use crate::reasoning::{ReasoningParser, Splitter, Tags};
use crate::reply::{Body, Facts, Reply};
use crate::script::{CutKind, Script};
use crate::source::Ask;
use crate::stub::{MAX_OSL, Stub};
use crate::timeline::{self, Events, Opening, Plan, Timeline, Track};
use crate::tools::{self, Caller, Form};
use crate::voice::Voice;
use crate::work::{self, Work};

impl<'a> Answer<'a> {
    pub(crate) fn new(
        stub: &'a Stub,
        request: &'a Request<'a>,
        prompt: &'a Counted<'a>,
        mut envelope: Envelope,
        random: &'a mut fastrand::Rng,
    ) -> Self {
        let manner = stub.dialect.manner();
        let wishes = request.wishes.as_deref();
        let needs_ids = request.return_token_ids
            || wishes.is_some_and(|wishes| {
                let logprobs = wishes.logprobs.as_ref();
                wishes.return_prompt_token_ids
                    || wishes.sglext_input_ids
                    || logprobs.is_some_and(|asked| asked.start >= 0)
            })
            || request.echo
            || request.sampling.prompt_logprobs.is_some()
            || stub.engine.prefix_cache.is_some();
        let prompt_ids = needs_ids.then(|| prompt.ids(stub));
        envelope.prompt_token_ids = prompt_ids
            .as_ref()
            .filter(|_| request.return_token_ids)
            .map(|ids| ids.concat());
        let plan = Plan {
            cache: None,
            dead: stub.dialect.dead_engine(),
            echo: echo(request),
            endpoint: request.endpoint,
            keep_alive: stub.streaming.keep_alive,
            manner,
            pace: stub.engine.pace,
            pauses: BTreeMap::new(),
            prompt_tokens: prompt.tokens,
            returns_token_ids: request.return_token_ids
                || request.output_mode.is_some()
                || request.endpoint == Endpoint::Generate,
            role: role(request),
            usage: envelope.usage,
        };
        Self {
            stub,
            request,
            prompt,
            envelope,
            plan,
            prompt_ids,
            random,
            cached: Vec::new(),
            limits: Vec::new(),
            tracks: Vec::new(),
        }
    }

    /// Plays the script of each prompt.
    pub(crate) fn play(&mut self) -> Result<(), Failure> {
        for (number, prompt) in self.prompt.iter().enumerate() {
            let script = script(self.stub, self.request, &prompt.text);
            self.look_up(number, &script);
            self.plan.pauses.extend(&script.pauses);
            self.choices(number, &script);
        }
        let mut faults = self.tracks.iter().filter_map(|track| track.said.fault);
        if let Some(fault) = faults.next() {
            if fault == CutKind::Dead {
                self.stub.engine.dead.store(true, Ordering::Relaxed);
            }
            if !self.request.stream {
                return Err(Failure::internal(fault.message(self.plan.dead)));
            }
        }
        if !self.request.stream {
            self.check_size()?;
        }
        if self.stub.streaming.request_metrics && self.tracks.len() == 1 {
            self.envelope.metrics = Some(metrics(&self.plan, &self.tracks));
        }
        Ok(())
    }

    /// Looks one prompt up in the prefix cache, if the server tells of it.
    fn look_up(&mut self, number: usize, script: &Script) {
        let (Some(cache), Some(ids)) = (&self.stub.engine.prefix_cache, &self.prompt_ids) else {
            return;
        };
        let found = match script.cached_tokens {
            Some(cached) => CachedTokens {
                cached,
                created: Some(0),
            },
            None => cache.prompt(&ids[number]),
        };
        self.cached.push(found.cached);
        if self.plan.manner.tells_choices && !self.stub.streaming.cache_report {
            return;
        }
        let sum = self.plan.cache.get_or_insert_default();
        sum.cached += found.cached;
        if self.request.endpoint == Endpoint::Chat {
            sum.created = Some(sum.created.unwrap_or(0) + found.created.unwrap_or(0));
        }
    }

    /// The choices of one prompt.
    fn choices(&mut self, number: usize, script: &Script) {
        let engine = &self.stub.engine;
        let patterns = stop_patterns(self.request);
        let rules = Rules {
            stop_regex: &patterns,
            ..rules(self.stub, self.request, self.prompt[number].tokens)
        };
        self.limits.push(rules.max_tokens);
        let interval = self.request.stream_interval.unwrap_or(1);
        let (first, every) = self.stub.streaming.chunk_steps(interval);
        let grouping = Grouping {
            first,
            every,
            rhythm: &script.rhythm,
        };
        let choices = self.request.sampling.choices();
        let mut tracks = Vec::with_capacity(choices.min(script.choices.len()));
        self.tracks.reserve_exact(choices);
        for answer in script.choices.iter().take(choices) {
            let mut said = match engine.max_osl {
                Some(tokens) => say(&answer.clone().fitted(tokens), script.cut, &rules),
                None => say(answer, script.cut, &rules),
            };
            if self.request.echoes_alone() {
                said.hide();
            }
            tracks.push(self.track(number, said.grouped(&grouping)));
        }
        for track in tracks.iter().cycle().take(choices) {
            let mut track = track.clone();
            track.voice.caller = self.caller();
            self.tracks.push(track);
        }
    }

    /// One choice with its parsers and what goes with its tokens.
    fn track(&self, number: usize, said: Said) -> Track {
        let is_chat = self.request.endpoint == Endpoint::Chat;
        let parser = self.stub.parsers.reasoning.filter(|_| is_chat);
        let is_over = || ReasoningParser::is_over(&self.prompt[number].text);
        let parser = parser.map(|parser| (parser, is_over()));
        let tells_choices = self.plan.manner.tells_choices;
        let style = |asked: i128| Style {
            as_ids: self
                .request
                .tokens_as_ids
                .unwrap_or(self.stub.streaming.tokens_as_ids),
            rule: logprobs::Rule::Vllm,
            // A completion lists the sampled token even if no more is asked for.
            top: usize::try_from(asked.max(i128::from(!is_chat && !tells_choices))).unwrap_or(0),
        };
        let vocab = &self.stub.engine.tokenizer.vocab;
        let style = self.request.sampling.logprobs.map(style);
        let opening = self.opening(number, style);
        let before = opening.iter().flat_map(|opening| &opening.logprobs);
        let offset = before.map(|token| token.token.chars().count()).sum();
        let logprobs = style.map(|style| logprobs::of_answer(vocab, &said.ids, style, offset));
        let voice = Voice {
            caller: None,
            drops_empty: is_chat && self.stub.parsers.tools.is_some(),
            hides_reasoning: parser.is_some() && !self.request.include_reasoning,
            names_calls: !matches!(
                self.request.template.tool_choice,
                Some(ToolChoice::Named(_))
            ),
            splitter: parser
                .map(|(parser, is_over)| Splitter::new(parser, Tags::find(vocab), is_over)),
            ..Voice::default()
        };
        let mut track = Track::new(said, voice);
        track.cached = self.cached.get(number).copied();
        track.logprobs = logprobs.map(Into::into);
        track.opening = opening;
        let wishes = self.request.wishes.as_deref();
        if wishes.is_some_and(|wishes| wishes.return_prompt_token_ids) {
            let ids = self.prompt_ids.as_ref().map(|ids| &ids[number]);
            track.prompt_ids = ids.map(|ids| ids[..].into());
        }
        track.told_without_text =
            self.stub.parsers.reasoning.is_some() || self.stub.parsers.tools.is_some();
        track.prompt_tokens = self.prompt[number].tokens;
        track.reasoning_tokens = parser.map(|(parser, is_over)| {
            reasoning_tokens(self.stub, parser, &track.said, is_over).into()
        });
        track
    }

    /// What finds the tool calls, if the request has tools.
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
            tokens.drain(..start.min(tokens.len()));
            Some(tokens.into_iter().map(Some).collect())
        };
        let wishes = self.request.wishes.as_deref();
        let asked = wishes.and_then(|wishes| wishes.logprobs.as_ref());
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

    /// The answer as it will be sent.
    pub(super) fn reply(self) -> Reply {
        let extension = self.extension();
        let mut facts = self.facts();
        if self.request.stream && self.plan.usage == UsagePolicy::Omit {
            facts.usage = None;
        }
        let body = if self.request.stream {
            let patterns = Arc::clone(&self.stub.patterns);
            let encoder = Encoder::new(self.stub.dialect, self.envelope, patterns);
            let mut events = Events::new(self.plan, self.tracks);
            events.extension = extension;
            Body::Stream(Timeline::new(encoder, events).into())
        } else {
            Body::Whole(self.whole())
        };
        Reply {
            body,
            facts,
            ..Reply::empty(200)
        }
    }

    /// What is told of the answer as a whole, where the request asks for it.
    pub(super) fn extension(&self) -> Option<Box<Extension>> {
        let wishes = self.request.wishes.as_deref()?;
        let cached: u64 = self.cached.iter().sum();
        let input_ids = self.prompt_ids.as_ref().map(|ids| ids.concat());
        let output_ids = || self.tracks.iter().map(|track| track.said.ids.clone());
        let extension = Extension {
            cached_tokens: Some(cached).filter(|cached| wishes.sglext_cached_tokens && *cached > 0),
            input_ids: input_ids.filter(|_| wishes.sglext_input_ids),
            output_ids: wishes.sglext_output_ids.then(|| output_ids().collect()),
        };
        (extension != Extension::default()).then(|| extension.into())
    }

    /// What the truth file says of it, usage being sent.
    pub(crate) fn facts(&self) -> Facts {
        let usage = timeline::total_usage(&self.plan, &self.tracks);
        Facts {
            finish_reason: self.finish_reason(),
            prompt_tokens: Some(self.prompt.tokens),
            reasoning_tokens: usage.reasoning_tokens,
            response_id: Some(self.envelope.id.as_str().into()),
            stream: Some(self.request.stream),
            usage: Some(usage),
            works: Some(self.works()),
            ..Facts::default()
        }
    }

    /// The finish reason that the first choice will end with.
    fn finish_reason(&self) -> Option<&'static str> {
        let track = self.tracks.first()?;
        let (mut voice, said) = (track.voice.clone(), &track.said);
        let finish = match &voice.caller {
            None => said.finish.clone(),
            Some(_) if self.request.stream => {
                voice.feed(&said.text, &said.ids, true);
                voice.finish(&said.finish)
            }
            Some(_) => {
                voice.whole(&said.text);
                self.whole_finish(&voice, &said.finish)
            }
        };
        Some(finish.reason.as_str())
    }

    /// What the engine does for each choice.
    fn works(&self) -> Arc<[Work]> {
        let choices = self.request.sampling.choices();
        let work = |(index, track): (usize, &Track)| {
            let (number, choice) = (index / choices, index % choices);
            Work {
                // What the cache had is told once for all choices of a prompt.
                cached_tokens: self.cached.get(number).copied().filter(|_| choice == 0),
                choices,
                finish: work::finish(&track.said),
                first_due: self.plan.pace.due(0),
                last_due: timeline::whole_due(&self.plan, std::slice::from_ref(track)),
                max_tokens: self.limits[number],
                prompt_tokens: self.prompt[number].tokens,
                steps: track.said.outputs.len() as u64,
                tokens: track.said.tokens,
            }
        };
        self.tracks.iter().enumerate().map(work).collect()
    }
}

/// What the model says to a prompt; of a chat the last user message decides.
pub(super) fn script(stub: &Stub, request: &Request<'_>, prompt: &str) -> Arc<Script> {
    let text = match &request.prompt {
        Prompt::Messages(_) => request.prompt.decisive_text().unwrap_or_default(),
        _ => prompt,
    };
    let wished = asked(stub, request).map(|asked| asked.min(MAX_OSL));
    stub.engine.source.script(&Ask {
        text,
        max_tokens: stub.engine.max_osl.or(wished),
    })
}

/// Tokens of answer that the request asks for, where that counts.
fn asked(stub: &Stub, request: &Request<'_>) -> Option<u64> {
    let asked = request.max_tokens().filter(|_| stub.engine.honors_limits);
    asked.map(|asked| u64::try_from(asked).unwrap_or(u64::MAX))
}

/// What ends an answer to a prompt of so many tokens, and what of it shows.
pub(super) fn rules<'r>(stub: &'r Stub, request: &'r Request<'_>, prompt: u64) -> Rules<'r> {
    let (engine, sampling) = (&stub.engine, &request.sampling);
    let room = engine
        .max_model_len
        .map(|context| context.saturating_sub(prompt));
    let max_tokens = match (room, asked(stub, request)) {
        (Some(room), Some(asked)) => Some(room.min(asked)),
        (room, asked) => room.or(asked),
    };
    // An answer that goes on after its end is repeated up to here.
    let max_tokens = max_tokens.map(|tokens| tokens.min(MAX_OSL));
    let (stop, stop_token_ids): (&[_], &[_]) = if engine.honors_limits {
        (&sampling.stop, &sampling.stop_token_ids)
    } else {
        (&[], &[])
    };
    Rules {
        ends_tell_token: stub.dialect.manner().ends_tell_token,
        eos_token_ids: &engine.tokenizer.eos_token_ids,
        holds: stub.dialect.manner().holds,
        // Without a limit an ignored end would never come.
        ignore_eos: engine.honors_limits && sampling.ignore_eos && max_tokens.is_some(),
        include_stop: sampling.include_stop_str_in_output,
        keeps_ids: request.return_token_ids
            || request.output_mode.is_some()
            || stub.dialect.manner().tells_choices
            || sampling.logprobs.is_some()
            || stub.parsers.reasoning.is_some(),
        max_tokens,
        min_tokens: u64::try_from(sampling.min_tokens)
            .unwrap_or(0)
            .min(max_tokens.unwrap_or(0)),
        skip_special_tokens: sampling.skip_special_tokens,
        stop,
        stop_regex: &[],
        stop_token_ids,
        vocab: &engine.tokenizer.vocab,
    }
}

/// The patterns that stop an answer; what is no pattern stops nothing.
fn stop_patterns(request: &Request<'_>) -> Vec<Regex> {
    let wishes = request.wishes.iter();
    let patterns = wishes.flat_map(|wishes| &wishes.stop_regex);
    patterns
        .filter_map(|pattern| Regex::new(pattern).ok())
        .collect()
}

/// The role that answers: the last message's where no generation prompt was added.
fn role(request: &Request<'_>) -> Cow<'static, str> {
    let last = match &request.prompt {
        Prompt::Messages(messages) if !request.template.add_generation_prompt => messages.last(),
        _ => None,
    };
    match last {
        Some(last) => last.role.to_string().into(),
        None => "assistant".into(),
    }
}

/// The final message, if it is to be said again: that of the role that answers.
fn echo(request: &Request<'_>) -> Option<String> {
    let Prompt::Messages(messages) = &request.prompt else {
        return None;
    };
    let last = messages.last().filter(|_| request.echo)?;
    let is_own = last.role == role(request) && !last.content.is_empty();
    is_own.then(|| last.content.to_string())
}

/// How long an answer takes by plan.
fn metrics(plan: &Plan, tracks: &[Track]) -> Metrics {
    let first = plan.pace.due(0);
    let last = timeline::whole_due(plan, tracks);
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let tokens: u64 = tracks.iter().map(|track| track.said.tokens).sum();
    #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
    let (tokens, gaps) = (tokens as f64, tokens.saturating_sub(1).max(1) as f64);
    let generation_time_ms = milliseconds(last.saturating_sub(first));
    Metrics {
        generation_time_ms,
        mean_itl_ms: generation_time_ms / gaps,
        time_to_first_token_ms: milliseconds(first),
        tokens_per_second: if last.is_zero() {
            0.0
        } else {
            tokens / last.as_secs_f64()
        },
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
