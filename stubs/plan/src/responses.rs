//! `/v1/responses`: a chat's answer as the items of a response.

use std::time::Duration;

use wire::chunk::{Choice, Delta, TokenLogprob, ToolCall};
use wire::dialect::responses::{Event, Item, ItemKind, Outline, Place, Progress, Snapshot, Status};
use wire::dialect::{Dialect, ResponsesRequest};
use wire::failure::Failure;
use wire::finish::FinishReason;
use wire::request::Request;

use crate::layout::{End, Laid, Layout, Queue};
use crate::played::Played;
use crate::prompt::Counted;
use crate::reply::{Body, Reply};
use crate::stub::{Call, Context, Stub};
use crate::timeline::{Kind, Timeline};
use crate::{answer, check};

/// Answers a request, or says why not.
pub(crate) fn reply(stub: &Stub, call: &Call<'_>, context: &mut Context) -> Result<Reply, Failure> {
    let content_type = call.head.content_type();
    let dialect = stub.dialect;
    let asked = dialect.parse_responses(content_type, call.body)?;
    let request = &asked.request;
    stub.check_model(request.model.as_deref())?;
    dialect.check_response(&asked, &stub.names)?;
    let checked = check::check(stub, request);
    let most = checked.as_ref().ok();
    let outline = Outline {
        created_at: context.created,
        echoed: &asked.echoed,
        id: match &request.request_id {
            Some(id) => id.to_string(),
            None => dialect.responses_id(|| context.random.u64(..)),
        },
        max_output_tokens: most.and_then(|prompt| max_output_tokens(stub, &asked, prompt)),
        model: &answer::response_model(stub, request),
        sampling: &request.sampling,
    };
    let prompt = match checked {
        Ok(prompt) => prompt,
        Err(failure) => return refused(stub, &outline, request.stream, failure),
    };
    let mut played = Played::new(stub, request, &prompt, outline.id.clone(), context)
        .map_err(|failure| dialect.response_failure(failure))?;
    let body = if request.stream {
        let stream = stream(stub, &outline, request, &mut played);
        Body::Stream(Timeline::laid(stream).into())
    } else {
        whole(dialect, &outline, &mut played)
    };
    let mut reply = played.reply(request, call, body);
    uncache(stub, request.stream, &mut reply);
    Ok(reply)
}

/// The answer to a question for a response: none is kept.
pub(crate) fn unknown(stub: &Stub, path: &str) -> Failure {
    let id = path.rsplit('/').next().unwrap_or_default();
    stub.dialect.unknown_response(id)
}

/// The answer to a request that is refused, which may be a stream that says so.
fn refused(
    stub: &Stub,
    outline: &Outline<'_>,
    stream: bool,
    failure: Failure,
) -> Result<Reply, Failure> {
    let dialect = stub.dialect;
    let error = match failure {
        Failure::Error(error) if stream && dialect.manner().responses.streams_refusals => error,
        failure => return Err(dialect.response_failure(failure)),
    };
    let encoded = |progress, status, number| {
        let snapshot = Snapshot {
            output: &[],
            status,
            usage: None,
            error: (status == Status::Failed).then_some(&*error.message),
        };
        let mut bytes = Vec::new();
        dialect.encode_response_progress(outline, progress, &snapshot, number, &mut bytes);
        bytes
    };
    let mut reply = Reply::events(&[
        (
            Kind::Role,
            &encoded(Progress::Created, Status::InProgress, 0),
        ),
        (
            Kind::Role,
            &encoded(Progress::InProgress, Status::InProgress, 1),
        ),
        (Kind::Error, &encoded(Progress::Ended, Status::Failed, 2)),
    ]);
    uncache(stub, stream, &mut reply);
    Ok(reply)
}

/// Keeps a stream from caches, where the server does.
fn uncache(stub: &Stub, stream: bool, reply: &mut Reply) {
    if stream && stub.dialect.manner().responses.stays_uncached {
        let first = &mut reply.headers.first;
        first.push(("cache-control", "no-cache".into()));
        first.push(("connection", "keep-alive".into()));
    }
}

/// What is asked for, cut to what the context leaves.
fn max_output_tokens(
    stub: &Stub,
    asked: &ResponsesRequest<'_>,
    prompt: &Counted<'_>,
) -> Option<u64> {
    let context = stub.engine.max_model_len;
    let room = context.map(|context| context.saturating_sub(prompt.tokens));
    let asked = asked
        .request
        .max_tokens()
        .and_then(|asked| u64::try_from(asked).ok());
    asked.into_iter().chain(room).min()
}

fn whole(dialect: Dialect, outline: &Outline<'_>, played: &mut Played<'_>) -> Body {
    let (choice, due) = played.whole();
    let reason = choice.finish.map(|finish| finish.reason);
    let manner = dialect.manner().responses;
    let status = status(dialect, reason.unwrap_or(FinishReason::Stop));
    let is_commentary = !choice.delta.tool_calls.is_empty();
    let random = played.random();
    let mut output = Vec::new();
    // A whole message has those of all tokens, reasoning and calls too.
    let mut logprobs = choice.logprobs.unwrap_or_default();
    let mut add = |kind: ItemKind, text: &str| {
        output.push(Item {
            id: dialect.response_item_id(&kind, || random.u64(..)),
            is_commentary,
            status: (manner.completes_reasoning || kind != ItemKind::Reasoning)
                .then_some(Status::Completed),
            logprobs: match kind {
                ItemKind::Message => std::mem::take(&mut logprobs),
                _ => Vec::new(),
            },
            kind,
            text: text.to_owned(),
        });
    };
    let Delta {
        content,
        reasoning,
        tool_calls,
        ..
    } = choice.delta;
    if let Some(text) = reasoning.filter(|text| !text.is_empty()) {
        add(ItemKind::Reasoning, &text);
    }
    if let Some(text) = content.filter(|text| !text.is_empty()) {
        add(ItemKind::Message, &text);
    }
    for call in tool_calls {
        let arguments = call.arguments.clone().unwrap_or_default();
        add(called(&call), &arguments);
    }
    // A limit cuts the last item alone, and is not told of whole reasoning.
    let last = output.last_mut().and_then(|last| last.status.as_mut());
    if let Some(last) = last {
        *last = status;
    }
    let snapshot = Snapshot {
        output: &output,
        status,
        usage: Some(played.usage),
        error: error(status),
    };
    let mut bytes = Vec::new();
    dialect.encode_response(outline, &snapshot, &mut bytes);
    played.whole_body(bytes, due)
}

/// What is said of a response that failed.
fn error(status: Status) -> Option<&'static str> {
    (status == Status::Failed).then_some("Generation aborted")
}

fn status(dialect: Dialect, reason: FinishReason) -> Status {
    match reason {
        FinishReason::Length => Status::Incomplete,
        FinishReason::Abort | FinishReason::Error if dialect.manner().responses.has_failed => {
            Status::Failed
        }
        _ => Status::Completed,
    }
}

fn called(call: &ToolCall<'_>) -> ItemKind {
    ItemKind::Call {
        call_id: call.id.as_deref().unwrap_or_default().to_owned(),
        name: call.name.as_deref().unwrap_or_default().to_owned(),
    }
}

fn stream(
    stub: &Stub,
    outline: &Outline<'_>,
    request: &Request<'_>,
    played: &mut Played<'_>,
) -> Laid {
    let dialect = stub.dialect;
    let calls = request.template.tool_choice.is_some();
    let progress = |progress, snapshot: &Snapshot<'_>, number| {
        let mut bytes = Vec::new();
        dialect.encode_response_progress(outline, progress, snapshot, number, &mut bytes);
        bytes
    };
    let started = Snapshot {
        output: &[],
        status: Status::InProgress,
        usage: None,
        error: None,
    };
    let mut writer = Writer {
        dialect,
        first: vec![
            progress(Progress::Created, &started, 0),
            progress(Progress::InProgress, &started, 1),
        ],
        held: (calls && dialect.manner().responses.holds_messages).then(Vec::new),
        is_open: false,
        items: Vec::new(),
        last: Vec::new(),
        last_call: 0,
        random: fastrand::Rng::with_seed(played.random().u64(..)),
        sequence_number: 2,
        status: Status::InProgress,
    };
    let moments = played.moments();
    // The last event repeats the request, which is not kept, and the whole answer: it is made first.
    let mut rehearsal = writer.clone();
    moments.clone().run(&mut rehearsal);
    let is_call = |item: &Item| matches!(item.kind, ItemKind::Call { .. });
    writer.last_call = rehearsal.items.iter().rposition(is_call).unwrap_or(0);
    for item in &mut rehearsal.items[..writer.last_call] {
        item.is_commentary = true;
    }
    let ended = Snapshot {
        error: error(rehearsal.status),
        output: &rehearsal.items,
        status: rehearsal.status,
        usage: Some(played.usage),
    };
    writer.last = progress(Progress::Ended, &ended, rehearsal.sequence_number);
    Laid::new(Box::new(writer), moments)
}

/// A stream's items in the making.
#[derive(Clone, Debug)]
struct Writer {
    dialect: Dialect,
    /// The events before the first item.
    first: Vec<Vec<u8>>,
    /// Events of messages that wait until it is known what follows, if they may have to.
    held: Option<Vec<(Kind, Vec<u8>)>>,
    /// The last item is not done.
    is_open: bool,
    items: Vec<Item>,
    /// The event behind the last item.
    last: Vec<u8>,
    /// Number of the last item that is a call; 0 if there is none.
    last_call: usize,
    /// Source of the items' ids.
    random: fastrand::Rng,
    sequence_number: u64,
    status: Status,
}

impl Layout for Writer {
    fn start(&mut self, events: &mut Queue) {
        // These come before anything is generated.
        events.due = Duration::ZERO;
        for bytes in self.first.drain(..) {
            events.push(Kind::Role, bytes);
        }
    }

    fn moment(&mut self, choice: Choice<'static>, events: &mut Queue) {
        let delta = choice.delta;
        let logprobs = choice.logprobs.unwrap_or_default();
        if let Some(text) = delta.reasoning {
            self.text(ItemKind::Reasoning, &text, &[], Kind::Reasoning, events);
        }
        if let Some(text) = delta.content.filter(|text| !self.is_gap(text)) {
            self.text(ItemKind::Message, &text, &logprobs, Kind::Content, events);
        }
        for call in delta.tool_calls {
            if call.name.is_some() {
                self.open(called(&call), events);
            }
            let arguments = call.arguments.as_deref().unwrap_or_default();
            self.delta(arguments, &[], Kind::Tool, events);
        }
    }

    fn end(&mut self, end: End, events: &mut Queue) {
        let finish = match end {
            Ok(finish) => finish,
            Err(fault) => return events.cut(fault),
        };
        self.status = status(self.dialect, finish.reason);
        self.close(self.status, events);
        self.release(events);
        events.push(Kind::Usage, std::mem::take(&mut self.last));
    }
}

impl Writer {
    fn text(
        &mut self,
        item: ItemKind,
        text: &str,
        logprobs: &[TokenLogprob],
        kind: Kind,
        events: &mut Queue,
    ) {
        if text.is_empty() {
            return;
        }
        let goes_on = self.is_open && self.items.last().is_some_and(|last| last.kind == item);
        if !goes_on {
            self.open(item, events);
        }
        self.delta(text, logprobs, kind, events);
    }

    /// Whether a text only stands between calls.
    fn is_gap(&self, text: &str) -> bool {
        let last = self.items.last().filter(|_| self.is_open);
        let calls = last.is_some_and(|last| matches!(last.kind, ItemKind::Call { .. }));
        calls && self.dialect.manner().responses.drops_gaps && text.trim().is_empty()
    }

    /// Starts an item, the one before being done.
    fn open(&mut self, kind: ItemKind, events: &mut Queue) {
        self.close(Status::Completed, events);
        let has_parts = kind.has_parts();
        if matches!(kind, ItemKind::Call { .. }) {
            self.release(events);
        }
        self.items.push(Item {
            id: self.dialect.response_item_id(&kind, || self.random.u64(..)),
            is_commentary: self.items.len() < self.last_call,
            kind,
            logprobs: Vec::new(),
            status: Some(Status::InProgress),
            text: String::new(),
        });
        self.is_open = true;
        self.event(Event::ItemAdded, Kind::Role, events);
        if has_parts {
            self.event(Event::PartAdded, Kind::Role, events);
        }
    }

    fn delta(&mut self, text: &str, logprobs: &[TokenLogprob], kind: Kind, events: &mut Queue) {
        if let Some(item) = self.items.last_mut().filter(|_| !text.is_empty()) {
            item.text.push_str(text);
            item.logprobs.extend_from_slice(logprobs);
            self.event(Event::Delta(text, logprobs), kind, events);
        }
    }

    /// Ends the item that is open, if one is.
    fn close(&mut self, status: Status, events: &mut Queue) {
        let is_open = std::mem::take(&mut self.is_open);
        let Some(item) = self.items.last_mut().filter(|_| is_open) else {
            return;
        };
        let has_parts = item.kind.has_parts();
        item.status = Some(status);
        self.event(Event::TextDone, Kind::Role, events);
        if has_parts {
            self.event(Event::PartDone, Kind::Role, events);
        }
        self.event(Event::ItemDone, Kind::Role, events);
    }

    /// An event of the last item.
    fn event(&mut self, event: Event<'_>, kind: Kind, events: &mut Queue) {
        let Some((item, before)) = self.items.split_last() else {
            return;
        };
        let place = Place {
            output_index: before.len(),
            sequence_number: self.sequence_number,
        };
        self.sequence_number += 1;
        let mut bytes = Vec::new();
        self.dialect
            .encode_response_event(item, event, place, &mut bytes);
        let is_message = item.kind == ItemKind::Message;
        match &mut self.held {
            Some(held) if is_message || !held.is_empty() => held.push((kind, bytes)),
            _ => events.push(kind, bytes),
        }
    }

    /// Sends what was held.
    fn release(&mut self, events: &mut Queue) {
        for (kind, bytes) in self.held.iter_mut().flat_map(|held| held.drain(..)) {
            events.push(kind, bytes);
        }
    }
}
