//! Rooflines: what a server and a client can do at most, always as ratios of one interleaved run.

pub mod ceiling;
pub mod cli;
mod counters;
mod external;
mod extra;
mod group;
mod limit;
mod measure;
mod place;
pub mod report;
mod scenario;
mod search;
mod server;
pub mod short;
mod stats;
mod usage;
mod verdict;
mod window;

/// Rows in the order in which a round measures them: each round starts with another row, and every
/// other one goes backwards, so that nothing but the row itself tells it from its neighbours.
pub(crate) fn order(round: usize, rows: usize) -> impl Iterator<Item = usize> {
    let backwards = round % 2 == 1;
    (0..rows).map(move |turn| {
        let row = (round / 2 + turn) % rows;
        if backwards { rows - 1 - row } else { row }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_every_row_once_and_rounds_differ() {
        let rounds: Vec<Vec<usize>> = (0..4).map(|round| order(round, 3).collect()).collect();
        assert_eq!(rounds, [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]]);
    }
}
