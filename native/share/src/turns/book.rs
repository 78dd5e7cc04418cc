//! What a slice has used of a card against what it may use: the bucket of hard mode, and the place in
//! the card's queue.

use super::MS;
use crate::limiter::DEBT_NS;
use crate::{Mode, Regime};

/// Balances are in hundredths of a ns, so that a percent of a ns is not lost.
const NS: i64 = 100;

/// What a slice saves up in hard mode while it does not want its share: two turns.
const SAVED: i64 = 40 * MS as i64 * NS;

/// What it is owed at most while it waits for others' turns and drains.
const CLAIM: i64 = 2_000 * MS as i64 * NS;

/// What it owes at most: as much as a process's own bucket does.
const DEBT: i64 = DEBT_NS * NS;

/// How far a slice may be behind the others of a queue when it comes back from a short pause, in its
/// own engine time.
const BEHIND_NS: u64 = 40 * MS;

/// How far ahead of them it may be; the rest is let go.
const LEAD_NS: u64 = 4_000 * MS;

/// Weights are in thousandths of a percent.
const WHOLE: u64 = 100_000;

/// What becomes of credit that a slice in hard mode does not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claims {
    /// It waits for the card, which others have: it is owed the time.
    Grow,
    /// It has the card, or pauses: what it was owed stays.
    Keep,
    /// Nobody is in its way: it only saves up a little.
    Drop,
}

#[derive(Debug)]
pub(super) struct Book {
    /// In units of 1/[`NS`] ns.
    balance: i64,
    /// What the balance may be at most while the slice does not wait: what it was when it last did.
    most: i64,
    weight: u64,
    /// Engine time over weight: who has least is next. In ns of a whole card.
    pub served: u64,
    /// Engine time billed so far.
    pub billed: u64,
    /// Wall time in which work was in flight and which no bill has used up yet.
    unbilled: u64,
}

impl Book {
    pub fn new() -> Self {
        Self { balance: 0, most: SAVED, weight: WHOLE, served: 0, billed: 0, unbilled: 0 }
    }

    pub fn balance_ns(&self) -> i64 {
        self.balance.div_euclid(NS)
    }

    /// Bills `growth` of engine time, told after `passed` of wall time: never more than the time in
    /// which work can have been in flight. `runs`: some still is. `in_turns`: it counts in the queue.
    pub fn bill(&mut self, growth: u64, passed: u64, runs: bool, in_turns: bool) {
        self.unbilled = self.unbilled.saturating_add(passed);
        let billed = growth.min(self.unbilled);
        self.unbilled = if runs { self.unbilled - billed } else { 0 };
        self.billed += billed;
        if in_turns {
            self.served = self.served.saturating_add(self.weighed(billed));
        }
        let debit = i64::try_from(billed).unwrap_or(i64::MAX).saturating_mul(NS);
        self.balance = self.balance.saturating_sub(debit).max(-DEBT);
    }

    /// Credits the regime's share of `passed`.
    pub fn credit(&mut self, regime: Regime, passed: u64, claims: Claims) {
        let Some(share) = limit(regime) else { return };
        let credit = i64::try_from(passed).unwrap_or(i64::MAX).saturating_mul(share as i64);
        self.balance = self.balance.saturating_add(credit);
        if claims == Claims::Grow {
            self.balance = self.balance.min(CLAIM);
            self.most = self.balance.max(SAVED);
            return;
        }
        if claims == Claims::Drop {
            self.most = SAVED;
        }
        // What runs will be billed yet.
        let unbilled = i64::try_from(self.unbilled).unwrap_or(i64::MAX).saturating_mul(NS);
        self.balance = self.balance.min(self.most.saturating_add(unbilled));
    }

    /// Whether the slice may have a turn, if `more` engine time were billed to it.
    pub fn is_open(&self, regime: Regime, more: u64) -> bool {
        limit(regime).is_none() || regime.mode == Mode::Soft || self.balance >= more as i64 * NS
    }

    /// Whether it has waited for more of its share than a slice in hard mode may save up.
    pub fn is_owed(&self, regime: Regime) -> bool {
        let unbilled = i64::try_from(self.unbilled).unwrap_or(i64::MAX).saturating_mul(NS);
        let claim = self.balance.saturating_sub(unbilled);
        limit(regime).is_some() && regime.mode == Mode::Hard && claim > SAVED
    }

    /// How long until it may, if nothing is billed to it.
    pub fn opens_in(&self, regime: Regime) -> u64 {
        match limit(regime) {
            Some(share) if !self.is_open(regime, 0) => self.balance.unsigned_abs().div_ceil(share),
            _ => 0,
        }
    }

    pub fn set_weight(&mut self, weight: u64) {
        self.weight = weight.max(1);
    }

    /// Engine time as it counts in the queue.
    pub fn weighed(&self, ns: u64) -> u64 {
        ns.saturating_mul(WHOLE) / self.weight
    }

    /// Takes its place in a queue where the least has been served `least`.
    pub fn queue(&mut self, least: u64, newcomer: bool) {
        let behind = if newcomer { 0 } else { self.weighed(BEHIND_NS) };
        self.served = self.served.max(least.saturating_sub(behind));
    }

    /// Lets go of what it is ahead of the least by more than anybody has to make good.
    pub fn forgive(&mut self, least: u64) {
        self.served = self.served.min(least.saturating_add(self.weighed(LEAD_NS)));
    }
}

/// The share that limits, in percent; `None` for a whole card.
pub(super) fn limit(regime: Regime) -> Option<u64> {
    (1..100).contains(&regime.share).then_some(u64::from(regime.share))
}
