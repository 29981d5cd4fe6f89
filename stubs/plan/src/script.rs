//! What the model "says": text in pieces, each with the tokens it stands for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An answer as it was scripted, for each choice.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Tokens of the prompt that a prefix cache is said to have had.
    pub cached_tokens: Option<u64>,
    /// What each choice says; choice `i` of a request takes number `i` modulo their count.
    pub choices: Vec<Answer>,
    /// Where the engine gives up, if it does.
    pub cut: Option<Cut>,
    /// Waits before a token, by its number from 0.
    pub pauses: BTreeMap<u64, Duration>,
    /// How many tokens come at a time.
    pub rhythm: Rhythm,
}

/// How many tokens come at a time.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Rhythm {
    /// Merged as in this list, over and over.
    Bursts(Vec<u32>),
    /// One by one.
    #[default]
    Single,
    /// As in this list, then one by one: speculative decoding.
    Steps(Vec<u32>),
}

impl From<Answer> for Script {
    /// A script of one choice that runs to its end.
    fn from(answer: Answer) -> Self {
        Self {
            choices: vec![answer],
            ..Self::default()
        }
    }
}

/// One choice's text, cut into pieces.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The whole text.
    pub text: Arc<str>,
    /// Its pieces; none if each byte is one, and a token whose id it is.
    listed: Option<Vec<Piece>>,
    /// What ends it; its text is not shown.
    pub end: Option<End>,
}

/// Some pieces of an answer, one behind the other.
#[derive(Clone, Copy, Debug)]
pub enum Pieces<'a> {
    /// Each byte is one, and a token whose id it is.
    Bytes(&'a [u8]),
    /// These.
    Listed(&'a [Piece]),
}

impl<'a> Pieces<'a> {
    /// Their number.
    pub fn count(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Listed(pieces) => pieces.len(),
        }
    }

    /// One by one.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Piece> + 'a {
        (0..self.count()).map(move |index| match self {
            Self::Bytes(bytes) => Piece {
                bytes: 1,
                tokens: 1,
                id: Some(bytes[index].into()),
            },
            Self::Listed(pieces) => pieces[index],
        })
    }

    /// The first `count`, and the rest.
    pub fn split_at(self, count: usize) -> (Self, Self) {
        match self {
            Self::Bytes(bytes) => {
                let (taken, rest) = bytes.split_at(count);
                (Self::Bytes(taken), Self::Bytes(rest))
            }
            Self::Listed(pieces) => {
                let (taken, rest) = pieces.split_at(count);
                (Self::Listed(taken), Self::Listed(rest))
            }
        }
    }

    /// Bytes of their text.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Listed(pieces) => pieces.iter().map(|piece| piece.bytes as usize).sum(),
        }
    }

    /// Tokens of them all.
    pub fn tokens(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Listed(pieces) => pieces.iter().map(|piece| u64::from(piece.tokens)).sum(),
        }
    }
}

/// A bit of text and the number of tokens that it stands for: 0, 1 or many.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece {
    /// Bytes of text.
    pub bytes: u32,
    /// Tokens.
    pub tokens: u32,
    /// The token's id, if it is one token with an id.
    pub id: Option<u32>,
}

/// The end token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct End {
    /// Its id, if there is such a token.
    pub id: Option<u32>,
    /// Tokens that it counts as: 1, or 0 where a stub counts none.
    pub tokens: u32,
}

/// An answer that the engine ends early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cut {
    /// Tokens before it.
    pub after: u64,
    /// How it gives up.
    pub kind: CutKind,
}

/// How an engine gives up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CutKind {
    /// The answer ends with finish reason `abort`.
    Abort,
    /// The engine dies, and the server with it.
    Dead,
    /// The engine ends the answer with an error.
    Error,
    /// The answer is given up, which is told as an error.
    GivenUp,
    /// The engine's interface fails.
    Raise,
    /// The answer ends with finish reason `repetition`.
    Repetition,
}

impl CutKind {
    /// The word for it in a script file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Dead => "dead",
            Self::Error => "error",
            Self::GivenUp => "given_up",
            Self::Raise => "raise",
            Self::Repetition => "repetition",
        }
    }
}

impl Answer {
    /// A text of one token a piece.
    pub fn new(text: Arc<str>, vocab: &vocab::Vocab, end: Option<End>) -> Self {
        let pieces = || vocab.tokens(&text).into_iter().map(Piece::from).collect();
        let listed = (!vocab.takes_bytes(&text)).then(pieces);
        Self { text, listed, end }
    }

    /// A text of these pieces, whose bytes add up to it.
    pub fn of_pieces(text: Arc<str>, pieces: Vec<Piece>, end: Option<End>) -> Self {
        Self {
            text,
            listed: Some(pieces),
            end,
        }
    }

    /// The pieces of the text.
    pub fn pieces(&self) -> Pieces<'_> {
        match &self.listed {
            None => Pieces::Bytes(self.text.as_bytes()),
            Some(listed) => Pieces::Listed(listed),
        }
    }

    /// Tokens of the pieces, the end not counted.
    pub fn tokens(&self) -> u64 {
        self.pieces().tokens()
    }

    /// The answer cut or repeated to `tokens` tokens; an answer without tokens stays as it is.
    #[must_use]
    pub fn fitted(self, tokens: u64) -> Self {
        if self.tokens() == 0 {
            return self;
        }
        let mut text = String::new();
        let mut pieces = Vec::new();
        let mut count = 0;
        while count < tokens {
            let mut start = 0;
            for piece in self.pieces().iter() {
                if count >= tokens {
                    break;
                }
                let end = start + piece.bytes as usize;
                text.push_str(&self.text[start..end]);
                start = end;
                pieces.push(piece);
                count += u64::from(piece.tokens);
            }
        }
        Self::of_pieces(text.into(), pieces, self.end)
    }
}

/// A piece of one token.
impl From<vocab::Token> for Piece {
    fn from(token: vocab::Token) -> Self {
        Self {
            bytes: token.bytes,
            tokens: 1,
            id: Some(token.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use vocab::Vocab;

    use super::*;

    #[test]
    fn answers_are_cut_and_repeated() {
        let answer = || Answer::new("añb".into(), &Vocab::Char, None);
        assert_eq!(&*answer().fitted(2).text, "añ");
        assert_eq!(&*answer().fitted(7).text, "añbañba");
        assert_eq!(answer().fitted(7).tokens(), 7);
        assert_eq!(&*Answer::default().fitted(7).text, "");
    }
}
