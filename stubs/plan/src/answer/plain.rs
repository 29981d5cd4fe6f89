//! The quick way to a plain answer: one choice whose text no parser touches, due as soon as it is asked
//! for. It says what the long way says, which the tests hold it to.

use std::sync::Arc;
use std::time::Duration;

use wire::dialect::{Content, Encoder, Envelope, Field, Finishes, Shape};
use wire::http1;
use wire::request::{Endpoint, Request, UsagePolicy};
use wire::sse;
use wire::usage::Usage;

use super::play;
use crate::generate::Plain;
use crate::pace::Pace;
use crate::prompt::Counted;
use crate::reply::{Body, Facts, Rendered, Reply};
use crate::script::{Piece, Pieces, Rhythm, Script};
use crate::stub::Stub;
use crate::timeline::{Kind, Step};
use crate::work::Work;

/// Longest text that is rendered at once, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// Longest stream that is, about, in bytes: all of it stays in memory until the client has taken it.
const MAX_STREAM: usize = 1 << 20;

/// What stands around the text of a chunk, mostly less.
const AROUND_TEXT: usize = 320;

/// Whether a usual request can have a plain answer from this stub.
pub(super) fn may_be(stub: &Stub, request: &Request<'_>, policy: UsagePolicy) -> bool {
    let (engine, parsers) = (&stub.engine, &stub.parsers);
    let tells_cache = !stub.dialect.manner().tells_choices || stub.streaming.cache_report;
    engine.pace == Pace::Burst
        && request.endpoint != Endpoint::Generate
        && !(tells_cache && engine.prefix_cache.is_some())
        && engine.max_osl.is_none()
        && parsers.reasoning.is_none()
        && parsers.tools.is_none()
        && !stub.streaming.request_metrics
        && !(policy.is_running() && request.stream)
}

/// A script's first choice, said as it is.
pub(super) struct Quick<'a> {
    max_tokens: Option<u64>,
    plain: Plain<'a>,
}

impl<'a> Quick<'a> {
    /// That of a script, unless it takes the long way.
    pub(super) fn new(
        stub: &Stub,
        request: &Request<'_>,
        prompt: &Counted<'_>,
        script: &'a Script,
        envelope: &Envelope,
    ) -> Option<Self> {
        let is_even =
            script.cut.is_none() && script.pauses.is_empty() && script.rhythm == Rhythm::Single;
        let answer = script.choices.first().filter(|_| is_even)?;
        let rules = play::rules(stub, request, prompt.tokens);
        let plain = rules.untouched(answer)?;
        let is_silent = |piece: Piece| piece.bytes == 0;
        let skips_empty = stub.dialect.manner().finishes == Finishes::Behind;
        let fits = plain.text.len() <= MAX_TEXT
            && !(skips_empty && plain.pieces.iter().any(is_silent))
            && plain.finish.stop_reason.is_none()
            && (!request.stream || Cuts::new(stub, &plain).bytes(envelope) <= MAX_STREAM);
        fits.then_some(Self {
            max_tokens: rules.max_tokens,
            plain,
        })
    }

    /// Has the prefix cache take up prompt and answer, where there is one that nobody is told of.
    pub(super) fn take_up(&self, stub: &Stub, prompt: &Counted<'_>) {
        let Some(cache) = &stub.engine.prefix_cache else {
            return;
        };
        let ids = prompt.ids(stub);
        cache.prompt(&ids[0]);
        let said = self.plain.pieces.iter().filter_map(|piece| piece.id);
        let end = self.plain.end.and_then(|end| end.id);
        cache.answered(&ids[0], &said.chain(end).collect::<Vec<u32>>());
    }

    /// The reply that says it.
    pub(super) fn reply(
        self,
        stub: &Stub,
        request: &Request<'_>,
        prompt: &Counted<'_>,
        envelope: Envelope,
        mut spare: Arc<Rendered>,
        wants_facts: bool,
    ) -> Reply {
        let Self { max_tokens, plain } = self;
        // SGLang tells of reasoning in every usage.
        let reasoning_tokens = stub.dialect.manner().tells_choices.then_some(0);
        let speech = Speech {
            cuts: Cuts::new(stub, &plain),
            encoder: Encoder::new(stub.dialect, envelope, Arc::clone(&stub.patterns)),
            usage: Usage {
                reasoning_tokens,
                ..Usage::new(prompt.tokens, plain.tokens)
            },
            plain,
        };
        let rendered = Arc::get_mut(&mut spare).expect("nobody else has what is spare");
        let steps = if request.stream {
            speech.stream(rendered)
        } else {
            speech.whole(rendered)
        };
        let envelope = speech.encoder.envelope();
        let sends_usage = !request.stream || envelope.usage.is_told_at_end();
        let facts = || Facts {
            finish_reason: Some(speech.plain.finish.reason.as_str()),
            prompt_tokens: Some(prompt.tokens),
            reasoning_tokens,
            response_id: Some(envelope.id.as_str().into()),
            stream: Some(request.stream),
            usage: Some(speech.usage).filter(|_| sends_usage),
            ..Facts::default()
        };
        let work = Work {
            cached_tokens: None,
            choices: 1,
            finish: Some(speech.plain.finish.reason),
            first_due: Duration::ZERO,
            last_due: Duration::ZERO,
            max_tokens,
            prompt_tokens: prompt.tokens,
            steps,
            tokens: speech.plain.tokens,
        };
        Reply {
            body: Body::Rendered(spare),
            facts: wants_facts.then(|| Box::new(facts())),
            works: Some(Arc::new([work])),
            ..Reply::empty(200)
        }
    }
}

/// A plain answer and how it is written.
struct Speech<'a> {
    cuts: Cuts,
    encoder: Encoder,
    plain: Plain<'a>,
    usage: Usage,
}

/// Where the steps of an answer are cut into chunks.
#[derive(Clone, Copy)]
struct Cuts {
    /// Steps of the first chunk.
    first: usize,
    /// Steps of each further chunk.
    every: usize,
    /// Steps of the engine.
    steps: usize,
}

impl Cuts {
    fn new(stub: &Stub, plain: &Plain<'_>) -> Self {
        let (first, every) = stub.streaming.chunk_steps(1);
        Self {
            first: first.max(1) as usize,
            every: every as usize,
            steps: plain.pieces.count() + usize::from(plain.end.is_some()),
        }
    }

    /// Number of chunks.
    fn count(self) -> usize {
        1 + self.steps.saturating_sub(self.first).div_ceil(self.every)
    }

    /// About the bytes of a stream, its text left out.
    fn bytes(self, envelope: &Envelope) -> usize {
        // A client chooses how long an id is.
        let around = AROUND_TEXT + envelope.id.len();
        self.count().saturating_mul(around)
    }
}

impl Speech<'_> {
    /// The answer at once, and its steps of the engine.
    fn whole(&self, out: &mut Rendered) -> u64 {
        let (text, bytes) = (self.plain.text, &mut out.bytes);
        bytes.reserve(text.len() + text.len() / 8 + super::whole::AROUND);
        let shape = Shape::answer(self.plain.finish.reason);
        self.encoder.shaped(shape, text, self.usage, bytes);
        out.content = Content::Json(bytes.len());
        out.steps.push(Step {
            due: Duration::ZERO,
            kind: Kind::Body,
            index: None,
            tokens: small(self.plain.tokens),
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        });
        self.cuts.count() as u64
    }

    /// The answer as a stream, and its chunks of text.
    fn stream(&self, rendered: &mut Rendered) -> u64 {
        let (chunks, envelope) = (self.cuts.count(), self.encoder.envelope());
        let room = AROUND_TEXT * (chunks + 4) + self.plain.text.len();
        rendered.content = Content::Stream;
        rendered.bytes.reserve(room);
        rendered.steps.reserve(chunks + 4);
        let mut out = Stream {
            bytes: &mut rendered.bytes,
            encoder: &self.encoder,
            steps: &mut rendered.steps,
        };
        if envelope.endpoint == Endpoint::Chat {
            out.shaped(
                (Kind::Role, Some(0), 0),
                Shape::role(),
                "",
                Usage::default(),
            );
        }
        let (pieces, text) = self.texts(chunks - 1, &mut out);
        let end = self.plain.end.map_or(0, |end| end.tokens);
        let mut tokens = small(pieces.tokens()) + end;
        let mut text = text;
        let mut finish = Shape::finish(self.plain.finish.reason);
        let manner = self.encoder.dialect().manner();
        if envelope.endpoint == Endpoint::Chat && manner.finishes == Finishes::Behind {
            if !text.is_empty() {
                let told = (Kind::Content, Some(0), std::mem::take(&mut tokens));
                out.shaped(told, Shape::text(0, Field::Content), text, Usage::default());
            }
            finish = Shape::bare_finish(self.plain.finish.reason);
            text = "";
        }
        out.shaped(
            (Kind::Finish, Some(0), tokens),
            finish,
            text,
            Usage::default(),
        );
        if envelope.usage.is_told_at_end() {
            out.shaped((Kind::Usage, None, 0), Shape::usage(), "", self.usage);
        }
        http1::write_chunk(out.bytes, |bytes| bytes.extend_from_slice(sse::DONE));
        out.step((Kind::Done, None, 0), sse::DONE.len());
        out.bytes.extend_from_slice(http1::LAST_CHUNK);
        chunks as u64
    }
}

impl<'a> Speech<'a> {
    /// The first so many chunks of text; gives the pieces behind them, and their text.
    fn texts(&self, chunks: usize, out: &mut Stream<'_>) -> (Pieces<'a>, &'a str) {
        let mut template = self.encoder.new_template(0, Field::Content);
        let Cuts { first, every, .. } = self.cuts;
        let (mut pieces, mut text) = (self.plain.pieces, self.plain.text);
        let mut left = chunks;
        let mut room = first;
        if let Pieces::Bytes(_) = pieces
            && first == every
        {
            let (said, behind) = text.split_at(chunks * every);
            if let Some(bytes) = template.write_chunks(said, every, out.bytes) {
                let told = (Kind::Content, Some(0), small(every as u64));
                out.steps
                    .extend(std::iter::repeat_n(step(told, bytes), chunks));
                (pieces, text) = (pieces.split_at(said.len()).1, behind);
                left = 0;
            }
        }
        for _ in 0..left {
            let (taken, rest) = pieces.split_at(room);
            let (said, behind) = text.split_at(taken.bytes());
            let bytes = template.write_chunk(said, out.bytes);
            out.step((Kind::Content, Some(0), small(taken.tokens())), bytes);
            (pieces, text) = (rest, behind);
            room = every;
        }
        (pieces, text)
    }
}

/// A number of tokens of one event.
fn small(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// Events that are due at once.
struct Stream<'a> {
    bytes: &'a mut Vec<u8>,
    encoder: &'a Encoder,
    steps: &'a mut Vec<Step>,
}

impl Stream<'_> {
    fn shaped(&mut self, told: Told, shape: Shape, text: &str, usage: Usage) {
        let mut written = 0;
        http1::write_chunk(self.bytes, |bytes| {
            let start = bytes.len();
            self.encoder.shaped(shape, text, usage, bytes);
            written = bytes.len() - start;
        });
        self.step(told, written);
    }

    fn step(&mut self, told: Told, bytes: usize) {
        self.steps.push(step(told, bytes));
    }
}

fn step((kind, index, tokens): Told, bytes: usize) -> Step {
    Step {
        due: Duration::ZERO,
        kind,
        index,
        tokens,
        bytes: u32::try_from(bytes).expect("an event is shorter than 4 GiB"),
    }
}

/// What an event is, its choice, and the tokens that it tells of.
type Told = (Kind, Option<u32>, u32);
