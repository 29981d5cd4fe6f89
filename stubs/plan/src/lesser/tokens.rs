//! Texts cut into tokens, and put together again.

use serde::Serialize;
use wire::dialect::sglang::bodies::{Detokenize, ToTokenize, Tokenize};
use wire::failure::Failure;

use crate::prompt;
use crate::reply::Reply;
use crate::route::json;
use crate::stub::{Call, Stub};

#[derive(Serialize)]
struct Tokenized {
    tokens: OneOrAll<Vec<u32>>,
    count: OneOrAll<usize>,
    max_model_len: Option<u64>,
}

/// What is told of a text, or of each.
#[derive(Serialize)]
#[serde(untagged)]
enum OneOrAll<T> {
    All(Vec<T>),
    One(T),
}

impl<T> OneOrAll<T> {
    fn map<U>(&self, told: impl Fn(&T) -> U) -> OneOrAll<U> {
        match self {
            Self::All(all) => OneOrAll::All(all.iter().map(told).collect()),
            Self::One(one) => OneOrAll::One(told(one)),
        }
    }
}

pub(super) fn tokenize(stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    let asked = Tokenize::parse(call.head.content_type(), call.body)?;
    let vocab = &stub.engine.tokenizer.vocab;
    let tokens = match &asked.given {
        ToTokenize::Chat(request) => {
            let text = prompt::text(stub, request)?.unwrap_or_default();
            OneOrAll::One(vocab.encode(&text, false))
        }
        ToTokenize::Text(text) => OneOrAll::One(vocab.encode(text, asked.adds_special)),
        ToTokenize::Texts(texts) => {
            let texts = texts.iter();
            OneOrAll::All(
                texts
                    .map(|text| vocab.encode(text, asked.adds_special))
                    .collect(),
            )
        }
    };
    Ok(json(&Tokenized {
        count: tokens.map(Vec::len),
        tokens,
        max_model_len: stub.engine.max_model_len,
    }))
}

#[derive(Serialize)]
struct Detokenized {
    text: OneOrAll<String>,
}

pub(super) fn detokenize(stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    let asked = Detokenize::parse(call.head.content_type(), call.body)?;
    let vocab = &stub.engine.tokenizer.vocab;
    let lists = if asked.is_list {
        OneOrAll::All(asked.lists)
    } else {
        OneOrAll::One(asked.lists.into_iter().next().unwrap_or_default())
    };
    let text = lists.map(|ids| {
        if asked.skips_special {
            vocab.deltas(ids).concat()
        } else {
            vocab.decode(ids)
        }
    });
    Ok(json(&Detokenized { text }))
}
