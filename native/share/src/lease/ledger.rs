//! The ledger of a slice on a card: the time that it has had, and the time that it is owed.

use crate::bucket::NS;
use crate::{Mode, Regime, WHOLE_PPM, timing};

/// The weight of a whole card.
pub(super) const WHOLE: u64 = WHOLE_PPM as u64;
pub(super) const PERCENT: u64 = WHOLE / 100;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    /// The share of the time, less what was reserved, in millionths of ns.
    balance: i64,
    /// The most that the balance may be while the slice does not wait: its value when it last
    /// waited.
    cap: i64,
    pub weight: u64,
    /// Reserved time over weight, in ns of a whole card. The slice with the least is next.
    pub served: u64,
    /// The time that a slice of a low priority has saved up while it waited for others, in ns.
    pub low_credit: i64,
    /// Whether the slice wanted the card, and might have it, at the last step.
    queued: bool,
}

impl Ledger {
    pub fn new() -> Self {
        let cap = timing::SAVED as i64 * NS;
        Self { balance: 0, cap, weight: WHOLE, served: 0, low_credit: 0, queued: false }
    }

    pub fn balance_ns(&self) -> i64 {
        self.balance.div_euclid(NS)
    }

    /// The slice had the card, but is not billed.
    pub fn serve(&mut self, ns: u64) {
        self.served = self.served.saturating_add(self.weighted(ns));
    }

    /// Bills time for which the card was reserved.
    pub fn bill(&mut self, ns: u64) {
        self.serve(ns);
        let ns = ns as i64;
        self.balance = (self.balance - ns * NS).max(-(timing::DEBT as i64) * NS);
        self.low_credit = (self.low_credit - ns).max(-(timing::LOW_SAVED as i64));
    }

    /// Credits the regime's share of the time that passed. A slice that `waits` for others is owed
    /// it. Otherwise it keeps what it is owed, unless the card is `unused`.
    pub fn credit(&mut self, regime: Regime, ns: u64, waits: bool, unused: bool) {
        let Some(share) = limit(regime) else { return };
        let saved = timing::SAVED as i64 * NS;
        if waits {
            self.cap = timing::CLAIM as i64 * NS;
        } else if unused {
            self.cap = saved;
        }
        let credit = i64::try_from(ns.saturating_mul(share)).unwrap_or(i64::MAX);
        self.balance = self.balance.saturating_add(credit).min(self.cap);
        if waits {
            self.cap = self.balance.max(saved);
        }
    }

    /// The slice waits for others of a higher priority. It gets a small part of this time.
    pub fn credit_low(&mut self, ns: u64) {
        let part = ns.saturating_mul(timing::LOW_FLOOR) / 100;
        let credit = self.low_credit.saturating_add_unsigned(part);
        self.low_credit = credit.min(timing::LOW_SAVED as i64);
    }

    /// The share or its mode has changed: neither credit nor debt of the old one counts.
    pub fn reset_balance(&mut self) {
        (self.balance, self.cap) = (0, timing::SAVED as i64 * NS);
    }

    pub fn owes(&self, regime: Regime) -> bool {
        is_hard(regime) && self.balance < 0
    }

    /// Whether it is owed more for waiting than a hard slice may save up.
    pub fn is_owed(&self, regime: Regime) -> bool {
        is_hard(regime) && self.balance > timing::SAVED as i64 * NS
    }

    /// How long until it does not owe, if nothing is billed.
    pub fn owes_for(&self, regime: Regime) -> u64 {
        let share = limit(regime).unwrap_or(WHOLE);
        if self.owes(regime) { self.balance.unsigned_abs().div_ceil(share) } else { 0 }
    }

    /// Time over weight, as it counts in the queue.
    fn weighted(&self, ns: u64) -> u64 {
        ns.saturating_mul(WHOLE) / self.weight
    }

    /// Its time, if it was in the queue before and still `wants` the card.
    pub fn queued(&self, wants: bool) -> Option<u64> {
        (self.queued && wants).then_some(self.served)
    }

    /// Enters the queue of a card, or leaves it. The least served slice of the queue has had
    /// `floor`. A slice that enters may be behind it by what it saved up, and a slice that was never
    /// served has saved up nothing; one that has `rested` enters there. How far a slice is ahead is
    /// limited.
    pub fn queue(&mut self, wants: bool, rested: Option<u64>, floor: u64) {
        if wants && !self.queued {
            let behind = if self.served == 0 { 0 } else { self.weighted(timing::SAVED) };
            self.served = self.served.max(rested.unwrap_or(floor.saturating_sub(behind)));
        }
        if wants {
            self.served = self.served.min(floor.saturating_add(self.weighted(timing::LEAD)));
        }
        self.queued = wants;
    }
}

/// The share that limits, in millionths; `None` for the whole card.
pub(super) fn limit(regime: Regime) -> Option<u64> {
    (1..100).contains(&regime.share).then_some(u64::from(regime.share) * PERCENT)
}

pub(super) fn is_hard(regime: Regime) -> bool {
    regime.mode == Mode::Hard && limit(regime).is_some()
}
