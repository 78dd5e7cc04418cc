//! Parties that have the lease of a card together, because the driver divides it as they ask.
//!
//! The driver gives every context with work the same time, in slices of about 2 ms. If that is what
//! the shares of all active parties of a card ask, the card is *even*: a lease for each in turn would
//! only add waits and handovers. So the parties of an even card have the lease at once. It takes turns
//! again while one of them is owed time.

use super::ledger::{WHOLE, is_hard};
use super::slice::Row;
use super::{Card, Leases};

impl Leases {
    /// Whether the driver divides a card as the shares ask. Each active party has one slice there,
    /// with one active process that works in one context, and about the same weight. None has a
    /// ceiling, which the driver does not keep, another priority, or another card, where it would
    /// have to have the lease at the same time.
    pub(super) fn is_even(&self, card: &Card) -> bool {
        let rows =
            card.members.iter().map(|(s, r)| (self.slices[*s].party, &self.slices[*s].rows[*r]));
        let active = || rows.clone().filter(|(_, row)| !row.active.is_empty()).map(|(_, row)| row);
        let weights = || active().map(|row| row.ledger.weight);
        let (Some(least), Some(most)) = (weights().min(), weights().max()) else { return false };
        let is_alone = |p: &usize| {
            let of_party = rows.clone().filter(|(party, _)| party == p).count();
            of_party == 1 && self.parties[*p].members.len() == 1
        };
        // The weights may differ by a fifth.
        10 * least >= 8 * most
            && card.parties.iter().all(is_alone)
            && active().all(|row| {
                let is_first = Some(row.regime.priority) == card.highest;
                row.active.len() == 1 && !row.is_split() && is_first && !is_hard(row.regime)
            })
    }

    /// Whether two parties are active on the same even card.
    pub(super) fn agree(&self, p: usize, q: usize) -> bool {
        let card = |p: usize| match self.parties[p].members[..] {
            [(s, r)] => Some(self.slices[s].rows[r].card).filter(|card| self.cards[*card].is_even),
            _ => None,
        };
        p != q && card(p).is_some() && card(p) == card(q)
    }

    /// Whether a party may have a lease at the same time as a holder.
    pub(super) fn joins(&self, p: usize, holder: usize) -> bool {
        self.agree(p, holder) && self.lead(p, holder).unsigned_abs() <= self.timing.together / 2
    }

    /// How far a party is ahead of another one.
    pub(super) fn lead(&self, p: usize, q: usize) -> i64 {
        let served = |p: usize| self.order(p).1;
        served(p).saturating_sub(served(q))
    }

    /// When a party that waits is level with a holder that is owed time, if the holder has the card
    /// alone. `u64::MAX` if it does not wait for that.
    pub(super) fn level_at(&self, p: usize, holder: usize) -> u64 {
        let behind = self.lead(p, holder) - self.timing.together as i64 / 2;
        let weight = self.parties[holder].rows(&self.slices).map(|row| row.ledger.weight).min();
        match (u64::try_from(behind), weight.filter(|_| self.agree(p, holder))) {
            (Ok(ns), Some(weight)) => {
                self.now + (ns.saturating_mul(weight) / WHOLE).max(self.timing.ahead)
            }
            _ => u64::MAX,
        }
    }

    /// The other parties that have the lease together with this one.
    pub(super) fn mates(&self, p: usize) -> impl Iterator<Item = usize> {
        let holds = self.parties[p].lease.is_some();
        let all = 0..if holds { self.parties.len() } else { 0 };
        all.filter(move |q| self.parties[*q].lease.is_some() && self.agree(p, *q))
    }

    /// Where a party enters the queue that has rested in a lease: level with the least served one
    /// that has it too. So nobody is owed the time of short pauses. `None` without a lease.
    pub(super) fn level(&self, p: usize) -> Option<u64> {
        self.parties[p].lease.as_ref()?;
        let rows = self.mates(p).flat_map(|q| self.parties[q].rows(&self.slices));
        let served = rows.filter(|row| row.wants()).map(|row| row.ledger.served);
        Some(served.min().unwrap_or(0))
    }

    /// Whether a party leaves a lease that it has together with others: one of them is owed time, and
    /// is to have the card alone until both have had the same, or they do not agree any more.
    pub(super) fn leaves(&self, p: usize) -> bool {
        let comes_before = |q: usize| {
            let other = &self.parties[q];
            if self.agree(p, q) {
                (other.waits || other.runs) && self.lead(p, q) > self.timing.together as i64
            } else {
                self.order(q) < self.order(p)
            }
        };
        let meets = |q: &usize| self.parties[p].cards.iter().any(|it| self.parties[*q].holds(*it));
        (0..self.parties.len()).filter(|q| *q != p).filter(meets).any(comes_before)
    }

    /// Marks the slices for which each card is reserved until the next step, with their parts of
    /// its bill.
    pub(super) fn reserve(&mut self) {
        for p in 0..self.parties.len() {
            for (s, r) in self.parties[p].members.clone() {
                self.slices[s].rows[r].reserved = self.part_of_bill(p, &self.slices[s].rows[r]);
            }
        }
    }

    /// The part of a party's row, and the whole, if the card is reserved for it. On an even card the
    /// parties that work divide the bill, also with work that goes on after a lease, and slices of a
    /// gang by their weights. Work that does not end is nobody's excuse.
    fn part_of_bill(&self, p: usize, row: &Row) -> Option<(u64, u64)> {
        let party = &self.parties[p];
        let counts = |q: usize| {
            let (party, mut rows) = (&self.parties[q], self.parties[q].rows(&self.slices));
            let is_stuck = party.is_stuck && party.lease.is_none();
            !is_stuck && rows.any(|row| party.is_reserved(row) && row.works())
        };
        let others = || (0..self.parties.len()).filter(|q| self.agree(p, *q) && counts(*q)).count();
        if !party.is_reserved(row) {
            return None;
        } else if counts(p) {
            let others = others() as u64;
            if others > 0 {
                return Some((1, 1 + others));
            }
        } else if self.mates(p).any(counts) {
            return Some((0, 1));
        }
        let of_party = party.rows(&self.slices).filter(|it| it.card == row.card);
        let reserved = of_party.filter(|it| party.is_reserved(it));
        Some((row.ledger.weight, reserved.map(|row| row.ledger.weight).sum()))
    }
}
