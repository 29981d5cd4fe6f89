//! `/v1/models`

use serde::Serialize;

use crate::dialect::Models;

/// Appends the JSON of the model list.
pub(crate) fn encode(models: &Models<'_>, out: &mut Vec<u8>) {
    let list = List {
        object: "list",
        data: models
            .names
            .iter()
            .map(|name| Card::new(models, name))
            .collect(),
    };
    serde_json::to_writer(out, &list).expect("strings and numbers encode");
}

/// Appends the JSON of one model.
pub(crate) fn encode_one(models: &Models<'_>, name: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &Card::new(models, name)).expect("strings and numbers encode");
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Card<'a>>,
}

#[derive(Serialize)]
struct Card<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: &'a str,
    parent: (),
    max_model_len: Option<u64>,
}

impl<'a> Card<'a> {
    fn new(models: &Models<'_>, name: &'a str) -> Self {
        Self {
            id: name,
            object: "model",
            created: models.created,
            owned_by: "sglang",
            root: name,
            parent: (),
            max_model_len: models.max_model_len,
        }
    }
}
