//! Ollama's routes: an answer line by line, without its finer points.

use std::time::Duration;

use serde::Serialize;
use wire::chunk::Choice;
use wire::dialect::sglang::bodies::Ollama;
use wire::dialect::sglang::moment;
use wire::failure::Failure;
use wire::request::Request;
use wire::route::Route;

use super::internal;
use crate::check;
use crate::layout::{End, Laid, Layout, Queue};
use crate::played::Played;
use crate::reply::{Body, Reply};
use crate::route::json;
use crate::stub::{Call, Context, Stub};
use crate::timeline::{Kind, Timeline};

const LINES: &str = "application/x-ndjson";

pub(super) fn reply(
    route: Route,
    stub: &Stub,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    let content_type = call.head.content_type();
    let is_chat = route == Route::OllamaChat;
    let asked = if is_chat {
        Ollama::chat(content_type, call.body)?
    } else {
        Ollama::generate(content_type, call.body)?
    };
    let frame = Frame {
        is_chat,
        model: stub.names[0].to_string(),
        now: now(context),
    };
    let Some(request) = &asked.request else {
        return Ok(empty(&frame, asked.stream));
    };
    match answer(stub, request, &frame, call, context) {
        // Nothing there expects a refusal.
        Err(Failure::Error(_)) => Ok(internal()),
        answered => answered,
    }
}

fn answer(
    stub: &Stub,
    request: &Request<'_>,
    frame: &Frame,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    let prompt = check::check(stub, request)?;
    let random = || context.random.u64(..);
    let id = stub.dialect.response_id(request.endpoint, random, None);
    let mut played = Played::new(stub, request, &prompt, id, context)?;
    if request.stream {
        let lines = Lines(frame.clone());
        let laid = Laid::new(Box::new(lines), played.moments());
        let mut reply = played.reply(request, call, Body::Stream(Timeline::laid(laid).into()));
        reply.headers.content_type = Some(LINES);
        return Ok(reply);
    }
    let (choice, due) = played.whole();
    let text = choice.delta.content.unwrap_or_default();
    let counts = Counts {
        prompt: played.usage.prompt_tokens,
        answer: played.usage.completion_tokens,
        duration: Some(u64::try_from(due.as_nanos()).unwrap_or(u64::MAX)),
    };
    let body = played.whole_body(frame.whole(&text, due, counts), due);
    Ok(played.reply(request, call, body))
}

/// The answer to a prompt that says nothing.
fn empty(frame: &Frame, stream: bool) -> Reply {
    let mut bytes = frame.whole("", Duration::ZERO, Counts::default());
    if !stream {
        return Reply::json(200, bytes);
    }
    bytes.push(b'\n');
    let mut reply = Reply::events(&[(Kind::Finish, &bytes)]);
    reply.headers.content_type = Some(LINES);
    reply
}

fn now(context: &Context) -> Duration {
    Duration::new(context.created, context.created_nanos)
}

/// What the lines of an answer share.
#[derive(Clone, Debug)]
struct Frame {
    is_chat: bool,
    model: String,
    /// When the request came, since 1970.
    now: Duration,
}

/// What an answer counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    prompt: Option<u64>,
    answer: Option<u64>,
    /// In nanoseconds.
    duration: Option<u64>,
}

#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    created_at: String,
    #[serde(flatten)]
    said: Said<'a>,
    done: bool,
    done_reason: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Said<'a> {
    Message(Message<'a>),
    Response(&'a str),
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    images: (),
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    line: Line<'a>,
    /// Of an answer to a text alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<()>,
    total_duration: Option<u64>,
    load_duration: (),
    prompt_eval_count: Option<u64>,
    prompt_eval_duration: (),
    eval_count: Option<u64>,
    eval_duration: (),
}

impl Frame {
    fn line<'a>(&'a self, text: &'a str, after: Duration, done: bool) -> Line<'a> {
        let message = Message {
            role: "assistant",
            content: text,
            images: (),
        };
        Line {
            model: &self.model,
            created_at: moment::written(self.now.saturating_add(after), 3, "Z"),
            said: if self.is_chat {
                Said::Message(message)
            } else {
                Said::Response(text)
            },
            done,
            done_reason: done.then_some("stop"),
        }
    }

    fn whole(&self, text: &str, after: Duration, counts: Counts) -> Vec<u8> {
        let whole = Whole {
            line: self.line(text, after, true),
            context: (!self.is_chat).then_some(()),
            total_duration: counts.duration,
            load_duration: (),
            prompt_eval_count: counts.prompt,
            prompt_eval_duration: (),
            eval_count: counts.answer,
            eval_duration: (),
        };
        serde_json::to_vec(&whole).expect("strings and numbers encode")
    }
}

/// A stream of lines, the last of which says nothing more.
#[derive(Debug)]
struct Lines(Frame);

impl Layout for Lines {
    fn start(&mut self, _events: &mut Queue) {}

    fn moment(&mut self, choice: Choice<'static>, events: &mut Queue) {
        let done = choice.finish.is_some();
        let text = choice.delta.content.filter(|_| !done).unwrap_or_default();
        let line = self.0.line(&text, events.due, done);
        let mut bytes = serde_json::to_vec(&line).expect("strings encode");
        bytes.push(b'\n');
        let kind = if done { Kind::Finish } else { Kind::Content };
        events.push(kind, bytes);
    }

    fn end(&mut self, end: End, events: &mut Queue) {
        if let Err(fault) = end {
            events.cut(fault);
        }
    }
}

#[derive(Serialize)]
struct Tags<'a> {
    models: [Tag<'a>; 1],
}

#[derive(Serialize)]
struct Tag<'a> {
    name: &'a str,
    model: &'a str,
    modified_at: String,
    size: u64,
    digest: &'static str,
    details: Details<'a>,
}

#[derive(Serialize)]
struct Details<'a> {
    format: &'static str,
    family: &'a str,
    parameter_size: &'static str,
}

/// The models that there are: one.
pub(super) fn tags(stub: &Stub, context: &Context) -> Reply {
    let name = &*stub.names[0];
    let tag = Tag {
        name,
        model: name,
        modified_at: moment::written(now(context), 3, "Z"),
        size: 0,
        digest: "sha256:sglang0000000000000000000000000000000000000000000000000000000000",
        details: Details {
            format: "sglang",
            family: name.rsplit('/').next().unwrap_or(name),
            parameter_size: "unknown",
        },
    };
    json(&Tags { models: [tag] })
}
