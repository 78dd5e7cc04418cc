//! The choice of the next turn on each card, and of its length.

use std::cmp::Reverse;

use super::party::Turn;
use super::{BATCHES_NS, MS, SHORTEST_NS, Turns};
use crate::{Holder, Kind};

/// A turn, with one or two parties active on the card.
const TURN_NS: u64 = 20 * MS;

/// The length of a round of all parties if there are more, without waits for unfinished work.
const ROUND_NS: u64 = 68 * MS;

/// The turn of a party whose work may wait for its own launches.
const UNBLOCK_NS: u64 = 3 * MS;

/// A party must be behind the holder of a card by this much time of a whole card to end the
/// holder's turn. Otherwise two parties with pauses would end each other's turns again and again.
const BEHIND_HOLDER_NS: i64 = 2 * MS as i64;

/// A party that needs a turn on its cards.
struct Candidate {
    party: usize,
    holder: Holder,
    order: Order,
}

/// The smallest comes first: parties that need unblocking (no other party can use their cards),
/// high priority, newcomers without debt, the least served, the longest waiting. The party's index
/// makes it unambiguous.
type Order = (Reverse<bool>, Reverse<i8>, Reverse<bool>, i64, u64, usize);

impl Turns {
    /// Grants turns on all cards that are free.
    pub(super) fn grant_turns(&mut self) {
        self.mark_cards();
        self.grant_alone();
        let mut candidates: Vec<Candidate> =
            (0..self.parties.len()).filter_map(|p| self.candidate(p)).collect();
        candidates.sort_unstable_by_key(|candidate| candidate.order);
        for (at, candidate) in candidates.iter().enumerate() {
            // Newcomers of a lower priority have to wait anyway.
            let is_next = |other: &&Candidate| other.order.1 == candidate.order.1;
            let mut next = candidates[at + 1..].iter().filter(is_next);
            let newcomers = next.any(|other| self.is_newcomer(other.party));
            self.grant_or_reserve(candidate, newcomers);
        }
    }

    fn is_newcomer(&self, p: usize) -> bool {
        self.parties[p].rows(&self.slices).any(|row| row.newcomer)
    }

    /// A party that is the only active one on its cards needs no turns there, if the buckets of its
    /// processes can limit it. The next step sees others that have started in the meantime.
    fn grant_alone(&mut self) {
        for p in 0..self.parties.len() {
            let Some(holder) = self.alone_on(p) else { continue };
            if self.parties[p].turn.as_ref().is_some_and(|turn| turn.kind == Kind::Alone) {
                continue;
            }
            let cards = self.parties[p].cards(&self.slices);
            for card in &cards {
                self.revoke(*card, p);
                self.cards[*card].holder = Some(p);
            }
            let turn = Turn {
                kind: Kind::Alone,
                until: u64::MAX,
                cards,
                began: self.now,
                holder,
                unblocks: false,
            };
            self.parties[p].grant_turn(self.now, turn, &mut self.slices);
        }
    }

    /// Marks for each card the party that has it, and the parties whose work still runs on it.
    fn mark_cards(&mut self) {
        for (p, party) in self.parties.iter().enumerate() {
            for card in party.turn.iter().flat_map(|turn| &turn.cards) {
                self.cards[*card].holder = Some(p);
            }
        }
        for (s, slice) in self.slices.iter().enumerate() {
            let p = self.party_index[s];
            for row in &slice.rows {
                let card = &mut self.cards[row.card];
                if row.is_overdue() && !card.overdue.contains(&p) {
                    card.overdue.push(p);
                }
                // A turn that has ended by its clock is revoked as well: its holder goes on a
                // little while the coordinator is late.
                if self.parties[p].is_revoked(row) && !card.revoked.contains(&p) {
                    card.revoked.push(p);
                }
            }
        }
    }

    /// The party as a candidate for a turn, if it needs one and may have it.
    fn candidate(&self, p: usize) -> Option<Candidate> {
        let party = &self.parties[p];
        if party.members.is_empty() {
            return None;
        }
        if party.turn.is_some() && !party.may_go_on(self.now, &self.slices) {
            return None;
        }
        let wants = |row: &super::slice::SliceCard| {
            row.wants() || (party.turn.is_some() && row.is_running())
        };
        let unblocks = party.needs_unblocking(self.now, &self.slices);
        if !unblocks && !party.rows(&self.slices).any(wants) {
            return None;
        }
        let may_run = |row: &super::slice::SliceCard| {
            row.ledger.may_run(row.regime, party.expected(row.card, self.now))
        };
        if !unblocks && !party.rows(&self.slices).all(may_run) {
            return None;
        }
        let holder =
            if unblocks { Holder::All } else { party.next_holder(self.now, &self.slices)? };
        if party.turn.as_ref().is_some_and(|turn| turn.holder != holder) {
            return None;
        }
        Some(Candidate { party: p, holder, order: self.order(p, unblocks) })
    }

    fn order(&self, p: usize, unblocks: bool) -> Order {
        let party = &self.parties[p];
        let rows = || party.rows(&self.slices);
        let ahead = self.ahead(p);
        (
            Reverse(unblocks),
            Reverse(rows().map(|row| row.regime.priority as i8).min().unwrap_or(0)),
            Reverse(self.is_newcomer(p) && ahead <= 0),
            ahead,
            rows().map(|row| row.last_served).max().unwrap_or(0),
            p,
        )
    }

    /// How much more time a party has had than the least served one that always needs the card. The
    /// card with the largest difference decides, so that the party gets too much time on no card.
    fn ahead(&self, p: usize) -> i64 {
        let party = &self.parties[p];
        let ahead = party.rows(&self.slices).map(|row| {
            let expected = row.ledger.weighted(party.expected(row.card, self.now));
            let floor = self.cards[row.card].floor(row.regime.priority);
            (row.ledger.served + expected) as i64 - floor as i64
        });
        ahead.max().unwrap_or(0)
    }

    fn grant_or_reserve(&mut self, candidate: &Candidate, newcomers: bool) {
        let now = self.now;
        let p = candidate.party;
        let cards = self.parties[p].cards(&self.slices);
        let needs = self.parties[p].needs(&self.slices);
        let reserved_at = cards.iter().filter_map(|card| self.cards[*card].reserved_at).min();
        let most = reserved_at.unwrap_or(u64::MAX).saturating_sub(now);
        let free_at = |card: &usize| self.free_at(*card, candidate);
        let free_at = cards.iter().map(free_at).max().unwrap_or(now);
        if free_at > now || most < SHORTEST_NS.max(needs) {
            let cut =
                reserved_at.is_none() && cards.iter().all(|card| self.may_cut_short(*card, p));
            for card in cards {
                // Until all cards are free, other parties may use the free ones. The candidate gets
                // the next turn on each card that is not free.
                let lent = if self.free_at(card, candidate) > now { now } else { free_at };
                self.cards[card].reserved_at.get_or_insert(lent);
                if cut {
                    self.revoke(card, p);
                }
            }
            return;
        }
        let active = cards.iter().map(|card| self.cards[*card].parties.len()).max().unwrap_or(1);
        let unblocks = candidate.order.0.0;
        let length = match (unblocks, newcomers) {
            (true, _) => UNBLOCK_NS,
            (false, true) => SHORTEST_NS,
            (false, false) => turn_length(active as u64),
        };
        let length = length.max(needs);
        for card in &cards {
            self.cards[*card].holder = Some(p);
        }
        let until = now + length.min(most);
        let kind = Kind::Turn;
        let turn = Turn { kind, until, cards, began: now, holder: candidate.holder, unblocks };
        if unblocks {
            self.parties[p].meet(now, &self.slices);
        }
        self.parties[p].grant_turn(now, turn, &mut self.slices);
    }

    /// Ends the turn of the party that has a card, unless it is the party `p`.
    fn revoke(&mut self, card: usize, p: usize) {
        let Some(holder) = self.cards[card].holder.filter(|holder| *holder != p) else { return };
        let party = &mut self.parties[holder];
        for card in party.turn.take().into_iter().flat_map(|turn| turn.cards) {
            self.cards[card].holder = None;
            self.cards[card].revoked.push(holder);
        }
        party.update_overdue(self.now, &mut self.slices);
        for row in party.rows(&self.slices).filter(|row| row.is_overdue()) {
            self.cards[row.card].overdue.push(holder);
        }
    }

    /// When a card is likely to be free for a candidate; `now` if it is.
    fn free_at(&self, card: usize, candidate: &Candidate) -> u64 {
        let now = self.now;
        let card = &self.cards[card];
        let holder = card.holder.filter(|holder| *holder != candidate.party);
        let turn = holder.and_then(|holder| self.parties[holder].turn.as_ref());
        let mut free_at = turn.map_or(now, |turn| turn.until);
        // A party may continue on its own cards while its work still runs, if its processes have
        // their turns together.
        let in_the_way = |p: &&usize| **p != candidate.party || candidate.holder != Holder::All;
        if card.revoked.iter().any(|p| in_the_way(&p)) {
            free_at = free_at.max(now + 1);
        }
        for other in card.overdue.iter().filter(in_the_way) {
            // Short batches end soon. Work that takes longer may take long.
            let since = self.parties[*other].overdue_since.unwrap_or(now);
            let long = now - since >= BATCHES_NS;
            free_at = free_at.max(if long { now + SHORTEST_NS } else { now + 1 });
        }
        free_at
    }

    /// Whether a party may end the turn of the holder of a card: the party returned from a pause
    /// during this turn, and has a higher priority, or has had less time, or is new. So an
    /// interactive program does not wait for a whole turn after each of its pauses. Programs that
    /// always have work never end each other's turns.
    fn may_cut_short(&self, card: usize, p: usize) -> bool {
        let asked_at = self.parties[p].rows(&self.slices).filter_map(|row| row.asked_at).max();
        let Some(holder) = self.cards[card].holder.filter(|holder| *holder != p) else {
            return true;
        };
        let Some(turn) = &self.parties[holder].turn else { return true };
        let priority = |p: usize| {
            let rows = self.parties[p].rows(&self.slices);
            rows.map(|row| row.regime.priority as i8).min().unwrap_or(0)
        };
        let (own, other) = (priority(p), priority(holder));
        let (ahead, holder_ahead) = (self.ahead(p), self.ahead(holder));
        let has_had_less =
            ahead + BEHIND_HOLDER_NS <= holder_ahead || self.is_newcomer(p) && ahead <= 0;
        let comes_first = own > other || own == other && has_had_less;
        turn.kind == Kind::Turn
            && !turn.unblocks
            && comes_first
            && asked_at.is_some_and(|asked_at| asked_at > turn.began)
    }
}

fn turn_length(active: u64) -> u64 {
    if active <= 2 { TURN_NS } else { (ROUND_NS / active).max(SHORTEST_NS) }
}

const _: () = assert!(super::AHEAD_NS < UNBLOCK_NS && UNBLOCK_NS < SHORTEST_NS);
