//! The lease: which slices may launch on a card that several slices use, and for how long.
//!
//! While two slices work on a card at once, the driver divides the card between their processes.
//! Where the shares ask the same, they have the lease together. Otherwise the coordinator leases the
//! card to one slice at a time. It bills a slice from the beginning of its lease until its work has
//! ended, by the coordinator's own clock: no report lowers the bill of a lease that one slice has.
//! Slices that have it together divide the bill by their reports.
//!
//! The caller reads the slices' files into a [`View`], calls [`Leases::step`], and publishes the
//! [`Decision`]. A step bills the time since the last step, reads the view, and decides which
//! leases end and which begin. Nothing else is stored: a new coordinator continues from the files.
//!
//! # Who holds the lease
//!
//! A *party* holds it: a slice, or all slices of a gang. It holds the lease with all its processes,
//! and on all cards on which it is active, because kernels of two processes or cards may wait for
//! each other. A party of several cards waits until all are free. Until then, other parties have
//! short leases on the free ones (`choose`).
//!
//! If all active parties of a card have soft shares, about the same weight, the same priority and one
//! process each, the card is *even*, and they have the lease together (`set`): nothing is handed over,
//! and the driver divides the card as without us. A party that paused, and so was billed less, has the
//! card alone until it is level with the others. A party that rests for a moment keeps the lease, and
//! is owed nothing for this time.
//!
//! | on the card | grant |
//! |---|---|
//! | no slice with a share (1 to 99) | none: [`Kind::Own`], and nothing is regulated |
//! | a slice with a share, but it is idle | slices without a share have little work in flight ([`Kind::Alone`]); the others have [`Kind::Own`] |
//! | a slice with a share is active | leases: [`Kind::Lease`] with [`Holder::All`] for the holder, [`Holder::None`] for the others |
//! | the same, and no other party is active | [`Kind::Alone`]: without a limit, or, for a hard share with one process, limited by the bucket of that process. Otherwise leases, with pauses while the slice owes |
//!
//! # Which party is next
//!
//! - The party with the highest priority, and of several the one with the least reserved time over
//!   weight (`ledger`). The weight is the share. Slices without a share divide what the shares
//!   leave. A low priority gets a small part of its waiting time nevertheless.
//! - A *hard* share is a ceiling: a slice that has had more than its share owes time, and waits. A
//!   hard slice that waited for others is owed time, and gets it before it is alone again. A *soft*
//!   share is a weight: idle time is lent.
//! - A party that returns from a pause starts about where the least served one is. It ends the lease
//!   of a party that comes after it. So an interactive program waits only for the work in flight,
//!   which is little beside a party with pauses.
//!
//! # When a lease ends
//!
//! A lease ends by the clock, or when the holder reports that nothing runs or waits. It is prolonged
//! if the holder is also the next party. The next lease begins when the work of the last one has
//! ended, with these exceptions:
//!
//! - A party with pauses waits only a moment for a kernel of a soft slice, and none waits for another
//!   one on an even card: the driver shares the card for the rest of that kernel.
//! - Others wait 4 s for work that does not end, and 20 ms for work that was launched without
//!   admission. From then on the work is *stuck*: the driver shares the card, and the party is
//!   billed in full until its work has ended.
//! - A process that was stopped or has died is not waited for.
//!
//! Work without a lease may wait for another launch of its party. If a process reports that its work
//! is stalled, waiting launches go on ([`Grant::unblock`]): one, then two, then four, with longer and
//! longer waits between. The party gets no lease by that, and pays for the time.

mod choose;
mod ledger;
mod party;
mod set;
mod slice;
mod view;

pub use view::{Decision, GrantUpdate, ProcessView, Report, SliceCardView, SliceView, State, View};

use std::collections::BTreeMap;
use std::mem::take;

use hami_limits::grants::SILENCE_NS;

use crate::{Grant, Holder, Kind, Priority, timing};
use ledger::{PERCENT, WHOLE, limit};
use party::Party;
use slice::{Row, Sharing, Slice};

/// The state of all leases of one runtime directory.
#[derive(Debug, Default)]
pub struct Leases {
    now: u64,
    slices: Vec<Slice>,
    parties: Vec<Party>,
    cards: Vec<Card>,
    /// The time of the next event that no wake-up announces.
    wake_at: u64,
}

/// A card.
#[derive(Debug, Default)]
struct Card {
    key: u64,
    /// Slice and row of all slices that may use it.
    members: Vec<(usize, usize)>,
    /// The parties that are active on it, each once.
    parties: Vec<usize>,
    sharing: Sharing,
    /// The sum of the shares of the active slices, in millionths, and the number of active slices
    /// without a share.
    shares: u64,
    without_share: u64,
    /// The highest priority of the active slices.
    highest: Option<Priority>,
    /// Whether the driver divides the card as the shares of the active slices ask (`set`).
    is_even: bool,
    /// The time of the least served slice in the queue. A slice that enters the queue starts with
    /// about this time, so it never decreases.
    floor: u64,
}

impl Leases {
    /// The state of a new coordinator. The numbers of grants continue from the published ones; balances
    /// start at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the slices as they are `now` and decides what to publish. It may be called at any
    /// time; if nothing has changed, there is nothing to publish.
    pub fn step(&mut self, now: u64, view: &View) -> Decision {
        let now = now.max(self.now);
        let passed = if self.now == 0 { 0 } else { now - self.now };
        // After a longer time without a step, grants do not count, so processes limited themselves.
        let governed = self.now > 0 && passed <= SILENCE_NS;
        (self.now, self.wake_at) = (now, u64::MAX);
        self.settle(passed);
        self.read(view, governed);
        self.classify_cards();
        self.enter_queues();
        for party in &mut self.parties {
            party.read(now, &self.slices);
        }
        self.grant_leases();
        self.reserve();
        let mut decision = Decision::default();
        self.publish(&mut decision);
        self.due(Some(now + timing::LOOK));
        let mut rows = self.slices.iter().flat_map(|slice| &slice.rows);
        let is_leased = rows.any(|row| row.sharing == Sharing::Leased);
        decision.wake_at = is_leased.then_some(self.wake_at);
        decision
    }

    /// The time that the slice may still use on a card in hard mode, in ns; negative while it owes
    /// some.
    pub fn balance(&self, slice: u64, row: usize) -> Option<i64> {
        let slice = self.slices.iter().find(|known| known.key == slice)?;
        Some(slice.rows.get(row)?.ledger.balance_ns())
    }

    /// Bills and credits the time since the last step. The slices of a gang divide the bill of a
    /// card by their weights, and parties that have the lease together divide it equally. A slice that
    /// has the card alone is not billed: a hard share is kept by the bucket of its process.
    fn settle(&mut self, passed: u64) {
        let billed = passed.min(SILENCE_NS);
        for row in self.slices.iter_mut().flat_map(|slice| &mut slice.rows) {
            if row.is_alone() {
                row.ledger.serve(if row.runs { billed } else { 0 });
                continue;
            }
            if let Some((part, whole)) = row.reserved {
                let part = u128::from(billed) * u128::from(part) / u128::from(whole.max(1));
                row.ledger.bill(part as u64);
            }
            let waits = row.waits && row.reserved.is_none();
            let is_held = self.parties.iter().any(|party| party.holds(row.card));
            let unused = !row.waits && !row.runs && !is_held;
            row.ledger.credit(row.regime, passed, waits, unused);
            if waits && row.is_outranked {
                row.ledger.credit_low(passed);
            }
        }
    }

    /// Reads the slices' files, and finds the party of each slice.
    fn read(&mut self, view: &View, governed: bool) {
        let slices = take(&mut self.slices).into_iter().map(|slice| (slice.key, slice));
        let parties = take(&mut self.parties).into_iter().map(|party| (party.id, party));
        let (mut slices, mut parties): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (slices.collect(), parties.collect());
        for seen in &view.slices {
            let mut slice = slices.remove(&seen.key).unwrap_or_else(|| Slice::new(seen.key));
            slice.rows.truncate(seen.rows.len());
            for (r, seen) in seen.rows.iter().enumerate() {
                if r == slice.rows.len() {
                    slice.rows.push(Row::new(seen));
                }
                slice.rows[r].read(self.now, seen, governed);
                let known = self.cards.iter().position(|card| card.key == seen.card);
                slice.rows[r].card = known.unwrap_or_else(|| {
                    self.cards.push(Card { key: seen.card, ..Card::default() });
                    self.cards.len() - 1
                });
            }
            let id = seen.gang.map_or((None, seen.key), |gang| (Some(gang), 0));
            let known = self.parties.iter().position(|party| party.id == id);
            slice.party = known.unwrap_or_else(|| {
                self.parties.push(parties.remove(&id).unwrap_or_else(|| Party::new(id)));
                self.parties.len() - 1
            });
            self.slices.push(slice);
        }
    }

    /// Determines how each card is shared, which slices are active on it, and the weights of the
    /// shares.
    fn classify_cards(&mut self) {
        for card in &mut self.cards {
            *card = Card { key: card.key, floor: card.floor, ..Card::default() };
        }
        for (s, slice) in self.slices.iter().enumerate() {
            for (r, row) in slice.rows.iter().enumerate() {
                self.cards[row.card].add((s, r), slice.party, row);
            }
        }
        self.parties.iter_mut().for_each(|party| party.members.clear());
        for (s, slice) in self.slices.iter_mut().enumerate() {
            for (r, row) in slice.rows.iter_mut().enumerate() {
                let card = &self.cards[row.card];
                (row.reserved, row.sharing) = (None, card.sharing_with(row));
                row.is_outranked = Some(row.regime.priority) < card.highest;
                if row.active.is_empty() {
                    continue;
                }
                row.ledger.weight = card.weight(row);
                if row.sharing == Sharing::Leased {
                    self.parties[slice.party].members.push((s, r));
                }
            }
        }
        for c in 0..self.cards.len() {
            self.cards[c].is_even = self.is_even(&self.cards[c]);
        }
        for party in &mut self.parties {
            let card = party.rows(&self.slices).next().map(|row| row.card);
            party.even_card = card.filter(|card| self.cards[*card].is_even);
        }
    }

    /// Enters every active slice that needs its card, and may have it, into the queue of the card.
    fn enter_queues(&mut self) {
        for c in 0..self.cards.len() {
            let members = take(&mut self.cards[c].members);
            let rows = || members.iter().map(|(s, r)| &self.slices[*s].rows[*r]);
            let least = rows().filter_map(|row| row.ledger.queued(row.wants())).min();
            let floor = self.cards[c].floor.max(least.unwrap_or(0));
            for (s, r) in &members {
                let rested = self.level(self.slices[*s].party);
                let row = &mut self.slices[*s].rows[*r];
                row.ledger.queue(row.wants(), rested, floor);
            }
            (self.cards[c].members, self.cards[c].floor) = (members, floor);
        }
    }

    fn publish(&mut self, decision: &mut Decision) {
        for s in 0..self.slices.len() {
            let slice = &mut self.slices[s];
            let regulated = slice.rows.iter().any(|row| row.sharing != Sharing::Free);
            if slice.regulated.replace(regulated) != Some(regulated) {
                decision.regulated.push((slice.key, regulated));
            }
            for row in 0..self.slices[s].rows.len() {
                let grant = self.grant_of(s, row);
                let slice = &mut self.slices[s];
                if let Some(grant) = slice.rows[row].next_grant(self.now, grant) {
                    decision.grants.push(GrantUpdate { slice: slice.key, row, grant });
                }
            }
        }
        let permits = |grant: &Grant| grant.kind != Kind::Lease || grant.holder != Holder::None;
        decision.grants.sort_by_key(|update| permits(&update.grant));
    }

    /// The grant of a row, without its number.
    fn grant_of(&self, s: usize, r: usize) -> Grant {
        let (p, row) = (self.slices[s].party, &self.slices[s].rows[r]);
        let party = &self.parties[p];
        let alone = party.alone.filter(|_| party.cards.contains(&row.card));
        let lease = party.lease.as_ref().filter(|_| party.holds(row.card));
        let (kind, holder, until) = match (row.sharing, alone, lease) {
            (Sharing::Free, ..) => (Kind::Own, Holder::All, 0),
            (Sharing::Shallow, ..) => (Kind::Alone, Holder::All, 0),
            (Sharing::Leased, Some(holder), _) => (Kind::Alone, holder, 0),
            (Sharing::Leased, _, Some(lease)) => (Kind::Lease, Holder::All, lease.until),
            (Sharing::Leased, ..) => (Kind::Lease, Holder::None, 0),
        };
        let is_used = alone.is_some() || lease.is_some();
        let depth = match row.sharing {
            Sharing::Shallow => timing::METERED,
            _ if is_used => self.depth(p, row.card),
            _ => timing::DEPTH,
        };
        let others = lease.map_or(0, |_| self.mates(p).count()) as u32;
        Grant { number: 0, kind, holder, until, depth, others, unblock: row.unblock }
    }

    /// How much work each process of a party may have in flight on a card: little beside a party
    /// with pauses, which waits for it when it returns, and much where no other slice can return.
    /// On an even card it is also little while an idle slice has a process, which may begin.
    fn depth(&self, p: usize, card: usize) -> u64 {
        let (card, alone) = (&self.cards[card], self.parties[p].alone);
        let pauses = |p: usize| self.parties[p].pauses(self.now);
        let others = card.members.iter().filter(|(s, _)| self.slices[*s].party != p);
        let are_present = others.into_iter().any(|(s, r)| self.slices[*s].rows[*r].is_present());
        let beside_pauses = card.parties.iter().any(|other| *other != p && pauses(*other));
        let is_watched = card.members.iter().any(|(s, r)| {
            let row = &self.slices[*s].rows[*r];
            card.is_even && row.is_present() && row.active.is_empty()
        });
        match alone {
            Some(_) if !are_present => timing::ALONE_DEPTH,
            None if (beside_pauses || is_watched) && !pauses(p) => timing::SHALLOW,
            _ => timing::DEPTH,
        }
    }

    /// The next step is not later than this time.
    fn due(&mut self, at: Option<u64>) {
        self.wake_at = self.wake_at.min(at.filter(|at| *at > self.now).unwrap_or(u64::MAX));
    }
}

impl Card {
    fn add(&mut self, at: (usize, usize), party: usize, row: &Row) {
        self.members.push(at);
        let (share, is_active) = (limit(row.regime), !row.active.is_empty());
        if share.is_some() && row.is_present() {
            let sharing = if is_active { Sharing::Leased } else { Sharing::Shallow };
            self.sharing = self.sharing.max(sharing);
        }
        if !is_active {
            return;
        }
        if !self.parties.contains(&party) {
            self.parties.push(party);
        }
        self.shares += share.unwrap_or(0);
        self.without_share += u64::from(share.is_none());
        self.highest = self.highest.max(Some(row.regime.priority));
    }

    /// How the card is shared with one of its slices.
    fn sharing_with(&self, row: &Row) -> Sharing {
        match self.sharing {
            Sharing::Leased => Sharing::Leased,
            // Other slices are not affected, but new processes of this one have to wait.
            _ if row.owes() => Sharing::Leased,
            // The process's own bucket enforces a share.
            Sharing::Shallow if limit(row.regime).is_some() => Sharing::Free,
            sharing => sharing,
        }
    }

    /// The weight of a slice: its share. Slices without one divide what the shares leave.
    fn weight(&self, row: &Row) -> u64 {
        let rest = WHOLE.saturating_sub(self.shares) / self.without_share.max(1);
        limit(row.regime).unwrap_or(rest.max(PERCENT))
    }
}

#[cfg(test)]
mod tests;
