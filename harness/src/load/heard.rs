//! A response that is there as a whole, read as those of a load are.

use wire::chunk::Reader;
use wire::http1::{BodyDecoder, ResponseHead};
use wire::usage::Usage;

use super::answer::{Answer, Form, Kept};
use crate::record::{Failure, TextChunk};

/// What the load loop makes of a response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// The content of all choices.
    pub(crate) content: String,
    /// The reasoning of all choices.
    pub(crate) reasoning: String,
    /// Why it would be a failed sample.
    pub(crate) failure: Option<Failure>,
    /// Chunks that say something; none if it is not a stream.
    pub(crate) texts: Vec<TextChunk>,
    /// The last usage.
    pub(crate) usage: Option<Usage>,
}

impl Heard {
    /// Reads the bytes of a response, behind which the connection ends; `is_native` if it is one of
    /// `/generate`, `is_stream` if a stream was asked for.
    pub(crate) fn read(is_native: bool, is_stream: bool, bytes: &[u8]) -> Self {
        let form = Form {
            is_native,
            is_stream,
        };
        let kept = Kept {
            texts: true,
            ..Kept::default()
        };
        let mut answer = Answer::new(form, kept);
        let outcome = take(bytes, &mut answer);
        let said = answer.said;
        Self {
            content: String::from_utf8_lossy(&said.content).into_owned(),
            reasoning: String::from_utf8_lossy(&said.reasoning).into_owned(),
            failure: said.failure.or_else(|| outcome.err()),
            texts: said.texts,
            usage: said.usage,
        }
    }
}

fn take(bytes: &[u8], answer: &mut Answer) -> Result<(), Failure> {
    let head = ResponseHead::parse(bytes).map_err(|_| Failure::BadHttp)?;
    let (head, length) = head.ok_or(Failure::Cut)?;
    answer.begin(head);
    let mut decoder = BodyDecoder::new(head.framing);
    let chunks = &mut Reader::default();
    let fed = decoder.feed(&bytes[length..], |part| answer.feed(part, 0, chunks));
    fed.map_err(|_| Failure::BadHttp)?;
    if !decoder.is_complete() && !decoder.ends_with_connection() {
        return Err(Failure::Cut);
    }
    answer.finish(0, chunks);
    Ok(())
}
