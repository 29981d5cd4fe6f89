//! What an answer says, taken from its bytes as they come.

use wire::chunk::{DecodeError, Gist, Reader, Samples, Settled};
use wire::http1::ResponseHead;
use wire::sse::Decoder;
use wire::usage::Usage;

use crate::record::{Event, Failure, TextChunk};

/// Longest reason of a failure that is kept, in bytes.
const MAX_DETAIL: usize = 400;

/// What an answer is to look like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Form {
    /// Frames of SGLang's own, not chunks.
    pub(super) is_native: bool,
    pub(super) is_stream: bool,
}

/// What is kept of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    /// The data of every event.
    pub(super) data: bool,
    /// Time and size of every event.
    pub(super) events: bool,
    /// Text, else it is only counted.
    pub(super) texts: bool,
}

/// One answer under way; its memory is used again for the next.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Bytes of it that have been read.
    pub(super) bytes: u64,
    body: Body,
    /// The whole body where it is not a stream.
    whole: Vec<u8>,
    pub(super) said: Said,
}

#[derive(Debug, Default)]
enum Body {
    /// There is no final head yet.
    #[default]
    Awaited,
    /// The reason of a refusal.
    Refused,
    Streamed(Decoder),
    Whole,
}

/// What has been understood of an answer.
#[derive(Debug, Default)]
pub(super) struct Said {
    form: Form,
    kept: Kept,
    /// In UTF-8.
    pub(super) content: Vec<u8>,
    /// Of each event, where it is kept.
    pub(super) data: Vec<Box<[u8]>>,
    pub(super) detail: String,
    pub(super) events: Vec<Event>,
    pub(super) failure: Option<Failure>,
    /// When a streamed chunk first said something.
    pub(super) first_ns: Option<u64>,
    pub(super) n_events: u64,
    pub(super) n_texts: u64,
    /// Data whose usage lacks a count, where texts are kept: the first of it.
    pub(super) odd_usage: Option<Box<[u8]>>,
    /// In UTF-8.
    pub(super) reasoning: Vec<u8>,
    /// Those of a native answer.
    pub(super) samples: Samples,
    pub(super) texts: Vec<TextChunk>,
    pub(super) tool_calls: bool,
    /// Data that calls tools, where texts are kept.
    pub(super) tools: Vec<Box<[u8]>>,
    pub(super) usage: Option<Usage>,
    /// When `[DONE]` was read.
    pub(super) done_ns: Option<u64>,
}

impl Answer {
    pub(super) fn new(form: Form, kept: Kept) -> Self {
        let said = Said {
            form,
            kept,
            ..Said::default()
        };
        Self {
            said,
            ..Self::default()
        }
    }

    /// Forgets the last answer.
    pub(super) fn clear(&mut self) {
        self.bytes = 0;
        self.body = Body::Awaited;
        self.whole.clear();
        let said = &mut self.said;
        said.content.clear();
        said.data.clear();
        said.detail.clear();
        said.events.clear();
        said.failure = None;
        said.first_ns = None;
        said.n_events = 0;
        said.n_texts = 0;
        said.odd_usage = None;
        said.reasoning.clear();
        said.samples.clear();
        said.texts.clear();
        said.tool_calls = false;
        said.tools.clear();
        said.usage = None;
        said.done_ns = None;
    }

    /// A head of a final status has been read.
    pub(super) fn begin(&mut self, head: ResponseHead) {
        self.body = match head.status {
            200..300 if head.event_stream => Body::Streamed(Decoder::default()),
            200..300 => Body::Whole,
            status => {
                self.said.failure = Some(Failure::Http(status));
                Body::Refused
            }
        };
        let other_form =
            self.said.failure.is_none() && head.event_stream != self.said.form.is_stream;
        if other_form {
            self.said
                .fail(Failure::Malformed, b"not of the form that was asked for");
        }
    }

    /// Takes a part of the body that was read at that time.
    pub(super) fn feed(&mut self, part: &[u8], at: u64, chunks: &mut Reader) {
        let said = &mut self.said;
        match &mut self.body {
            Body::Awaited => {}
            Body::Refused => self
                .whole
                .extend_from_slice(part.get(..MAX_DETAIL).unwrap_or(part)),
            Body::Streamed(decoder) => {
                let is_next = decoder.is_between_events() && said.done_ns.is_none();
                let data = wire::sse::decode(part).filter(|_| is_next);
                if !data.is_some_and(|data| said.known_line(data, at, chunks)) {
                    decoder.feed(part, |data| said.event(data, at, chunks));
                }
            }
            Body::Whole => self.whole.extend_from_slice(part),
        }
    }

    /// The body has ended; `at` is when its end was read. Gives the time of completion.
    pub(super) fn finish(&mut self, at: u64, chunks: &mut Reader) -> u64 {
        let said = &mut self.said;
        match std::mem::take(&mut self.body) {
            Body::Awaited => {}
            Body::Refused => said.detail = detail(&self.whole),
            Body::Streamed(decoder) => {
                decoder.finish(|data| said.event(data, at, chunks));
                if said.done_ns.is_none() && said.failure.is_none() {
                    said.failure = Some(Failure::NoDone);
                }
            }
            Body::Whole => {
                if let Some(gist) = said.chunk(&self.whole, at, chunks) {
                    said.gist(&gist);
                }
            }
        }
        said.settle();
        said.done_ns.unwrap_or(at)
    }
}

impl Said {
    fn event(&mut self, data: &[u8], at: u64, chunks: &mut Reader) {
        if self.done_ns.is_some() {
            return;
        }
        if data.trim_ascii() == b"[DONE]" {
            self.done_ns = Some(at);
            return;
        }
        if let Some(gist) = self.chunk(data, at, chunks) {
            self.text(&gist, at);
        }
    }

    /// Takes the data of an event that is like an earlier one and has no line end, if it is.
    fn known_line(&mut self, data: &[u8], at: u64, chunks: &mut Reader) -> bool {
        let read = if self.form.is_native {
            self.samples.read_known_line(data, chunks)
        } else {
            chunks.read_known_line(data).map(Ok)
        };
        let Some(read) = read else {
            return false;
        };
        self.took_in(data, at);
        if let Some(gist) = self.understood(read, data) {
            self.text(&gist, at);
        }
        true
    }

    /// Takes the data of an event or a whole body.
    fn chunk<'a>(&mut self, data: &'a [u8], at: u64, chunks: &mut Reader) -> Option<Gist<'a>> {
        self.took_in(data, at);
        let read = if self.form.is_native {
            self.samples.read(data, chunks)
        } else {
            chunks.read(data)
        };
        if let Some(reason) = self.samples.abort().filter(|_| self.failure.is_none()) {
            self.detail = detail(reason.as_bytes());
            self.failure = Some(Failure::Abort);
        }
        self.understood(read, data)
    }

    fn understood<'a>(
        &mut self,
        read: Result<Gist<'a>, DecodeError>,
        data: &[u8],
    ) -> Option<Gist<'a>> {
        match read {
            Err(error) => self.fail(Failure::Malformed, error.to_string().as_bytes()),
            Ok(Gist {
                error: Some(error), ..
            }) => self.fail(Failure::ErrorEvent, error.as_bytes()),
            Ok(gist) => {
                if self.kept.texts {
                    self.set_aside(&gist, data);
                }
                return Some(gist);
            }
        }
        None
    }

    /// Keeps data of which more is to be read once the run is over.
    fn set_aside(&mut self, gist: &Gist<'_>, data: &[u8]) {
        if gist.calls_tools {
            self.tools.push(data.into());
        }
        let lacks_a_count =
            |usage: Usage| usage.prompt_tokens.is_none() || usage.completion_tokens.is_none();
        if gist.usage.is_some_and(lacks_a_count) && self.odd_usage.is_none() {
            self.odd_usage = Some(data.into());
        }
    }

    fn took_in(&mut self, data: &[u8], at: u64) {
        self.n_events += 1;
        if self.kept.events {
            self.events.push(Event(at, data.len() as u64));
        }
        if self.kept.data {
            self.data.push(data.into());
        }
    }

    /// Takes what a chunk says.
    fn gist(&mut self, gist: &Gist<'_>) {
        if gist.usage.is_some() {
            self.usage = gist.usage;
        }
        self.tool_calls |= gist.calls_tools;
        if self.kept.texts {
            self.content.extend_from_slice(&gist.content);
            self.reasoning.extend_from_slice(&gist.reasoning);
        }
    }

    /// Takes what a streamed chunk says, and when.
    fn text(&mut self, gist: &Gist<'_>, at: u64) {
        self.gist(gist);
        if !gist.says_something() {
            return;
        }
        self.first_ns.get_or_insert(at);
        self.n_texts += 1;
        if self.kept.texts {
            self.texts.push(TextChunk {
                at_ns: at,
                content: length(gist.content.len()),
                reasoning: length(gist.reasoning.len()),
            });
        }
    }

    /// Puts right what a native answer turned out to be.
    fn settle(&mut self) {
        let Some(Settled { text, was_whole }) = self.samples.settle() else {
            return;
        };
        let mut rest = &*String::from_utf8_lossy(&text);
        let mut before = 0;
        for chunk in &mut self.texts {
            let new = chunk.content - if was_whole { before } else { 0 };
            before = chunk.content;
            let (new, behind) = rest.split_at(rest.floor_char_boundary(new as usize));
            chunk.content = length(new.len());
            rest = behind;
        }
        if was_whole {
            self.texts.retain(|chunk| chunk.content > 0);
            self.n_texts = self.texts.len() as u64;
        }
        if self.kept.texts {
            self.content = text;
        }
    }

    /// Keeps the first failure.
    fn fail(&mut self, failure: Failure, reason: &[u8]) {
        if self.failure.is_none() {
            self.failure = Some(failure);
            self.detail = detail(reason);
        }
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("an event is shorter than 4 GiB")
}

fn detail(reason: &[u8]) -> String {
    let reason = reason.get(..MAX_DETAIL).unwrap_or(reason);
    String::from_utf8_lossy(reason).into_owned()
}

#[cfg(test)]
mod tests {
    use wire::http1::Framing;

    use super::*;

    const CHUNKS: Form = Form {
        is_native: false,
        is_stream: true,
    };

    const ALL: Kept = Kept {
        data: true,
        events: true,
        texts: true,
    };

    fn read(status: u16, event_stream: bool, body: &str) -> Answer {
        read_as(CHUNKS, status, event_stream, body)
    }

    fn read_as(form: Form, status: u16, event_stream: bool, body: &str) -> Answer {
        let mut answer = Answer::new(form, ALL);
        let head = ResponseHead {
            status,
            framing: Framing::Chunked,
            keep_alive: true,
            event_stream,
        };
        answer.begin(head);
        let chunks = &mut Reader::default();
        for (at, byte) in body.bytes().enumerate() {
            answer.feed(&[byte], at as u64, chunks);
        }
        answer.finish(1000, chunks);
        answer
    }

    #[test]
    fn a_stream_is_taken_apart() {
        let role =
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
        let think = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n";
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"é\"}}]}\n\n";
        let call = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n";
        let usage =
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n";
        let stream = [role, think, text, call, usage, "data: [DONE]\n\n"].concat();
        let said = read(200, true, &stream).said;
        assert_eq!((said.failure, said.usage), (None, Some(Usage::new(3, 2))));
        assert_eq!(
            (&*said.content, &*said.reasoning),
            ("é".as_bytes(), &b"hm"[..])
        );
        let parts: Vec<_> = said
            .texts
            .iter()
            .map(|text| (text.content, text.reasoning))
            .collect();
        assert_eq!(parts, [(0, 2), (2, 0), (0, 0)]);
        let think_ends = (role.len() + think.len() - 1) as u64;
        assert_eq!(said.texts[0].at_ns, think_ends);
        assert_eq!((said.events.len(), said.data.len()), (5, 5));
        assert!(think.contains(&*String::from_utf8_lossy(&said.data[1])));
        assert_eq!(said.done_ns, Some(stream.len() as u64 - 1));
        assert!(said.tool_calls);
    }

    #[test]
    fn what_spoils_an_answer_is_named() {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        let cases = [
            (200, true, text.into(), Some(Failure::NoDone), ""),
            (200, true, format!("{text}data: [DONE]"), None, ""),
            (
                200,
                true,
                format!("data: {{\"error\":{{\"message\":\"oom\"}}}}\n\n{text}data: [DONE]\n\n"),
                Some(Failure::ErrorEvent),
                "oom",
            ),
            (
                500,
                false,
                "broken".into(),
                Some(Failure::Http(500)),
                "broken",
            ),
            (
                200,
                false,
                "{}".into(),
                Some(Failure::Malformed),
                "not of the form that was asked for",
            ),
        ];
        for (status, event_stream, body, failure, reason) in cases {
            let said = read(status, event_stream, &body).said;
            assert_eq!((said.failure, &*said.detail), (failure, reason), "{body}");
        }
        let said = read(200, true, "data: {]\n\ndata: [DONE]\n\n").said;
        assert_eq!(said.failure, Some(Failure::Malformed));
    }

    #[test]
    fn older_native_streams_with_whole_texts_and_new_ids_are_put_right() {
        let native = Form {
            is_native: true,
            ..CHUNKS
        };
        let frame = |text: &str, id: u32, count: u32| {
            format!(
                "data: {{\"text\":\"{text}\",\"output_ids\":[{id}],\"meta_info\":{{\"completion_tokens\":{count}}}}}\n\n"
            )
        };
        let frames = [
            frame("é", 5, 1),
            frame("éa", 6, 2),
            frame("éa", 7, 3),
            frame("éabc", 8, 4),
            frame("éabcd", 9, 5),
            "data: [DONE]\n\n".into(),
        ];
        let said = read_as(native, 200, true, &frames.concat()).said;
        assert_eq!((said.failure, &*said.content), (None, "éabcd".as_bytes()));
        let lengths: Vec<_> = said.texts.iter().map(|text| text.content).collect();
        assert_eq!((lengths, said.n_texts), (vec![2, 1, 2, 1], 4));
        assert_eq!(said.samples.said_ids(), Some(vec![5, 6, 7, 8, 9]));
    }

    #[test]
    fn an_answer_leaves_nothing_to_the_next() {
        let mut answer = read(200, true, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n");
        answer.clear();
        let fresh = Answer::new(CHUNKS, ALL);
        assert_eq!(format!("{answer:?}"), format!("{fresh:?}"));
    }
}
