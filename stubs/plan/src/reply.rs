//! What a stub answers: a head and a body that may take its time.

use std::sync::Arc;
use std::time::Duration;

use wire::dialect::{Content, Dialect, Headers};
use wire::failure::{ErrorObject, Failure};
use wire::http1;
use wire::request::Endpoint;
use wire::route::Route;
use wire::usage::Usage;

use crate::answer::Kept;
use crate::timeline::{Kind, Remains, Step, Timeline};
use crate::under_way::Ticket;
use crate::work::Work;

/// An answer to one request, decided before anything is sent.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers of this answer's own.
    pub headers: Headers,
    /// What follows the head.
    pub body: Body,
    /// What the truth file says of it, where that is known and somebody may want it.
    pub facts: Option<Box<Facts>>,
    /// The route that answered, if it came that far.
    pub route: Option<Route>,
    /// Its request's place among those under way, where these are kept.
    pub ticket: Option<Box<Ticket>>,
    /// What the engine does for each choice.
    pub works: Option<Arc<[Work]>>,
}

/// A reply's body.
#[derive(Debug)]
pub enum Body {
    /// Nothing.
    Empty,
    /// Nothing, though the head tells of this: an answer to `HEAD`.
    HeadAlone(Content),
    /// A body that was rendered before, the chunk framing of a stream included.
    Rendered(Arc<Rendered>),
    /// A stream, encoded as it is sent.
    Stream(Box<Timeline>),
    /// Text or JSON, all at once.
    Whole(Whole),
}

/// A body that is sent at once.
#[derive(Clone, Debug)]
pub struct Whole {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// When it is due, from the request's arrival.
    pub due: Duration,
    /// It is JSON, otherwise plain text.
    pub is_json: bool,
    /// What it is made of, where it may be given up before it is due.
    pub(crate) kept: Option<Box<Kept>>,
    /// Tokens that it tells of.
    pub tokens: u32,
}

/// A body's bytes and what they are.
#[derive(Debug, Default)]
pub struct Rendered {
    /// All of its bytes.
    pub bytes: Vec<u8>,
    /// What the head says of it.
    pub content: Content,
    /// Its events.
    pub steps: Vec<Step>,
}

/// What the truth file says of a request, as far as it is decided here; `None` does not apply.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `finish_reason` of the first choice.
    pub finish_reason: Option<&'static str>,
    /// `stream_options.include_usage` of the request.
    pub include_usage: Option<bool>,
    /// The text whose hash identifies the prompt.
    pub prompt: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u64>,
    /// Tokens between the reasoning tags, where a parser counts them.
    pub reasoning_tokens: Option<u64>,
    /// The answer's `id`.
    pub response_id: Option<Arc<str>>,
    /// Whether the answer is streamed.
    pub stream: Option<bool>,
    /// The usage that the answer ends with.
    pub usage: Option<Usage>,
}

impl Reply {
    /// A JSON answer that is due at once.
    pub fn json(status: u16, bytes: Vec<u8>) -> Self {
        Self {
            body: Body::Whole(Whole {
                bytes,
                due: Duration::ZERO,
                is_json: true,
                kept: None,
                tokens: 0,
            }),
            ..Self::empty(status)
        }
    }

    /// An answer without a body.
    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            headers: Headers::default(),
            body: Body::Empty,
            facts: None,
            route: None,
            ticket: None,
            works: None,
        }
    }

    /// The head of an answer to `GET`, without what would follow.
    pub fn head_alone(content: Content) -> Self {
        Self {
            body: Body::HeadAlone(content),
            ..Self::empty(200)
        }
    }

    /// A text of one HTTP chunk, as an application answers that does not tell its length.
    pub fn one_chunk(text: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(text.len() + 16);
        http1::write_chunk(&mut bytes, |out| out.extend_from_slice(text));
        Self::chunks(bytes, Vec::new())
    }

    /// A stream of these chunks, all due at once.
    fn chunks(mut bytes: Vec<u8>, steps: Vec<Step>) -> Self {
        bytes.extend_from_slice(http1::LAST_CHUNK);
        Self {
            body: Body::Rendered(Arc::new(Rendered {
                bytes,
                content: Content::Stream,
                steps,
            })),
            ..Self::empty(200)
        }
    }

    /// A stream of these events, all due at once.
    pub(crate) fn events(events: &[(Kind, &[u8])]) -> Self {
        let mut bytes = Vec::new();
        let mut steps = Vec::new();
        for (kind, event) in events {
            http1::write_chunk(&mut bytes, |out| out.extend_from_slice(event));
            steps.push(Step {
                due: Duration::ZERO,
                kind: *kind,
                index: None,
                tokens: 0,
                bytes: u32::try_from(event.len()).unwrap_or(u32::MAX),
            });
        }
        Self::chunks(bytes, steps)
    }

    /// A plain text that is due at once.
    pub fn text(bytes: Vec<u8>) -> Self {
        let mut reply = Self::json(200, bytes);
        if let Body::Whole(whole) = &mut reply.body {
            whole.is_json = false;
        }
        reply
    }

    /// The answer to a body of more than `limit` bytes.
    pub fn too_large(dialect: Dialect, limit: usize) -> Self {
        let failure = Failure::Error(ErrorObject {
            message: format!("Request body is larger than {limit} bytes."),
            kind: "Request Entity Too Large",
            param: None,
            code: 413,
        });
        Self::refusal(dialect, None, &failure)
    }

    /// A failure as an answer on the routes of an endpoint, or on others.
    pub(crate) fn refusal(dialect: Dialect, endpoint: Option<Endpoint>, failure: &Failure) -> Self {
        let mut out = Vec::new();
        dialect.encode_failure(endpoint, failure, &mut out);
        Self::json(failure.status(), out)
    }

    /// What the head says of the body.
    pub fn content(&self) -> Content {
        match &self.body {
            Body::Empty => Content::Empty,
            Body::HeadAlone(content) => *content,
            Body::Rendered(rendered) => rendered.content,
            Body::Stream(_) => Content::Stream,
            Body::Whole(whole) if whole.is_json => Content::Json(whole.bytes.len()),
            Body::Whole(whole) => Content::Text(whole.bytes.len()),
        }
    }
}

impl Body {
    /// Ends choices with the step that is under way at a moment, counted from the request's turn; gives
    /// what is left, or nothing if they are over by then, or cannot be ended.
    pub fn abort(&mut self, now: Duration, choices: &[u32]) -> Option<Remains> {
        match self {
            Self::Stream(timeline) => timeline.abort(now, choices),
            Self::Whole(whole) => whole.abort(now, choices),
            Self::Empty | Self::HeadAlone(_) | Self::Rendered(_) => None,
        }
    }

    /// Says that the request was given up before its turn came, at that moment.
    pub fn give_up(&mut self, dialect: Dialect, now: Duration) -> Option<Remains> {
        let finish = dialect.unstarted(false);
        match self {
            Self::Stream(timeline) => timeline.silence(now, &finish),
            Self::Whole(whole) => whole.silence(now, &finish),
            Self::Empty | Self::HeadAlone(_) | Self::Rendered(_) => None,
        }
    }
}

impl Whole {
    /// How the truth file tells of it.
    pub fn step(&self) -> Step {
        Step {
            due: self.due,
            kind: Kind::Body,
            index: None,
            tokens: self.tokens,
            bytes: u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
        }
    }
}
