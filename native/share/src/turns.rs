//! Turns: which slice may launch on a card that several slices use, and for how long.
//!
//! While two slices work on a card at once, the driver divides the card between them. Then neither
//! can tell its own engine time from the other's, and no limiter inside them can enforce a share.
//! So the coordinator reserves the card for one slice at a time. It bills the slice for the time
//! of the reservation, whatever the slice reports, so a slice gains nothing by false reports.
//!
//! The caller reads the slices' files into a [`View`], calls [`Turns::step`], and publishes the
//! [`Decision`]. A step bills the time since the last step (`ledger`), reads the view (`slice`,
//! `process`), decides how each card is shared and which slices are in its queues (`card`), ends
//! turns (`party`), and grants the next ones (`choose`). Nothing is stored elsewhere: a new
//! coordinator continues from the files.
//!
//! # Which cards have turns
//!
//! A card is granted in turns while a slice with a share below 100 is active on it. While such a
//! slice is present but idle, slices without a share launch as they like, but are metered, so that
//! the slice never finds a long queue before it. Without such a slice, launches need no permission.
//! A process is active if it waited or worked within the last 100 ms.
//!
//! # Which slice is next
//!
//! - The slices are ordered by priority, then by deficit (reserved time over weight). The weight is
//!   the share; slices without a share divide what the shares leave. The processes of a slice have
//!   turns one after the other, the least served one first, unless their kernels wait for each
//!   other.
//! - A *hard* share is a ceiling: unused time stays unused. A slice that has waited for others is
//!   owed time. It gets that time before its own bucket limits it again, even if its neighbour has
//!   exited. *Soft* shares are weights: idle time is lent. *Priority* ranks above both: of the
//!   slices that may have the card (hard ones while they have credit, soft ones always), the
//!   highest goes first.
//! - A slice that is the only active one on its cards has them alone. Without a hard share, it is
//!   unlimited. With a hard share and one process, that process's own bucket limits it.
//! - A slice that is active on several cards gets its turns on all of them at once, and so do the
//!   slices of a gang. Kernels of two cards may wait for each other, and would wait for ever for a
//!   card that another slice has. The slices of a gang divide the bill of a card by their weights.
//! - A newcomer's first turn comes before the next turns of others. Of several newcomers each waits
//!   for the first kernels of those before it (`cargo test -p hami-share --test simulation
//!   several_newcomers -- --nocapture` prints the table).
//! - A slice that returns from a pause ends the turn of a slice with a lower priority. It also ends
//!   the turn of a slice with the same priority that will have had more time when the turn ends. So
//!   an interactive program waits only for the work in flight.
//!
//! # When a turn ends
//!
//! A turn ends by the clock, or when its processes report that nothing is in flight and none waits.
//! The turn of a slice that works is prolonged if the slice is also the next one. In a turn, a
//! process only makes launches that end before the turn does. If its next kernel takes longer than
//! a turn, the process reports its length, and the turn is as long. No slice gets a card on which
//! reserved work of another still runs, but no slice waits for ever:
//!
//! - A process that works without a heartbeat for 10 ms, or does not answer its turn for 5 ms,
//!   counts as stopped. It is skipped until it shows a sign of life.
//! - Other slices wait 4 s for work that goes on after its turn, and the slice of this work is
//!   billed for the time. Then the driver shares the card. Until the work makes progress, its
//!   process only gets a short turn every 0.5 s.
//! - Work may have been launched without a turn, mostly before a slice with a share was there. It
//!   may be a queue of any length, and cannot be withdrawn. Other slices wait 20 ms for it (for
//!   metered work 40 ms). Until it has ended, the driver shares the card.
//! - Work that goes on may wait for another launch of its slice that comes after the turn. If a
//!   process reports that its work makes no progress, the slice gets short turns for such launches
//!   until the work ends.
//!
//! # How much is in flight
//!
//! A grant also says how much work a process may have in flight. Beside a slice with pauses it is 1
//! ms, so that the slice has the card soon when it returns. Beside slices that always want more it
//! is 4 ms. Alone it is 64 ms, but 4 ms for a second after another slice was active.

mod card;
mod choose;
mod ledger;
mod party;
mod process;
mod slice;
mod view;

pub use view::{Decision, GrantUpdate, ProcessView, Report, SliceCardView, SliceView, State, View};

use std::collections::BTreeMap;

use hami_limits::grants::SILENCE_NS;

use crate::{Grant, Holder, Kind, Mode};
use card::Card;
use ledger::limit;
use party::{Party, PartyId, party_of};
use process::Process;
use slice::{Sharing, Slice};

const MS: u64 = 1_000_000;

/// A process counts as active for this long after it last waited or worked, so that its pauses
/// between two kernels do not change which processes take part.
pub const ACTIVE_NS: u64 = 100 * MS;

/// The greatest age of the heartbeat of a process whose work runs. An older one means that the
/// process was stopped: heartbeats come every millisecond, and its work of at most 4 ms has ended.
pub const SILENT_NS: u64 = 10 * MS;

/// How long a process may take to answer a turn. A wake-up takes less than 0.2 ms on an idle
/// machine; a process that was stopped keeps the card for no longer than this.
const ANSWER_NS: u64 = 5 * MS;

/// How long other slices wait for a kernel that goes on after its turn.
pub const DRAIN_NS: u64 = 4_000 * MS;

/// The same for work that was launched without permission, because the queue may have any length.
/// The driver then shares the card with the rest of it.
const BACKLOG_NS: u64 = 20 * MS;

/// The same for work that was launched metered but without turns: several times
/// [`METERED_DEPTH_NS`], because several slices may each have that much in flight.
const METERED_NS: u64 = 40 * MS;

/// The longest time that the work in flight at the end of a turn takes, if its kernels are short.
const BATCHES_NS: u64 = 5 * MS;

/// A slice whose work past its turn has made no progress for this long gets short turns: as long as
/// the shortest patience of a process.
const STALL_NS: u64 = 10 * MS;

/// A slice with work for which others no longer wait gets a short turn this often, if one of its
/// launches waits: the work may wait for that launch.
const STUCK_NS: u64 = 500 * MS;

/// How long before its end a turn is prolonged if the same holder gets the next one, so that the
/// holder reads the new end before it stops.
const AHEAD_NS: u64 = MS;

/// The shortest turn. A handover costs about 0.2 ms.
const SHORTEST_NS: u64 = 5 * MS;

/// How long the processes of a slice have their turns together after one had work that waited for
/// another's launch.
const MEETS_NS: u64 = 10_000 * MS;

/// The least that a turn costs. A slice that requests turns without using them cannot end those of
/// others more often than its share allows.
const LEAST_BILL_NS: u64 = MS;

/// The longest time between two steps while a card is shared in turns.
const LOOK_NS: u64 = 10 * MS;

/// A slice that had nothing to do in a turn counts as one with pauses for this long.
const PAUSES_NS: u64 = 200 * MS;

/// The work in flight beside a slice with pauses. That slice waits for it when it returns.
const SHALLOW_NS: u64 = MS;

/// The work in flight beside slices that always want more: two batches, one that runs and one that
/// waits.
pub const DEPTH_NS: u64 = 4 * MS;

/// The work in flight of slices without a share while one with a share is present, but idle.
const METERED_DEPTH_NS: u64 = 10 * MS;

/// The work in flight of a slice that has its cards alone. A program that queues work and then
/// stalls for 60 ms keeps the card busy. A newcomer waits at most for this much work.
const ALONE_DEPTH_NS: u64 = 64 * MS;

/// For this long after another slice was active, it may return from a pause. Until then a slice
/// that has the card alone has no more work in flight than beside others.
const RETURNS_NS: u64 = 1_000 * MS;

/// The state of all turns of one runtime directory.
#[derive(Debug, Default)]
pub struct Turns {
    now: u64,
    /// In the order of their keys.
    slices: Vec<Slice>,
    /// In the order of their IDs.
    parties: Vec<Party>,
    /// The index of the party of each slice.
    party_index: Vec<usize>,
    cards: Vec<Card>,
    /// The index of each card in `cards`, by its key in the view.
    card_index: BTreeMap<u64, usize>,
}

impl Turns {
    /// The state of a new coordinator. Turn numbers continue from the published ones; balances
    /// start at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the slices as they are `now` and decides what to publish. It may be called at any
    /// time; if nothing has changed, there is nothing to publish.
    pub fn step(&mut self, now: u64, view: &View) -> Decision {
        let now = now.max(self.now);
        let passed = if self.now == 0 { 0 } else { now - self.now };
        self.now = now;
        // Longer ago, the coordinator was stopped, and its grants had ended.
        self.bill(passed.min(SILENCE_NS));
        self.read_view(view);
        self.gather_parties();
        self.classify_cards();
        self.credit(passed);
        self.end_turns();
        for party in &mut self.parties {
            party.update_overdue(now, &mut self.slices);
        }
        for card in self.cards.iter_mut().filter(|card| card.sharing == Sharing::Turns) {
            card.update_queues(now, &mut self.slices);
        }
        self.grant_turns();
        self.mark_reserved();
        let mut decision = Decision::default();
        self.publish(&mut decision);
        decision.wake_at = self.wake_at();
        decision
    }

    /// The time that the slice may still use on a card in hard mode, in ns; negative while it owes
    /// some.
    pub fn balance(&self, slice: u64, row: usize) -> Option<i64> {
        let at = self.slices.binary_search_by_key(&slice, |slice| slice.key).ok()?;
        Some(self.slices[at].rows.get(row)?.ledger.balance_ns())
    }

    /// Bills the time since the last step to the slices for which a card was reserved. The slices
    /// of a gang divide it by their weights. Work for which others no longer wait is charged its
    /// part of the time.
    fn bill(&mut self, passed: u64) {
        let mut weights: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (slice, party) in self.slices.iter().zip(&self.party_index) {
            for row in slice.rows.iter().filter(|row| row.is_reserved) {
                *weights.entry((*party, row.card)).or_default() += row.ledger.weight;
            }
        }
        for (slice, party) in self.slices.iter_mut().zip(&self.party_index) {
            let turn = self.parties[*party].turn.as_ref();
            for row in &mut slice.rows {
                let part = passed / (1 + self.cards[row.card].stuck);
                if row.is_reserved {
                    let all = u128::from(weights[&(*party, row.card)].max(1));
                    let of_row = u128::from(part) * u128::from(row.ledger.weight) / all;
                    row.ledger.bill(of_row as u64);
                }
                for process in &mut row.processes {
                    if process.is_stuck() {
                        process.owed += part;
                    }
                    if turn.is_some_and(|turn| turn.holder == Holder::Slot(process.last.slot)) {
                        process.served += passed;
                    }
                }
            }
        }
    }

    /// Reads the slices' files.
    fn read_view(&mut self, view: &View) {
        for seen in &view.slices {
            let at = match self.slices.binary_search_by_key(&seen.key, |slice| slice.key) {
                Ok(at) => at,
                Err(at) => {
                    self.slices.insert(at, Slice::new(seen.key));
                    at
                }
            };
            let slice = &mut self.slices[at];
            slice.update(self.now, seen);
            for (row, seen) in slice.rows.iter_mut().zip(&seen.rows) {
                row.card = *self.card_index.entry(seen.card).or_insert_with(|| {
                    self.cards.push(Card::new());
                    self.cards.len() - 1
                });
            }
        }
        let now = self.now;
        self.slices.retain(|slice| slice.seen_at(now));
    }

    /// Finds the party of each slice, and forgets parties without slices.
    fn gather_parties(&mut self) {
        let ids: Vec<PartyId> = self.slices.iter().map(party_of).collect();
        self.parties.retain(|party| ids.contains(&party.id));
        for id in &ids {
            if let Err(at) = self.parties.binary_search_by_key(id, |party| party.id) {
                self.parties.insert(at, Party::new(*id));
            }
        }
        let index = |id| self.parties.binary_search_by_key(id, |party| party.id).unwrap_or(0);
        self.party_index = ids.iter().map(index).collect();
    }

    /// Determines how each card is shared, which slices are active on it, and the weights of the
    /// shares.
    fn classify_cards(&mut self) {
        for card in &mut self.cards {
            card.reset();
        }
        for (s, slice) in self.slices.iter().enumerate() {
            let party = self.parties[self.party_index[s]].id;
            for (r, row) in slice.rows.iter().enumerate() {
                self.cards[row.card].add((s, r), party, row, self.now);
            }
        }
        for party in &mut self.parties {
            party.members.clear();
        }
        for (s, slice) in self.slices.iter_mut().enumerate() {
            for (r, row) in slice.rows.iter_mut().enumerate() {
                let card = &self.cards[row.card];
                let sharing = card.sharing_with(row);
                if row.sharing == Sharing::Metered && sharing == Sharing::Turns {
                    row.metered_until = Some(self.now);
                }
                row.sharing = sharing;
                if sharing != Sharing::Turns {
                    row.processes.iter_mut().for_each(Process::needs_no_turn);
                }
                if row.is_active(self.now) {
                    row.ledger.set_weight(card.weight(row.regime));
                    if sharing == Sharing::Turns {
                        self.parties[self.party_index[s]].members.push((s, r));
                    }
                }
            }
        }
    }

    fn credit(&mut self, passed: u64) {
        for (slice, party) in self.slices.iter_mut().zip(&self.party_index) {
            for row in &mut slice.rows {
                let turn = self.parties[*party].kind_on(row.card);
                row.credit(self.now, passed, turn);
            }
        }
    }

    fn end_turns(&mut self) {
        for p in 0..self.parties.len() {
            let alone = self.alone_on(p);
            self.parties[p].end_turn(self.now, alone, &mut self.slices);
        }
    }

    /// The processes for which a party needs no turns, because it is the only active party on its
    /// cards: all of them if no hard share limits it, or one that its own bucket can limit. `None`
    /// if the party needs turns. A party that is owed time, or owes time, gets turns first.
    fn alone_on(&self, p: usize) -> Option<Holder> {
        let party = &self.parties[p];
        let is_only = |card: &usize| self.cards[*card].parties.len() <= 1;
        if party.members.is_empty() || !party.cards(&self.slices).iter().all(is_only) {
            return None;
        }
        let is_hard =
            |row: &slice::SliceCard| limit(row.regime).is_some() && row.regime.mode == Mode::Hard;
        if !party.rows(&self.slices).any(is_hard) {
            return Some(Holder::All);
        }
        let [(s, r)] = party.members[..] else { return None };
        let row = &self.slices[s].rows[r];
        let is_even = !row.ledger.is_owed(row.regime) && !row.owes();
        row.only_active(self.now).filter(|_| is_even).map(Holder::Slot)
    }

    /// Marks the slices for which each card is reserved until the next step.
    fn mark_reserved(&mut self) {
        for (slice, party) in self.slices.iter_mut().zip(&self.party_index) {
            for row in &mut slice.rows {
                let turn = self.parties[*party].turn.as_ref();
                let has_turn = turn
                    .is_some_and(|turn| turn.kind == Kind::Turn && turn.cards.contains(&row.card));
                row.is_reserved = row.is_active(self.now) && (has_turn || row.is_overdue());
                let stuck = row.processes.iter().filter(|process| process.is_stuck());
                self.cards[row.card].stuck += stuck.count() as u64;
            }
        }
    }

    fn publish(&mut self, decision: &mut Decision) {
        for s in 0..self.slices.len() {
            let p = self.party_index[s];
            let slice = &mut self.slices[s];
            let regulated = slice.rows.iter().any(|row| row.sharing != Sharing::Unregulated);
            if slice.regulated.replace(regulated) != Some(regulated) {
                decision.regulated.push((slice.key, regulated));
            }
            for r in 0..slice.rows.len() {
                let grant = self.grant_of(p, &self.slices[s].rows[r]);
                if let Some(grant) = self.slices[s].rows[r].next_grant(grant) {
                    let slice = self.slices[s].key;
                    decision.grants.push(GrantUpdate { slice, row: r, grant });
                }
            }
        }
        decision.grants.sort_by_key(|publish| permits(&publish.grant));
    }

    /// The grant of a row, without its number.
    fn grant_of(&self, p: usize, row: &slice::SliceCard) -> Grant {
        let party = &self.parties[p];
        let turn = party.turn.as_ref().filter(|turn| turn.cards.contains(&row.card));
        let (kind, holder, until, depth) = match (row.sharing, turn) {
            (Sharing::Unregulated, _) => (Kind::Own, Holder::All, 0, 0),
            (Sharing::Metered, _) => (Kind::Alone, Holder::All, 0, METERED_DEPTH_NS),
            (Sharing::Turns, None) => (Kind::Turn, Holder::None, 0, 0),
            (Sharing::Turns, Some(turn)) if turn.kind == Kind::Turn => {
                (Kind::Turn, turn.holder, turn.until, self.depth(p, row.card))
            }
            (Sharing::Turns, Some(turn)) => {
                (turn.kind, turn.holder, 0, self.depth_alone(p, row.card))
            }
        };
        Grant { turn: 0, kind, holder, until, depth, others: self.others(row), unblock: 0 }
    }

    /// How many processes of other slices may work on a card while a slice works there.
    fn others(&self, row: &slice::SliceCard) -> u64 {
        let metered = row.sharing == Sharing::Metered;
        let own = row.at_work(self.now, metered);
        let members = self.cards[row.card].members.iter();
        let all: u64 =
            members.map(|(s, r)| self.slices[*s].rows[*r].at_work(self.now, metered)).sum();
        if own == 0 { 0 } else { all - own }
    }

    /// How much work each process of a party may have in flight in its turn on a card.
    fn depth(&self, p: usize, card: usize) -> u64 {
        let pauses = |id: &PartyId| {
            let at = self.parties.binary_search_by_key(id, |party| party.id);
            at.is_ok_and(|other| other != p && self.parties[other].pauses(self.now))
        };
        let is_beside_pauses = self.cards[card].parties.iter().any(pauses);
        let is_shallow = is_beside_pauses && !self.parties[p].pauses(self.now);
        if is_shallow { SHALLOW_NS } else { DEPTH_NS }
    }

    /// How much work each process of a party may have in flight on a card that it has alone.
    fn depth_alone(&self, p: usize, card: usize) -> u64 {
        let mut others = self.cards[card].members.iter().filter(|(s, _)| self.party_index[*s] != p);
        let may_return =
            others.any(|(s, r)| self.slices[*s].rows[*r].was_active_within(RETURNS_NS, self.now));
        if may_return { DEPTH_NS } else { ALONE_DEPTH_NS }
    }

    /// The time of the next event that no wake-up announces.
    fn wake_at(&self) -> Option<u64> {
        let mut rows = self.slices.iter().flat_map(|slice| &slice.rows);
        if !rows.any(|row| row.sharing == Sharing::Turns) {
            return None;
        }
        if self.cards.iter().any(|card| !card.revoked.is_empty()) {
            return Some(self.now);
        }
        let dues = self.parties.iter().map(|party| party.next_due(self.now, &self.slices));
        Some(dues.fold(self.now + LOOK_NS, u64::min))
    }
}

/// Whether a grant permits any process to launch.
fn permits(grant: &Grant) -> bool {
    grant.kind != Kind::Turn || grant.holder != Holder::None
}

#[cfg(test)]
mod tests;
