//! A short roofline of one server, for those who show it along with other things.

use std::time::Duration;

use crate::measure::{self, Settings};
use crate::place::Places;
use crate::report::Report;
use crate::scenario::{self, Changes, Mode, Row};

/// Measures a server for about that time: whole, streamed, streamed with usage, and a null test.
///
/// # Errors
/// The server gives no good answer.
pub fn measure(url: &str, server_workers: usize, time: Duration) -> anyhow::Result<Report> {
    let changes = Changes {
        url: Some(url.into()),
        ..Changes::default()
    };
    let mut scenario = scenario::find("usage", &changes)?;
    for row in &mut scenario.rows {
        row.server = "max".into();
        row.against_ceiling = false;
    }
    let whole = Row {
        mode: Mode::Json,
        ..scenario.rows[0].clone()
    };
    scenario.rows.push(whole);
    let settings = Settings {
        client: None,
        model: None,
        patience: Duration::from_secs(10),
        places: Places::new(false, Some(server_workers), None),
        seed: 0,
        trial: scenario.window,
        duration: Some(time),
    };
    let roofline = measure::measure(&scenario, &settings, &mut |_| {})?;
    Ok(Report::new("demo", &scenario, &settings, &roofline))
}
