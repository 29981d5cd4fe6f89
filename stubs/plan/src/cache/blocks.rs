//! A cache of whole blocks.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use wire::usage::CachedTokens;

/// Blocks of tokens that were seen, each known by all tokens up to its end.
#[derive(Debug)]
pub(super) struct Blocks {
    block: usize,
    seen: HashSet<u64>,
}

/// Blocks that fit; a full cache is emptied.
const MAX_BLOCKS: usize = 1 << 20;

impl Blocks {
    pub(super) fn new(block: usize) -> Self {
        Self {
            block: block.max(1),
            seen: HashSet::new(),
        }
    }

    /// Looks a prompt up and takes up its whole blocks.
    pub(super) fn prompt(&mut self, ids: &[u32]) -> CachedTokens {
        if self.seen.len() > MAX_BLOCKS {
            self.seen.clear();
        }
        let mut hasher = DefaultHasher::new();
        let (mut cached, mut created, mut unbroken) = (0, 0, true);
        for (index, block) in ids.chunks_exact(self.block).enumerate() {
            block.hash(&mut hasher);
            let is_new = self.seen.insert(hasher.finish());
            unbroken &= !is_new && (index + 1) * self.block < ids.len();
            if unbroken {
                cached += self.block as u64;
            } else if is_new {
                created += self.block as u64;
            }
        }
        CachedTokens {
            cached,
            created: Some(created),
        }
    }

    pub(super) fn reset(&mut self) {
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_of_a_shared_prefix_are_cached() {
        let mut cache = Blocks::new(4);
        let mut counts = |ids: &[u32]| {
            let found = cache.prompt(ids);
            (found.cached, found.created.unwrap())
        };
        let prompt: Vec<u32> = (0..10).collect();
        assert_eq!(counts(&prompt), (0, 8));
        assert_eq!(counts(&prompt), (8, 0));
        assert_eq!(counts(&prompt[..8]), (4, 0), "one token is always computed");
        assert_eq!(counts(&[0, 1, 2, 3, 9, 9, 9, 9, 9]), (4, 4));
        assert_eq!(counts(&[7; 3]), (0, 0));
        cache.reset();
        assert_eq!(cache.prompt(&prompt).cached, 0);
    }
}
