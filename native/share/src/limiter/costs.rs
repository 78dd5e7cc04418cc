//! The costs of kernels, learned from past launches to predict the next ones.

use std::iter::repeat_n;

/// The size of the cache: a set of [`WAYS`] kernels for each of [`SETS`] hash values. A training
/// step has a few hundred kinds of launches.
const SETS: usize = 256;
const WAYS: usize = 4;

/// The most that past launches weigh, and the most that new ones weigh, in launches. So one launch
/// moves the cost by a 25th, a batch of eight or more by a quarter.
const PAST: u64 = 24;
const FRESH: u64 = 8;

/// The learned cost per kind of launch. The size is fixed: a new kind replaces the one that was not
/// learned for longest.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Zero is an empty entry.
    keys: Box<[[u64; WAYS]]>,
    learned: Box<[[Learned; WAYS]]>,
    clock: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Learned {
    ns: u64,
    launches: u64,
    at: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            keys: repeat_n([0; WAYS], SETS).collect(),
            learned: repeat_n([Learned::default(); WAYS], SETS).collect(),
            clock: 0,
        }
    }
}

impl Costs {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The time in ns that one launch of the kind `key` is expected to take; `None` if it is
    /// unknown.
    #[inline]
    pub fn cost(&self, key: u64) -> Option<u64> {
        let key = key.max(1);
        let set = set_of(key);
        let way = self.keys[set].iter().position(|known| *known == key)?;
        Some(self.learned[set][way].ns)
    }

    /// Learns that `launches` launches of the kind `key` took `ns_each` on average.
    pub fn learn(&mut self, key: u64, ns_each: u64, launches: u32) {
        if launches == 0 {
            return;
        }
        let key = key.max(1);
        let set = set_of(key);
        self.clock += 1;
        let (keys, learned) = (&mut self.keys[set], &mut self.learned[set]);
        let way = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            let oldest = (0..WAYS).min_by_key(|way| learned[*way].at).unwrap_or(0);
            keys[oldest] = key;
            learned[oldest] = Learned::default();
            oldest
        });
        let entry = &mut learned[way];
        let (past, fresh) = (entry.launches.min(PAST), u64::from(launches).min(FRESH));
        let sum = u128::from(entry.ns) * u128::from(past) + u128::from(ns_each) * u128::from(fresh);
        entry.ns = (sum / u128::from(past + fresh)) as u64;
        entry.launches += u64::from(launches);
        entry.at = self.clock;
    }
}

/// The multiplication spreads keys that differ in few bits.
fn set_of(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % SETS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn the_first_launches_are_averaged_and_later_ones_move_it_slowly() {
        let mut costs = Costs::new();
        assert_eq!(costs.cost(42), None);
        costs.learn(42, 1_000, 1);
        assert_eq!(costs.cost(42), Some(1_000));
        costs.learn(42, 2_000, 1);
        assert_eq!(costs.cost(42), Some(1_500));
        costs.learn(42, 9_000, 0);
        assert_eq!(costs.cost(42), Some(1_500));
        for _ in 0..100 {
            costs.learn(42, 5_000, 8);
        }
        let settled = costs.cost(42).unwrap();
        assert!((4_990..=5_000).contains(&settled), "{settled}");
        costs.learn(42, 30_000, 1);
        assert_eq!(costs.cost(42), Some((settled * 24 + 30_000) / 25));
        costs.learn(42, 30_000, 1_000);
        assert!(costs.cost(42).unwrap() < 13_000);
    }

    #[test]
    fn extreme_keys_and_times_are_as_good_as_others() {
        let mut costs = Costs::new();
        costs.learn(0, u64::MAX, u32::MAX);
        costs.learn(0, u64::MAX, u32::MAX);
        costs.learn(u64::MAX, 3, 1);
        assert_eq!((costs.cost(0), costs.cost(u64::MAX)), (Some(u64::MAX), Some(3)));
    }

    #[test]
    fn a_new_kind_replaces_the_longest_unlearned() {
        let mut costs = Costs::new();
        let mut prng = Prng::new(3);
        let steady: Vec<u64> = (0..100).map(|_| prng.next()).collect();
        for round in 0..2_000 {
            for (i, key) in steady.iter().enumerate() {
                costs.learn(*key, 100 + i as u64, 1);
            }
            costs.learn(prng.next(), 7, 1);
            let known = steady.iter().filter(|key| costs.cost(**key).is_some()).count();
            // Only more than four steady kinds in one set could replace each other.
            assert!(known >= 95, "round {round}: {known}");
        }
        let filled = costs.keys.iter().flatten().filter(|key| **key != 0).count();
        assert!(filled <= SETS * WAYS);
    }
}
