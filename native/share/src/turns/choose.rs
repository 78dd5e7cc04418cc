//! The choice of the next turn on each card, and of its length.

use std::cmp::Reverse;

use super::slice::Slice;
use super::{AHEAD_NS, BATCHES_NS, MS, SHORTEST_NS, Turns};
use crate::{Holder, Kind};

/// A turn, with one or two slices active on the card.
const TURN_NS: u64 = 20 * MS;

/// The length of a round of all slices if there are more, without waits for unfinished work.
const ROUND_NS: u64 = 60 * MS;

/// The turn of a slice on several cards whose work may wait for its own launches.
const UNBLOCK_NS: u64 = 3 * MS;

/// A slice that needs a turn on its cards.
struct Candidate {
    slice: usize,
    holder: Holder,
    order: Order,
}

/// The smallest comes first: slices that need unblocking (no other slice can use their cards), high
/// priority, newcomers without debt, the least served, the longest waiting. The key makes it
/// unambiguous.
type Order = (Reverse<bool>, Reverse<i8>, Reverse<bool>, u64, u64, u64);

impl Turns {
    /// Grants turns on all cards that are free.
    pub(super) fn grant_turns(&mut self) {
        self.mark_cards();
        self.grant_alone();
        let mut candidates: Vec<Candidate> =
            (0..self.slices.len()).filter_map(|s| self.candidate(s)).collect();
        candidates.sort_unstable_by_key(|candidate| candidate.order);
        let new = |candidate: &&Candidate| self.slices[candidate.slice].is_newcomer();
        let mut newcomers = candidates.iter().filter(new).count();
        for candidate in candidates {
            newcomers -= usize::from(self.slices[candidate.slice].is_newcomer());
            self.grant_or_reserve(&candidate, newcomers > 0);
        }
    }

    /// A process that is the only active one on its card needs no turns there. The next step sees
    /// others that have started in the meantime.
    fn grant_alone(&mut self) {
        for s in 0..self.slices.len() {
            let Some(slot) = self.alone_on(s) else { continue };
            let slice = &self.slices[s];
            if slice.turn.as_ref().is_none_or(|turn| turn.kind != Kind::Alone) {
                let card = slice.rows[slice.gang[0]].card;
                self.revoke(card, s);
                self.cards[card].holder = Some(s);
                self.slices[s].grant_turn(
                    self.now,
                    Kind::Alone,
                    Holder::Slot(slot),
                    u64::MAX,
                    false,
                );
            }
        }
    }

    /// Marks for each card which slice has it, and whose work still runs on it.
    fn mark_cards(&mut self) {
        for (s, slice) in self.slices.iter().enumerate() {
            for card in slice.cards_of_turn() {
                self.cards[card].holder = Some(s);
            }
            for (r, row) in slice.rows.iter().enumerate() {
                if slice.is_overdue(r) {
                    self.cards[row.card].overdue.push(s);
                }
                if slice.is_revoked(r, self.now) {
                    self.cards[row.card].revoked.push(s);
                }
            }
        }
    }

    /// The slice as a candidate for a turn, if it needs one and may have it.
    fn candidate(&self, s: usize) -> Option<Candidate> {
        let slice = &self.slices[s];
        if slice.turn.is_some() && !slice.may_go_on(self.now) {
            return None;
        }
        let holder = match slice.gang[..] {
            [] => return None,
            [row] => Holder::Slot(slice.next_process(row, self.now)?),
            _ => Holder::All,
        };
        if slice.turn.as_ref().is_some_and(|turn| turn.idle || turn.holder != holder)
            && slice.gang.len() == 1
        {
            return None;
        }
        let busy = |r: &usize| {
            slice.rows[*r].is_waiting() || (slice.turn.is_some() && slice.rows[*r].is_running())
        };
        let open = |r: &usize| {
            let row = &slice.rows[*r];
            row.ledger.may_run(row.regime, slice.expected(*r, self.now))
        };
        if !slice.gang.iter().any(busy) {
            return None;
        }
        let unblocks = slice.needs_unblocking(self.now);
        if !unblocks && !slice.gang.iter().all(open) {
            return None;
        }
        Some(Candidate { slice: s, holder, order: self.order(s, unblocks) })
    }

    fn order(&self, s: usize, unblocks: bool) -> Order {
        let slice = &self.slices[s];
        let rows = || slice.gang.iter().map(|&r| (r, &slice.rows[r]));
        let ahead = rows().map(|(r, row)| {
            let expected = row.ledger.weighted(slice.expected(r, self.now));
            let floor = self.cards[row.card].floor(row.regime.priority);
            (row.ledger.served + expected).saturating_sub(floor)
        });
        // The card of which it has had the most decides, so that it gets too much of none.
        let ahead = ahead.max().unwrap_or(0);
        (
            Reverse(unblocks),
            Reverse(rows().map(|(_, row)| row.regime.priority as i8).min().unwrap_or(0)),
            Reverse(slice.is_newcomer() && ahead == 0),
            ahead,
            rows().map(|(_, row)| row.last_served).max().unwrap_or(0),
            slice.key,
        )
    }

    fn grant_or_reserve(&mut self, candidate: &Candidate, newcomers: bool) {
        let now = self.now;
        let s = candidate.slice;
        let cards: Vec<usize> = self.slices[s].cards().collect();
        let reserved_at = cards.iter().filter_map(|card| self.cards[*card].reserved_at).min();
        let most = reserved_at.unwrap_or(u64::MAX).saturating_sub(now);
        let free_at = cards.iter().map(|card| self.free_at(*card, candidate)).max().unwrap_or(now);
        if free_at > now || most < SHORTEST_NS {
            let cut = reserved_at.is_none()
                && cards.iter().all(|card| self.may_cut_short(*card, candidate));
            for card in cards {
                // Until all cards are free, other slices may use a free one. The next turn on a
                // card that is not free is the candidate's.
                let lent = if self.free_at(card, candidate) > now { now } else { free_at };
                self.cards[card].reserved_at.get_or_insert(lent);
                if cut {
                    self.revoke(card, s);
                }
            }
            return;
        }
        let active = cards.iter().map(|card| self.cards[*card].active_slices).max().unwrap_or(1);
        let unblocks = candidate.order.0.0;
        let length = match (unblocks, newcomers) {
            (true, _) => UNBLOCK_NS,
            (false, true) => SHORTEST_NS,
            (false, false) => turn_length(active),
        };
        // Holders that have nothing to do lose their turns.
        for card in &cards {
            self.revoke(*card, s);
        }
        let free = cards.iter().all(|card| self.free_at(*card, candidate) == now);
        for card in cards {
            let card = &mut self.cards[card];
            if free {
                card.holder = Some(s);
            } else {
                card.reserved_at = Some(now);
            }
        }
        if !free {
            return;
        }
        self.slices[s].grant_turn(
            now,
            Kind::Turn,
            candidate.holder,
            now + length.min(most),
            unblocks,
        );
    }

    /// Ends the turn of the slice that has a card, unless it is the slice `s`.
    fn revoke(&mut self, card: usize, s: usize) {
        let Some(holder) = self.cards[card].holder.filter(|holder| *holder != s) else { return };
        let slice = &mut self.slices[holder];
        for card in slice.cards_of_turn() {
            self.cards[card].holder = None;
            self.cards[card].revoked.push(holder);
        }
        slice.turn = None;
        slice.update_overdue(self.now);
        for (r, row) in slice.rows.iter().enumerate() {
            if slice.is_overdue(r) {
                self.cards[row.card].overdue.push(holder);
            }
        }
    }

    /// When a card is likely to be free for the candidate; `now` if it is.
    fn free_at(&self, card: usize, candidate: &Candidate) -> u64 {
        let now = self.now;
        let card = &self.cards[card];
        let holder = card.holder.filter(|holder| *holder != candidate.slice);
        let turn = holder.and_then(|holder| self.slices[holder].turn.as_ref());
        let mut free_at = turn.filter(|turn| !turn.idle).map_or(now, |turn| turn.until);
        // A gang may continue on its own cards while its work still runs.
        let in_the_way = |s: &&usize| candidate.holder != Holder::All || **s != candidate.slice;
        if card.revoked.iter().any(|s| in_the_way(&s)) {
            free_at = free_at.max(now + 1);
        }
        for s in card.overdue.iter().filter(in_the_way) {
            // Two batches end soon. Work that takes longer may take long.
            let since = self.slices[*s].overdue_since.unwrap_or(now);
            let long = now - since >= BATCHES_NS;
            free_at = free_at.max(if long { now + SHORTEST_NS } else { now + 1 });
        }
        free_at
    }

    /// Whether the candidate may have the rest of the turn on a card: it returned while another
    /// slice had the card, and that slice has had it for a while. So a program that waits for each
    /// of its kernels does not wait for a whole turn after each. Programs that always want more
    /// never cut each other short.
    fn may_cut_short(&self, card: usize, candidate: &Candidate) -> bool {
        let candidate_slice = &self.slices[candidate.slice];
        let asked_at = candidate_slice
            .gang
            .iter()
            .filter_map(|r| candidate_slice.rows[*r].asked_at)
            .max()
            .unwrap_or(0);
        let holder = self.cards[card].holder.filter(|holder| *holder != candidate.slice);
        holder.and_then(|holder| self.slices[holder].turn.as_ref()).is_none_or(|turn| {
            let gang = turn.holder == Holder::All;
            !gang && asked_at > turn.began && self.now >= turn.began + SHORTEST_NS
        })
    }
}

impl Slice {
    fn is_newcomer(&self) -> bool {
        self.gang.iter().any(|row| self.rows[*row].newcomer)
    }

    fn cards(&self) -> impl Iterator<Item = usize> {
        self.gang.iter().map(|row| self.rows[*row].card)
    }

    fn cards_of_turn(&self) -> impl Iterator<Item = usize> {
        let rows = self.turn.iter().flat_map(|turn| &turn.rows);
        rows.map(|place| self.rows[place.row].card)
    }
}

fn turn_length(active: u64) -> u64 {
    if active <= 2 { TURN_NS } else { (ROUND_NS / active).max(SHORTEST_NS) }
}

const _: () = assert!(AHEAD_NS < UNBLOCK_NS && UNBLOCK_NS < SHORTEST_NS);
