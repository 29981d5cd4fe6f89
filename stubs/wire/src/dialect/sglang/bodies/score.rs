//! The body of `/v1/score`.

use std::borrow::Cow;

use crate::failure::Failure;
use crate::json::Json;
use crate::request;
use crate::schema::{self as pydantic, Field, Kind, nullable, optional};

use super::super::schema::{ANY_LENGTH, IDS, INTS, STRINGS};
use super::{flag, ids, invalid, numbers, read, text, texts};

/// `/v1/score`
#[derive(Clone, Debug)]
pub struct Score<'a> {
    /// `apply_softmax`
    pub applies_softmax: bool,
    /// `item_first`
    pub item_first: bool,
    /// `items`, each behind the query.
    pub items: Items<'a>,
    /// `label_token_ids`: one list for all items, or one for each.
    pub labels: Option<Labels>,
    /// `model`
    pub model: Cow<'a, str>,
    /// `return_token_logprobs`
    pub tells_logprobs: bool,
    /// `temperature`
    pub temperature: f64,
}

/// What is scored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Items<'a> {
    /// Token ids behind token ids.
    Ids(Vec<u32>, Vec<Vec<u32>>),
    /// One of them has ids and the other a text.
    Mixed,
    /// Nothing was given.
    None,
    /// Texts behind a text.
    Texts(Cow<'a, str>, Vec<Cow<'a, str>>),
}

/// The tokens whose probability is asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Labels {
    /// The same for all items.
    All(Vec<i128>),
    /// A list for each item.
    Each(Vec<Vec<i128>>),
}

const SCORE: &[Field] = &[
    nullable("query", Kind::Union(&[Kind::Str, INTS])),
    nullable(
        "items",
        Kind::Union(&[Kind::Str, STRINGS, Kind::List(&INTS, ANY_LENGTH)]),
    ),
    nullable("label_token_ids", IDS),
    optional("apply_softmax", Kind::Bool),
    optional("temperature", Kind::Float),
    optional("return_token_logprobs", Kind::Bool),
    optional("item_first", Kind::Bool),
    optional("model", Kind::Str),
];

impl<'a> Score<'a> {
    /// Reads a body that came with a content type.
    ///
    /// # Errors
    /// The server's answer to a body that it refuses.
    pub fn parse(content_type: Option<&str>, body: &'a [u8]) -> Result<Self, Failure> {
        let mut members = read(content_type, body, SCORE)?;
        let temperature = members.get("temperature");
        let temperature = temperature.map_or(Ok(1.0), pydantic::float);
        let labels = members.get("label_token_ids");
        let labels = labels.filter(|labels| **labels != Json::Null).map(numbers);
        let labels = labels.map(|(mut lists, is_list)| match lists.pop() {
            Some(list) if !is_list => Labels::All(list),
            Some(list) => {
                lists.push(list);
                Labels::Each(lists)
            }
            None => Labels::Each(lists),
        });
        let (query, items) = (members.take("query"), members.take("items"));
        let asked = Self {
            applies_softmax: flag(&members, "apply_softmax", false),
            item_first: flag(&members, "item_first", false),
            items: Items::new(query, items),
            labels,
            model: text(&mut members, "model").unwrap_or_else(|| "default".into()),
            tells_logprobs: flag(&members, "return_token_logprobs", false),
            temperature: temperature.unwrap_or(1.0),
        };
        if !(asked.temperature > 0.0 && asked.temperature.is_finite()) {
            return Err(invalid(
                "1 validation error:\n  Input should be greater than 0",
            ));
        }
        Ok(asked)
    }
}

impl<'a> Items<'a> {
    fn new(query: Option<Json<'a>>, items: Option<Json<'a>>) -> Self {
        let items = match items {
            None | Some(Json::Null) => return Self::None,
            Some(items) => items,
        };
        let has_ids =
            matches!(&items, Json::Array(items) if matches!(items.first(), Some(Json::Array(_))));
        match (query, has_ids) {
            (None | Some(Json::Null), true) => Self::Ids(Vec::new(), id_lists(&items)),
            (Some(Json::Array(query)), _) => {
                let (query, _) = numbers(&Json::Array(query));
                let is_empty = matches!(&items, Json::Array(items) if items.is_empty());
                if has_ids || is_empty {
                    Self::Ids(ids(&query.concat()), id_lists(&items))
                } else {
                    Self::Mixed
                }
            }
            (Some(_), true) => Self::Mixed,
            (query, false) => {
                let query = query.and_then(request::text).unwrap_or_default();
                let items = match items {
                    Json::Array(items) => texts(items),
                    text => texts(vec![text]),
                };
                Self::Texts(query, items)
            }
        }
    }
}

fn id_lists(items: &Json<'_>) -> Vec<Vec<u32>> {
    match numbers(items) {
        (lists, true) => lists.iter().map(|numbers| ids(numbers)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Option<&str> = Some("application/json");

    #[test]
    fn items_stand_behind_their_query() {
        let items = |body: &'static str| Score::parse(KIND, body.as_bytes()).unwrap().items;
        let texts = Items::Texts("a".into(), vec!["b".into()]);
        assert_eq!(items(r#"{"query":"a","items":"b"}"#), texts);
        assert_eq!(items(r#"{"query":"a","items":["b"]}"#), texts);
        let lists = Items::Ids(vec![1], vec![vec![2], vec![]]);
        assert_eq!(items(r#"{"query":[1],"items":[[2],[]]}"#), lists);
        assert_eq!(items(r#"{"query":"a","items":[[2]]}"#), Items::Mixed);
        assert_eq!(items(r#"{"query":[1],"items":["b"]}"#), Items::Mixed);
        assert_eq!(items(r#"{"query":[1]}"#), Items::None);
        let none = Score::parse(KIND, br#"{"items":"b","temperature":0}"#);
        assert!(none.is_err());
    }
}
