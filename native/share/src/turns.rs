//! Whose turn it is on the cards that several slices want.
//!
//! While two processes work on a card at once, neither can tell its own engine time from the other's,
//! and no limiter inside them can hold a share. So the coordinator lets one work at a time and hands
//! the card over about every 20 ms; what a process used in its turn is then what it measured.
//!
//! One call of [`Turns::step`] goes through the same few steps: what has changed (`slice` and `row` take
//! in what the slices' files say, `book` bills it), how the cards are shared, which turns are
//! over, who does not answer, who is next (`choose`), and what is to be published.
//!
//! - A card is handed out in turns while a slice with a share below 100 is active there. While such a
//!   slice is there but does nothing, those without a share launch as they like, but are metered, so
//!   that it never finds a long queue before it. Where there is none, nobody asks.
//! - What a slice owes outlives its processes: until it is paid nobody new of it launches.
//! - A process that is the only active one on its card has it alone, with its own bucket to limit it,
//!   as soon as it has had what it was owed for waiting.
//! - A slice that is active on several cards gets its turns on all of them at once: kernels of two
//!   cards may wait for each other, and would wait for ever for a card that another slice holds.
//!   That holds as long as it is active there, also while others do not wait for its work any more.
//! - Nobody gets a card on which another's work still runs. Who does not answer is passed over, and gets
//!   no turn until it has shown that it lives.

mod book;
mod card;
mod choose;
mod process;
mod row;
mod slice;
mod view;

pub use view::{Decision, ProcessView, Publish, RowView, SliceView, State, View};

use std::collections::BTreeMap;

use crate::{Grant, Holder, Kind};
use card::Card;
use row::Sharing;
use slice::Slice;

const MS: u64 = 1_000_000;

/// A process counts as active for so long after it was last seen to want or do something: its pauses
/// between two kernels shall not change who takes part.
pub const ACTIVE_NS: u64 = 100 * MS;

/// The heartbeat of a process whose work runs is never older, unless it was stopped.
pub const SILENT_NS: u64 = 50 * MS;

/// The longest that a card is kept from others for a kernel that goes on after its turn.
pub const DRAIN_NS: u64 = 4_000 * MS;

/// The same for work that was launched while nobody asked, however much is queued: the card is then
/// shared with the rest of it as the driver does it.
const BACKLOG_NS: u64 = 20 * MS;

/// The same for what was launched while everybody without a share could launch as they liked: two
/// batches on a stream, but several slices may have them.
const METERED_NS: u64 = 40 * MS;

/// What the two batches in flight at the end of a turn take at most, if the kernels are short.
const BATCHES_NS: u64 = 5 * MS;

/// A turn that is to be followed by another of the same holder is prolonged so long before its end:
/// enough for the news to arrive before the holder stops.
const AHEAD_NS: u64 = MS;

/// No turn is shorter: handing over costs about a fifth of a millisecond.
const SHORTEST_NS: u64 = 5 * MS;

/// While a card is shared somebody looks at least so often.
const LOOK_NS: u64 = 10 * MS;

/// The state of all turns of one runtime directory.
#[derive(Debug, Default)]
pub struct Turns {
    now: u64,
    /// In the order of their keys.
    slices: Vec<Slice>,
    cards: Vec<Card>,
    /// Where a card is among them.
    places: BTreeMap<u64, usize>,
}

impl Turns {
    /// Knows nothing yet; turn numbers go on from what is published, buckets begin empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at the slices as they are `now` and says what to publish. It may be called at any time;
    /// where nothing has changed it publishes nothing.
    pub fn step(&mut self, now: u64, view: &View) -> Decision {
        let now = now.max(self.now);
        let passed = if self.now == 0 { 0 } else { now - self.now };
        self.now = now;
        self.absorb(passed, view);
        self.survey();
        for slice in &mut self.slices {
            slice.credit(now, passed);
        }
        self.end_turns();
        self.pass_over();
        self.line_up();
        self.hand_out();
        let mut decision = Decision::default();
        self.publish(&mut decision);
        decision.wake_at = self.wake_at();
        decision
    }

    /// What the slice may still use on a row in hard mode, in ns; negative while it owes some.
    pub fn balance(&self, slice: u64, row: usize) -> Option<i64> {
        let at = self.slices.binary_search_by_key(&slice, |slice| slice.key).ok()?;
        Some(self.slices[at].rows.get(row)?.book.balance_ns())
    }

    /// Takes in what the slices' files say, and bills what was used since the last look.
    fn absorb(&mut self, passed: u64, view: &View) {
        for seen in &view.slices {
            let at = match self.slices.binary_search_by_key(&seen.key, |slice| slice.key) {
                Ok(at) => at,
                Err(at) => {
                    self.slices.insert(at, Slice::new(seen.key));
                    at
                }
            };
            let slice = &mut self.slices[at];
            slice.absorb(self.now, passed, seen);
            for (row, seen) in slice.rows.iter_mut().zip(&seen.rows) {
                row.card = *self.places.entry(seen.card).or_insert_with(|| {
                    self.cards.push(Card::new());
                    self.cards.len() - 1
                });
            }
        }
        let now = self.now;
        self.slices.retain(|slice| slice.seen_at(now));
    }

    /// How each card is shared, who is active there, and what everybody's share weighs.
    fn survey(&mut self) {
        for card in &mut self.cards {
            card.clear();
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
                    row.book.set_weight(card.weight(row.regime));
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

    /// The process that is the only active one on the only card of slice `s`, if its own bucket is to
    /// limit it: what it is owed it gets in turns first.
    fn alone_on(&self, s: usize) -> Option<u16> {
        let slice = &self.slices[s];
        let [row] = slice.gang[..] else { return None };
        let card = &self.cards[slice.rows[row].card];
        let row = &slice.rows[row];
        let slot = row.only_active(self.now).filter(|_| card.active_processes == 1)?;
        // Its own bucket knows neither what it is owed nor what others before it had.
        let is_even = !row.book.is_owed(row.regime) && !row.owes_for_others(slot);
        is_even.then_some(slot)
    }

    /// Notes whose work goes on without a turn, and gives up waiting for those who do not answer.
    fn pass_over(&mut self) {
        for slice in &mut self.slices {
            slice.pass_over(self.now);
        }
    }

    /// Puts those who want a card, and may have it, in their places of its queue.
    fn line_up(&mut self) {
        for card in self.cards.iter_mut().filter(|card| card.sharing == Sharing::Turns) {
            card.line_up(self.now, &mut self.slices);
        }
    }

    fn publish(&mut self, decision: &mut Decision) {
        for slice in &mut self.slices {
            let regulated = slice.rows.iter().any(|row| row.sharing != Sharing::Open);
            if slice.regulated.replace(regulated) != Some(regulated) {
                decision.regulated.push((slice.key, regulated));
            }
            for row in 0..slice.rows.len() {
                if let Some(grant) = slice.renew_grant(row, self.now) {
                    decision.grants.push(Publish { slice: slice.key, row, grant });
                }
            }
        }
        decision.grants.sort_by_key(|publish| gives(&publish.grant));
    }

    /// When something is due that no bell will tell.
    fn wake_at(&self) -> Option<u64> {
        let mut rows = self.slices.iter().flat_map(|slice| &slice.rows);
        if !rows.any(|row| row.sharing == Sharing::Turns) {
            return None;
        }
        if self.cards.iter().any(|card| !card.losers.is_empty()) {
            return Some(self.now);
        }
        let dues = self.slices.iter().map(|slice| slice.next_due(self.now));
        Some(dues.fold(self.now + LOOK_NS, u64::min))
    }
}

/// Whether a grant lets somebody launch.
fn gives(grant: &Grant) -> bool {
    grant.kind != Kind::Turn || grant.holder != Holder::Nobody
}

#[cfg(test)]
mod tests;
