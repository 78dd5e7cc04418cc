//! The processes' use of the cards' engines, as the coordinator reads it.
//!
//! The coordinator leases a card but sees no launches. So each process writes its state
//! and the grant that the state answers into a cache line per card that only it writes, and signals
//! the account's wake-up word. The coordinator waits on that word, reads the states, and answers in
//! the grants page. It trusts none of these values: with false ones a process can only appear idle,
//! or make others wait as long as for a running kernel.

use crate::account::Account;
use crate::layout::{ComputeSums, ComputeWords, SLOTS};
use hami_limits::grants::Report;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Engine time that a process has used beyond its share. It outlives the process, and the slice's
/// other processes pay it.
///
/// It is stored as the time when it will be paid, and the rate. A process that pays at another rate
/// computes the rest from both. Of two debts, the one that is paid later is larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Debt(u64);

impl Debt {
    /// A debt that will be paid at an instant (`CLOCK_MONOTONIC`, in ns; kept to the millisecond),
    /// at a rate in millionths of the card's time.
    pub fn new(paid_at: u64, rate_ppm: u32) -> Self {
        Self((paid_at.div_ceil(1_000_000) << 20) | u64::from(rate_ppm & 0xf_ffff))
    }

    /// The value of [`ComputeWords::debt`]; 0 is no debt.
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// The part that is not paid yet, in ns of engine time.
    pub fn ns(self, now: u64) -> u64 {
        let left = ((self.0 >> 20) * 1_000_000).saturating_sub(now);
        (u128::from(left) * u128::from(self.0 & 0xf_ffff) / 1_000_000) as u64
    }
}

/// The engine times of one process, or of all, on one card. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compute {
    /// Engine time so far.
    pub used_ns: u64,
    /// Wall time for which threads waited for admission to launch.
    pub throttled_ns: u64,
    /// How far the process's own bucket is below zero.
    pub debt_ns: u64,
    /// When it last checked its work on the card (`CLOCK_MONOTONIC`); 0 = never, or not measured.
    pub active_at: u64,
}

impl ComputeWords {
    /// Stores what the process does. All that it wrote before is visible to a reader of the report.
    #[inline]
    pub fn set_report(&self, report: Report) {
        self.state.store(report.to_word(), Ordering::SeqCst);
    }

    /// The last report of the process.
    #[inline]
    pub fn report(&self) -> Report {
        Report::from_word(self.state.load(Ordering::SeqCst))
    }
}

impl ComputeSums {
    /// Adds the times of a dead process to the sums and clears its words. If the reaper is killed
    /// in between, one process's times on one card are lost.
    pub fn retire(&self, card: usize, words: &ComputeWords) {
        let add = |sum: &AtomicU64, word: &AtomicU64| {
            let value = word.swap(0, Ordering::SeqCst);
            if value != 0 {
                sum.fetch_add(value, Ordering::SeqCst);
            }
        };
        add(&self.used_ns[card], &words.used_ns);
        add(&self.throttled_ns[card], &words.throttled_ns);
        self.debt[card].fetch_max(words.debt.swap(0, Ordering::SeqCst), Ordering::SeqCst);
        let cleared = [
            &words.debt_ns,
            &words.active_at,
            &words.metered_at,
            &words.driver_memory,
            &words.state,
        ];
        for word in cleared {
            word.store(0, Ordering::SeqCst);
        }
    }
}

impl Account {
    /// The words of the process in a slot for a card.
    ///
    /// # Panics
    /// For a slot or card that no account has ([`crate::SLOTS`], [`crate::CARDS`]).
    #[inline]
    pub fn compute(&self, slot: usize, card: usize) -> &ComputeWords {
        &self.layout().compute[card][slot]
    }

    /// The wake-up word that the coordinator waits on: a futex that changes with each signal.
    #[inline]
    pub fn wake_word(&self) -> &AtomicU32 {
        &self.layout().header.wake.0
    }

    /// The unpaid debt on a card of processes that have exited, whether their slots are free again
    /// or not. It probes the locks of the processes that have a debt.
    ///
    /// # Panics
    /// As [`Self::compute`].
    pub fn unpaid_debt(&self, card: usize, now: u64) -> Debt {
        let debt = |slot: usize| Debt(self.compute(slot, card).debt.load(Ordering::SeqCst));
        let dead = self.find_dead(|slot| debt(slot).ns(now) > 0);
        let of_dead = (0..SLOTS).filter(|slot| dead[*slot]).map(debt).max();
        // If a slot became free in the meantime, its debt is in the header by now.
        let departed = &self.layout().header.departed_compute;
        Debt(departed.debt[card].load(Ordering::SeqCst)).max(of_dead.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::Debt;

    #[test]
    fn a_debt_is_the_same_at_every_rate() {
        let second = 1_000_000_000;
        let debt = Debt::new(30 * second, 100_000);
        assert_eq!(debt.ns(0), 3 * second);
        assert_eq!(debt.ns(20 * second), second);
        assert_eq!(debt.ns(31 * second), 0);
        assert_eq!(Debt::default().ns(0), 0);
        assert!(debt < Debt::new(31 * second, 1));
    }
}
