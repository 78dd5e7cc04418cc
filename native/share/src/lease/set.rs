//! Parties that have the lease of a card together, because the driver divides it as they ask.
//!
//! The driver gives every context with work the same time, in slices of about 2 ms. If that is what
//! the shares of all active parties of a card ask, the card is *even*: a lease for each in turn would
//! only add waits and handovers. So the parties of an even card have the lease at once. It takes turns
//! again while one of them is owed time.

use super::ledger::{WHOLE, is_hard};
use super::slice::Row;
use super::{Card, Leases};
use crate::timing;

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
        let has_one_row = |p: &usize| {
            let of_party = rows.clone().filter(|(party, _)| party == p).count();
            of_party == 1 && self.parties[*p].members.len() == 1
        };
        // The weights may differ by a fifth.
        10 * least >= 8 * most
            && card.parties.iter().all(has_one_row)
            && active().all(|row| {
                let is_first = Some(row.regime.priority) == card.highest;
                row.active.len() == 1 && !row.is_split() && is_first && !is_hard(row.regime)
            })
    }

    /// The other parties that are active on the same even card.
    pub(super) fn peers(&self, p: usize) -> impl Iterator<Item = usize> {
        let card = self.parties[p].even_card.map(|card| &self.cards[card].parties[..]);
        card.unwrap_or_default().iter().copied().filter(move |q| *q != p)
    }

    /// Whether two parties are active on the same even card.
    pub(super) fn agree(&self, p: usize, q: usize) -> bool {
        let card = |p: usize| self.parties[p].even_card;
        p != q && card(p).is_some() && card(p) == card(q)
    }

    /// Whether a party may have a lease at the same time as a holder.
    pub(super) fn joins(&self, p: usize, holder: usize) -> bool {
        self.agree(p, holder) && self.lead(p, holder).unsigned_abs() <= timing::DEPTH / 2
    }

    /// How far a party is ahead of another one on the same even card.
    fn lead(&self, p: usize, q: usize) -> i64 {
        let row = |p: usize| self.parties[p].rows(&self.slices).next();
        let served = |p: usize| row(p).map_or(0, |row| row.ledger.served as i64);
        served(p).saturating_sub(served(q))
    }

    /// When a party that waits is level with a holder that is owed time, if the holder has the card
    /// alone. `u64::MAX` if it does not wait for that.
    pub(super) fn level_at(&self, p: usize, holder: usize) -> u64 {
        let behind = self.lead(p, holder) - timing::DEPTH as i64 / 2;
        if behind < 0 || !self.agree(p, holder) {
            return u64::MAX;
        }
        let weight = self.parties[holder].rows(&self.slices).map(|row| row.ledger.weight).sum();
        let alone = behind.unsigned_abs().saturating_mul(weight) / WHOLE;
        self.now + alone.max(timing::AHEAD)
    }

    /// The other parties that have the lease together with this one.
    pub(super) fn mates(&self, p: usize) -> impl Iterator<Item = usize> {
        let holds = move |q: usize| self.parties[q].lease.is_some();
        self.peers(p).filter(move |q| holds(p) && holds(*q))
    }

    /// Where a party that rested in its lease enters the queue: not before the least served mate that
    /// has work, so that short pauses save nothing up. Without such a mate, where it left. `None`
    /// without a lease.
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
                other.works() && self.lead(p, q) > timing::DEPTH as i64
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
    /// parties that work divide the bill, also with work that goes on after a lease; one that rests
    /// pays nothing. Slices of a gang divide a bill by their weights.
    fn part_of_bill(&self, p: usize, row: &Row) -> Option<(u64, u64)> {
        let party = &self.parties[p];
        if !party.is_reserved(row) {
            return None;
        }
        let others = self.peers(p).filter(|q| self.pays(*q)).count() as u64;
        if others > 0 && self.pays(p) {
            return Some((1, 1 + others));
        }
        if others > 0 && party.lease.is_some() && !party.works() {
            return Some((0, 1));
        }
        let of_card = party.rows(&self.slices).filter(|it| it.card == row.card);
        let reserved = of_card.filter(|it| party.is_reserved(it));
        Some((row.ledger.weight, reserved.map(|row| row.ledger.weight).sum()))
    }

    /// Whether a party works where a card is reserved for it. Work that does not end after its lease
    /// makes no bill of others smaller.
    fn pays(&self, p: usize) -> bool {
        let party = &self.parties[p];
        let is_stuck = party.is_stuck && party.lease.is_none();
        !is_stuck && party.rows(&self.slices).any(|row| party.is_reserved(row) && row.works())
    }
}
