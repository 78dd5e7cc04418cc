//! Fullness: how much of a card or node is allocated, weighted by slots, cores and memory.

use crate::wire::Weights;

/// The capacity of some cards and what of it is allocated: slots, cores and memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    capacity: [u64; 3],
    allocated: [u64; 3],
}

impl Totals {
    /// Adds a card.
    pub fn add(&mut self, capacity: [u64; 3], allocated: [u64; 3]) {
        self.capacity.iter_mut().zip(capacity).for_each(|(all, one)| *all += one);
        self.allocate(allocated);
    }

    /// Adds to what is allocated.
    pub fn allocate(&mut self, more: [u64; 3]) {
        self.allocated.iter_mut().zip(more).for_each(|(all, one)| *all += one);
    }

    /// The fullness of the cards together, in millionths.
    pub fn fullness(&self, scale: &mut Scale) -> i64 {
        whole(scale.for_capacity(self.capacity).part(self.allocated))
    }
}

/// Converts allocated amounts to fullness, for cards or nodes of one capacity at a time.
///
/// Division is slow, and most cards of a cluster have the same capacity. So the factors of the last
/// capacity are kept.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// They add up to a million.
    weights: [f64; 3],
    capacity: [u64; 3],
    /// The fullness by one slot, one percent and one MiB.
    factors: [f64; 3],
}

impl Scale {
    /// A scale of these weights, for no capacity yet.
    pub fn by(weights: Weights) -> Self {
        let weights = [weights.slot, weights.core, weights.memory].map(f64::from);
        let sum: f64 = weights.iter().sum();
        let weights = weights.map(|weight| weight / sum * 1e6);
        Self { weights, capacity: [0; 3], factors: weights }
    }

    /// Sets the capacity: slots, cores and MiB.
    #[inline]
    pub fn for_capacity(&mut self, capacity: [u64; 3]) -> &Self {
        // Comparing the arrays with `!=` would call memcmp.
        if (0..3).any(|at| self.capacity[at] != capacity[at]) {
            let factor = |at: usize| self.weights[at] / real(capacity[at].max(1));
            (self.capacity, self.factors) = (capacity, [factor(0), factor(1), factor(2)]);
        }
        self
    }

    /// The fullness by these amounts, in millionths.
    #[inline]
    pub fn part(&self, amounts: [u64; 3]) -> f64 {
        let part = |at: usize| self.factors[at] * real(amounts[at]);
        part(0) + part(1) + part(2)
    }
}

/// Rounds fullness, so that rounding errors do not order cards that are equally full.
#[inline]
pub fn whole(millionths: f64) -> i64 {
    (millionths + 0.5) as i64
}

/// Converts an amount. It is far below 63 bits, and processors convert signed integers faster.
#[inline]
pub fn real(value: u64) -> f64 {
    value as i64 as f64
}
