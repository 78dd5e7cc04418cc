//! What a process has on a card and owes for it, and what it says of that in its slices' accounts.

use std::sync::atomic::Ordering;

use hami_account::ComputeState::{self, Idle, Runs};
use hami_account::{ComputeWords, Owed};
use hami_share::limiter::{Bucket, DEBT_NS, Wall};

use super::outstanding::{Outstanding, Queue};
use crate::slice::Seat;

/// See the module. Behind the card's lock.
pub(super) struct State {
    pub(super) bucket: Bucket,
    /// Until then the slices' share pays what processes before this one have left behind.
    left_behind: Owed,
    /// Batches that are open or in flight.
    pub(super) outstanding: Outstanding,
    /// Since when what is outstanding has been running, as far as it is not billed.
    pub(super) unbilled_since: Option<u64>,
    wall: Wall,
    /// What was said last.
    pub(super) said: Said,
    /// Since when nothing has been in flight.
    pub(super) idle_since: u64,
    /// Threads at the gate, and since when there have been any.
    pub(super) waiting: u32,
    waiting_since: u64,
}

impl State {
    pub(super) fn new(seats: &[Seat], at: u64) -> Self {
        Self {
            bucket: Bucket::new(at),
            left_behind: seats.iter().map(|seat| seat.left_behind(at)).max().unwrap_or_default(),
            outstanding: Outstanding::default(),
            unbilled_since: None,
            wall: Wall::default(),
            said: Said { state: Idle, turn: 0 },
            idle_since: 0,
            waiting: 0,
            waiting_since: 0,
        }
    }

    /// A batch begins.
    pub(super) fn begin(&mut self, queue: Queue, predicted: u64, at: u64) {
        if self.outstanding.is_empty() {
            self.set_unbilled(at, Some(at));
            self.wall.begin(at);
        }
        self.outstanding.add(queue, predicted);
    }

    /// A batch is no longer outstanding, and took so much: what of that is billed. What was measured is
    /// billed at most for the time in which it can have run ([`Wall`]).
    pub(super) fn end(&mut self, queue: Queue, predicted: u64, took: Took, at: u64) -> u64 {
        self.outstanding.end(queue, predicted);
        let rest = !self.outstanding.is_empty();
        if !rest {
            self.idle_since = at;
        }
        match took {
            Took::Measured(ns) => self.wall.bill(at, ns, rest),
            Took::Unmeasured(ns) => {
                self.wall.bill_unmeasured(at, ns, rest);
                ns
            }
        }
    }

    /// What is outstanding has run so long so far: what of that is billed now.
    pub(super) fn advance(&mut self, ran: u64, at: u64) -> u64 {
        self.wall.bill(at, ran, true)
    }

    /// Takes a bill off the bucket, which has this rate; `None`: it does not bind, and time that is
    /// lent, or granted in turns, is nothing that it has to get back.
    pub(super) fn debit(&mut self, rate: Option<u32>, billed: u64, at: u64) {
        self.set_rate(rate, at);
        if rate.is_some() {
            self.bucket.debit(at, billed);
        }
        // What is still in flight has had the card since this has ended.
        let since = (!self.outstanding.is_empty()).then_some(at);
        self.set_unbilled(at, since);
    }

    pub(super) fn set_rate(&mut self, rate: Option<u32>, at: u64) {
        self.bucket.set_rate(at, rate.unwrap_or(0));
        if rate.is_some() {
            // Else a loop of short programs would begin without debt each time.
            let debt = std::mem::take(&mut self.left_behind).ns(at);
            // More than anybody carries was written before a reboot, by another clock.
            if debt <= DEBT_NS.unsigned_abs() {
                self.bucket.debit(at, debt);
            }
        }
    }

    /// It keeps a book of the whole slice, and lets those wait who come after a debtor.
    pub(super) fn leave_debts_to_the_coordinator(&mut self) {
        self.left_behind = Owed::default();
    }

    fn set_unbilled(&mut self, at: u64, since: Option<u64>) {
        self.unbilled_since = since;
        self.bucket.set_unbilled(at, since);
    }

    /// Writes down how much is owed, and until when it is.
    pub(super) fn show_debt(&self, words: &ComputeWords, at: u64) {
        let debt = self.bucket.balance(at).min(0).unsigned_abs();
        let paid_at = if debt > 0 { self.bucket.opens_at(at) } else { None };
        let owed = paid_at.map_or(Owed::default(), |at| Owed::new(at, self.bucket.rate_ppm()));
        words.debt_ns.store(debt, Ordering::Relaxed);
        words.owed.store(owed.to_word(), Ordering::Relaxed);
    }

    /// Notes what this process does, and writes it in the outermost slice's account, whose coordinator
    /// has to know. Whether that is news.
    pub(super) fn say(&mut self, seats: &[Seat], state: ComputeState, turn: u32, at: u64) -> bool {
        let said = Said { state, turn };
        if self.said == said {
            return false;
        }
        let before = std::mem::replace(&mut self.said, said);
        if let Some((seat, words)) = seats.first().and_then(|seat| Some((seat, seat.words()?))) {
            words.active_at.store(at, Ordering::Relaxed);
            words.say(turn, state);
            if (state, before.state) != (Runs, Runs) {
                seat.ring();
            }
        }
        true
    }

    pub(super) fn begin_waiting(&mut self, at: u64) {
        if self.waiting == 0 {
            self.waiting_since = at;
        }
        self.waiting += 1;
    }

    pub(super) fn end_waiting(&mut self, seats: &[Seat], at: u64) {
        self.bill_waiting(seats, at);
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Adds up the time in which there was somebody at the gate.
    pub(super) fn bill_waiting(&mut self, seats: &[Seat], at: u64) {
        if self.waiting == 0 {
            return;
        }
        let waited = at.saturating_sub(self.waiting_since);
        self.waiting_since = at;
        for words in seats.iter().filter_map(Seat::words) {
            words.throttled_ns.fetch_add(waited, Ordering::Relaxed);
        }
    }
}

/// What a process has told its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) state: ComputeState,
    /// That of the grant which it had seen.
    pub(super) turn: u32,
}

/// What a batch took, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Took {
    /// By the card's own clock.
    Measured(u64),
    /// Nobody could measure it: what was predicted, or the time that it had at most.
    Unmeasured(u64),
}
