//! The reply to a chat or completion request, checks in the server's order.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use wire::chunk::{Choice, Chunk, Delta};
use wire::dialect::{Encoder, Envelope};
use wire::failure::Failure;
use wire::request::{Endpoint, Prompt, Request, ToolChoice, UsagePolicy};

use crate::generate::{Grouping, Rules, say};
use crate::prompt;
use crate::reasoning::{ReasoningParser, Splitter};
use crate::reply::{Body, Facts, Rendered, Reply, Whole};
use crate::source::Ask;
use crate::stub::{Call, Context, MAX_RENDERED, RenderKey, Stub};
use crate::timeline::{Events, Plan, Timeline, Track, total_usage};

pub(crate) use crate::prompt::text as prompt_text;

/// Answers a request, or says why not.
pub(crate) fn reply(
    stub: &Stub,
    endpoint: Endpoint,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    let request = stub.dialect.parse(endpoint, call.content_type, call.body)?;
    let prompt = check(stub, &request)?;
    let policy = match UsagePolicy::from(request.stream_options) {
        _ if stub.force_include_usage => UsagePolicy::Continuous,
        policy => policy,
    };
    let key = RenderKey {
        endpoint,
        prompt_tokens: prompt.tokens,
        stream: request.stream,
        usage: policy,
    };
    let facts = |facts: &Facts| Facts {
        include_usage: request.stream_options.include_usage,
        prompt: call.wants_prompt.then(|| {
            request
                .prompt
                .decisive_text()
                .unwrap_or_default()
                .to_owned()
        }),
        ..facts.clone()
    };
    if stub.renders_once
        && let Some((rendered, known)) = context.rendered.get(&key)
    {
        return Ok(Reply::rendered(rendered, request.stream, facts(known)));
    }
    let given = call.request_id.or(request.request_id.as_deref());
    let envelope = Envelope {
        created: context.created,
        endpoint,
        fingerprint: stub.fingerprint.clone(),
        id: stub
            .dialect
            .response_id(endpoint, context.random.u64(..), given),
        model: stub.names[0].clone(),
        prompt_text: request.return_prompt_text.then(|| prompt.texts.concat()),
        prompt_token_ids: request
            .return_token_ids
            .then(|| prompt.ids(stub).into_iter().flatten().collect()),
        reasoning_hidden: stub.reasoning_parser.is_some() && !request.include_reasoning,
        usage: policy,
    };
    let mut reply = play(stub, &request, &prompt, envelope);
    if stub.renders_once {
        let (rendered, known) = render(reply);
        let rendered = Arc::new(rendered);
        if context.rendered.len() < MAX_RENDERED {
            let entry = (Arc::clone(&rendered), known.clone());
            context.rendered.insert(key, entry);
        }
        reply = Reply::rendered(&rendered, request.stream, known);
    }
    reply.facts = facts(&reply.facts);
    Ok(reply)
}

/// Checks what the schema cannot, and counts the prompt.
fn check<'r>(stub: &Stub, request: &'r Request<'_>) -> Result<prompt::Counted<'r>, Failure> {
    stub.check_model(request.model.as_deref())?;
    check_parts(request)?;
    let sampling = &request.sampling;
    if let (Some(context), Some((name, asked))) = (stub.max_model_len, sampling.max_tokens)
        && asked > i128::from(context)
    {
        return Err(stub.dialect.length_too_large(name, asked, context));
    }
    let prompt = prompt::counted(stub, request)?;
    let room = stub
        .max_model_len
        .map(|context| i128::from(context) - i128::from(prompt.longest));
    let asked = max_tokens(request).unwrap_or(i128::MAX);
    let limit = room.map_or(asked, |room| room.min(asked));
    stub.dialect.check_sampling(sampling, limit)?;
    Ok(prompt)
}

/// The answer length asked for; completions default to 16.
fn max_tokens(request: &Request<'_>) -> Option<i128> {
    let asked = request.sampling.max_tokens.map(|(_, asked)| asked);
    let default = (request.endpoint == Endpoint::Completions).then_some(16);
    asked.or(default)
}

fn check_parts(request: &Request<'_>) -> Result<(), Failure> {
    if request.suffix.is_some() {
        let message = "suffix is only supported for models with FIM completion rendering";
        return Err(Failure::bad_request(message, Some("suffix")));
    }
    let message = match &request.template.tool_choice {
        None => return own_template(request),
        Some(ToolChoice::Auto) => {
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set".into()
        }
        Some(ToolChoice::Required) => {
            "tool_choice=\"required\" requires --tool-call-parser to be set".into()
        }
        Some(ToolChoice::Named(name)) => {
            format!("tool_choice=function \"{name}\" requires --tool-call-parser to be set")
        }
    };
    Err(Failure::bad_request(message, None))
}

fn own_template(request: &Request<'_>) -> Result<(), Failure> {
    if !request.template.has_own_template {
        return Ok(());
    }
    let message = "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with untrusted chat template.";
    Err(Failure::bad_request(message, None))
}

/// Plays the script: every choice of every prompt.
fn play(
    stub: &Stub,
    request: &Request<'_>,
    prompt: &prompt::Counted<'_>,
    envelope: Envelope,
) -> Reply {
    let mut tracks = Vec::new();
    let decisive = request.prompt.decisive_text();
    for (index, text) in prompt.texts.iter().enumerate() {
        let text = match &request.prompt {
            Prompt::Messages(_) => decisive.unwrap_or_default(),
            _ => text,
        };
        let tokens = prompt.each[index];
        choices(
            stub,
            request,
            text,
            tokens,
            &prompt.texts[index],
            &mut tracks,
        );
    }
    let usage = total_usage(prompt.tokens, &tracks);
    let sends_usage = !request.stream || envelope.usage != UsagePolicy::Omit;
    let facts = Facts {
        finish_reason: tracks
            .first()
            .map(|track| track.said.finish.reason.as_str()),
        prompt_tokens: Some(prompt.tokens),
        reasoning_tokens: usage.reasoning_tokens,
        response_id: Some(envelope.id.clone()),
        stream: Some(request.stream),
        usage: sends_usage.then_some(usage),
        ..Facts::default()
    };
    let plan = Plan {
        endpoint: request.endpoint,
        hides_reasoning: envelope.reasoning_hidden,
        pace: stub.pace,
        prompt_tokens: prompt.tokens,
        returns_token_ids: request.return_token_ids,
        role: role(request).to_owned().into(),
        usage: envelope.usage,
    };
    let body = if request.stream {
        let encoder = Encoder::new(stub.dialect, envelope);
        Body::Stream(Timeline::new(encoder, Events::new(plan, tracks)).into())
    } else {
        Body::Whole(whole(stub, &envelope, &plan, tracks))
    };
    Reply {
        body,
        facts,
        ..Reply::empty(200)
    }
}

/// The role that answers: the last message's where no generation prompt was added.
fn role<'r>(request: &'r Request<'_>) -> &'r str {
    match &request.prompt {
        Prompt::Messages(messages) if !request.template.add_generation_prompt => {
            messages.last().map_or("assistant", |last| &*last.role)
        }
        _ => "assistant",
    }
}

/// The choices of one prompt.
fn choices(
    stub: &Stub,
    request: &Request<'_>,
    text: &str,
    prompt_tokens: u64,
    rendered: &str,
    tracks: &mut Vec<Track>,
) {
    let sampling = &request.sampling;
    let room = stub
        .max_model_len
        .map(|context| context.saturating_sub(prompt_tokens));
    let asked = max_tokens(request).map(|asked| u64::try_from(asked).unwrap_or(u64::MAX));
    let asked = asked.filter(|_| stub.honors_limits);
    let max_tokens = match (room, asked) {
        (Some(room), Some(asked)) => Some(room.min(asked)),
        (room, asked) => room.or(asked),
    };
    let rules = Rules {
        eos_token_ids: &stub.tokenizer.eos_token_ids,
        // Without a limit an ignored end would never come.
        ignore_eos: stub.honors_limits && sampling.ignore_eos && max_tokens.is_some(),
        include_stop: sampling.include_stop_str_in_output,
        max_tokens,
        min_tokens: u64::try_from(sampling.min_tokens)
            .unwrap_or(0)
            .min(max_tokens.unwrap_or(0)),
        skip_special_tokens: sampling.skip_special_tokens,
        stop: if stub.honors_limits {
            &sampling.stop
        } else {
            &[]
        },
        stop_token_ids: if stub.honors_limits {
            &sampling.stop_token_ids
        } else {
            &[]
        },
        vocab: &stub.tokenizer.vocab,
    };
    let grouping = Grouping {
        first: stub.tokens_per_chunk,
        every: stub
            .tokens_per_chunk
            .max(request.stream_interval.unwrap_or(1)),
    };
    let script = stub.source.script(&Ask {
        text,
        max_tokens: stub.max_osl.or(asked),
    });
    let parser = stub
        .reasoning_parser
        .filter(|_| request.endpoint == Endpoint::Chat);
    for choice in 0..usize::try_from(sampling.n).unwrap_or(1) {
        let answer = &script.choices[choice % script.choices.len()];
        let said = match stub.max_osl {
            Some(tokens) => say(&answer.clone().fitted(tokens), script.cut, &rules),
            None => say(answer, script.cut, &rules),
        };
        let said = said.grouped(grouping);
        let is_over = parser.map(|_| ReasoningParser::is_over(rendered));
        let counts = is_over.map(|is_over| reasoning_tokens(stub, &said, is_over));
        tracks.push(Track::new(said, is_over.map(Splitter::new), counts));
    }
}

/// Tokens of reasoning by each step: those before the closing tag, tags and end token left out.
fn reasoning_tokens(stub: &Stub, said: &crate::generate::Said, is_over: bool) -> Vec<u64> {
    let vocab = &stub.tokenizer.vocab;
    let open = vocab.added(ReasoningParser::OPEN);
    let close = vocab.added(ReasoningParser::CLOSE);
    let mut over = is_over;
    let mut count = 0;
    let mut start = 0;
    let mut counts = Vec::with_capacity(said.outputs.len());
    for output in &said.outputs {
        for &id in &said.ids[start..output.ids_end] {
            over |= Some(id) == close;
            let is_end = stub.tokenizer.eos_token_ids.contains(&id);
            count += u64::from(!over && Some(id) != open && !is_end);
        }
        start = output.ids_end;
        counts.push(count);
    }
    counts
}

fn whole(stub: &Stub, envelope: &Envelope, plan: &Plan, tracks: Vec<Track>) -> Whole {
    let steps = tracks.iter().map(|track| track.said.outputs.len()).max();
    let last = steps.unwrap_or(1).saturating_sub(1);
    let usage = total_usage(plan.prompt_tokens, &tracks);
    let choice = |(index, track): (usize, Track)| {
        let text = track.said.text;
        let (content, reasoning) = match track.splitter {
            None => (Some(text), None),
            Some(mut splitter) => {
                let split = splitter.feed(&text, true);
                let shown = split.reasoning.filter(|_| !plan.hides_reasoning);
                (split.content.filter(|content| !content.is_empty()), shown)
            }
        };
        Choice {
            delta: Delta {
                content: content.map(Cow::Owned),
                reasoning: reasoning.map(Cow::Owned),
                role: Some(plan.role.clone()),
                tool_calls: None,
            },
            finish: Some(track.said.finish),
            index: u32::try_from(index).expect("choices are few"),
            token_ids: plan.returns_token_ids.then_some(track.said.ids),
        }
    };
    let answer = Chunk {
        choices: tracks.into_iter().enumerate().map(choice).collect(),
        error: None,
        usage: Some(usage),
    };
    let mut bytes = Vec::new();
    stub.dialect.encode_whole(envelope, &answer, &mut bytes);
    Whole {
        bytes: bytes.into(),
        due: plan.pace.due(u32::try_from(last).unwrap_or(u32::MAX)),
        is_json: true,
        tokens: u32::try_from(usage.completion_tokens.unwrap_or(0)).unwrap_or(u32::MAX),
    }
}

/// A reply's bytes, all at once.
fn render(reply: Reply) -> (Rendered, Facts) {
    let mut bytes = Vec::new();
    let mut steps = Vec::new();
    match reply.body {
        Body::Empty | Body::Rendered(_) => {}
        Body::Stream(mut timeline) => {
            while let Some(step) = timeline.step(&mut bytes) {
                steps.push(step);
            }
        }
        Body::Whole(whole) => {
            steps.push(whole.step());
            bytes.extend_from_slice(&whole.bytes);
        }
    }
    (Rendered { bytes, steps }, reply.facts)
}

impl Reply {
    fn rendered(rendered: &Arc<Rendered>, stream: bool, facts: Facts) -> Self {
        let body = if stream {
            Body::Rendered(Arc::clone(rendered))
        } else {
            let tokens = rendered.steps.first().map_or(0, |step| step.tokens);
            Body::Whole(Whole {
                bytes: rendered.bytes.as_slice().into(),
                due: Duration::ZERO,
                is_json: true,
                tokens,
            })
        };
        Self {
            body,
            facts,
            ..Self::empty(200)
        }
    }
}
