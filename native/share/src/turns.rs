//! Turns: which process may launch on a card that several slices use, and for how long.
//!
//! While two processes work on a card at once, the driver slices the card between them. Then
//! neither can tell its own engine time from the other's, and no limiter inside them can enforce a
//! share. So the coordinator lets one process work at a time and hands the card over about every 20
//! ms. The engine time of a turn is then what its process measured.
//!
//! The caller reads the slices' files into a [`View`], calls [`Turns::step`], and publishes the
//! [`Decision`]. A step reads the view (`slice`, `slice_card`, `process`), bills what was used
//! (`ledger`), decides how each card is shared and which slices are in its queues (`card`), ends
//! turns, and grants the next ones (`choose`). Nothing is stored elsewhere: a new coordinator
//! continues from the files.
//!
//! # Which cards have turns
//!
//! A card is granted in turns while a slice with a share below 100 is active on it. While such a
//! slice is present but idle, slices without a share launch as they like, but are metered, so that
//! the slice never finds a long queue before it. Without such a slice, launches need no permission.
//! A process is active if it waited or worked within the last 100 ms, also while the driver runs
//! work of it that others do not wait for any more.
//!
//! # Which process is next
//!
//! - The slices are ordered by priority, then by deficit (engine time over weight), then their
//!   processes by engine time. The weight is the share; slices without a share divide what the
//!   shares leave. A kernel counts from its start, not only when it is measured.
//! - A *hard* share is a ceiling: unused time stays unused. The time that a slice is owed for
//!   waiting it gets before its own bucket limits it again, even if the neighbour has exited by
//!   then. *Soft* shares are weights: idle time is lent. *Priority* is above both: of the slices
//!   that may have the card (hard ones while they have credit, soft ones always), the highest goes
//!   first.
//! - A process that is the only active one on its card gets the card alone, limited by its own
//!   bucket, as soon as it has had what it was owed for waiting.
//! - A slice that is active on several cards gets its turns on all of them at once. Kernels of two
//!   cards may wait for each other, and would wait for ever for a card that another slice has.
//! - A newcomer's first turn comes before the next turns of others. Turns are exclusive, so of
//!   several newcomers each waits for the first kernels of those before it: with kernels of 0.5 ms
//!   at most 24 ms for four newcomers beside three running slices, with kernels of 50 ms up to 250
//!   ms (`cargo test -p hami-share --test simulation several_newcomers -- --nocapture` prints the
//!   table). One running slice delays a newcomer with long kernels more than two do: a process that
//!   has the card alone may have two long kernels in flight, in turns only one.
//! - A process that launches again while another has had the card for a while cuts that turn short,
//!   so a program that waits for each of its kernels does not wait for a whole turn after each.
//!
//! # When a turn ends
//!
//! A turn ends by the clock. It is handed over when its process reports that nothing is in flight.
//! A process that works gets its turn prolonged if it is also the next one; a stopped process does
//! not. No process gets a card on which work of another still runs, but no process waits for ever:
//!
//! - A process without a heartbeat for 50 ms was stopped. It is skipped until it shows a sign of
//!   life.
//! - Work that goes on after its turn is waited for 4 s, and billed by the clock. Then the driver
//!   shares the card, and the process gets no turn until its state changes.
//! - Work that was launched without permission, before a slice with a share was there, may be a
//!   queue of any length and cannot be taken back. It is waited for 20 ms (metered work without
//!   turns: 40 ms). Until it has ended, the driver shares the card, and a process that measures its
//!   own time has the other's in it: a hard share gets about half of its own.
//! - A slice on several cards may have kernels that wait for one of its own launches, which would
//!   come after their turn. After a second (`PATIENCE_NS` in the interposer) such a launch requests
//!   a turn although work is in flight, and the slice gets short turns until the work ends. Others
//!   wait 50 ms for such work. On one card, they then get half of the card in their turns and are
//!   billed for all of it, because the halves cannot be measured.
//!
//! # What is billed
//!
//! The time that a process reports is billed to its slice, but never more than the wall time in
//! which it can have worked. A process that dies while it works is billed for the time since its
//! last report. A hard slice that owes more than the next process has used must wait until that is
//! paid, so a loop of short programs gets no more than one long program.
//!
//! A coordinator that was stopped for some seconds, not killed, makes a slice without a share pay
//! back at once what it used in the meantime.

mod card;
mod choose;
mod ledger;
mod process;
mod slice;
mod slice_card;
mod view;

pub use view::{Decision, GrantUpdate, ProcessView, SliceCardView, SliceView, State, View};

use std::collections::BTreeMap;

use crate::{Grant, Holder, Kind};
use card::Card;
use slice::Slice;
use slice_card::Sharing;

const MS: u64 = 1_000_000;

/// A process counts as active for this long after it last waited or worked, so that its pauses
/// between two kernels do not change which processes take part.
pub const ACTIVE_NS: u64 = 100 * MS;

/// The greatest age of the heartbeat of a process whose work runs. An older one means that the
/// process was stopped.
pub const SILENT_NS: u64 = 50 * MS;

/// How long other slices wait for a kernel that goes on after its turn.
pub const DRAIN_NS: u64 = 4_000 * MS;

/// The same for work that was launched without permission, because the queue may have any length.
/// The driver then shares the card with the rest of it.
const BACKLOG_NS: u64 = 20 * MS;

/// The same for work that was launched metered but without turns: two batches on a stream, but
/// several slices may have them.
const METERED_NS: u64 = 40 * MS;

/// The longest time that the two batches in flight at the end of a turn take, if their kernels are
/// short.
const BATCHES_NS: u64 = 5 * MS;

/// How long before its end a turn is prolonged if the same holder gets the next one, so that the
/// holder reads the new end before it stops.
const AHEAD_NS: u64 = MS;

/// The shortest turn. Handing over costs about 0.2 ms.
const SHORTEST_NS: u64 = 5 * MS;

/// The longest time between two steps while a card is shared in turns.
const LOOK_NS: u64 = 10 * MS;

/// The state of all turns of one runtime directory.
#[derive(Debug, Default)]
pub struct Turns {
    now: u64,
    /// In the order of their keys.
    slices: Vec<Slice>,
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
        self.read_view(passed, view);
        self.classify_cards();
        for slice in &mut self.slices {
            slice.credit(now, passed);
        }
        self.end_turns();
        self.update_overdue();
        self.update_queues();
        self.grant_turns();
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

    /// Reads the slices' files, and bills the time that was used since the last step.
    fn read_view(&mut self, passed: u64, view: &View) {
        for seen in &view.slices {
            let at = match self.slices.binary_search_by_key(&seen.key, |slice| slice.key) {
                Ok(at) => at,
                Err(at) => {
                    self.slices.insert(at, Slice::new(seen.key));
                    at
                }
            };
            let slice = &mut self.slices[at];
            slice.update(self.now, passed, seen);
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

    /// Determines how each card is shared, which processes are active on it, and the weights of the
    /// shares.
    fn classify_cards(&mut self) {
        for card in &mut self.cards {
            card.reset();
        }
        for (s, slice) in self.slices.iter().enumerate() {
            for (r, row) in slice.rows.iter().enumerate() {
                self.cards[row.card].add(s, r, row, self.now);
            }
        }
        for slice in &mut self.slices {
            slice.gang.clear();
            for (r, row) in slice.rows.iter_mut().enumerate() {
                let card = &self.cards[row.card];
                let sharing = card.sharing_with(row);
                if row.sharing == Sharing::Metered && sharing == Sharing::Turns {
                    row.metered_until = Some(self.now);
                }
                row.sharing = sharing;
                if row.is_active(self.now) {
                    row.ledger.set_weight(card.weight(row.regime));
                    if card.sharing == Sharing::Turns {
                        slice.gang.push(r);
                    }
                }
            }
        }
    }

    fn end_turns(&mut self) {
        for s in 0..self.slices.len() {
            let alone = self.alone_on(s);
            self.slices[s].end_turn(self.now, alone);
        }
    }

    /// The process that is the only active one on the only card of slice `s`, if its own bucket can
    /// limit it. Time that it is owed it gets in turns first.
    fn alone_on(&self, s: usize) -> Option<u16> {
        let slice = &self.slices[s];
        let [row] = slice.gang[..] else { return None };
        let card = &self.cards[slice.rows[row].card];
        let row = &slice.rows[row];
        let slot = row.only_active(self.now).filter(|_| card.active_processes == 1)?;
        // Its own bucket has neither the time that it is owed nor the debt of processes before it.
        let is_even = !row.ledger.is_owed(row.regime) && !row.owes_for_others(slot);
        is_even.then_some(slot)
    }

    /// Updates which work goes on without a turn, and stops waiting for processes that do not
    /// respond.
    fn update_overdue(&mut self) {
        for slice in &mut self.slices {
            slice.update_overdue(self.now);
        }
    }

    /// Enters the slices that want a card, and may have it, into the queues of the card.
    fn update_queues(&mut self) {
        for card in self.cards.iter_mut().filter(|card| card.sharing == Sharing::Turns) {
            card.update_queues(self.now, &mut self.slices);
        }
    }

    fn publish(&mut self, decision: &mut Decision) {
        for slice in &mut self.slices {
            let regulated = slice.rows.iter().any(|row| row.sharing != Sharing::Unregulated);
            if slice.regulated.replace(regulated) != Some(regulated) {
                decision.regulated.push((slice.key, regulated));
            }
            for row in 0..slice.rows.len() {
                if let Some(grant) = slice.next_grant(row, self.now) {
                    decision.grants.push(GrantUpdate { slice: slice.key, row, grant });
                }
            }
        }
        decision.grants.sort_by_key(|publish| permits(&publish.grant));
    }

    /// The time of the next event that no wake-up announces.
    fn wake_at(&self) -> Option<u64> {
        let mut slice_cards = self.slices.iter().flat_map(|slice| &slice.rows);
        if !slice_cards.any(|row| row.sharing == Sharing::Turns) {
            return None;
        }
        if self.cards.iter().any(|card| !card.revoked.is_empty()) {
            return Some(self.now);
        }
        let dues = self.slices.iter().map(|slice| slice.next_due(self.now));
        Some(dues.fold(self.now + LOOK_NS, u64::min))
    }
}

/// Whether a grant permits any process to launch.
fn permits(grant: &Grant) -> bool {
    grant.kind != Kind::Turn || grant.holder != Holder::None
}

#[cfg(test)]
mod tests;
