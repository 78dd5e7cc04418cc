//! Who gets a card next, and for how long.

use std::cmp::Reverse;

use super::slice::Slice;
use super::{AHEAD_NS, BATCHES_NS, MS, SHORTEST_NS, Turns};
use crate::{Holder, Kind};

/// A turn, with one or two slices active on the card.
const TURN_NS: u64 = 20 * MS;

/// With more, a round of all of them takes so long, but for drains.
const ROUND_NS: u64 = 60 * MS;

/// What is given to a slice on several cards whose work may wait for its own launches.
const STRETCH_NS: u64 = 3 * MS;

/// One slice that wants a turn on its cards.
struct Candidate {
    slice: usize,
    holder: Holder,
    order: Order,
}

/// Smallest first: those whose cards nobody else can use meanwhile, high priority, those who have just
/// come and owe nothing, least served, those who waited longest. The key makes it unambiguous.
type Order = (Reverse<bool>, Reverse<i8>, Reverse<bool>, u64, u64, u64);

impl Turns {
    /// Gives turns on all cards that are free.
    pub(super) fn hand_out(&mut self) {
        self.occupy();
        self.give_alone();
        let mut candidates: Vec<Candidate> =
            (0..self.slices.len()).filter_map(|s| self.candidate(s)).collect();
        candidates.sort_unstable_by_key(|candidate| candidate.order);
        let new = |candidate: &&Candidate| self.slices[candidate.slice].is_newcomer();
        let mut newcomers = candidates.iter().filter(new).count();
        for candidate in candidates {
            newcomers -= usize::from(self.slices[candidate.slice].is_newcomer());
            self.give_or_claim(&candidate, newcomers > 0);
        }
    }

    /// A process that is the only active one on its card needs no turns there. Whoever comes meanwhile
    /// is seen at the next look.
    fn give_alone(&mut self) {
        for s in 0..self.slices.len() {
            let Some(slot) = self.alone_on(s) else { continue };
            let slice = &self.slices[s];
            if slice.turn.as_ref().is_none_or(|turn| turn.kind != Kind::Alone) {
                let card = slice.rows[slice.gang[0]].card;
                self.take_back(card, s);
                self.cards[card].holder = Some(s);
                self.slices[s].give(self.now, Kind::Alone, Holder::Slot(slot), u64::MAX, false);
            }
        }
    }

    /// Notes at each card who has it, and whose work still runs there.
    fn occupy(&mut self) {
        for (s, slice) in self.slices.iter().enumerate() {
            for card in slice.cards_of_turn() {
                self.cards[card].holder = Some(s);
            }
            for (r, row) in slice.rows.iter().enumerate() {
                if slice.is_overdue(r) {
                    self.cards[row.card].overdue.push(s);
                }
                if slice.loses(r, self.now) {
                    self.cards[row.card].losers.push(s);
                }
            }
        }
    }

    /// The slice's request for a turn, if it has one.
    fn candidate(&self, s: usize) -> Option<Candidate> {
        let slice = &self.slices[s];
        if slice.turn.is_some() && !slice.may_go_on(self.now) {
            return None;
        }
        let holder = match slice.gang[..] {
            [] => return None,
            [row] => Holder::Slot(slice.next_process(row, self.now)?),
            _ => Holder::Everyone,
        };
        if slice.turn.as_ref().is_some_and(|turn| turn.parked || turn.holder != holder)
            && slice.gang.len() == 1
        {
            return None;
        }
        let busy =
            |r: &usize| slice.rows[*r].wants() || (slice.turn.is_some() && slice.rows[*r].runs());
        let open = |r: &usize| {
            let row = &slice.rows[*r];
            row.book.is_open(row.regime, slice.to_come(*r, self.now))
        };
        if !slice.gang.iter().any(busy) {
            return None;
        }
        let stretch = slice.needs_stretch(self.now);
        if !stretch && !slice.gang.iter().all(open) {
            return None;
        }
        Some(Candidate { slice: s, holder, order: self.order(s, stretch) })
    }

    fn order(&self, s: usize, stretch: bool) -> Order {
        let slice = &self.slices[s];
        let rows = || slice.gang.iter().map(|&r| (r, &slice.rows[r]));
        let ahead = rows().map(|(r, row)| {
            let to_come = row.book.weighed(slice.to_come(r, self.now));
            let floor = self.cards[row.card].floor(row.regime.priority);
            (row.book.served + to_come).saturating_sub(floor)
        });
        // The card of which it has had most decides, so that it gets too much of none.
        let ahead = ahead.max().unwrap_or(0);
        (
            Reverse(stretch),
            Reverse(rows().map(|(_, row)| row.regime.priority as i8).min().unwrap_or(0)),
            Reverse(slice.is_newcomer() && ahead == 0),
            ahead,
            rows().map(|(_, row)| row.last_served).max().unwrap_or(0),
            slice.key,
        )
    }

    fn give_or_claim(&mut self, candidate: &Candidate, newcomers: bool) {
        let now = self.now;
        let s = candidate.slice;
        let cards: Vec<usize> = self.slices[s].cards().collect();
        let claimed = cards.iter().filter_map(|card| self.cards[*card].claimed).min();
        let most = claimed.unwrap_or(u64::MAX).saturating_sub(now);
        let free_at = cards.iter().map(|card| self.free_at(*card, candidate)).max().unwrap_or(now);
        if free_at > now || most < SHORTEST_NS {
            let cut = claimed.is_none() && cards.iter().all(|card| self.may_cut(*card, candidate));
            for card in cards {
                // Until the others are free somebody else may have a free one; of one that is not
                // free the next turn is the candidate's.
                let lent = if self.free_at(card, candidate) > now { now } else { free_at };
                self.cards[card].claimed.get_or_insert(lent);
                if cut {
                    self.take_back(card, s);
                }
            }
            return;
        }
        let active = cards.iter().map(|card| self.cards[*card].active_slices).max().unwrap_or(1);
        let stretch = candidate.order.0.0;
        let length = match (stretch, newcomers) {
            (true, _) => STRETCH_NS,
            (false, true) => SHORTEST_NS,
            (false, false) => turn_length(active),
        };
        // From whoever has them and nothing to do there.
        for card in &cards {
            self.take_back(*card, s);
        }
        let free = cards.iter().all(|card| self.free_at(*card, candidate) == now);
        for card in cards {
            let card = &mut self.cards[card];
            if free {
                card.holder = Some(s);
            } else {
                card.claimed = Some(now);
            }
        }
        if !free {
            return;
        }
        self.slices[s].give(now, Kind::Turn, candidate.holder, now + length.min(most), stretch);
    }

    /// Ends the turn of whoever has a card, other than the slice `s`.
    fn take_back(&mut self, card: usize, s: usize) {
        let Some(holder) = self.cards[card].holder.filter(|holder| *holder != s) else { return };
        let slice = &mut self.slices[holder];
        for card in slice.cards_of_turn() {
            self.cards[card].holder = None;
            self.cards[card].losers.push(holder);
        }
        slice.turn = None;
        slice.pass_over(self.now);
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
        let mut free_at = turn.filter(|turn| !turn.parked).map_or(now, |turn| turn.until);
        // On its own cards a gang goes on while work of it still runs.
        let in_the_way =
            |s: &&usize| candidate.holder != Holder::Everyone || **s != candidate.slice;
        if card.losers.iter().any(|s| in_the_way(&s)) {
            free_at = free_at.max(now + 1);
        }
        for s in card.overdue.iter().filter(in_the_way) {
            // Two batches end soon. What takes longer may take long.
            let since = self.slices[*s].late_since.unwrap_or(now);
            let long = now - since >= BATCHES_NS;
            free_at = free_at.max(if long { now + SHORTEST_NS } else { now + 1 });
        }
        free_at
    }

    /// Whether the candidate may have the rest of the turn on a card: it came back while another had
    /// the card, who has had it for a while. So a program that waits for each of its kernels does not
    /// wait for a whole turn after each; those who always want more never cut each other short.
    fn may_cut(&self, card: usize, candidate: &Candidate) -> bool {
        let came = &self.slices[candidate.slice];
        let asked_at = came.gang.iter().filter_map(|r| came.rows[*r].asked_at).max().unwrap_or(0);
        let holder = self.cards[card].holder.filter(|holder| *holder != candidate.slice);
        holder.and_then(|holder| self.slices[holder].turn.as_ref()).is_none_or(|turn| {
            let gang = turn.holder == Holder::Everyone;
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
        let places = self.turn.iter().flat_map(|turn| &turn.places);
        places.map(|place| self.rows[place.row].card)
    }
}

fn turn_length(active: u64) -> u64 {
    if active <= 2 { TURN_NS } else { (ROUND_NS / active).max(SHORTEST_NS) }
}

const _: () = assert!(AHEAD_NS < STRETCH_NS && STRETCH_NS < SHORTEST_NS);
