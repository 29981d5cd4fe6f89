//! `<case>.times.json`: when a response's bytes arrived.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The reads that a response came in, in order.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Times(pub Vec<Arrival>);

/// One read.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Arrival(
    /// Nanoseconds from the moment when the request had been written.
    pub u64,
    /// Bytes that it brought.
    pub usize,
);

impl Times {
    /// Reads a `<case>.times.json`.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// When each part of `length` bytes is due: parts that came at once are one, times never decrease,
    /// and bytes without a time go with the last.
    pub fn schedule(&self, length: usize) -> Vec<(Duration, usize)> {
        let mut parts: Vec<(Duration, usize)> = Vec::new();
        let mut left = length;
        for &Arrival(offset, bytes) in &self.0 {
            let bytes = bytes.min(left);
            if bytes == 0 {
                continue;
            }
            left -= bytes;
            let due = Duration::from_nanos(offset);
            match parts.last_mut() {
                Some((last, known)) if *last >= due => *known += bytes,
                _ => parts.push((due, bytes)),
            }
        }
        match parts.last_mut() {
            Some((_, known)) => *known += left,
            None if length > 0 => parts.push((Duration::ZERO, length)),
            None => {}
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn schedule(times: &[(u64, usize)], length: usize) -> Vec<(u32, usize)> {
        let arrivals = times
            .iter()
            .map(|&(ms, bytes)| Arrival(ms * 1_000_000, bytes));
        let parts = Times(arrivals.collect()).schedule(length);
        let in_ms = |due: Duration| u32::try_from(due.as_millis()).unwrap();
        parts
            .into_iter()
            .map(|(due, bytes)| (in_ms(due), bytes))
            .collect()
    }

    #[test]
    fn all_bytes_are_scheduled_in_order_whatever_the_file_says() {
        assert_eq!(schedule(&[(1, 10), (5, 20)], 30), [(1, 10), (5, 20)]);
        assert_eq!(schedule(&[(1, 10), (1, 5), (0, 5)], 20), [(1, 20)]);
        assert_eq!(schedule(&[(1, 10), (5, 20)], 12), [(1, 10), (5, 2)]);
        assert_eq!(schedule(&[(1, 10), (5, 1), (9, 0)], 30), [(1, 10), (5, 20)]);
        assert_eq!(schedule(&[], 7), [(0, 7)]);
        assert_eq!(schedule(&[(3, 1)], 0), []);
    }

    #[test]
    fn the_file_is_a_list_of_pairs() {
        let times = Times::parse(b"[[1500000,17],[2000000,3]]").unwrap();
        assert_eq!(
            times,
            Times(vec![Arrival(1_500_000, 17), Arrival(2_000_000, 3)])
        );
        assert_eq!(times.schedule(20)[0], (MS + MS / 2, 17));
        assert_eq!(
            serde_json::to_string(&times).unwrap(),
            "[[1500000,17],[2000000,3]]"
        );
    }
}
