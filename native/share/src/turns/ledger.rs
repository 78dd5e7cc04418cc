//! The ledger of a slice on a card: the balance that limits a hard slice, and the time served that
//! orders the card's queue.

use super::MS;
use crate::limiter::{DEBT_NS, SAVED_NS};
use crate::{Mode, Regime};

/// Balances are in hundredths of a ns, so that a percent of a ns is not rounded away.
const NS: i64 = 100;

/// The most that a hard slice saves up while it does not use its share: as much as a process's own
/// bucket.
const SAVED: i64 = SAVED_NS * NS;

/// The most that it is owed for the time in which it waited for the turns and unfinished work of
/// others.
const CLAIM: i64 = 2_000 * MS as i64 * NS;

/// The most that it owes: as much as a process's own bucket.
const DEBT: i64 = DEBT_NS * NS;

/// How far behind the others of a queue a slice may be when it returns from a pause, in its own
/// engine time. So a burst of requests is served before the work of programs that always have more.
const BEHIND_NS: u64 = SAVED_NS as u64;

/// How far ahead of them it may be; the rest is forgiven.
const LEAD_NS: u64 = 4_000 * MS;

/// Weights are in thousandths of a percent.
const WHOLE: u64 = 100_000;

/// The rule for credit that a hard slice does not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unused {
    /// The slice waits for the card, which others have: it is owed the time.
    Accumulates,
    /// The slice has the card, or pauses: the time that it is owed stays.
    Stays,
    /// No other slice is in its way: it only saves up a little.
    Capped,
}

#[derive(Debug)]
pub(super) struct Ledger {
    /// Credit less the time that was reserved, in units of 1/[`NS`] ns.
    balance: i64,
    /// The most that the balance may be while the slice does not wait: its value when it last
    /// waited.
    cap: i64,
    pub weight: u64,
    /// Reserved time over weight, in ns of a whole card. The slice with the least is next.
    pub served: u64,
}

impl Ledger {
    pub fn new() -> Self {
        Self { balance: 0, cap: SAVED, weight: WHOLE, served: 0 }
    }

    pub fn balance_ns(&self) -> i64 {
        self.balance.div_euclid(NS)
    }

    /// Bills time for which the card was reserved.
    pub fn bill(&mut self, reserved: u64) {
        self.served = self.served.saturating_add(self.weighted(reserved));
        let debit = i64::try_from(reserved).unwrap_or(i64::MAX).saturating_mul(NS);
        self.balance = self.balance.saturating_sub(debit).max(-DEBT);
    }

    /// Credits the regime's share of `passed`.
    pub fn credit(&mut self, regime: Regime, passed: u64, unused: Unused) {
        let Some(share) = limit(regime) else { return };
        let credit = i64::try_from(passed).unwrap_or(i64::MAX).saturating_mul(share as i64);
        self.balance = self.balance.saturating_add(credit);
        if unused == Unused::Accumulates {
            self.balance = self.balance.min(CLAIM);
            self.cap = self.balance.max(SAVED);
            return;
        }
        if unused == Unused::Capped {
            self.cap = SAVED;
        }
        self.balance = self.balance.min(self.cap);
    }

    /// The share or its mode has changed: neither credit nor debt of the old one counts.
    pub fn reset_balance(&mut self) {
        (self.balance, self.cap) = (0, SAVED);
    }

    /// Whether the slice may have a turn, if `more` were billed to it.
    pub fn may_run(&self, regime: Regime, more: u64) -> bool {
        limit(regime).is_none() || regime.mode == Mode::Soft || self.balance >= more as i64 * NS
    }

    /// Whether it is owed more for waiting than a hard slice may save up.
    pub fn is_owed(&self, regime: Regime) -> bool {
        limit(regime).is_some() && regime.mode == Mode::Hard && self.balance > SAVED
    }

    /// How long until it may have a turn, if nothing is billed to it.
    pub fn may_run_in(&self, regime: Regime) -> u64 {
        match limit(regime) {
            Some(share) if !self.may_run(regime, 0) => self.balance.unsigned_abs().div_ceil(share),
            _ => 0,
        }
    }

    pub fn set_weight(&mut self, weight: u64) {
        self.weight = weight.max(1);
    }

    /// Time over weight, as it counts in the queue.
    pub fn weighted(&self, ns: u64) -> u64 {
        ns.saturating_mul(WHOLE) / self.weight
    }

    /// Enters a queue in which the least served slice has had `least`. A slice that was never served
    /// enters with that time, because it has saved up nothing yet.
    pub fn enter_queue(&mut self, least: u64) {
        let behind = if self.served == 0 { 0 } else { self.weighted(BEHIND_NS) };
        self.served = self.served.max(least.saturating_sub(behind));
    }

    /// Limits how far it is ahead of the least served slice.
    pub fn forgive(&mut self, least: u64) {
        self.served = self.served.min(least.saturating_add(self.weighted(LEAD_NS)));
    }
}

/// The share that limits, in percent; `None` for the whole card.
pub(super) fn limit(regime: Regime) -> Option<u64> {
    (1..100).contains(&regime.share).then_some(u64::from(regime.share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_that_returns_has_saved_up_time_in_the_queue() {
        let mut ledger = Ledger::new();
        ledger.set_weight(50_000);
        ledger.enter_queue(1_000 * MS);
        assert_eq!(ledger.served, 1_000 * MS, "it is new");
        ledger.enter_queue(1_150 * MS);
        assert_eq!(ledger.served, 1_000 * MS);
        ledger.enter_queue(9_000 * MS);
        assert_eq!(ledger.served, 8_800 * MS, "100 ms of its own time");
    }
}
