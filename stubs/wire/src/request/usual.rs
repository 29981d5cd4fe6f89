//! The quick way to read what most requests say, with no tree of values between body and request.
//!
//! It knows members that every server takes as they are, each in its plainest form: a literal, digits, a
//! string. A body with anything else in it, however right, is left to the dialect's own schema.

use std::borrow::Cow;

use super::{Endpoint, Message, Prompt, Request, Sampling, StreamOptions};
use crate::json::{self, Json, Reader};

/// Longest run of digits that is read here.
const MAX_DIGITS: usize = 15;

/// Roles that need nothing but a text beside them.
pub(super) const ROLES: [&str; 3] = ["user", "assistant", "system"];

impl<'a> Request<'a> {
    /// Reads a body that holds nothing but usual members, each once; `None` is for the whole schema.
    pub(crate) fn usual(endpoint: Endpoint, body: &'a [u8]) -> Option<Box<Self>> {
        let mut reading = Reading {
            reader: Reader::new(body).ok()?,
            request: Box::new(Self::new(endpoint)),
            has_options: false,
            has_prompt: false,
        };
        members(&mut reading, Reading::member)?;
        let Reading {
            reader,
            request,
            has_options,
            has_prompt,
        } = reading;
        let is_whole = reader.ends() && has_prompt && (request.stream || !has_options);
        is_whole.then_some(request)
    }
}

/// A request on its way from the text.
struct Reading<'a> {
    reader: Reader<'a>,
    request: Box<Request<'a>>,
    /// `stream_options` has members.
    has_options: bool,
    has_prompt: bool,
}

/// Reads an object whose members `take` reads by their names; it gives each a bit of its own.
fn members<'a, T: AsMut<Reader<'a>>>(
    reading: &mut T,
    take: fn(&mut T, &'a [u8]) -> Option<u32>,
) -> Option<u32> {
    let mut seen = 0;
    if !reading.as_mut().takes(b'{') {
        return None;
    }
    if reading.as_mut().takes(b'}') {
        return Some(seen);
    }
    loop {
        let name = reading.as_mut().name()?;
        if !reading.as_mut().takes(b':') {
            return None;
        }
        let bit = 1 << take(reading, name)?;
        if seen & bit != 0 {
            return None;
        }
        seen |= bit;
        let reader = reading.as_mut();
        if reader.takes(b'}') {
            return Some(seen);
        }
        if !reader.takes(b',') {
            return None;
        }
    }
}

impl<'a> AsMut<Reader<'a>> for Reading<'a> {
    fn as_mut(&mut self) -> &mut Reader<'a> {
        &mut self.reader
    }
}

impl<'a> Reading<'a> {
    fn member(&mut self, name: &'a [u8]) -> Option<u32> {
        let is_chat = self.request.endpoint == Endpoint::Chat;
        let (request, reader) = (&mut *self.request, &mut self.reader);
        let bit = match name {
            b"messages" if is_chat => {
                request.prompt = Prompt::Messages(messages(reader)?);
                self.has_prompt = true;
                0
            }
            b"prompt" if !is_chat => {
                let prompt = reader.text().filter(|prompt| !prompt.is_empty())?;
                request.prompt = Prompt::Texts(vec![prompt]);
                self.has_prompt = true;
                0
            }
            b"model" => {
                request.model = Some(reader.text()?);
                1
            }
            b"stream" => {
                request.stream = reader.flag()?;
                2
            }
            b"stream_options" => {
                let options = Options::read(reader)?;
                self.has_options = options.is_some();
                request.stream_options = options.unwrap_or_default();
                3
            }
            name => 4 + request.sampling.take_usual(name, reader, is_chat)?,
        };
        Some(bit)
    }
}

impl Sampling<'_> {
    /// Reads a member by its name; gives it a bit of its own.
    fn take_usual(&mut self, name: &[u8], reader: &mut Reader<'_>, is_chat: bool) -> Option<u32> {
        Some(match name {
            b"max_completion_tokens" if is_chat => {
                self.max_tokens = Some(("max_completion_tokens", reader.natural()?));
                0
            }
            b"max_tokens" => {
                let asked = reader.natural()?;
                self.max_tokens.get_or_insert(("max_tokens", asked));
                1
            }
            b"temperature" => {
                self.temperature = reader.decimal()?;
                2
            }
            b"top_p" => {
                self.top_p = reader.decimal()?;
                3
            }
            b"n" => {
                self.n = reader.natural()?;
                4
            }
            b"min_tokens" => {
                self.min_tokens = reader.natural()?;
                5
            }
            b"ignore_eos" => {
                self.ignore_eos = reader.flag()?;
                6
            }
            b"seed" => {
                reader.natural()?;
                7
            }
            _ => return None,
        })
    }
}

/// `stream_options`
struct Options<'r, 'a> {
    reader: &'r mut Reader<'a>,
    options: StreamOptions,
}

impl<'a> AsMut<Reader<'a>> for Options<'_, 'a> {
    fn as_mut(&mut self) -> &mut Reader<'a> {
        self.reader
    }
}

impl<'r, 'a> Options<'r, 'a> {
    /// The options; `Some(None)` of an empty object.
    #[expect(clippy::option_option, reason = "unread, empty, filled")]
    fn read(reader: &'r mut Reader<'a>) -> Option<Option<StreamOptions>> {
        let options = StreamOptions::default();
        let mut reading = Self { reader, options };
        let seen = members(&mut reading, Self::member)?;
        Some((seen != 0).then_some(reading.options))
    }

    fn member(&mut self, name: &'a [u8]) -> Option<u32> {
        let flag = self.reader.flag()?;
        match name {
            b"include_usage" => self.options.include_usage = Some(flag),
            b"continuous_usage_stats" => self.options.continuous_usage_stats = flag,
            _ => return None,
        }
        Some(u32::from(name == b"include_usage"))
    }
}

fn messages<'a>(reader: &mut Reader<'a>) -> Option<Vec<Message<'a>>> {
    let mut messages = Vec::with_capacity(1);
    if !reader.takes(b'[') || reader.takes(b']') {
        return None;
    }
    loop {
        let mut reading = OneMessage {
            reader,
            content: None,
            role: None,
        };
        members(&mut reading, OneMessage::member)?;
        messages.push(Message {
            role: Cow::Borrowed(reading.role?),
            content: reading.content?,
            rest: Vec::new(),
            media: None,
            has_surrogates: false,
        });
        if reader.takes(b']') {
            return Some(messages);
        }
        if !reader.takes(b',') {
            return None;
        }
    }
}

/// A message of a role and a text.
struct OneMessage<'r, 'a> {
    reader: &'r mut Reader<'a>,
    content: Option<Cow<'a, str>>,
    role: Option<&'static str>,
}

impl<'a> AsMut<Reader<'a>> for OneMessage<'_, 'a> {
    fn as_mut(&mut self) -> &mut Reader<'a> {
        self.reader
    }
}

impl<'a> OneMessage<'_, 'a> {
    fn member(&mut self, name: &'a [u8]) -> Option<u32> {
        match name {
            b"content" => self.content = Some(self.reader.text()?),
            b"role" => {
                let role = self.reader.plain_string()?;
                self.role = Some(ROLES.into_iter().find(|known| *known == role)?);
            }
            _ => return None,
        }
        Some(u32::from(name == b"role"))
    }
}

impl<'a> Reader<'a> {
    /// Skips whitespace, this byte if it is next, and whitespace.
    fn takes(&mut self, byte: u8) -> bool {
        self.skip_whitespace();
        let is_next = self.peek() == Some(byte);
        if is_next {
            self.at += 1;
            self.skip_whitespace();
        }
        is_next
    }

    fn ends(mut self) -> bool {
        self.skip_whitespace();
        self.peek().is_none()
    }

    /// A string without lone surrogates.
    fn text(&mut self) -> Option<Cow<'a, str>> {
        if let Some(text) = self.plain_string() {
            return Some(Cow::Borrowed(text));
        }
        match self.peek()? {
            b'"' => match self.string() {
                Ok(Json::String(text)) => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// A string without escapes; what is none is not taken.
    fn plain_string(&mut self) -> Option<&'a str> {
        let start = self.at + 1;
        let bytes = self.name()?.len();
        Some(self.cut(start, start + bytes))
    }

    /// The bytes of a string without escapes; what is none is not taken.
    fn name(&mut self) -> Option<&'a [u8]> {
        let behind = self.rest().strip_prefix(b"\"")?;
        let bytes = json::plain_length(behind);
        let (name, behind) = behind.split_at(bytes);
        if behind.first() != Some(&b'"') {
            return None;
        }
        self.at += bytes + 2;
        Some(name)
    }

    fn flag(&mut self) -> Option<bool> {
        let rest = self.rest();
        let flag = rest.starts_with(b"true");
        if !flag && !rest.starts_with(b"false") {
            return None;
        }
        self.at += if flag { 4 } else { 5 };
        Some(flag)
    }

    /// Digits that no server refuses as an integer.
    fn natural(&mut self) -> Option<i128> {
        let digits = self.digits()?;
        let more = matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        (!more).then_some(i128::from(digits))
    }

    /// A run of digits without a leading zero.
    fn digits(&mut self) -> Option<u64> {
        let start = self.at;
        let mut number = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            number = number * 10 + u64::from(digit - b'0');
            self.at += 1;
            if self.at - start > MAX_DIGITS {
                return None;
            }
        }
        let digits = self.cut(start, self.at);
        let leads_with_zero = digits.len() > 1 && digits.starts_with('0');
        (!digits.is_empty() && !leads_with_zero).then_some(number)
    }

    /// A number from 0 on without an exponent.
    fn decimal(&mut self) -> Option<f64> {
        let start = self.at;
        self.digits()?;
        if self.peek() == Some(b'.') {
            self.at += 1;
            let fraction = self.rest();
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit());
            let digits = digits.count();
            if digits == 0 {
                return None;
            }
            self.at += digits;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            return None;
        }
        self.cut(start, self.at).parse().ok()
    }
}
