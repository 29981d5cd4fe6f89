//! What one request did, as the load loop saw it.

use wire::usage::Usage;

/// A request from its intended time to its end. Times are nanoseconds from the run's start.
#[derive(Clone, Debug)]
pub struct Record {
    /// The request's number within the run, from 0.
    pub request: u64,
    /// Index of its sample in the data set.
    pub sample: usize,
    /// When it was meant to be sent; in a closed loop, when it was.
    pub issued_ns: u64,
    /// Just before it was written; none if there was no connection.
    pub sent_ns: Option<u64>,
    /// An idle connection had turned out to be closed without a word, so it was sent again.
    pub resent: bool,
    /// When its answer was complete, or its failure noticed.
    pub ended_ns: u64,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// What the server or the decoder said about the failure, if anything.
    pub detail: Box<str>,
    /// Chunks that carried text, reasoning or a tool call; none if the answer was not streamed.
    pub texts: Box<[TextChunk]>,
    /// All content of the answer.
    pub content: Box<str>,
    /// All reasoning of the answer.
    pub reasoning: Box<str>,
    /// The answer held a tool call.
    pub tool_calls: bool,
    /// Data of the events, or the body, that hold tool calls.
    pub tools: Box<[Box<[u8]>]>,
    /// The first data whose usage lacks a usable count.
    pub odd_usage: Option<Box<[u8]>>,
    /// The last usage that the server sent.
    pub usage: Option<Usage>,
    /// Number of token ids that the server returned, if it returns any.
    pub output_ids: Option<u64>,
    /// Those of the only sample, the one that stopped it left out.
    pub said_ids: Option<Box<[u32]>>,
    /// Every event with its number of bytes, if events are kept.
    pub events: Box<[Event]>,
    /// The data of every event but `[DONE]`, or the whole body, if data is kept.
    pub data: Box<[Box<[u8]>]>,
}

/// A chunk that carried text, reasoning or a tool call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextChunk {
    /// When the read that completed it returned.
    pub at_ns: u64,
    /// Bytes of content.
    pub content: u32,
    /// Bytes of reasoning.
    pub reasoning: u32,
}

/// A streamed event, or a whole body.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
pub struct Event(
    /// When the read that completed it returned.
    pub u64,
    /// Bytes of its data.
    pub u64,
);

/// Why a request failed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Failure {
    /// The server gave up on the answer, and said so at its end.
    Abort,
    /// The answer was not HTTP/1.
    BadHttp,
    /// No connection could be opened.
    Connect,
    /// The connection ended before the answer did.
    Cut,
    /// An error object where a chunk was due.
    ErrorEvent,
    /// An answer with a status other than 2xx.
    Http(u16),
    /// The run was ended before the answer was complete.
    Interrupted,
    /// An event or body that is not a chunk.
    Malformed,
    /// A stream that ended without `[DONE]`.
    NoDone,
    /// No complete answer within the time allowed.
    Timeout,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self {
            Self::Abort => "abort",
            Self::BadHttp => "bad_http",
            Self::Connect => "connect",
            Self::Cut => "cut",
            Self::ErrorEvent => "error_event",
            Self::Http(status) => return write!(formatter, "http_{status}"),
            Self::Interrupted => "interrupted",
            Self::Malformed => "malformed",
            Self::NoDone => "no_done",
            Self::Timeout => "timeout",
        };
        formatter.write_str(kind)
    }
}

impl Record {
    /// The answer was complete and well formed.
    pub fn is_completed(&self) -> bool {
        self.failure.is_none()
    }

    /// The answer said nothing.
    pub fn is_empty(&self) -> bool {
        self.content.is_empty() && self.reasoning.is_empty() && !self.tool_calls
    }

    /// When the first chunk that said something was read.
    pub fn first_ns(&self) -> Option<u64> {
        self.texts.first().map(|chunk| chunk.at_ns)
    }

    /// From the intended time to the end, in nanoseconds.
    pub fn latency_ns(&self) -> u64 {
        self.ended_ns - self.issued_ns
    }

    /// From the intended time to the first chunk that said something, in nanoseconds.
    pub fn ttft_ns(&self) -> Option<u64> {
        Some(self.first_ns()? - self.issued_ns)
    }

    /// Time per output token behind the first, in nanoseconds, if there are `tokens` of them.
    pub fn tpot_ns(&self, tokens: u64) -> Option<u64> {
        let behind_first = tokens.checked_sub(1).filter(|&count| count > 0)?;
        Some((self.ended_ns - self.first_ns()?) / behind_first)
    }

    /// Gaps between chunks that said something, in nanoseconds.
    pub fn gaps_ns(&self) -> impl Iterator<Item = u64> {
        let pairs = self.texts.windows(2);
        pairs.map(|pair| pair[1].at_ns - pair[0].at_ns)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A completed request that said nothing, for tests to fill.
    pub(crate) fn completed() -> Record {
        Record {
            request: 0,
            sample: 0,
            issued_ns: 0,
            sent_ns: Some(0),
            ended_ns: 0,
            failure: None,
            detail: "".into(),
            texts: [].into(),
            content: "".into(),
            reasoning: "".into(),
            tool_calls: false,
            tools: [].into(),
            odd_usage: None,
            resent: false,
            usage: None,
            output_ids: None,
            said_ids: None,
            events: [].into(),
            data: [].into(),
        }
    }

    #[test]
    fn a_time_per_token_needs_two_tokens_and_a_first() {
        let chunk = |at_ns| TextChunk {
            at_ns,
            content: 1,
            reasoning: 0,
        };
        let record = Record {
            issued_ns: 100,
            sent_ns: Some(150),
            ended_ns: 1100,
            texts: [chunk(200), chunk(500), chunk(1000)].into(),
            ..completed()
        };
        assert_eq!(record.ttft_ns(), Some(100));
        assert_eq!(record.latency_ns(), 1000);
        assert_eq!(record.gaps_ns().collect::<Vec<_>>(), [300, 500]);
        assert_eq!(
            [0, 1, 2, 4].map(|tokens| record.tpot_ns(tokens)),
            [None, None, Some(900), Some(300)]
        );
        assert_eq!(completed().tpot_ns(5), None);
    }
}
