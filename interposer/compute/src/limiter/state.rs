//! A process's launches in flight on a card, its debt, and its reports of them in the accounts of
//! its slices.

use std::sync::atomic::Ordering;

use hami_account::ComputeState::{self, Running};
use hami_account::{ComputeWords, Debt, Report};
use hami_share::limiter::{Bucket, DEBT_NS, Wall};

use super::outstanding::Outstanding;
use super::seats::Seats;
use super::stall::Stall;
use super::verdict::{NOTICED_NS, New};
use crate::launch::Queue;

/// The state of a card's limiter, behind its lock.
pub(super) struct State {
    pub(super) bucket: Bucket,
    /// Whether the bucket was empty, and does not have enough for the next launches yet.
    pub(super) is_saving: bool,
    /// The debt that earlier processes of the slices have left.
    unpaid_debt: Debt,
    /// Batches that are open or in flight.
    pub(super) outstanding: Outstanding,
    pub(super) stall: Stall,
    /// Whether the launch of the last verdict is of the same kind as the batch that runs before it.
    pub(super) waits_for_own_kind: bool,
    /// Since when the unbilled part of the outstanding work has been running.
    pub(super) unbilled_since: Option<u64>,
    wall: Wall,
    /// The last report.
    pub(super) reported: Report,
    /// Since when nothing has been in flight.
    pub(super) idle_since: u64,
    /// How many threads wait for credit or a turn, and since when there has been one.
    pub(super) waiting: u32,
    waiting_since: u64,
    /// How many of them wait for a turn, and the time of their longest launch.
    waiting_for_turn: u32,
    needs_ns: u64,
    /// Since when there has been one that waits for a turn.
    waiting_for_turn_since: u64,
}

impl State {
    pub(super) fn new(seats: &Seats, at: u64) -> Self {
        Self {
            bucket: Bucket::new(at),
            is_saving: false,
            unpaid_debt: seats.0.iter().map(|seat| seat.unpaid_debt(at)).max().unwrap_or_default(),
            outstanding: Outstanding::default(),
            stall: Stall::default(),
            waits_for_own_kind: false,
            unbilled_since: None,
            wall: Wall::default(),
            reported: Report::default(),
            idle_since: 0,
            waiting: 0,
            waiting_since: 0,
            waiting_for_turn: 0,
            needs_ns: 0,
            waiting_for_turn_since: 0,
        }
    }

    /// A batch begins.
    pub(super) fn begin(&mut self, new: &New, at: u64) {
        if self.outstanding.is_empty() {
            self.set_unbilled(at, Some(at));
            self.wall.begin(at);
            self.stall.progress(at);
        }
        self.outstanding.add(new.queue, new.predicted, new.kind);
    }

    /// A batch has ended. Returns the billed time: the measured time, but at most the wall time in
    /// which the batch can have run ([`Wall`]).
    pub(super) fn end(&mut self, queue: Queue, predicted: u64, time: EngineTime, at: u64) -> u64 {
        self.outstanding.end(queue, predicted);
        self.stall.progress(at);
        let rest = !self.outstanding.is_empty();
        if !rest {
            self.idle_since = at;
        }
        match time {
            EngineTime::Measured(ns) => self.wall.bill(at, ns, rest),
            EngineTime::Unmeasured(ns) => {
                self.wall.bill_unmeasured(at, ns, rest);
                ns
            }
        }
    }

    /// The outstanding work has run for the time `ran` so far. Returns the time that is billed now.
    pub(super) fn advance(&mut self, ran: u64, at: u64) -> u64 {
        self.wall.bill(at, ran, true)
    }

    /// Debits the bucket, which has this rate. `None`: the bucket does not bind. Time that is lent,
    /// or granted in turns, is not debited.
    pub(super) fn debit(&mut self, rate: Option<u32>, billed: u64, at: u64) {
        self.set_rate(rate, at);
        if rate.is_some() {
            self.bucket.debit(at, billed);
        }
        // The work that is still in flight has had the card since this batch ended.
        let since = (!self.outstanding.is_empty()).then_some(at);
        self.set_unbilled(at, since);
    }

    pub(super) fn set_rate(&mut self, rate: Option<u32>, at: u64) {
        self.bucket.set_rate(at, rate.unwrap_or(0));
        if rate.is_some() {
            // Otherwise each program in a loop of short programs would begin without debt.
            let debt = std::mem::take(&mut self.unpaid_debt).ns(at);
            // More than the largest possible debt was written before a reboot, by another clock.
            if debt <= DEBT_NS.unsigned_abs() {
                self.bucket.debit(at, debt);
            }
        }
    }

    /// The coordinator accounts for the whole slice, and makes later processes of a slice in debt
    /// wait.
    pub(super) fn leave_debts_to_the_coordinator(&mut self) {
        self.unpaid_debt = Debt::default();
    }

    fn set_unbilled(&mut self, at: u64, since: Option<u64>) {
        self.unbilled_since = since;
        self.bucket.set_unbilled(at, since);
    }

    /// Reports the debt, and when it will be paid. Work in flight counts as far as it has run: if
    /// the process is killed, it is not billed later.
    pub(super) fn report_debt(&self, words: &ComputeWords, at: u64) {
        let ran = self.unbilled_since.map_or(0, |since| at.saturating_sub(since));
        let mut bucket = self.bucket.clone();
        if bucket.rate_ppm() > 0 {
            bucket.debit(at, ran);
        }
        let debt = bucket.balance(at).min(0).unsigned_abs();
        let paid_at = if debt > 0 { bucket.positive_at(at) } else { None };
        let carried = paid_at.map_or(Debt::default(), |at| Debt::new(at, bucket.rate_ppm()));
        words.debt_ns.store(debt, Ordering::Relaxed);
        words.debt.store(carried.to_word(), Ordering::Relaxed);
    }

    /// Reports the state of this process in the outermost slice's account, which the coordinator
    /// reads. Returns whether the report has changed.
    pub(super) fn report(
        &mut self,
        seats: &Seats,
        state: ComputeState,
        turn: u32,
        at: u64,
    ) -> bool {
        let needs_ns = if self.waiting_for_turn > 0 { self.needs_ns } else { 0 };
        let users = seats.possible_users(at);
        let stalled_at = self.stall.ends_at(&self.outstanding, self.waits_for_own_kind, users);
        // The stall may be over, as for a launch that would be let through.
        let may_be_over = self.waits_for_turn() && at < self.waiting_for_turn_since + NOTICED_NS;
        let is_stalled = at >= stalled_at && !may_be_over;
        let report = Report { turn, state, is_stalled, needs_ns };
        if self.reported == report {
            return false;
        }
        let before = std::mem::replace(&mut self.reported, report);
        if let Some((seat, words)) = seats.outermost().and_then(|seat| Some((seat, seat.words()?)))
        {
            words.active_at.store(at, Ordering::Relaxed);
            words.set_report(report);
            let asks = report.needs_ns > 0 && before.needs_ns == 0
                || report.is_stalled && !before.is_stalled;
            if (state, before.state) != (Running, Running) || asks {
                seat.wake_coordinator();
            }
        }
        true
    }

    /// A thread begins to wait for a turn in which it can make a launch of this length.
    pub(super) fn need_turn(&mut self, predicted: u64, at: u64) {
        if self.waiting_for_turn == 0 {
            self.waiting_for_turn_since = at;
        }
        self.waiting_for_turn += 1;
        self.needs_ns = self.needs_ns.max(predicted.max(1));
    }

    /// A thread no longer waits for a turn.
    pub(super) fn no_turn_needed(&mut self) {
        self.waiting_for_turn = self.waiting_for_turn.saturating_sub(1);
        if self.waiting_for_turn == 0 {
            self.needs_ns = 0;
        }
    }

    /// Whether a thread waits for a turn.
    pub(super) fn waits_for_turn(&self) -> bool {
        self.waiting_for_turn > 0
    }

    pub(super) fn begin_waiting(&mut self, at: u64) {
        if self.waiting == 0 {
            self.waiting_since = at;
        }
        self.waiting += 1;
    }

    pub(super) fn end_waiting(&mut self, seats: &Seats, at: u64) {
        self.bill_waiting(seats, at);
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Adds up the time in which a thread waited for admission.
    pub(super) fn bill_waiting(&mut self, seats: &Seats, at: u64) {
        if self.waiting == 0 {
            return;
        }
        let waited = at.saturating_sub(self.waiting_since);
        self.waiting_since = at;
        for words in seats.words() {
            words.throttled_ns.fetch_add(waited, Ordering::Relaxed);
        }
    }
}

/// The engine time of a batch in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EngineTime {
    /// By the card's own clock.
    Measured(u64),
    /// It could not be measured: the predicted time, or the longest time possible.
    Unmeasured(u64),
}
