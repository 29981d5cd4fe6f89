//! A recorded conversation, played.

use std::time::Duration;

use serde::Deserialize;

use super::{Host, Stop};
use wire::worker_lines::{failed, ready};

/// The lines that a worker wrote, by the line that they answered.
#[derive(Debug)]
pub(super) struct Replay {
    start: Vec<Played>,
    turns: std::vec::IntoIter<Vec<Played>>,
}

#[derive(Clone, Debug)]
enum Played {
    Exit(u8),
    Line(Duration, String),
}

#[derive(Deserialize)]
struct Recorded {
    dir: String,
    #[serde(default)]
    line: Option<String>,
    #[serde(default)]
    rc: i64,
    #[serde(default)]
    t: f64,
}

impl Replay {
    /// Reads a recording, a JSON object a line.
    pub(super) fn new(recording: &str) -> Result<Self, serde_json::Error> {
        let mut start = Vec::new();
        let mut turns: Vec<Vec<Played>> = Vec::new();
        let mut last = None;
        for line in recording.lines().filter(|line| !line.is_empty()) {
            let Recorded { dir, line, rc, t } = serde_json::from_str(line)?;
            let wait = t - last.unwrap_or(t);
            let wait = Duration::try_from_secs_f64(wait).unwrap_or_default();
            last = Some(t);
            let played = match (dir.as_str(), line) {
                ("to_worker", _) => {
                    turns.push(Vec::new());
                    continue;
                }
                ("from_worker", Some(line)) => Played::Line(wait, line),
                ("exit", _) if rc != 0 => Played::Exit(u8::try_from(rc).unwrap_or(1)),
                _ => continue,
            };
            turns.last_mut().unwrap_or(&mut start).push(played);
        }
        Ok(Self {
            start,
            turns: turns.into_iter(),
        })
    }

    /// The first line, one of ours if none was recorded.
    pub(super) fn start(&self, host: &mut impl Host) -> Result<(), Stop> {
        if self.start.is_empty() {
            return host.write(ready(3, false).as_bytes());
        }
        play(&self.start, host)
    }

    /// What answered the next line, whatever it is.
    pub(super) fn answer(&mut self, host: &mut impl Host) -> Result<(), Stop> {
        match self.turns.next() {
            Some(turn) => play(&turn, host),
            None => host.write(failed("nothing more was recorded").as_bytes()),
        }
    }
}

fn play(played: &[Played], host: &mut impl Host) -> Result<(), Stop> {
    for played in played {
        match played {
            Played::Exit(code) => return Err(Stop(*code)),
            Played::Line(wait, line) => {
                host.pass(*wait);
                host.write(line.as_bytes())?;
            }
        }
    }
    Ok(())
}
