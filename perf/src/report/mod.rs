//! What a roofline says, as a document.

mod html;
mod line;
mod svg;
mod text;

use std::path::Path;

use serde::Serialize;

use crate::limit::Limit;
use crate::measure::{Roofline, Settings};
use crate::place::Places;
use crate::scenario::Scenario;
use crate::verdict::{self, Comparison};

use html::html;
use line::{Line, Median, Parts};
pub use text::brief;
pub(crate) use text::text;

/// Rows that are named in a sentence about several.
const NAMED: usize = 6;

/// A finished roofline with everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the set of rows, or its file.
    pub(crate) scenario: String,
    /// What the set is for.
    pub(crate) about: String,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// How it was measured.
    pub(crate) settings: Measurement,
    /// Every row in the scenario's order, then bare loops, then null tests.
    pub(crate) rows: Vec<Line>,
    /// Servers of rows that were left out, since this build does not have them.
    pub(crate) absent: Vec<String>,
    /// Pairs of rows.
    pub(crate) comparisons: Vec<Comparison>,
    /// The comparisons and the limits in sentences.
    pub(crate) verdicts: Vec<String>,
}

/// Where a run took place.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Machine {
    /// The processor's name.
    pub(crate) cpu: String,
    /// Cores that the run could use.
    pub(crate) cores: usize,
    /// The kernel's name and release.
    pub(crate) kernel: String,
}

/// How rows were measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    /// How long a row took in a round, in seconds.
    pub(crate) window: f64,
    /// Interleaved rounds.
    pub(crate) rounds: usize,
    /// Where both sides ran.
    pub(crate) places: Places,
    /// Of arrival times and bootstraps.
    pub(crate) seed: u64,
    /// The client, if it was not the load loop.
    pub(crate) client: Option<String>,
}

impl Report {
    /// Everything about a run.
    pub(crate) fn new(
        name: &str,
        scenario: &Scenario,
        settings: &Settings,
        roofline: &Roofline,
    ) -> Self {
        let comparisons = verdict::comparisons(roofline, settings.seed);
        let rows = line::lines(roofline, settings.seed);
        let mut verdicts: Vec<String> = comparisons.iter().map(Comparison::sentence).collect();
        verdicts.extend(rows.iter().filter_map(rate));
        verdicts.dedup();
        verdicts.extend(limits(&rows));
        if !roofline.absent.is_empty() {
            verdicts.push(format!("not there yet: {}", roofline.absent.join(", ")));
        }
        Self {
            scenario: name.into(),
            about: scenario.about.clone(),
            machine: Machine::this(),
            settings: Measurement {
                window: scenario.window.as_secs_f64(),
                rounds: roofline.rounds,
                places: settings.places.clone(),
                seed: settings.seed,
                client: settings
                    .client
                    .as_ref()
                    .map(|client| client.command.clone()),
            },
            rows,
            absent: roofline.absent.clone(),
            comparisons,
            verdicts,
        }
    }

    /// The report as one JSON document.
    pub(crate) fn json(&self) -> String {
        let mut json = serde_json::to_string(self).expect("numbers and strings encode");
        json.push('\n');
        json
    }

    /// Writes `roofline.json`, `roofline.html` and `report.txt`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn write_folder(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::write(folder.join("roofline.json"), self.json())?;
        std::fs::write(folder.join("roofline.html"), html(self))?;
        std::fs::write(folder.join("report.txt"), text(self))
    }

    /// How the run was set up, in a line.
    pub(crate) fn setup(&self) -> String {
        let side = |name: &str, place: &crate::place::Place| {
            let cores = place.cores.as_ref().map_or_else(String::new, |cores| {
                let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
                format!(" on core {}", cores.join(", "))
            });
            let threads = if place.workers == 1 {
                "thread"
            } else {
                "threads"
            };
            format!("{name} {} {threads}{cores}", place.workers)
        };
        let places = &self.settings.places;
        let rounds = match self.settings.rounds {
            0 => "rates searched one after the other".to_owned(),
            rounds => format!(
                "{rounds} interleaved rounds of {:.0} ms",
                self.settings.window * 1000.0
            ),
        };
        format!(
            "{rounds}; {}, {}; {}, {} cores, {}",
            side("server", &places.server),
            side("client", &places.client),
            self.machine.cpu,
            self.machine.cores,
            self.machine.kernel,
        )
    }
}

impl Machine {
    fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let model = model.map(|rest| rest.trim_start_matches(['\t', ' ', ':']));
        Self {
            cpu: model.unwrap_or("unknown processor").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        }
    }
}

fn rate(line: &Line) -> Option<String> {
    let found = line.found.as_ref()?;
    let name = &line.name;
    Some(match (found.sustained, found.too_many) {
        (Some(rate), Some(too_many)) => format!(
            "{name}: sustains {rate:.0} requests/s at random times, not {too_many:.0} any more; limit: {}",
            line.limit.unwrap_or(Limit::Unknown).name()
        ),
        (Some(rate), None) => format!("{name}: sustains {rate:.0} requests/s and more"),
        (None, _) => format!("{name}: does not sustain even the lowest rate that was tried"),
    })
}

fn limits(lines: &[Line]) -> Vec<String> {
    let mut groups: Vec<(Limit, Vec<&str>)> = Vec::new();
    for line in lines {
        let Some(limit) = line.limit else { continue };
        match groups.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, names)) => names.push(&line.name),
            None => groups.push((limit, vec![&line.name])),
        }
    }
    let sentence = |(limit, names): (Limit, Vec<&str>)| {
        let more = names.len().saturating_sub(NAMED);
        let others = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let named = names.get(..NAMED).unwrap_or(&names).join("; ");
        let (limit, reason) = (limit.name(), limit.reason());
        format!("limit: {limit} ({reason}): {named}{others}")
    };
    groups.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scenario::{self, Changes};
    use crate::verdict::tests::roofline;

    fn report() -> Report {
        let scenario = scenario::find("usage", &Changes::default()).unwrap();
        let settings = Settings {
            client: None,
            model: None,
            patience: Duration::ZERO,
            places: Places::new(false, Some(1), Some(1)),
            seed: 3,
            trial: Duration::ZERO,
            duration: None,
        };
        Report::new("a<b", &scenario, &settings, &roofline(12.1))
    }

    #[test]
    fn the_text_has_a_line_for_each_row_and_no_empty_column() {
        let text = text(&report());
        for line in [
            "max stream + usage",
            "bare loop, stream, 4000 B",
            "max stream, again",
            "not there yet: sglang",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(
            text.contains("x ceiling") && !text.contains("client CPU"),
            "{text}"
        );
        let ratios = text
            .lines()
            .filter(|line| line.contains("1.20 ") && line.contains(" to "));
        assert!(ratios.count() >= 2, "{text}");
    }

    #[test]
    fn the_page_needs_nothing_else_and_runs_nothing() {
        let page = html(&report());
        assert!(page.contains("<title>Roofline: a&lt;b</title>"));
        assert!(page.contains("prefers-color-scheme: dark"));
        assert_eq!(page.matches("<svg viewBox=\"0 0 960").count(), 3);
        for foreign in ["<script", "src=", "href=", "url(", "@import", "NaN", "inf"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("class=\"whisker\"").count(), 4);
    }

    #[test]
    fn the_document_has_everything() {
        let value: serde_json::Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(value["rows"][4]["role"]["again"], 0);
        assert_eq!(value["rows"][0]["windows"].as_array().unwrap().len(), 20);
        let ratio = value["rows"][0]["to_ceiling"]["estimate"].as_f64().unwrap();
        assert!((ratio - 1.2).abs() < 0.01, "{ratio}");
        assert_eq!(value["settings"]["rounds"], 20);
    }
}
