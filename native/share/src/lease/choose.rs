//! Which party has the next lease on each card, and how long it is.

use super::Leases;
use super::ledger::is_hard;
use super::party::{Lease, Party};
use super::slice::Row;
use crate::{Holder, Priority, timing};

/// The smallest is next: high priority, the least served, the longest waiting. The party's index
/// makes it unambiguous.
type Order = (i8, i64, u64, usize);

impl Leases {
    /// Ends leases, and grants the next ones on all cards that are free.
    pub(super) fn grant_leases(&mut self) {
        for p in 0..self.parties.len() {
            self.parties[p].alone = self.alone_on(p);
            self.end_lease(p);
            let until = self.parties[p].wait_for(self.now, &self.slices);
            self.due(until);
        }
        let mut candidates: Vec<usize> = (0..self.parties.len())
            .filter(|p| self.parties[*p].is_candidate(&self.slices))
            .collect();
        candidates.sort_by_cached_key(|p| self.order(*p));
        // From when on each card is reserved for a party that comes before.
        let mut reserved_at = vec![None; self.cards.len()];
        for p in candidates {
            self.grant_or_reserve(p, &mut reserved_at);
        }
        for p in 0..self.parties.len() {
            let party = &mut self.parties[p];
            let unblock = party.unblock(self.now, &mut self.slices);
            self.due(unblock);
            let next = self.parties[p].next_due(self.now, &self.slices);
            self.due(next);
        }
    }

    /// The processes for which a party needs no lease, because it is the only active party on its
    /// cards: all of them if no hard share limits it, or one that its own bucket limits. `None` if
    /// it needs leases. A party that is owed time, or owes time, has leases first.
    fn alone_on(&self, p: usize) -> Option<Holder> {
        let party = &self.parties[p];
        let is_only = |card: &usize| self.cards[*card].parties.len() == 1;
        if party.members.is_empty() || !party.cards.iter().all(is_only) {
            return None;
        }
        if !party.rows(&self.slices).any(|row| is_hard(row.regime)) {
            return Some(Holder::All);
        }
        let [(s, r)] = party.members[..] else { return None };
        let row = &self.slices[s].rows[r];
        let [process] = row.active[..] else { return None };
        let is_settled = !row.owes() && !row.ledger.is_owed(row.regime);
        is_settled.then_some(Holder::Slot(process))
    }

    /// Ends the lease of a party if it is over, or has nothing to do, or prolongs it if the party is
    /// also the next one.
    fn end_lease(&mut self, p: usize) {
        let party = &self.parties[p];
        let Some(lease) = &party.lease else { return };
        let until = lease.until;
        let is_used = self.mates(p).any(|q| self.parties[q].works());
        let rests_until = party.rests_until(self.now).filter(|_| is_used);
        if party.alone.is_some() || lease.cards != party.cards || self.leaves(p) {
            self.parties[p].lease = None;
        } else if !party.works() && (rests_until.is_none() || !self.is_next(p)) {
            self.parties[p].give_up(self.now, &mut self.slices);
        } else if self.now + timing::AHEAD >= until {
            // Of several cards, one may have work that waits for a launch on another.
            let goes_on = party.waits || party.cards.len() == 1;
            if goes_on && !party.owes(&self.slices) && self.is_next(p) {
                let until = self.now + self.length(p);
                self.parties[p].lease.iter_mut().for_each(|lease| lease.until = until);
            } else if self.now >= until {
                self.parties[p].lease = None;
            }
        }
        self.due(rests_until);
    }

    /// Whether no party that needs a card of the party `p` comes before it.
    fn is_next(&self, p: usize) -> bool {
        let own = self.order(p);
        let competes = |q: usize| {
            let other = &self.parties[q];
            other.is_candidate(&self.slices)
                && other.cards.iter().any(|card| self.parties[p].holds(*card))
                && !self.joins(q, p)
        };
        (0..self.parties.len())
            .filter(|other| competes(*other))
            .all(|other| self.order(other) > own)
    }

    pub(super) fn order(&self, p: usize) -> Order {
        let party = &self.parties[p];
        let rows = || party.rows(&self.slices);
        let low = rows().filter(|row| row.is_outranked).map(|row| row.ledger.low_credit).min();
        let priority = if low.is_some_and(|credit| credit >= timing::SHORTEST as i64) {
            Priority::High as i8
        } else {
            rows().map(|row| row.regime.priority as i8).min().unwrap_or(0)
        };
        let ahead = |row: &Row| row.ledger.served as i64 - self.cards[row.card].floor as i64;
        (-priority, rows().map(ahead).max().unwrap_or(0), party.waiting_since, p)
    }

    fn length(&self, p: usize) -> u64 {
        let party = &self.parties[p];
        let active = party.cards.iter().map(|card| self.cards[*card].parties.len()).max();
        let active = active.unwrap_or(1) as u64;
        let length = if active <= 2 { timing::LEASE } else { timing::ROUND / active };
        length.max(timing::SHORTEST)
    }

    /// Grants the party a lease if all its cards are free for long enough. Otherwise it is the next
    /// one on its cards: until all are free, other parties may use the free ones.
    fn grant_or_reserve(&mut self, p: usize, reserved_at: &mut [Option<u64>]) {
        let now = self.now;
        let cards = self.parties[p].cards.clone();
        let free_at: Vec<u64> = cards.iter().map(|card| self.free_at(*card, p)).collect();
        let all_free_at = free_at.iter().copied().max().unwrap_or(now);
        let until = cards.iter().filter_map(|card| reserved_at[*card]).min().unwrap_or(u64::MAX);
        if all_free_at <= now && until >= now + timing::SHORTEST {
            let until = until.min(now + self.length(p));
            // Leases that are held together end together.
            let leases = self.peers(p).filter_map(|q| self.parties[q].lease.as_ref());
            let until = leases.map(|lease| lease.until).fold(until, u64::min);
            let party = &mut self.parties[p];
            (party.draining_since, party.lease) = (None, Some(Lease { cards, began: now, until }));
            return;
        }
        let holds = |party: &Party| cards.iter().any(|card| party.holds(*card));
        let blocks = |q: &usize| holds(&self.parties[*q]) && !self.joins(p, *q);
        let holders: Vec<usize> = (0..self.parties.len()).filter(blocks).collect();
        if until == u64::MAX && holders.iter().all(|holder| self.may_cut(*holder, p)) {
            for holder in holders {
                (self.parties[holder].lease, self.wake_at) = (None, now);
            }
        }
        for (card, free_at) in cards.into_iter().zip(free_at) {
            reserved_at[card].get_or_insert(if free_at > now { now } else { all_free_at });
        }
    }

    /// When a card is likely to be free for a party; not after now if it is.
    fn free_at(&mut self, card: usize, p: usize) -> u64 {
        let (now, party) = (self.now, &self.parties[p]);
        let (mut free_at, mut next) = (now, None);
        for (s, r) in &self.cards[card].members {
            let row = &self.slices[*s].rows[*r];
            let other = &self.parties[self.slices[*s].party];
            let lease = other.lease.as_ref().filter(|_| other.holds(card));
            let q = self.slices[*s].party;
            let at = if q == p {
                continue;
            } else if let Some(lease) = lease {
                if self.joins(p, q) {
                    continue;
                }
                self.wake_at = self.wake_at.min(self.level_at(p, q));
                lease.until.max(now + 1)
            } else if row.may_launch() {
                // The grant is revoked in this step. The next one reads whether it was used in the
                // meantime.
                self.wake_at = now;
                now + 1
            } else if let Some(since) = other.draining_since.filter(|_| row.runs && !other.is_stuck)
            {
                let has_returned = party.returned_at >= since.saturating_sub(timing::AHEAD);
                let pauses = has_returned || party.pauses(now);
                if self.agree(p, q) {
                    continue;
                } else if pauses && !is_hard(row.regime) {
                    // The driver shares the card with a party that pauses.
                    next = Some(since + timing::OVERLAP);
                    since + timing::OVERLAP
                } else if now - since < timing::SHORTEST {
                    now + timing::AHEAD
                } else {
                    now + timing::SHORTEST
                }
            } else {
                continue;
            };
            free_at = free_at.max(at);
        }
        self.due(next);
        free_at
    }

    /// Whether a party may end the lease of a holder of its cards: it returned from a pause during
    /// this lease, and comes before the holder. So an interactive program waits only for the work in
    /// flight, and programs that always have work never end each other's leases.
    fn may_cut(&self, holder: usize, p: usize) -> bool {
        let (own, other) = (self.order(p), self.order(holder));
        let lease = self.parties[holder].lease.as_ref();
        let has_returned = lease.is_some_and(|it| self.parties[p].returned_at > it.began);
        has_returned && (own.0, own.1) < (other.0, other.1)
    }
}
