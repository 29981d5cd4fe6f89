//! `/v1/messages`: a chat's answer as the blocks of a message.

use wire::chunk::{Choice, ToolCall};
use wire::dialect::Dialect;
use wire::dialect::messages::{BadArguments, Block, BlockKind, Calls, Ending, Event, Message};
use wire::failure::{ErrorObject, Failure};
use wire::finish::FinishReason;
use wire::request::{Prompt, Request};
use wire::usage::Usage;

use crate::layout::{End, Laid, Layout, Queue};
use crate::played::Played;
use crate::reply::{Body, Reply};
use crate::stub::{Call, Context, Stub};
use crate::timeline::{Kind, Timeline};
use crate::{answer, check, prompt};

/// Answers a request, or says why not; what its schema refuses may have another form.
pub(crate) fn reply(stub: &Stub, call: &Call<'_>, context: &mut Context) -> Result<Reply, Failure> {
    let request = parse(stub, call, false)?;
    answered(stub, &request, call, context).or_else(|failure| {
        let generating = is_of_generating(stub, &request);
        let manner = stub.dialect.manner().messages;
        match failure {
            Failure::Error(error) if request.stream && generating && manner.streams_failures => {
                Ok(failed(stub, &request, &error, context))
            }
            failure => refusal(stub, failure, generating),
        }
    })
}

/// Counts the tokens of a request's prompt.
pub(crate) fn count_tokens(stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    let request = parse(stub, call, true)?;
    let counted = stub
        .check_model(request.model.as_deref())
        .and_then(|()| prompt::counted(stub, &request));
    match counted {
        Ok(prompt) => {
            let mut out = Vec::new();
            stub.dialect.encode_token_count(prompt.tokens, &mut out);
            Ok(Reply::json(200, out))
        }
        Err(failure) => refusal(stub, failure, false),
    }
}

fn parse<'a>(stub: &Stub, call: &Call<'a>, counts: bool) -> Result<Request<'a>, Failure> {
    let content_type = call.head.content_type();
    let reasons = stub.parsers.reasoning.is_some();
    stub.dialect
        .parse_messages(content_type, call.body, counts, reasons)
}

/// Whether a request that was refused is good as far as that can be seen without its prompt.
fn is_of_generating(stub: &Stub, request: &Request<'_>) -> bool {
    let is_empty = matches!(&request.prompt, Prompt::Messages(messages) if messages.is_empty());
    !is_empty && check::parts(stub, request).is_ok()
}

/// A refusal in Anthropic's form.
fn refusal(stub: &Stub, failure: Failure, generating: bool) -> Result<Reply, Failure> {
    let Failure::Error(error) = failure else {
        return Err(failure);
    };
    let mut out = Vec::new();
    stub.dialect
        .encode_message_error(&error, generating, &mut out);
    Ok(Reply::json(error.code, out))
}

/// A stream that says why there is no answer.
fn failed(stub: &Stub, request: &Request<'_>, error: &ErrorObject, context: &mut Context) -> Reply {
    let dialect = stub.dialect;
    let id = dialect.message_id(|| context.random.u64(..), None);
    let encoded = |event: Event<'_>| {
        let mut bytes = Vec::new();
        dialect.encode_message_event(event, &mut bytes);
        bytes
    };
    let start = encoded(Event::MessageStart {
        id: &id,
        model: &answer::model(stub, request),
        usage: Usage::default(),
    });
    let error = encoded(Event::Error {
        message: &error.message,
        status: error.code,
    });
    let stop = encoded(Event::MessageStop);
    Reply::events(&[
        (Kind::Role, &start),
        (Kind::Error, &error),
        (Kind::Done, &stop),
    ])
}

fn answered(
    stub: &Stub,
    request: &Request<'_>,
    call: &Call<'_>,
    context: &mut Context,
) -> Result<Reply, Failure> {
    let prompt = check::check(stub, request)?;
    let given = call.head.header("x-request-id");
    let random = || context.random.u64(..);
    let id = stub.dialect.message_id(random, given);
    let mut played = Played::new(stub, request, &prompt, id, context)?;
    let body = if request.stream {
        Body::Stream(Timeline::laid(stream(stub.dialect, &mut played)).into())
    } else {
        whole(stub, &mut played)?
    };
    Ok(played.reply(request, call, body))
}

fn whole(stub: &Stub, played: &mut Played<'_>) -> Result<Body, Failure> {
    let (choice, due) = played.whole();
    let delta = choice.delta;
    let mut content = Vec::new();
    if let Some(text) = delta.reasoning.filter(|text| !text.is_empty()) {
        let kind = thinking(stub.dialect, played.random());
        let text = text.into_owned();
        content.push(Block { kind, text });
    }
    if let Some(text) = delta.content.filter(|text| !text.is_empty()) {
        let kind = BlockKind::Text;
        let text = text.into_owned();
        content.push(Block { kind, text });
    }
    for call in delta.tool_calls {
        let kind = tool_use(&call);
        let text = call.arguments.unwrap_or_default().into_owned();
        content.push(Block { kind, text });
    }
    let calls = match content.last() {
        // A message of which a call is no JSON does not encode.
        Some(block) if matches!(block.kind, BlockKind::ToolUse { .. }) => Calls::Complete,
        Some(_) => Calls::None,
        None => {
            let (kind, text) = (BlockKind::Text, String::new());
            content.push(Block { kind, text });
            Calls::None
        }
    };
    let finish = choice.finish;
    let finish = &finish.unwrap_or_else(|| FinishReason::Stop.into());
    let envelope = played.envelope();
    let message = Message {
        content: &content,
        ending: Ending { calls, finish },
        id: &envelope.id,
        model: &envelope.model,
        usage: played.usage,
    };
    let mut bytes = Vec::new();
    stub.dialect
        .encode_message(&message, &mut bytes)
        .map_err(|error: BadArguments| Failure::internal(error.to_string()))?;
    Ok(played.whole_body(bytes, due))
}

fn thinking(dialect: Dialect, random: &mut fastrand::Rng) -> BlockKind {
    let is_signed = dialect.manner().messages.signs_thoughts;
    BlockKind::Thinking {
        signature: is_signed.then(|| format!("{:032x}", random.u128(..))),
    }
}

fn tool_use(call: &ToolCall<'_>) -> BlockKind {
    BlockKind::ToolUse {
        id: call.id.as_deref().unwrap_or_default().to_owned(),
        name: call.name.as_deref().unwrap_or_default().to_owned(),
    }
}

fn stream(dialect: Dialect, played: &mut Played<'_>) -> Laid {
    let random = fastrand::Rng::with_seed(played.random().u64(..));
    let moments = played.moments();
    let envelope = played.envelope();
    let streams_failures = dialect.manner().messages.streams_failures;
    let writer = Writer {
        arguments: None,
        block: None,
        dialect,
        id: envelope.id.clone(),
        index: 0,
        model: envelope.model.to_string(),
        random,
        // A failure before the first output may be told alone.
        starts: streams_failures || !moments.fails_at_once(),
        usage: played.usage,
    };
    Laid::new(Box::new(writer), moments)
}

/// A stream's blocks in the making.
#[derive(Debug)]
struct Writer {
    /// Those of the last call.
    arguments: Option<String>,
    /// The block that is open.
    block: Option<BlockKind>,
    dialect: Dialect,
    /// The message's.
    id: String,
    /// The block's number.
    index: usize,
    model: String,
    /// Source of signatures.
    random: fastrand::Rng,
    /// There is a message.
    starts: bool,
    usage: Usage,
}

impl Layout for Writer {
    fn start(&mut self, events: &mut Queue) {
        if self.starts {
            let start = Event::MessageStart {
                id: &self.id,
                model: &self.model,
                usage: self.usage,
            };
            self.event(start, Kind::Role, events);
        }
    }

    fn moment(&mut self, choice: Choice<'static>, events: &mut Queue) {
        let delta = choice.delta;
        if let Some(text) = delta.reasoning.filter(|text| !text.is_empty()) {
            if !matches!(self.block, Some(BlockKind::Thinking { .. })) {
                let kind = thinking(self.dialect, &mut self.random);
                self.open(kind, events);
            }
            self.delta(&text, Kind::Reasoning, events);
        }
        if let Some(text) = delta.content.filter(|text| !text.is_empty()) {
            if self.block != Some(BlockKind::Text) {
                self.open(BlockKind::Text, events);
            }
            self.delta(&text, Kind::Content, events);
        }
        for call in delta.tool_calls {
            if call.name.is_some() {
                self.open(tool_use(&call), events);
                self.arguments = Some(String::new());
            }
            let arguments = call.arguments.as_deref().unwrap_or_default();
            if let Some(all) = self.arguments.as_mut().filter(|_| !arguments.is_empty()) {
                all.push_str(arguments);
                self.delta(arguments, Kind::Tool, events);
            }
        }
    }

    fn end(&mut self, end: End, events: &mut Queue) {
        match end {
            Ok(finish) => {
                self.close(events);
                let calls = Calls::of(self.arguments.as_deref());
                let finish = &finish;
                let delta = Event::MessageDelta(Ending { calls, finish }, self.usage);
                self.event(delta, Kind::Usage, events);
                self.event(Event::MessageStop, Kind::Done, events);
            }
            Err(fault) => {
                if self.dialect.ends_failed_blocks() {
                    self.close(events);
                }
                let message = fault.message(self.dialect.dead_engine());
                let status = 500;
                self.event(Event::Error { message, status }, Kind::Error, events);
                if self.dialect.manner().messages.streams_failures {
                    self.event(Event::MessageStop, Kind::Done, events);
                }
            }
        }
    }
}

impl Writer {
    /// Starts a block, the one before being over.
    fn open(&mut self, kind: BlockKind, events: &mut Queue) {
        self.close(events);
        self.event(Event::BlockStart(self.index, &kind), Kind::Role, events);
        self.block = Some(kind);
    }

    fn delta(&self, text: &str, kind: Kind, events: &mut Queue) {
        if let Some(block) = &self.block {
            self.event(Event::BlockDelta(self.index, block, text), kind, events);
        }
    }

    fn close(&mut self, events: &mut Queue) {
        let Some(block) = self.block.take() else {
            return;
        };
        if let BlockKind::Thinking {
            signature: Some(signature),
        } = &block
        {
            let signature = Event::Signature(self.index, signature);
            self.event(signature, Kind::Role, events);
        }
        self.event(Event::BlockStop(self.index), Kind::Role, events);
        self.index += 1;
    }

    fn event(&self, event: Event<'_>, kind: Kind, events: &mut Queue) {
        let mut bytes = Vec::new();
        self.dialect.encode_message_event(event, &mut bytes);
        events.push(kind, bytes);
    }
}
