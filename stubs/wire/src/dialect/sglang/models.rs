//! `/v1/models`

use crate::dialect::Models;
use crate::dialect::envelope;

const OWNER: &str = "sglang";

/// Appends the JSON of the model list.
pub(crate) fn encode(models: &Models<'_>, out: &mut Vec<u8>) {
    let names = models.names.iter();
    let cards = names.map(|name| models.card(name, name, OWNER));
    envelope::write_list(cards.collect::<Vec<_>>(), out);
}

/// Appends the JSON of one model.
pub(crate) fn encode_one(models: &Models<'_>, name: &str, out: &mut Vec<u8>) {
    let card = models.card(name, name, OWNER);
    serde_json::to_writer(out, &card).expect("strings and numbers encode");
}
