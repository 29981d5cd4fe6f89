//! A cache of single tokens: a tree whose branches are runs of tokens.

use std::collections::HashMap;
use std::ops::Range;

use wire::usage::CachedTokens;

/// Token sequences that were seen, those with the same beginning sharing it.
#[derive(Debug, Default)]
pub(super) struct Radix {
    /// Branches by the number of the branch before them, 0 for none, and their first token.
    branches: HashMap<(usize, u32), usize>,
    /// Each branch's place in `tokens`; branch `n` is number `n - 1` here.
    runs: Vec<Range<usize>>,
    tokens: Vec<u32>,
}

/// Tokens that fit; a full cache is emptied.
const MAX_TOKENS: usize = 1 << 20;

/// Where a sequence leaves the tree.
struct Exit {
    /// Tokens up to there.
    depth: usize,
    /// The last branch that it follows, 0 for none.
    branch: usize,
    /// The branch before that.
    before: usize,
    /// Tokens of that branch that are followed.
    within: usize,
}

impl Radix {
    /// Tokens of a prompt that are known, at most `most` and never the last.
    pub(super) fn found(&self, ids: &[u32], most: usize) -> CachedTokens {
        let most = most.min(ids.len().saturating_sub(1));
        CachedTokens {
            cached: self.exit(&ids[..most]).depth as u64,
            created: None,
        }
    }

    /// Takes a sequence up; one that does not fit alone is left out.
    pub(super) fn insert(&mut self, ids: &[u32]) {
        let mut exit = self.exit(ids);
        if exit.depth == ids.len() {
            return;
        }
        if self.tokens.len() + ids.len() - exit.depth > MAX_TOKENS {
            *self = Self::default();
            exit = self.exit(ids);
            if ids.len() > MAX_TOKENS {
                return;
            }
        }
        let parent = self.split(&exit);
        let rest = &ids[exit.depth..];
        let start = self.tokens.len();
        self.tokens.extend_from_slice(rest);
        self.grow(parent, start..self.tokens.len());
    }

    fn exit(&self, ids: &[u32]) -> Exit {
        let mut exit = Exit {
            depth: 0,
            branch: 0,
            before: 0,
            within: 0,
        };
        while let Some(&first) = ids.get(exit.depth) {
            let Some(&branch) = self.branches.get(&(exit.branch, first)) else {
                break;
            };
            let run = &self.tokens[self.runs[branch - 1].clone()];
            let within = common(run, &ids[exit.depth..]);
            exit = Exit {
                depth: exit.depth + within,
                branch,
                before: exit.branch,
                within,
            };
            if within < run.len() {
                break;
            }
        }
        exit
    }

    /// The branch that ends where a sequence leaves the tree.
    fn split(&mut self, exit: &Exit) -> usize {
        let Some(run) = exit
            .branch
            .checked_sub(1)
            .map(|index| &mut self.runs[index])
        else {
            return 0;
        };
        let at = run.start + exit.within;
        if at == run.end {
            return exit.branch;
        }
        // The lower part keeps the number, by which the branches behind it are known.
        let upper = run.start..at;
        run.start = at;
        let parent = self.grow(exit.before, upper);
        self.branches.insert((parent, self.tokens[at]), exit.branch);
        parent
    }

    fn grow(&mut self, parent: usize, run: Range<usize>) -> usize {
        let first = self.tokens[run.start];
        self.runs.push(run);
        self.branches.insert((parent, first), self.runs.len());
        self.runs.len()
    }
}

/// Tokens that two sequences begin with.
fn common(run: &[u32], ids: &[u32]) -> usize {
    let differs = run.iter().zip(ids).position(|(left, right)| left != right);
    differs.unwrap_or_else(|| run.len().min(ids.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(radix: &Radix, ids: &[u32]) -> u64 {
        radix.found(ids, ids.len()).cached
    }

    #[test]
    fn branches_part_at_any_token() {
        let mut radix = Radix::default();
        radix.insert(&[1, 2, 3, 4, 5]);
        assert_eq!(found(&radix, &[1, 2, 3, 4, 5]), 4, "the last is computed");
        assert_eq!(found(&radix, &[1, 2, 9, 9]), 2);
        radix.insert(&[1, 2, 9]);
        radix.insert(&[1, 2, 3, 7]);
        assert_eq!(found(&radix, &[1, 2, 9, 9]), 3);
        assert_eq!(found(&radix, &[1, 2, 3, 4, 5, 6]), 5);
        assert_eq!(found(&radix, &[1, 2, 3, 7, 6]), 4);
        assert_eq!(radix.found(&[1, 2, 3, 7, 6], 1).cached, 1);
        assert_eq!(found(&radix, &[]), 0);
    }

    #[test]
    fn a_full_cache_is_emptied() {
        let mut radix = Radix::default();
        radix.insert(&vec![1; MAX_TOKENS]);
        radix.insert(&[2, 2]);
        assert_eq!((found(&radix, &[1, 1]), found(&radix, &[2, 2])), (0, 1));
        radix.insert(&vec![1; MAX_TOKENS + 1]);
        assert_eq!(radix.tokens.len(), 0);
    }

    proptest! {
        #[test]
        fn the_longest_known_beginning_is_found(
            seen in prop::collection::vec(prop::collection::vec(0_u32..3, 0..9), 0..9),
            asked in prop::collection::vec(0_u32..3, 1..9),
        ) {
            let mut radix = Radix::default();
            for ids in &seen {
                radix.insert(ids);
            }
            let beginning = &asked[..asked.len() - 1];
            let longest = seen.iter().map(|ids| common(ids, beginning)).max();
            prop_assert_eq!(found(&radix, &asked), longest.unwrap_or(0) as u64);
        }
    }
}
