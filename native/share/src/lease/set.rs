//! Parties that have the lease of a card together, because the driver divides it as they ask.
//!
//! The driver gives every process with work the same time, in slices of about 2 ms. If that is what
//! the shares ask, a lease for each party in turn would only add waits and handovers. So parties
//! that *agree* have the lease at once. It takes turns again while one of them is owed time.

use super::Leases;
use super::ledger::{WHOLE, is_hard};
use super::party::Party;
use super::slice::Row;

impl Leases {
    /// Whether the driver divides a card between two parties about as their shares do. None of them
    /// has a ceiling, which the driver does not keep, or another card, where it would have to have
    /// the lease at the same time.
    pub(super) fn agree(&self, p: usize, q: usize) -> bool {
        let row = |p: usize| match self.parties[p].members[..] {
            [(s, r)] if p < self.parties.len() => Some(&self.slices[s].rows[r]),
            _ => None,
        };
        let (Some(one), Some(two)) = (row(p), row(q)) else { return false };
        // The driver's time is by processes. The weights may differ by a fifth.
        let parts = [(one, two), (two, one)].map(|(a, b)| a.ledger.weight * b.active.len() as u64);
        p != q
            && one.card == two.card
            && !is_hard(one.regime)
            && !is_hard(two.regime)
            && one.regime.priority == two.regime.priority
            && 10 * parts[0].min(parts[1]) >= 8 * parts[0].max(parts[1])
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
                let row = &self.slices[s].rows[r];
                if !self.parties[p].is_reserved(row) {
                    continue;
                }
                let others = (0..self.parties.len()).filter(|q| self.agree(p, *q));
                let others: usize = others.map(|q| self.working(&self.parties[q], row.card)).sum();
                let reserved = if others > 0 {
                    let own = self.working(&self.parties[p], row.card);
                    (own as u64, (own + others) as u64)
                } else {
                    let all = self.parties[p].rows(&self.slices).filter(|it| it.card == row.card);
                    let all = all.filter(|row| self.parties[p].is_reserved(row));
                    (row.ledger.weight, all.map(|row| row.ledger.weight).sum())
                };
                self.slices[s].rows[r].reserved = Some(reserved);
            }
        }
    }

    /// How many processes of a party work on a card that is reserved for it.
    fn working(&self, party: &Party, card: usize) -> usize {
        let rows = party.rows(&self.slices).filter(|row| row.card == card);
        rows.filter(|row| party.is_reserved(row)).map(Row::working).sum()
    }
}
