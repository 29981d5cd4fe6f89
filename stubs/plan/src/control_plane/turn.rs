//! A turn on its way: the worker's words in, the client's events out.

use std::time::Duration;

use wire::executorch::{
    ChatRequest, Chunk, Completion, Delta, ToolCall, Usage, encode_failure_event,
};
use wire::worker_lines::{Ask, Stats, Token};

use super::clean::{Cleaned, Gathered, Stops};
use super::template::plain_text;
use super::tools::Tool;
use super::transcript::{Remembered, fingerprint};
use super::{ControlPlane, TurnRecord};
use crate::Kind;

/// A turn that was prepared, and what has been said in it.
#[derive(Debug)]
pub struct Turn {
    /// What the worker is asked.
    pub ask: Ask,
    /// The answer's `id`.
    pub id: String,
    /// `stream_options.include_usage` of the request.
    pub include_usage: Option<bool>,
    /// Whether the answer is streamed.
    pub is_stream: bool,
    /// The text of the last user message.
    pub prompt: Option<String>,
    answer: Answer,
    ends: Ends,
    model: String,
    prior_turns: usize,
    scene: Scene,
    /// Half of a pair of a character that stands alone, if the worker has said one.
    surrogate: Option<u16>,
}

/// What a turn is in.
#[derive(Debug)]
pub(super) struct Scene {
    /// The session's number, if it has one.
    pub(super) number: u64,
    /// What stands between the assistant's header and its first token.
    pub(super) preamble: String,
    /// The tools, if the answer may call any.
    pub(super) tools: Option<Vec<Tool>>,
}

/// What an answer ends at.
#[derive(Debug)]
pub(super) struct Ends {
    /// Texts that no answer shows, in what is left of it.
    specials: Stops,
    /// All that the worker is told.
    stops: Stops,
    /// What ends an answer before calls are looked for in it.
    turn: Stops,
}

/// What a worker has said.
#[derive(Debug)]
enum Answer {
    /// Text that is looked at when it is all there.
    Gathered(Gathered),
    /// Text that is shown as it comes, and what was shown.
    Shown(Cleaned, String),
}

/// A part of an answer: an event with its framing, or all of what is not streamed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// What it is.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Why a turn fails, though the worker goes on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The worker said something that is no text.
    #[error("can only concatenate str (not \"{0}\") to str")]
    Mistyped(&'static str),
    /// The worker said half of a character.
    #[error(
        "Error serializing to JSON: UnicodeEncodeError: 'utf-8' codec can't encode character \
         '\\u{code:04x}' in position {position}: surrogates not allowed"
    )]
    Unencodable {
        /// The half.
        code: u16,
        /// Characters before it in the event.
        position: usize,
    },
}

/// What becomes of some text.
#[derive(Debug, Default)]
pub struct Taken {
    /// What is shown of it.
    pub event: Option<Event>,
    /// A stop has come that the worker did not see.
    pub stops: bool,
}

/// What a server knows of a turn beside the worker's words.
#[derive(Clone, Debug, Default)]
pub struct Waited {
    /// The client's name for the request, or the server's.
    pub request_id: String,
    /// How long the request waited for the worker.
    pub queue: Duration,
    /// From the request to the worker's first text.
    pub ttft: Option<Duration>,
}

/// A turn that is over.
#[derive(Debug)]
pub struct Over {
    /// The rest of the answer.
    pub events: Vec<Event>,
    /// The server fails behind these.
    pub is_cut: bool,
    /// What is told of it.
    pub record: TurnRecord,
    /// The usage of the answer, if the worker told one.
    pub usage: Option<Usage>,
}

impl Ends {
    pub(super) fn new(plane: &ControlPlane, request: Vec<String>, calls_tools: bool) -> Self {
        let turn = [plane.template.terminators(), request.clone()].concat();
        let specials = plane.template.specials();
        let stops = if calls_tools {
            turn.clone()
        } else {
            [plane.template.terminators(), specials.clone(), request].concat()
        };
        Self {
            specials: Stops::new(specials),
            stops: Stops::new(stops),
            turn: Stops::new(turn),
        }
    }

    pub(super) fn stops(&self) -> Vec<String> {
        self.stops.texts().to_vec()
    }
}

impl Turn {
    pub(super) fn new(
        plane: &ControlPlane,
        request: &ChatRequest<'_>,
        (ask, ends): (Ask, Ends),
        id: String,
        scene: Scene,
    ) -> Self {
        let is_stream = request.bool("stream").unwrap_or(false);
        let is_role = |role: &'static str| {
            move |message: &wire::executorch::Message<'_, '_>| message.role() == role
        };
        let last = request.messages().rev().find(is_role("user"));
        let last = last.or_else(|| request.messages().next_back());
        Self {
            answer: if is_stream && scene.tools.is_none() {
                Answer::Shown(Cleaned::default(), String::new())
            } else {
                Answer::Gathered(Gathered::default())
            },
            ask,
            ends,
            id,
            include_usage: request.include_usage(),
            is_stream,
            model: plane.model.clone(),
            prior_turns: request.messages().filter(is_role("assistant")).count(),
            prompt: last.map(|message| plain_text(message.content())),
            scene,
            surrogate: None,
        }
    }

    /// The event that a stream begins with, before the worker is asked.
    pub fn begin(&self, created: u64) -> Event {
        let role = Delta {
            role: Some("assistant"),
            ..Delta::default()
        };
        self.event(Kind::Role, role, created)
    }

    /// Takes some text of the worker.
    ///
    /// # Errors
    /// If it is none that an answer can hold.
    pub fn take(&mut self, token: Token, created: u64) -> Result<Taken, Fault> {
        let has_stopped = match &self.answer {
            Answer::Gathered(gathered) => gathered.has_stopped,
            Answer::Shown(cleaned, _) => cleaned.has_stopped,
        };
        if has_stopped {
            return Ok(Taken::default());
        }
        let text = match token {
            Token::Other(kind) => return Err(Fault::Mistyped(kind)),
            Token::Surrogates(text, code) => {
                self.surrogate.get_or_insert(code);
                text
            }
            Token::Text(text) => text,
        };
        let stops = &self.ends.stops;
        match &mut self.answer {
            Answer::Gathered(gathered) => Ok(Taken {
                event: None,
                stops: gathered.add(stops, &text),
            }),
            Answer::Shown(cleaned, _) => {
                let (shown, stops) = cleaned.add(stops, &text);
                let event = shown.map(|shown| self.show(&shown, created)).transpose()?;
                Ok(Taken { event, stops })
            }
        }
    }

    fn show(&mut self, text: &str, created: u64) -> Result<Event, Fault> {
        if let (Some(code), Some(at)) = (self.surrogate, text.find(char::REPLACEMENT_CHARACTER)) {
            let position = text[..at].chars().count();
            return Err(Fault::Unencodable { code, position });
        }
        if let Answer::Shown(_, all) = &mut self.answer {
            all.push_str(text);
        }
        let content = Delta {
            content: Some(text),
            ..Delta::default()
        };
        Ok(self.event(Kind::Content, content, created))
    }

    /// Ends the turn as the worker has ended it; `random` makes the calls' ids.
    ///
    /// # Errors
    /// If what is left of the text is none that an answer can hold.
    pub fn end(
        mut self,
        plane: &ControlPlane,
        stats: Stats,
        waited: Waited,
        created: u64,
        random: impl FnMut() -> u128,
    ) -> Result<Over, Fault> {
        let mut events = Vec::new();
        if let Answer::Shown(cleaned, _) = &mut self.answer
            && let Some(rest) = cleaned.rest()
        {
            events.push(self.show(&rest, created)?);
        }
        let (content, calls, has_stopped) = self.read(plane, random);
        if let Some(session_id) = &self.ask.session_id {
            let ids = stats.generated_token_ids.clone();
            let said = Remembered {
                fingerprint: fingerprint(&content, &calls),
                ids: (!ids.is_empty()).then_some(ids),
                preamble: std::mem::take(&mut self.scene.preamble),
            };
            let number = self.scene.number;
            let mut transcripts = plane.transcripts();
            transcripts.note(session_id, number, self.prior_turns, said);
        }
        let finish = self.finish(&stats, !calls.is_empty(), has_stopped);
        let counts = stats.prompt_tokens.zip(stats.completion_tokens);
        let usage = counts.map(|(prompt_tokens, completion_tokens)| Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
        });
        let is_cut = if self.is_stream {
            self.end_stream((&content, &calls), (finish, usage), created, &mut events)
        } else {
            self.end_whole((&content, &calls), (finish, usage), created, &mut events)
        };
        let record = TurnRecord {
            stats,
            finish,
            request_id: waited.request_id,
            session_id: self.ask.session_id.clone(),
            queue: waited.queue,
            ttft: waited.ttft,
        };
        Ok(Over {
            events,
            is_cut,
            record,
            usage,
        })
    }

    /// What the answer says, the calls in it, and whether the server saw a stop.
    fn read(
        &self,
        plane: &ControlPlane,
        mut random: impl FnMut() -> u128,
    ) -> (String, Vec<ToolCall>, bool) {
        let gathered = match &self.answer {
            Answer::Gathered(gathered) => gathered,
            Answer::Shown(cleaned, shown) => {
                return (shown.clone(), Vec::new(), cleaned.has_stopped);
            }
        };
        let text = self.ends.turn.cut(&gathered.text);
        let read = self.scene.tools.as_ref();
        let read = read.map(|tools| plane.tool_format.read(text, tools));
        let (content, calls) = match &read {
            Some(read) => (&*read.content, &read.calls[..]),
            None => (text, &[][..]),
        };
        let call = |(index, (name, arguments)): (u32, &(String, String))| ToolCall {
            index,
            id: format!("call-{:032x}", random()),
            name: name.clone(),
            arguments: arguments.clone(),
        };
        let calls = (0..).zip(calls).map(call).collect();
        let content = self.ends.specials.cut(content).to_owned();
        (content, calls, gathered.has_stopped)
    }

    fn finish(&self, stats: &Stats, calls: bool, has_stopped: bool) -> &'static str {
        let most = self.ask.max_new_tokens;
        let fills = stats
            .completion_tokens
            .is_some_and(|tokens| most > 0 && tokens >= most);
        match stats.finish_reason.as_deref() {
            _ if calls => "tool_calls",
            _ if has_stopped => "stop",
            Some("stop") => "stop",
            Some("length") => "length",
            _ if fills => "length",
            _ => "stop",
        }
    }

    /// Adds the last events; true if the server fails behind them.
    fn end_stream(
        &self,
        (content, calls): (&str, &[ToolCall]),
        (finish, usage): (&'static str, Option<Usage>),
        created: u64,
        events: &mut Vec<Event>,
    ) -> bool {
        if let Answer::Gathered(_) = &self.answer {
            if !content.is_empty() {
                let content = Delta {
                    content: Some(content),
                    ..Delta::default()
                };
                events.push(self.event(Kind::Content, content, created));
            }
            for call in calls {
                let call = Delta {
                    tool_calls: Some(std::slice::from_ref(call)),
                    ..Delta::default()
                };
                events.push(self.event(Kind::Tool, call, created));
            }
        }
        let chunk = self.chunk(created);
        events.push(event(Kind::Finish, |out| {
            chunk.encode(Delta::default(), Some(finish), out);
        }));
        if self.include_usage == Some(true) {
            let Some(usage) = usage else {
                return true;
            };
            events.push(event(Kind::Usage, |out| chunk.encode_usage(usage, out)));
        }
        events.push(done());
        false
    }

    /// Adds the body; true if the server fails instead.
    fn end_whole(
        &self,
        (content, calls): (&str, &[ToolCall]),
        (finish_reason, usage): (&'static str, Option<Usage>),
        created: u64,
        events: &mut Vec<Event>,
    ) -> bool {
        let is_half =
            |text: &str| self.surrogate.is_some() && text.contains(char::REPLACEMENT_CHARACTER);
        let Some(usage) = usage.filter(|_| !is_half(content)) else {
            return true;
        };
        let completion = Completion {
            id: &self.id,
            created,
            model: &self.model,
            content: (!content.is_empty()).then_some(content),
            tool_calls: (!calls.is_empty()).then_some(calls),
            finish_reason,
            usage,
        };
        let mut bytes = Vec::new();
        completion.encode(&mut bytes);
        let kind = Kind::Body;
        events.push(Event { kind, bytes });
        false
    }

    fn chunk(&self, created: u64) -> Chunk<'_> {
        Chunk {
            id: &self.id,
            created,
            model: &self.model,
        }
    }

    fn event(&self, kind: Kind, delta: Delta<'_>, created: u64) -> Event {
        event(kind, |out| self.chunk(created).encode(delta, None, out))
    }
}

impl Event {
    /// How a stream ends whose turn failed.
    pub fn failure(detail: &str) -> [Self; 2] {
        let error = event(Kind::Error, |out| encode_failure_event(detail, out));
        [error, done()]
    }
}

fn event(kind: Kind, data: impl FnOnce(&mut Vec<u8>)) -> Event {
    let mut bytes = b"data: ".to_vec();
    data(&mut bytes);
    bytes.extend_from_slice(b"\n\n");
    Event { kind, bytes }
}

fn done() -> Event {
    event(Kind::Done, |out| out.extend_from_slice(b"[DONE]"))
}
