//! A request that is like the last one but for its text, known again by comparison: the load of a
//! benchmark asks in one way from its first request to its last.

use std::borrow::Cow;
use std::ops::Range;

use super::{Endpoint, Message, Prompt, Request};
use crate::json;

/// Longest body that is remembered, its text left out.
const MAX_BYTES: usize = 4 << 10;

/// The last usual request with one text.
#[derive(Debug, Default)]
pub struct Known(Option<Form>);

/// A body around its text.
#[derive(Debug)]
struct Form {
    before: Vec<u8>,
    behind: Vec<u8>,
    /// Where the model's name stands, from the start or, if it stands behind the text, from there.
    model: Option<Range<usize>>,
    /// Everything but model and prompt.
    request: Request<'static>,
    /// Of the one message, if it is a chat.
    role: &'static str,
}

impl Known {
    /// Reads a body the quick way, where it is like the last one or holds nothing but what is usual and
    /// `is_sound`; `None` is for the whole schema.
    pub(crate) fn read<'a>(
        &mut self,
        endpoint: Endpoint,
        body: &'a [u8],
        is_sound: impl Fn(&Request<'_>) -> bool,
    ) -> Option<Box<Request<'a>>> {
        let again = self.again(endpoint, body);
        again.or_else(|| {
            let usual = Request::usual(endpoint, body).filter(|request| is_sound(request))?;
            self.learn(body, &usual);
            Some(usual)
        })
    }

    /// Reads a body that differs from the last one in nothing but a text without escapes.
    pub(crate) fn again<'a>(&self, endpoint: Endpoint, body: &'a [u8]) -> Option<Box<Request<'a>>> {
        let form = self.0.as_ref()?;
        let text = body
            .strip_prefix(&*form.before)?
            .strip_suffix(&*form.behind)?;
        if form.request.endpoint != endpoint || json::plain_length(text) < text.len() {
            return None;
        }
        let at = form.before.len();
        let is_prompt = endpoint == Endpoint::Completions;
        if is_prompt && text.is_empty() {
            return None;
        }
        let text = Cow::Borrowed(std::str::from_utf8(text).ok()?);
        let model = match form.model.clone() {
            None => None,
            Some(model) => {
                let shift = if model.start < at { 0 } else { text.len() };
                let model = &body[model.start + shift..model.end + shift];
                Some(Cow::Borrowed(std::str::from_utf8(model).ok()?))
            }
        };
        let prompt = if is_prompt {
            Prompt::Texts(vec![text])
        } else {
            Prompt::Messages(vec![Message {
                role: form.role.into(),
                content: text,
                rest: Vec::new(),
                media: None,
                has_surrogates: false,
            }])
        };
        let mut request = Box::new(form.request.without_texts());
        request.model = model;
        request.prompt = prompt;
        Some(request)
    }

    /// Remembers a usual request, if its one text stands in the body as it is.
    pub(crate) fn learn(&mut self, body: &[u8], request: &Request<'_>) {
        let (text, role) = match &request.prompt {
            Prompt::Messages(messages) => match &messages[..] {
                [message] => (&message.content, role(&message.role)),
                _ => return,
            },
            Prompt::Texts(texts) => match &texts[..] {
                [text] => (text, Some("")),
                _ => return,
            },
            Prompt::Ids(_) => return,
        };
        let (Cow::Borrowed(text), Some(role)) = (text, role) else {
            return;
        };
        let place = place(body, text);
        let model = match &request.model {
            None => None,
            Some(Cow::Borrowed(model)) => Some(self::place(body, model)),
            Some(Cow::Owned(_)) => return,
        };
        let behind = |model: Range<usize>| {
            let shift = if model.start < place.start {
                0
            } else {
                text.len()
            };
            model.start - shift..model.end - shift
        };
        if body.len() - text.len() > MAX_BYTES {
            return;
        }
        self.0 = Some(Form {
            before: body[..place.start].to_vec(),
            behind: body[place.end..].to_vec(),
            model: model.map(behind),
            request: request.without_texts(),
            role,
        });
    }
}

/// Where a part of a body stands in it.
fn place(body: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - body.as_ptr() as usize;
    start..start + part.len()
}

/// One of the roles of usual messages.
fn role(role: &str) -> Option<&'static str> {
    super::usual::ROLES.into_iter().find(|known| *known == role)
}

impl Request<'_> {
    /// What a usual request says beside model and prompt.
    fn without_texts<'t>(&self) -> Request<'t> {
        let sampling = &self.sampling;
        let mut bare = Request::new(self.endpoint);
        bare.stream = self.stream;
        bare.stream_options = self.stream_options;
        bare.sampling.ignore_eos = sampling.ignore_eos;
        bare.sampling.max_tokens = sampling.max_tokens;
        bare.sampling.min_tokens = sampling.min_tokens;
        bare.sampling.n = sampling.n;
        bare.sampling.temperature = sampling.temperature;
        bare.sampling.top_p = sampling.top_p;
        bare
    }
}
