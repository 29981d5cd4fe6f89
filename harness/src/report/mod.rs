//! What a run comes to: a summary, a text of it, and a folder with every sample.

mod accounting;
mod events;
mod summary;
mod text;

use std::fs;
use std::path::Path;

use crate::bench::{Config, Run};

pub use summary::{IdsBasis, OtherBasis, PairedLengths, Summary};
pub use text::text;

/// The summary as a JSON document that ends in a line feed.
pub fn json(summary: &Summary) -> String {
    let json = serde_json::to_string_pretty(summary).expect("numbers and strings encode");
    json + "\n"
}

/// Writes `result_summary.json`, `events.jsonl`, `token_accounting.json` and `report.txt` into a
/// folder, which is made if it is not there.
///
/// Events lack the chunks of runs that did not keep them.
pub fn write_folder(
    dir: &Path,
    run: &Run,
    config: &Config,
    summary: &Summary,
) -> anyhow::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("result_summary.json"), json(summary))?;
    fs::write(dir.join("report.txt"), text(summary))?;
    events::write(&dir.join("events.jsonl"), run, config)?;
    accounting::write(&dir.join("token_accounting.json"), run, config)?;
    Ok(())
}
