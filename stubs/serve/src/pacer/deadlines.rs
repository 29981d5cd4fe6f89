//! Who is to be woken when.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// Deadlines in their order, those for one moment in the order of their coming.
#[derive(Debug)]
pub(super) struct Deadlines<T> {
    count: u64,
    waiting: BTreeMap<Key, T>,
}

/// One of them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Key {
    at: Instant,
    number: u64,
}

impl Key {
    /// Its moment.
    pub(super) fn at(self) -> Instant {
        self.at
    }
}

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Self {
            count: 0,
            waiting: BTreeMap::new(),
        }
    }
}

impl<T> Deadlines<T> {
    /// Adds one.
    pub(super) fn insert(&mut self, at: Instant, who: T) -> Key {
        self.count += 1;
        let number = self.count;
        let key = Key { at, number };
        self.waiting.insert(key, who);
        key
    }

    /// Takes one out, if it has not been popped.
    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        self.waiting.remove(&key)
    }

    /// Takes out the first that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<T> {
        let first = self.waiting.first_entry()?;
        (first.key().at <= now).then(|| first.remove())
    }

    /// The earliest moment.
    pub(super) fn next(&self) -> Option<Instant> {
        let (first, _) = self.waiting.first_key_value()?;
        Some(first.at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Insert(u64),
        Pass(u64),
        Remove(prop::sample::Index),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0_u64..50).prop_map(Act::Insert),
            (0_u64..20).prop_map(Act::Pass),
            any::<prop::sample::Index>().prop_map(Act::Remove),
        ]
    }

    proptest! {
        #[test]
        fn each_is_due_once_in_order_and_the_cancelled_never(
            acts in prop::collection::vec(act(), 0..80),
        ) {
            let start = Instant::now();
            let (mut now, mut keys, mut expected) = (0, Vec::new(), Vec::new());
            let mut deadlines = Deadlines::default();
            for (number, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Insert(after) => {
                        let at = now + after;
                        keys.push((deadlines.insert(start + Duration::from_nanos(at), number), number));
                        expected.push((at, number));
                    }
                    Act::Remove(index) => if !keys.is_empty() {
                        let (key, number) = keys.swap_remove(index.index(keys.len()));
                        let waiting = expected.len();
                        expected.retain(|(_, waits)| *waits != number);
                        let removed = deadlines.remove(key);
                        prop_assert_eq!(removed.is_some(), expected.len() < waiting);
                    },
                    Act::Pass(time) => now += time,
                }
                expected.sort_unstable();
                let next = expected.first().map(|(at, _)| start + Duration::from_nanos(*at));
                prop_assert_eq!(deadlines.next(), next);
                let due: Vec<usize> =
                    std::iter::from_fn(|| deadlines.pop_due(start + Duration::from_nanos(now))).collect();
                let (past, to_come): (Vec<_>, Vec<_>) = expected.iter().partition(|(at, _)| *at <= now);
                prop_assert_eq!(due, past.iter().map(|(_, number)| *number).collect::<Vec<_>>());
                expected = to_come;
                prop_assert_eq!(deadlines.waiting.len(), expected.len());
            }
        }
    }
}
