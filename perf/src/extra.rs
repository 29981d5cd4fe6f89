//! What a row pays for bytes that its base does not send.

use serde::Serialize;

use crate::stats::Interval;
use crate::verdict::{Quantity, numbers, percent};
use crate::window::count;

/// The cost of bytes that a row sends and its base does not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Extra {
    /// Bytes of the base's response.
    pub(crate) base_bytes: usize,
    /// Bytes of the row's response.
    pub(crate) row_bytes: usize,
    /// What the bare loop pays for them: its own ratio.
    pub(crate) bare: Option<Interval>,
    /// What the row pays beyond that: the ratio of both ratios.
    pub(crate) beyond: Option<Interval>,
    /// Ratios that the bytes alone explain: from what the bare loop pays for them to their share of the
    /// response, the lower first.
    pub(crate) costs: [f64; 2],
    /// The ratio's interval has one of them.
    pub(crate) is_contained: bool,
}

impl Extra {
    /// What it says, behind a verdict.
    pub(crate) fn sentence(&self) -> String {
        let (now, before) = (self.row_bytes, self.base_bytes);
        let longer = percent(count(now as u64) / count(before.max(1) as u64) - 1.0);
        let is = if self.is_contained {
            "contains"
        } else {
            "does not contain"
        };
        let [low, high] = self.costs;
        let beyond = self.beyond.as_ref().map_or_else(String::new, |beyond| {
            format!(" (beyond the bare loop's own cost: {})", numbers(beyond))
        });
        format!(
            ". Its answers are {longer} longer ({now} bytes, not {before}), which explains {low:.3} to \
             {high:.3}: the interval {is} that{beyond}"
        )
    }
}

/// What extra bytes can cost: at least what the bare loop pays for them, at most their share of the
/// response.
pub(crate) fn costs(quantity: Quantity, longer: f64, bare: Option<&Interval>) -> [f64; 2] {
    match quantity {
        Quantity::RequestsPerSecond => {
            let least = bare.map_or(1.0, |bare| bare.estimate);
            [1.0 / longer, least.max(1.0 / longer)]
        }
        Quantity::ServerCpu => {
            let least = bare.map_or(1.0, |bare| bare.estimate);
            [least.min(longer), longer]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cost_from_what_the_bare_loop_pays_to_their_share() {
        let interval = |estimate| Interval {
            low: 0.9,
            estimate,
            high: 1.1,
        };
        let of = |quantity, bare: Option<f64>| {
            let costs = costs(quantity, 1.05, bare.map(interval).as_ref());
            costs.map(|cost| format!("{cost:.3}"))
        };
        assert_eq!(of(Quantity::ServerCpu, None), ["1.000", "1.050"]);
        assert_eq!(of(Quantity::ServerCpu, Some(1.02)), ["1.020", "1.050"]);
        assert_eq!(of(Quantity::ServerCpu, Some(1.2)), ["1.050", "1.050"]);
        assert_eq!(
            of(Quantity::RequestsPerSecond, Some(0.99)),
            ["0.952", "0.990"]
        );
    }
}
