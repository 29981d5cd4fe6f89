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
use wire::request::{Endpoint, Prompt, Request, UsagePolicy};
use wire::usage::CachedTokens;

use super::Answer;
use crate::generate::{Grouping, Rules, Said, say};
use crate::prompt::{Counted, One};
use crate::reply::{Body, Facts, Reply};
use crate::script::{CutKind, Script};
use crate::source::Ask;
use crate::stub::{MAX_OSL, Stub};
use crate::timeline::{self, Events, Plan, Timeline, Track};
use crate::under_way::Turn;
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
        let manner = stub.dialect.answer_manner(envelope.is_typed);
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
            latest: None,
            manner,
            pace: stub.engine.pace,
            pauses: BTreeMap::new(),
            // Usage sums prompts by a range of steps `n`, which is empty below 0.
            prompt_tokens: match request.sampling.n {
                n if n < 0 && manner.tells_choices => 0,
                _ => prompt.tokens,
            },
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
            turn: None,
        }
    }

    /// Plays the script of each prompt.
    pub(crate) fn play(&mut self) -> Result<(), Failure> {
        let prompts = self.prompt.iter();
        let script = |prompt: &One<'_>| script(self.stub, self.request, &prompt.text);
        let scripts: Vec<Arc<Script>> = prompts.map(script).collect();
        self.look_up(&scripts);
        let patterns = stop_patterns(self.request);
        for (number, script) in scripts.iter().enumerate() {
            self.plan.pauses.extend(&script.pauses);
            self.choices(number, script, &patterns);
        }
        self.take_up();
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

    /// Looks the prompts up in the prefix cache, if there is one.
    fn look_up(&mut self, scripts: &[Arc<Script>]) {
        let (Some(cache), Some(ids)) = (&self.stub.engine.prefix_cache, &self.prompt_ids) else {
            return;
        };
        // What is not computed has no logprobs.
        let logprobs = self.wishes().and_then(|wishes| wishes.logprobs.as_ref());
        let start = logprobs.and_then(|asked| usize::try_from(asked.start).ok());
        let most = start.unwrap_or(usize::MAX);
        let manner = self.plan.manner;
        let mut all = if manner.separates_prompts {
            let one = |ids| cache.batch(std::slice::from_ref(ids), most);
            ids.iter().flat_map(one).collect()
        } else {
            cache.batch(ids, most)
        };
        if manner.tells_choices && self.request.sampling.choices() > 1 {
            // Several answers to a prompt are preceded by none, which fills the cache.
            all = cache.batch(ids, most);
        }
        for (found, script) in all.iter_mut().zip(scripts) {
            if let Some(cached) = script.cached_tokens {
                *found = CachedTokens {
                    cached,
                    created: Some(0),
                };
            }
        }
        self.cached = all.iter().map(|found| found.cached).collect();
        if manner.tells_choices && !self.stub.streaming.cache_report {
            return;
        }
        let created = all.iter().map(|found| found.created.unwrap_or(0)).sum();
        self.plan.cache = Some(CachedTokens {
            cached: self.cached.iter().sum(),
            created: (self.request.endpoint == Endpoint::Chat).then_some(created),
        });
    }

    /// Has the prefix cache take up the answers.
    fn take_up(&self) {
        let (Some(cache), Some(ids)) = (&self.stub.engine.prefix_cache, &self.prompt_ids) else {
            return;
        };
        let choices = self.request.sampling.choices();
        for (number, track) in self.tracks.iter().enumerate() {
            cache.answered(&ids[number / choices], &track.said.ids);
        }
    }

    /// The choices of one prompt.
    fn choices(&mut self, number: usize, script: &Script, patterns: &[Regex]) {
        let engine = &self.stub.engine;
        let rules = Rules {
            stop_regex: patterns,
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
            self.give_caller(&mut track.voice);
            self.tracks.push(track);
        }
    }

    /// The answer that tells that the queue was full.
    pub(super) fn unstarted(mut self) -> Reply {
        let finish = self.stub.dialect.unstarted(true);
        let choices = self.prompt.count() * self.request.sampling.choices();
        let said = Said::nothing(finish.clone());
        self.tracks = vec![Track::new(said, Voice::default()); choices];
        timeline::silence(&mut self.plan, &mut self.tracks, Duration::ZERO, &finish);
        self.limits = vec![None; self.prompt.count()];
        self.reply()
    }

    /// The answer as it will be sent.
    pub(super) fn reply(self) -> Reply {
        let (mut facts, works) = (self.facts(), self.works());
        if self.request.stream && self.plan.usage == UsagePolicy::Omit {
            facts.usage = None;
        }
        let body = if self.request.stream {
            let extension = self.extension();
            let patterns = Arc::clone(&self.stub.patterns);
            let keeps = self.may_be_given_up();
            let encoder = Encoder::new(self.stub.dialect, self.envelope, patterns);
            let mut events = Events::new(self.plan, self.tracks);
            events.extension = extension;
            if keeps {
                events.keep();
            }
            Body::Stream(Timeline::new(encoder, events).into())
        } else {
            Body::Whole(self.whole())
        };
        Reply {
            body,
            facts: Some(Box::new(facts)),
            works: Some(works),
            ..Reply::empty(200)
        }
    }

    /// Whether it can be given up before it is over.
    pub(super) fn may_be_given_up(&self) -> bool {
        let takes_time = || timeline::whole_due(&self.plan, &self.tracks) > Duration::ZERO;
        self.turn
            .is_some_and(|turn| turn == Turn::Waiting || takes_time())
    }

    /// What is told of the answer as a whole, where the request asks for it.
    pub(super) fn extension(&self) -> Option<Box<Extension>> {
        let wishes = self.request.wishes.as_deref()?;
        let cached: u64 = self.cached.iter().sum();
        let input_ids = || self.prompt_ids.as_ref().map(|ids| ids.concat());
        let output_ids = || self.tracks.iter().map(|track| track.said.ids.clone());
        let extension = Extension {
            cached_tokens: Some(cached).filter(|cached| wishes.sglext_cached_tokens && *cached > 0),
            input_ids: wishes.sglext_input_ids.then(input_ids).flatten(),
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
    pub(crate) fn works(&self) -> Arc<[Work]> {
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
        end_repeats: stub.dialect.manner().ends_repeat,
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
