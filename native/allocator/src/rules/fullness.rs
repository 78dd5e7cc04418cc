//! How full cards and nodes are, by the weights of a pod.

use crate::wire::Weights;

/// What cards have and what of it is given: slots, cores, memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    has: [u64; 3],
    given: [u64; 3],
}

impl Totals {
    /// One more card.
    pub fn add(&mut self, has: [u64; 3], given: [u64; 3]) {
        self.has.iter_mut().zip(has).for_each(|(all, one)| *all += one);
        self.give(given);
    }

    /// More is given.
    pub fn give(&mut self, more: [u64; 3]) {
        self.given.iter_mut().zip(more).for_each(|(all, one)| *all += one);
    }

    /// How full they are by these weights, in millionths.
    pub fn fullness(&self, scale: &mut Scale) -> i64 {
        whole(scale.made_for(self.has).part(self.given))
    }
}

/// How full something is, by what of it is given and how much each measure counts.
///
/// Dividing is slow, and cards are mostly alike, as nodes are: what one slot, percent or MiB makes is
/// worked out once for many of them.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// In millionths of all.
    weights: [f64; 3],
    has: [u64; 3],
    each: [f64; 3],
}

impl Scale {
    /// By these weights; made for nothing yet.
    pub fn by(weights: Weights) -> Self {
        let weights = [weights.slot, weights.core, weights.memory].map(f64::from);
        let sum: f64 = weights.iter().sum();
        let weights = weights.map(|weight| weight / sum * 1e6);
        Self { weights, has: [0; 3], each: weights }
    }

    /// Made for something that has so many slots, cores and MiB.
    #[inline]
    pub fn made_for(&mut self, has: [u64; 3]) -> &Self {
        // Bit by bit: as arrays they would be put into memory first.
        if (self.has[0] ^ has[0]) | (self.has[1] ^ has[1]) | (self.has[2] ^ has[2]) != 0 {
            let each = |at: usize| self.weights[at] / real(has[at].max(1));
            (self.has, self.each) = (has, [each(0), each(1), each(2)]);
        }
        self
    }

    /// What so much makes of it, in millionths.
    #[inline]
    pub fn part(&self, given: [u64; 3]) -> f64 {
        let part = |at: usize| self.each[at] * real(given[at]);
        part(0) + part(1) + part(2)
    }
}

/// Millionths as a whole number, so that what is the same by other figures is the same here.
#[inline]
pub fn whole(millionths: f64) -> i64 {
    (millionths + 0.5) as i64
}

/// Nothing here comes near 63 bits, and signed numbers are what processors turn into others.
#[inline]
pub fn real(value: u64) -> f64 {
    value as i64 as f64
}
