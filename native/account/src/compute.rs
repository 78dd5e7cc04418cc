//! What a process says of its use of the cards' engines, and how a coordinator hears of it.
//!
//! Who hands out turns on a card sees no launches. So each process writes down, in a cache line per
//! card that only it writes, whether it has work, and for which turn it says so; then it rings. The
//! coordinator waits for the bell, reads, and answers in the grants page. It trusts none of it: a
//! liar can only make others believe that it is idle, or make them wait for as long as they would for
//! a kernel that runs.

use crate::account::Account;
use crate::layout::{ComputeSums, ComputeWords, SLOTS};
use hami_limits::grants::ComputeState;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A debt as it outlives its process: when it will be paid, and at which rate. Both, so that whoever
/// has to pay the rest at another rate knows how much that is. Of two the one that is paid later is larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owed(u64);

impl Owed {
    /// A debt that will be paid at an instant (`CLOCK_MONOTONIC`, in ns; kept to the millisecond), at a
    /// rate in millionths of the card's time.
    pub fn new(paid_at: u64, rate_ppm: u32) -> Self {
        Self((paid_at.div_ceil(1_000_000) << 20) | u64::from(rate_ppm & 0xf_ffff))
    }

    /// As it stands in [`ComputeWords::owed`]; 0: nothing is owed.
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// What of it is not paid yet, in ns of engine time.
    pub fn ns(self, now: u64) -> u64 {
        let left = ((self.0 >> 20) * 1_000_000).saturating_sub(now);
        (u128::from(left) * u128::from(self.0 & 0xf_ffff) / 1_000_000) as u64
    }
}

/// What is told about one process's use of a card, or all processes'. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compute {
    /// Engine time so far.
    pub used_ns: u64,
    /// Wall time for which threads waited for permission to launch.
    pub throttled_ns: u64,
    /// How far the process's own bucket is below zero.
    pub debt_ns: u64,
}

impl ComputeWords {
    /// Says what the process has, having seen `turn`. What it launched or waited for before is
    /// visible to whoever reads this.
    #[inline]
    pub fn say(&self, turn: u32, state: ComputeState) {
        self.state.store(state.to_word(turn), Ordering::SeqCst);
    }

    /// The turn for which the process has said something, and what ([`ComputeState::from_word`]).
    #[inline]
    pub fn said(&self) -> (u32, ComputeState) {
        ComputeState::from_word(self.state.load(Ordering::SeqCst))
    }
}

impl ComputeSums {
    /// Adds what a process has used and forgets everything that it said. Nobody writes there any
    /// more; a reaper that is killed in between takes one process's sum on a card with it.
    pub fn take(&self, card: usize, words: &ComputeWords) {
        let add = |sum: &AtomicU64, word: &AtomicU64| {
            let value = word.swap(0, Ordering::SeqCst);
            if value != 0 {
                sum.fetch_add(value, Ordering::SeqCst);
            }
        };
        add(&self.used_ns[card], &words.used_ns);
        add(&self.throttled_ns[card], &words.throttled_ns);
        self.owed[card].fetch_max(words.owed.swap(0, Ordering::SeqCst), Ordering::SeqCst);
        for word in [&words.debt_ns, &words.active_at, &words.metered_at, &words.state] {
            word.store(0, Ordering::SeqCst);
        }
    }
}

impl Account {
    /// What the process that has a slot says of a card.
    ///
    /// # Panics
    /// For a slot or card that no account has ([`crate::SLOTS`], [`crate::CARDS`]).
    #[inline]
    pub fn compute(&self, slot: usize, card: usize) -> &ComputeWords {
        &self.layout().compute[card][slot]
    }

    /// What a coordinator waits for (a futex, shared by all processes): it changes with each ring.
    #[inline]
    pub fn bell(&self) -> &AtomicU32 {
        &self.layout().header.bell.0
    }

    /// The debt that processes have left behind on a card, where it is not paid yet: of those whose
    /// slots are free again, and of the dead. Probes the locks of those who owe something.
    ///
    /// # Panics
    /// As [`Self::compute`].
    pub fn left_behind(&self, card: usize, now: u64) -> Owed {
        let owed = |slot: usize| Owed(self.compute(slot, card).owed.load(Ordering::SeqCst));
        let dead = self.find_dead(|slot| owed(slot).ns(now) > 0);
        let of_dead = (0..SLOTS).filter(|slot| dead[*slot]).map(owed).max();
        // Whose slot became free meanwhile is in the header by now.
        let departed = &self.layout().header.departed_compute;
        Owed(departed.owed[card].load(Ordering::SeqCst)).max(of_dead.unwrap_or_default())
    }

    /// Engine time on a card of processes whose slots are free again, in nanoseconds.
    pub fn departed_used_ns(&self, card: usize) -> u64 {
        let departed = &self.layout().header.departed_compute;
        departed.used_ns.get(card).map_or(0, |sum| sum.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::Owed;

    #[test]
    fn a_debt_is_as_large_at_whatever_rate_it_is_paid_on() {
        let second = 1_000_000_000;
        let owed = Owed::new(30 * second, 100_000);
        assert_eq!(owed.ns(0), 3 * second);
        assert_eq!(owed.ns(20 * second), second);
        assert_eq!(owed.ns(31 * second), 0);
        assert_eq!(Owed::default().ns(0), 0);
        assert!(owed < Owed::new(31 * second, 1));
    }
}
