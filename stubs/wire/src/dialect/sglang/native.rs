//! SGLang's own answer: text, ids and `meta_info`.
//!
//! A stream says all so far in each frame, so what was said is kept as bytes and grown: a frame costs its
//! own bytes and what is new, not the answer so far.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::chunk::{Choice, Chunk, Progress};
use crate::dialect::{Envelope, Meta};
use crate::finish::{Finish, FinishReason, StopReason};
use crate::http1::write_number;
use crate::json;

use super::lists::{Lists, member, named, push_ids};
use super::{Front, rust};

/// What was said of each choice of a stream.
pub type Told = Vec<ToldChoice>;

/// What was said of one choice, as JSON without its brackets and quotes.
#[derive(Clone, Debug, Default)]
pub struct ToldChoice {
    ids: Vec<u8>,
    pub(super) lists: Option<Box<Lists>>,
    text: Vec<u8>,
    /// When its first frame went out, in Unix seconds.
    first_sent: f64,
    /// Seconds from the request to it.
    first_seconds: f64,
}

/// `weight_versions`: one version for all tokens.
#[derive(Serialize)]
pub(super) struct WeightVersion {
    version: &'static str,
    start: u64,
    end: u64,
}

impl WeightVersion {
    pub(super) const NAME: &'static str = "default";

    pub(super) fn up_to(end: u64) -> Self {
        Self {
            version: Self::NAME,
            start: 0,
            end,
        }
    }
}

/// Appends the JSON of one frame.
pub(super) fn encode(
    front: Front,
    envelope: &Envelope,
    chunk: &Chunk<'_>,
    told: &mut Told,
    out: &mut Vec<u8>,
) {
    let (Some(choice), Some(meta)) = (chunk.choices.first(), envelope.meta.as_deref()) else {
        return;
    };
    let number = choice.index as usize;
    if told.len() <= number {
        told.resize_with(number + 1, ToldChoice::default);
    }
    let told = &mut told[number];
    if meta.incremental {
        told.forget();
    }
    told.take(meta, choice);
    frame(front, envelope, choice, told, Form::Frame, out);
}

/// Appends the JSON of a whole answer: an object, or a list of them.
pub(super) fn encode_whole(
    front: Front,
    envelope: &Envelope,
    answer: &Chunk<'_>,
    out: &mut Vec<u8>,
) {
    let Some(meta) = envelope.meta.as_deref() else {
        return;
    };
    if meta.is_list {
        out.push(b'[');
    }
    for (number, choice) in answer.choices.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        let mut told = ToldChoice::default();
        told.take(meta, choice);
        frame(front, envelope, choice, &told, Form::Whole, out);
    }
    if meta.is_list {
        out.push(b']');
    }
}

/// `meta_info` of a chat's choice.
pub(super) fn meta_info(id: &str, meta: &Meta, choice: &Choice<'_>) -> Box<RawValue> {
    let mut told = ToldChoice::default();
    told.take(meta, choice);
    let mut out = Vec::new();
    write_meta(id, meta, choice, &told, Form::Whole, &mut out);
    let json = String::from_utf8(out).expect("texts, ids and numbers are UTF-8");
    RawValue::from_string(json).expect("an object was written")
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    Frame,
    Whole,
}

fn frame(
    front: Front,
    envelope: &Envelope,
    choice: &Choice<'_>,
    told: &ToldChoice,
    form: Form,
    out: &mut Vec<u8>,
) {
    let Some(meta) = envelope.meta.as_deref() else {
        return;
    };
    out.push(b'{');
    if !meta.without_text {
        out.extend_from_slice(br#""text":""#);
        out.extend_from_slice(&told.text);
        out.extend_from_slice(br#"","#);
    }
    let id = envelope.id_of(choice.index);
    if front == Front::Rust {
        out.extend_from_slice(br#""meta_info":"#);
        rust::native::write_meta(id, meta, choice, told, out);
        if !told.ids.is_empty() {
            named("output_ids", "", &told.ids, out);
        }
    } else {
        out.extend_from_slice(br#""output_ids":["#);
        out.extend_from_slice(&told.ids);
        out.extend_from_slice(br#"],"meta_info":"#);
        write_meta(id, meta, choice, told, form, out);
    }
    if let Some(ids) = &choice.prompt_token_ids {
        out.extend_from_slice(br#","prompt_token_ids":["#);
        push_ids(ids, out);
        out.push(b']');
    }
    if meta.is_list && form == Form::Frame {
        member("index", choice.index, out);
    }
    out.push(b'}');
}

/// Appends `meta_info`.
fn write_meta(
    id: &str,
    meta: &Meta,
    choice: &Choice<'_>,
    told: &ToldChoice,
    form: Form,
    out: &mut Vec<u8>,
) {
    let progress = choice.progress.unwrap_or_default();
    let completion_tokens = progress.usage.completion_tokens.unwrap_or(0);
    out.extend_from_slice(br#"{"id":""#);
    json::escape_into(id, out);
    out.extend_from_slice(br#"","finish_reason":"#);
    finish_reason(choice.finish.as_ref(), completion_tokens, out);
    let versions = [WeightVersion::up_to(completion_tokens)];
    let Some(prompt_tokens) = progress.usage.prompt_tokens else {
        // What never ran tells little.
        member("weight_version", WeightVersion::NAME, out);
        member("e2e_latency", progress.seconds, out);
        member("weight_versions", versions, out);
        member("completion_tokens", completion_tokens, out);
        let sent = meta.started + progress.seconds;
        member("response_sent_to_client_ts", sent, out);
        return out.push(b'}');
    };
    count(br#","prompt_tokens":"#, prompt_tokens, out);
    out.extend_from_slice(br#","weight_version":"default","num_retractions":0"#);
    let stages = meta.tells_stages.then(|| Stages::new(meta, told, progress));
    if let Some(stages) = &stages {
        stages.write_start(out);
    }
    if let (Some(asked), Some(lists)) = (&meta.logprobs, &told.lists) {
        lists.write(asked, completion_tokens, out);
    }
    let reasoning_tokens = progress.usage.reasoning_tokens.unwrap_or(0);
    count(br#","reasoning_tokens":"#, reasoning_tokens, out);
    count(br#","completion_tokens":"#, completion_tokens, out);
    let cached = progress.usage.cache.map_or(0, |cache| cache.cached);
    count(br#","cached_tokens":"#, cached, out);
    let is_last = choice.finish.is_some();
    if is_last {
        member("weight_versions", versions, out);
    }
    if cached > 0 {
        count(br#","cached_tokens_details":{"device":"#, cached, out);
        out.extend_from_slice(br#","host":0},"dp_rank":null"#);
    } else {
        out.extend_from_slice(br#","cached_tokens_details":null,"dp_rank":null"#);
    }
    if is_last {
        member("e2e_latency", progress.seconds, out);
        if let Some(stages) = &stages {
            stages.write_end(form, out);
        }
    }
    if form == Form::Whole || progress.is_first {
        let sent = meta.started + progress.seconds;
        member("response_sent_to_client_ts", sent, out);
    }
    out.push(b'}');
}

/// Times of a request's way through the server.
struct Stages {
    started: f64,
    first: f64,
    first_sent: f64,
    seconds: f64,
    tokens: u64,
}

impl Stages {
    fn new(meta: &Meta, told: &ToldChoice, progress: Progress) -> Self {
        Self {
            started: meta.started,
            first: told.first_seconds,
            first_sent: told.first_sent,
            seconds: progress.seconds,
            tokens: progress.usage.completion_tokens.unwrap_or(0),
        }
    }

    fn write_start(&self, out: &mut Vec<u8>) {
        member("storage_prefetch_wait", 0.0, out);
        member("storage_staging_wait", 0.0, out);
        member("forward_entry_time", self.started, out);
        member("prefill_finished_time", self.started + self.first, out);
        member("queue_time", 0.0, out);
    }

    fn write_end(&self, form: Form, out: &mut Vec<u8>) {
        member("request_received_ts", self.started, out);
        member("first_token_latency", self.first, out);
        member("api_server_dispatch_finish_ts", self.started, out);
        if form == Form::Frame {
            member("response_sent_to_client_ts", self.first_sent, out);
        }
        member("request_finished_ts", self.started + self.seconds, out);
        #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
        let tokens = self.tokens.saturating_sub(1) as f64;
        let decoding = (self.seconds - self.first).max(1e-6);
        member("decode_throughput", tokens / decoding, out);
    }
}

/// Appends a number behind what names it.
fn count(before: &[u8], number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(before);
    write_number(usize::try_from(number).unwrap_or(usize::MAX), out);
}

#[derive(Serialize)]
struct Matched<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    matched: Option<&'a StopReason<'a>>,
}

#[derive(Serialize)]
struct Length {
    #[serde(rename = "type")]
    kind: &'static str,
    length: u64,
}

#[derive(Serialize)]
struct Aborted {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'static str,
    status_code: (),
    err_type: (),
}

#[derive(Serialize)]
struct Queued<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_code: Option<u16>,
    message: &'a str,
}

/// What a request is told that finds the queue full.
pub(super) const QUEUE_FULL: &str = "The request queue is full.";

/// The end of a request that never ran.
pub(in crate::dialect) fn unstarted(is_full: bool) -> Finish<'static> {
    let message = if is_full {
        QUEUE_FULL
    } else {
        "Abort in waiting queue"
    };
    Finish {
        reason: FinishReason::Abort,
        stop_reason: Some(StopReason::Text(message.into())),
    }
}

pub(super) fn finish_reason(finish: Option<&Finish<'_>>, length: u64, out: &mut Vec<u8>) {
    let Some(finish) = finish else {
        return out.extend_from_slice(b"null");
    };
    let kind = finish.reason.as_str();
    let written = match (finish.reason, &finish.stop_reason) {
        (FinishReason::Length, _) => serde_json::to_writer(out, &Length { kind, length }),
        (FinishReason::Abort, Some(StopReason::Text(message))) => serde_json::to_writer(
            out,
            &Queued {
                kind,
                status_code: (message == QUEUE_FULL).then_some(503),
                message,
            },
        ),
        (FinishReason::Abort, _) => serde_json::to_writer(
            out,
            &Aborted {
                kind,
                message: "Aborted",
                status_code: (),
                err_type: (),
            },
        ),
        (_, matched) => serde_json::to_writer(
            out,
            &Matched {
                kind,
                matched: matched.as_ref(),
            },
        ),
    };
    written.expect("strings and numbers encode");
}

impl ToldChoice {
    /// Forgets what was said, but not when the first was.
    fn forget(&mut self) {
        self.text.clear();
        self.ids.clear();
        if let Some(lists) = &mut self.lists {
            lists.forget_output();
        }
    }

    /// Adds what a frame brings.
    fn take(&mut self, meta: &Meta, choice: &Choice<'_>) {
        if let Some(progress) = choice.progress.filter(|progress| progress.is_first) {
            self.first_seconds = progress.seconds;
            self.first_sent = meta.started + progress.seconds;
        }
        if let Some(text) = &choice.delta.content {
            json::escape_into(text, &mut self.text);
        }
        if let Some(ids) = choice.token_ids.as_deref().filter(|ids| !ids.is_empty()) {
            if !self.ids.is_empty() {
                self.ids.push(b',');
            }
            push_ids(ids, &mut self.ids);
        }
        if let Some(asked) = &meta.logprobs {
            let lists = self.lists.get_or_insert_default();
            for token in choice.prompt_logprobs.iter().flatten().flatten() {
                lists.push_input(asked, token);
            }
            for token in choice.logprobs.iter().flatten() {
                lists.push_output(asked, token);
            }
        }
    }
}
