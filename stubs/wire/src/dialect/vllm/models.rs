//! `/v1/models`

use serde::Serialize;

use crate::dialect::Models;
use crate::dialect::envelope::{self, ModelCard};

/// Appends the JSON of the model list.
pub(crate) fn encode(models: &Models<'_>, mut random_id: impl FnMut() -> u64, out: &mut Vec<u8>) {
    let created = models.created;
    let card = |id| Card {
        model: models.card(id, models.root, "vllm"),
        permission: [Permission {
            id: format!("modelperm-{:016x}", random_id()),
            object: "model_permission",
            created,
            allow_create_engine: false,
            allow_sampling: true,
            allow_logprobs: true,
            allow_search_indices: false,
            allow_view: true,
            allow_fine_tuning: false,
            organization: "*",
            group: (),
            is_blocking: false,
        }],
    };
    let cards = models.names.iter().map(|name| &**name).map(card);
    envelope::write_list(cards.collect::<Vec<_>>(), out);
}

#[derive(Serialize)]
struct Card<'a> {
    #[serde(flatten)]
    model: ModelCard<'a>,
    permission: [Permission; 1],
}

#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the wire object's own flags")]
struct Permission {
    id: String,
    object: &'static str,
    created: u64,
    allow_create_engine: bool,
    allow_sampling: bool,
    allow_logprobs: bool,
    allow_search_indices: bool,
    allow_view: bool,
    allow_fine_tuning: bool,
    organization: &'static str,
    group: (),
    is_blocking: bool,
}
