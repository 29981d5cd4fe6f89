//! `/v1/responses`: a chat's answer as the items of a response.

use std::time::Duration;

use wire::chunk::{Choice, Delta, TokenLogprob, ToolCall};
use wire::dialect::Dialect;
use wire::dialect::vllm::ResponsesRequest;
use wire::dialect::vllm::responses::{
    Event, Item, ItemKind, Outline, Place, Progress, Snapshot, Status,
};
use wire::failure::{ErrorObject, Failure};
use wire::finish::FinishReason;

use crate::check;
use crate::layout::{End, Laid, Layout, Queue};
use crate::played::Played;
use crate::prompt::Counted;
use crate::reply::{Body, Reply};
use crate::stub::{Call, Context, Stub};
use crate::timeline::{Kind, Timeline};

/// Answers a request, or says why not.
pub(crate) fn reply(stub: &Stub, call: &Call<'_>, context: &mut Context) -> Result<Reply, Failure> {
    let content_type = call.head.content_type();
    let asked = stub.dialect.parse_responses(content_type, call.body)?;
    let request = &asked.request;
    stub.check_model(request.model.as_deref())?;
    check_store(&asked)?;
    let prompt = check::check(stub, request)?;
    let outline = Outline {
        created_at: context.created,
        echoed: &asked.echoed,
        id: match &request.request_id {
            Some(id) => id.to_string(),
            None => stub.dialect.responses_id(context.random.u64(..)),
        },
        max_output_tokens: max_output_tokens(stub, &asked, &prompt),
        model: &stub.names[0],
        sampling: &request.sampling,
    };
    let mut played = Played::new(stub, request, &prompt, outline.id.clone(), context)?;
    let body = if request.stream {
        Body::Stream(Timeline::laid(stream(stub.dialect, &outline, &mut played)).into())
    } else {
        whole(stub.dialect, &outline, &mut played)
    };
    Ok(played.reply(request, call, body))
}

/// The answer to a question for a response: none is kept.
pub(crate) fn unknown(path: &str) -> Failure {
    not_found(path.rsplit('/').next().unwrap_or_default())
}

fn not_found(id: &str) -> Failure {
    Failure::Error(ErrorObject {
        message: format!("Response with id '{id}' not found."),
        kind: "invalid_request_error",
        param: Some("response_id".into()),
        code: 404,
    })
}

/// Refuses what needs kept responses.
fn check_store(asked: &ResponsesRequest<'_>) -> Result<(), Failure> {
    if asked.background {
        return Err(Failure::Error(ErrorObject {
            message: "This vLLM engine does not support `store=True` and therefore does not support the background mode. To enable these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when launching the vLLM server.".into(),
            kind: "invalid_request_error",
            param: Some("background".into()),
            code: 400,
        }));
    }
    match &asked.previous_response_id {
        Some(id) => Err(not_found(id)),
        None => Ok(()),
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
    let status = status(reason.unwrap_or(FinishReason::Stop));
    let random = played.random();
    let mut output = Vec::new();
    // A whole message has those of all tokens, reasoning and calls too.
    let mut logprobs = choice.logprobs.unwrap_or_default();
    let mut add = |kind: ItemKind, text: &str| {
        output.push(Item {
            id: kind.id(random.u64(..)),
            status: (kind != ItemKind::Reasoning).then_some(Status::Completed),
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
    };
    let mut bytes = Vec::new();
    dialect.encode_response(outline, &snapshot, &mut bytes);
    played.whole_body(bytes, due)
}

fn status(reason: FinishReason) -> Status {
    match reason {
        FinishReason::Length => Status::Incomplete,
        _ => Status::Completed,
    }
}

fn called(call: &ToolCall<'_>) -> ItemKind {
    ItemKind::Call {
        call_id: call.id.as_deref().unwrap_or_default().to_owned(),
        name: call.name.as_deref().unwrap_or_default().to_owned(),
    }
}

fn stream(dialect: Dialect, outline: &Outline<'_>, played: &mut Played<'_>) -> Laid {
    let progress = |progress, snapshot: &Snapshot<'_>, number| {
        let mut bytes = Vec::new();
        dialect.encode_response_progress(outline, progress, snapshot, number, &mut bytes);
        bytes
    };
    let started = Snapshot {
        output: &[],
        status: Status::InProgress,
        usage: None,
    };
    let mut writer = Writer {
        dialect,
        first: vec![
            progress(Progress::Created, &started, 0),
            progress(Progress::InProgress, &started, 1),
        ],
        is_open: false,
        items: Vec::new(),
        last: Vec::new(),
        random: fastrand::Rng::with_seed(played.random().u64(..)),
        sequence_number: 2,
        status: Status::InProgress,
    };
    let moments = played.moments();
    // The last event repeats the request, which is not kept, and the whole answer: it is made first.
    let mut rehearsal = writer.clone();
    moments.clone().run(&mut rehearsal);
    let ended = Snapshot {
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
    /// The last item is not done.
    is_open: bool,
    items: Vec<Item>,
    /// The event behind the last item.
    last: Vec<u8>,
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
        if let Some(text) = delta.content {
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
        self.status = status(finish.reason);
        self.close(self.status, events);
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

    /// Starts an item, the one before being done.
    fn open(&mut self, kind: ItemKind, events: &mut Queue) {
        self.close(Status::Completed, events);
        let has_parts = kind.has_parts();
        self.items.push(Item {
            id: kind.id(self.random.u64(..)),
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
        events.push(kind, bytes);
    }
}
