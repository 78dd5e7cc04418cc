//! A party: the slices that hold the lease together.
//!
//! A slice is a party by itself, or the slices of a gang are one. Kernels of two cards, and of two
//! processes, may wait for each other. They would wait for ever if they did not have the cards at
//! the same time, so a party holds the lease on all cards on which it is active, with all its
//! processes, or waits.

use hami_limits::grants::UNBLOCKS_IDLE;

use super::slice::{Process, Row, Slice};
use crate::{Holder, timing};

/// A gang, or the key of a slice by itself.
pub(super) type PartyId = (Option<u128>, u64);

#[derive(Debug, Default)]
pub(super) struct Party {
    pub id: PartyId,
    /// Slice and row of its active members on leased cards.
    pub members: Vec<(usize, usize)>,
    /// The cards of its members, each once.
    pub cards: Vec<usize>,
    /// The card on which it is active, if it is even (`set`).
    pub even_card: Option<usize>,
    pub lease: Option<Lease>,
    /// The processes that launch without a lease, because no other party is active on the cards.
    pub alone: Option<Holder>,
    pub waits: bool,
    pub runs: bool,
    /// When it returned from a pause, and when its launches began to wait.
    pub returned_at: u64,
    pub waiting_since: u64,
    /// Since when it has had nothing to do.
    idle_since: Option<u64>,
    /// When it last gave up a lease because it had nothing to do.
    paused_at: Option<u64>,
    /// Since when its work has gone on without the lease.
    pub draining_since: Option<u64>,
    /// Others do not wait for its work any more.
    pub is_stuck: bool,
    /// When launches of it last went on without a lease, and how often since its work last made
    /// progress.
    unblocked_at: Option<u64>,
    unblocked: u32,
    /// How many launches of each process went on then.
    launches: u64,
}

/// A lease on all cards of a party.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub cards: Vec<usize>,
    pub began: u64,
    pub until: u64,
}

impl Party {
    pub fn new(id: PartyId) -> Self {
        Self { id, ..Self::default() }
    }

    pub fn rows<'a>(&'a self, slices: &'a [Slice]) -> impl Iterator<Item = &'a Row> + Clone {
        self.members.iter().map(|(s, r)| &slices[*s].rows[*r])
    }

    /// Reads the reports of its members.
    pub fn read(&mut self, now: u64, slices: &[Slice]) {
        let mut cards: Vec<usize> = self.rows(slices).map(|row| row.card).collect();
        cards.sort_unstable();
        cards.dedup();
        self.cards = cards;
        let waits = self.rows(slices).any(|row| row.waits);
        let runs = self.rows(slices).any(|row| row.runs);
        if !self.waits && !self.runs && (waits || runs) {
            self.returned_at = now;
        }
        if waits && !self.waits {
            self.waiting_since = now;
        }
        (self.waits, self.runs) = (waits, runs);
        let idle_since = self.idle_since.unwrap_or(now);
        self.idle_since = (!waits && !runs).then_some(idle_since);
        if !self.is_stuck && !self.is_stalled(slices) {
            (self.unblocked, self.launches) = (0, 0);
        }
    }

    /// Whether nothing of its work in flight makes progress.
    fn is_stalled(&self, slices: &[Slice]) -> bool {
        let mut running = self.processes(slices).filter(|process| process.runs());
        self.runs && running.all(|process| process.last.report.is_stalled)
    }

    fn processes<'a>(&'a self, slices: &'a [Slice]) -> impl Iterator<Item = &'a Process> {
        self.rows(slices).flat_map(|row| &row.processes)
    }

    /// Whether a launch of it waits, or work is in flight.
    pub fn works(&self) -> bool {
        self.waits || self.runs
    }

    pub fn owes(&self, slices: &[Slice]) -> bool {
        self.rows(slices).any(Row::owes)
    }

    /// Whether it needs a lease, and may have one.
    pub fn is_candidate(&self, slices: &[Slice]) -> bool {
        !self.may_launch() && self.waits && !self.owes(slices)
    }

    /// Whether it has a lease on this card.
    pub fn holds(&self, card: usize) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.cards.contains(&card))
    }

    /// Whether a card is reserved for one of its rows: it holds the lease, or its work goes on.
    pub fn is_reserved(&self, row: &Row) -> bool {
        self.holds(row.card) || self.draining_since.is_some() && row.runs
    }

    /// Until when it rests: it has nothing to do, and has had something a moment ago.
    pub fn rests_until(&self, now: u64) -> Option<u64> {
        self.idle_since.map(|since| since + timing::SHORTEST).filter(|until| now < *until)
    }

    /// Whether it had nothing to do in a lease a short time ago.
    pub fn pauses(&self, now: u64) -> bool {
        self.paused_at.is_some_and(|at| now - at < timing::PAUSES)
    }

    /// It has nothing to do in its lease: the lease ends. The handover has cost others time, so the
    /// lease is billed for a minimum.
    pub fn give_up(&mut self, now: u64, slices: &mut [Slice]) {
        let Some(lease) = self.lease.take() else { return };
        self.paused_at = Some(now);
        let missing = (lease.began + timing::LEAST_BILL).saturating_sub(now);
        for (s, r) in &self.members {
            slices[*s].rows[*r].ledger.bill(missing);
        }
    }

    /// Others wait for work without a lease, but not for ever. Returns until when.
    pub fn wait_for(&mut self, now: u64, slices: &[Slice]) -> Option<u64> {
        self.is_stuck &= self.runs && self.alone.is_none();
        if !self.runs || self.may_launch() {
            self.draining_since = None;
            return None;
        }
        let backlog = |process: &Process| process.runs() && process.has_backlog;
        let has_backlog = self.processes(slices).any(backlog);
        let patience = if has_backlog { timing::BACKLOG } else { timing::DRAIN };
        let until = *self.draining_since.get_or_insert(now) + patience;
        self.is_stuck |= now >= until;
        Some(until)
    }

    pub fn may_launch(&self) -> bool {
        self.lease.is_some() || self.alone.is_some()
    }

    /// The time of its next event: the end of its lease, an answer to it, or the end of its debt.
    pub fn next_due(&self, now: u64, slices: &[Slice]) -> Option<u64> {
        let waiting = || self.rows(slices).filter(|row| row.waits);
        let Some(lease) = &self.lease else {
            let paid = |row: &Row| now + row.ledger.owes_for(row.regime) + 1;
            return waiting().filter(|row| row.owes()).map(paid).min();
        };
        let answers = waiting().map(Row::answers_until);
        let ends = [lease.until.saturating_sub(timing::AHEAD), lease.until];
        answers.chain(ends).filter(|at| *at > now).min()
    }

    /// Lets waiting launches go on without a lease if all its work in flight is stalled, and may
    /// wait for them: first those of processes with nothing in flight. The party is billed as
    /// before, and its place in the queue does not change. Returns when it is due.
    pub fn unblock(&mut self, now: u64, slices: &mut [Slice]) -> Option<u64> {
        if self.may_launch() || !self.waits || !self.is_stalled(slices) {
            return None;
        }
        let idle = self.processes(slices).any(|process| process.waits() && !process.runs());
        let only_idle = self.unblocked == 0 && idle;
        // On several cards, a kernel that met no other one ends as soon as the other is launched.
        let is_soon = only_idle && self.cards.len() > 1;
        let wait = if is_soon { timing::AHEAD } else { timing::STALL << self.unblocked };
        let due = self.unblocked_at.map_or(now, |at| at + wait);
        if due <= now {
            // Beside others, fewer and fewer launches go on, whether they help or not.
            let launches = if self.is_stuck { self.launches.max(2) } else { 2 * self.launches };
            self.launches = launches.clamp(1, 1 << 20);
            let idle = if only_idle { UNBLOCKS_IDLE } else { 0 };
            for (s, r) in &self.members {
                let unblock = &mut slices[*s].rows[*r].unblock;
                *unblock = (*unblock >> 32).wrapping_add(1) << 32 | idle | self.launches;
            }
            (self.unblocked_at, self.unblocked) = (Some(now), self.unblocked + 1);
        }
        Some(due)
    }
}
