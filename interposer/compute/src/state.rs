//! A process's launches in flight on a card, its credit, and its reports of them in the accounts of
//! its slices.

use std::sync::atomic::Ordering;

use hami_account::ComputeState::{self, Idle, Running, Waiting};
use hami_account::{ComputeWords, Debt, Report};
use hami_limits::grants::{Kind, UNBLOCKS_IDLE};
use hami_share::own::{Own, OwnLease};
use hami_share::pace::{Costs, Progress};
use hami_share::{Wall, timing};

use crate::capture;
use crate::clock::METER;
use crate::events::Event;
use crate::launch::{Queue, Stream};
use crate::seats::{Seats, Terms};
use crate::streams::OnStream;

/// All streams together may have this many times the work of one stream in flight. If they run at
/// the same time, the time of the card counts.
const STREAMS_DEPTH: u64 = 2;
/// So many streams may have a launch in flight in any case.
const FREE_STREAMS: usize = 16;
/// The most streams that are remembered while nothing of theirs is in flight.
const KEPT_STREAMS: usize = 256;
/// The meter notices the end of work within this time.
const NOTICED_NS: u64 = 2 * timing::LONGEST_POLL;

/// The event for which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// The lease.
    Lease,
    /// The end of work in flight.
    Room,
    /// Credit of the process's own bucket.
    Credit,
}

/// The decision about a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No share binds this process now.
    Unlimited,
    /// It is made, and takes `cost`, if that is known; this much work may be in flight. Without the
    /// lease, it is made because work in flight may wait for it.
    Go { depth: u64, cost: Option<u64>, has_lease: bool },
    /// It waits for an event, or until this time.
    Wait { what: WaitsFor, until: u64 },
}

/// The events that the library records around a launch.
pub(crate) struct Launched {
    /// An event before it.
    pub(crate) starts: bool,
    /// The same if this event has been reached: the stream is idle then.
    pub(crate) starts_if: Option<Event>,
    /// An event behind it.
    pub(crate) records: bool,
}

/// The state of a card's limiter, behind its lock.
pub(crate) struct State {
    pub(crate) streams: Vec<OnStream>,
    /// How many of them have work in flight.
    pub(crate) busy: usize,
    /// Whether they are of several contexts, also those without work.
    is_split: bool,
    pub(crate) progress: Progress,
    costs: Costs,
    pub(crate) own: OwnLease,
    pub(crate) wall: Wall,
    /// The debt that earlier processes of the slices have left.
    unpaid_debt: Debt,
    /// Since when the unbilled part of the work in flight has been running.
    unbilled_since: Option<u64>,
    pub(crate) reported: Report,
    /// Since when nothing has been in flight.
    pub(crate) idle_since: u64,
    /// How many threads wait, by [`WaitsFor`].
    waiting: [u32; 3],
    waiting_since: u64,
    /// Since when a thread has waited for the lease, or for room in it.
    asking_since: u64,
    /// The last round in which the coordinator let launches go on.
    unblocked: u64,
}

impl State {
    pub(crate) fn new(unpaid_debt: Debt, at: u64) -> Self {
        Self {
            streams: Vec::new(),
            busy: 0,
            is_split: false,
            progress: Progress::default(),
            costs: Costs::default(),
            own: OwnLease::new(at),
            wall: Wall::default(),
            unpaid_debt,
            unbilled_since: None,
            reported: Report::default(),
            idle_since: 0,
            waiting: [0; 3],
            waiting_since: 0,
            asking_since: 0,
            unblocked: 0,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.busy == 0
    }

    fn on(&self, queue: Queue) -> Option<&OnStream> {
        self.streams.iter().find(|on| on.queue == queue)
    }

    pub(crate) fn on_mut(&mut self, queue: Queue) -> Option<&mut OnStream> {
        self.streams.iter_mut().find(|on| on.queue == queue)
    }

    /// Decides about a launch of a function on a stream, which has waited since `asked_at`.
    pub(crate) fn verdict(
        &mut self,
        terms: &Terms,
        (queue, function): (Queue, usize),
        (asked_at, at): (u64, u64),
    ) -> Verdict {
        let Terms { grant, is_granted: has_lease, rate } = *terms;
        self.set_rate(rate, at);
        if terms.is_unlimited() {
            return Verdict::Unlimited;
        }
        self.read_unblock(terms, at);
        let depth = grant.map_or(0, |grant| grant.depth);
        let depth = if depth > 0 { depth } else { timing::DEPTH };
        let running = self.unbilled_since.filter(|_| !self.is_idle());
        let own = rate.map_or(Own::Held(depth), |rate| self.own.ask(at, rate, running, depth));
        let held = if let Own::Held(depth) = own { Some(depth) } else { None };
        let held = held.filter(|_| has_lease);
        let shares = grant.is_some_and(|grant| grant.others > 0);
        let cost = self.costs.get(&function).copied();
        if let Some(depth) = held.filter(|depth| !self.is_full(queue, cost, *depth, shares)) {
            return Verdict::Go { depth, cost, has_lease };
        }
        // The work may have ended without being noticed yet.
        let noticed = if self.progress.is_stalled() { 0 } else { NOTICED_NS };
        if at >= self.stalls_at().max(asked_at + noticed) {
            self.progress.stalled(at, has_lease);
        }
        let waits = self.on(queue).map(|on| on.pace.waits(function, &self.costs));
        if self.progress.admits(at, waits.unwrap_or_default()) {
            // Until it has ended, the function counts as short, so its next launches do not wait.
            let is_short = matches!(waits, Some((1.., false)));
            let cost = if is_short { Some(timing::LEAST_COST) } else { cost };
            if is_short {
                self.costs.insert(function, timing::LEAST_COST);
            }
            return Verdict::Go { depth, cost, has_lease: false };
        }
        let until = self.stalls_at().max(asked_at + noticed);
        let (what, until) = match own {
            _ if !has_lease => (WaitsFor::Lease, until),
            Own::Empty(credit_at) => (WaitsFor::Credit, until.min(credit_at)),
            Own::Held(_) => (WaitsFor::Room, until),
        };
        Verdict::Wait { what, until }
    }

    /// The coordinator lets launches go on that waited when it decided, because work of the slice
    /// is stalled.
    pub(crate) fn read_unblock(&mut self, terms: &Terms, at: u64) {
        let Some(grant) = terms.grant.filter(|grant| grant.unblock != self.unblocked) else {
            return;
        };
        self.unblocked = grant.unblock;
        let only_idle = grant.unblock & UNBLOCKS_IDLE != 0;
        let is_meant = self.waits() && (self.is_idle() || !only_idle);
        self.progress.unblock(at, if is_meant { grant.unblock & (UNBLOCKS_IDLE - 1) } else { 0 });
    }

    /// Whether enough is in flight, on the stream or on the card.
    fn is_full(&self, queue: Queue, cost: Option<u64>, depth: u64, shares: bool) -> bool {
        let on = self.on(queue).filter(|on| !on.pace.is_idle());
        let total = || self.streams.iter().map(|on| on.pace.in_flight_ns()).sum::<u64>();
        // Kernels of a few streams may wait for each other.
        let is_crowded = if on.is_some() { self.busy > 1 } else { self.busy >= FREE_STREAMS };
        on.is_some_and(|on| on.pace.is_full(cost, depth, shares))
            || (is_crowded && total() / self.own.overlap() >= STREAMS_DEPTH * depth)
    }

    /// When the work counts as stalled if none of it ends until then.
    fn stalls_at(&self) -> u64 {
        if self.is_idle() {
            return u64::MAX;
        }
        self.progress.stalls_at(self.expected())
    }

    /// How long the oldest work is expected to take, of the stream with the longest.
    fn expected(&self) -> u64 {
        self.streams.iter().map(|on| on.pace.expected_ns()).max().unwrap_or(0)
    }

    /// Work begins, if nothing is in flight.
    fn begin(&mut self, at: u64) {
        if self.is_idle() {
            self.progress.begin(at);
            self.set_unbilled(at, Some(at));
            self.wall.begin(at);
        }
    }

    /// A launch of a function is made on a stream, which takes `cost`, if that is known.
    pub(crate) fn launched(
        &mut self,
        stream: Stream,
        (function, cost): (usize, Option<u64>),
        depth: u64,
        at: u64,
    ) -> Launched {
        let queue = stream.queue();
        self.begin(at);
        let is_stalled = self.progress.is_stalled();
        // The meter cannot find the end of launches on these streams by itself.
        let is_single = stream.is_threads_own() || capture::any() || METER.has_no_thread();
        if self.on(queue).is_none() {
            if self.streams.len() >= KEPT_STREAMS {
                self.streams.retain(|on| !on.pace.is_idle());
            }
            self.streams.push(OnStream::new(stream, queue, at));
            self.note_contexts();
        }
        let Some(on) = self.streams.iter_mut().find(|on| on.queue == queue) else {
            return Launched { starts: false, starts_if: None, records: false };
        };
        let was_idle = on.pace.is_idle();
        let is_late = at >= on.launched_at + timing::GAP;
        let starts = was_idle || (on.is_broken && on.pace.open() == 0);
        let may_be_idle = (is_late || is_single) && !starts && on.pace.open() == 0;
        let last = on.pace.newest().copied().filter(|_| may_be_idle);
        if was_idle {
            (on.runs_since, on.ended_at) = (at, None);
        }
        let is_whole = on.pace.launched(function, cost, depth);
        on.launched_at = at;
        on.is_broken = false;
        // In a stall, events would fill the driver's queue.
        let records = is_single || !is_stalled && (is_whole || is_late);
        on.is_recording |= records;
        self.busy += usize::from(was_idle);
        Launched { starts, starts_if: last.map(|marks| marks.end), records }
    }

    /// Streams were added or removed.
    pub(crate) fn note_contexts(&mut self) {
        let first = self.streams.first().map(|on| on.stream.context);
        self.is_split = self.streams.iter().any(|on| Some(on.stream.context) != first);
    }

    /// This event, if there is one, was recorded on a stream: behind a launch of the calling
    /// thread, or behind what is open. Returns when to poll it; `None` if it is not needed.
    pub(crate) fn close(
        &mut self,
        queue: Queue,
        event: Option<Event>,
        is_behind_launch: bool,
        at: u64,
    ) -> Option<u64> {
        let on = self.on_mut(queue)?;
        let was_idle = on.pace.is_idle();
        let poll_at = on.close(event, is_behind_launch, at)?;
        if was_idle {
            on.runs_since = at;
            self.begin(at);
            self.busy += 1;
        }
        Some(poll_at)
    }

    /// Work of a stream has ended that took the time `took`, `None` if that is not known. `busy` of
    /// it is billed, as far as that much time has passed. Returns the billed time.
    /// Processes of `others` have the lease too, so the launches themselves took less.
    pub(crate) fn ended(
        &mut self,
        queue: Queue,
        (took, busy): (Option<u64>, u64),
        others: u64,
        at: u64,
    ) -> u64 {
        let waited = self.progress.ended(at, took.unwrap_or(0));
        let took = took.map(|took| took / (1 + others));
        if let Some(on) = self.streams.iter_mut().find(|on| on.queue == queue) {
            on.pace.ended(took, waited, &mut self.costs);
            (on.runs_since, on.poll_at) = (at, 0);
            let is_idle = on.pace.is_idle();
            self.busy -= usize::from(is_idle);
        }
        if self.is_idle() {
            self.idle_since = at;
        }
        let billed = self.wall.bill(at, busy, !self.is_idle());
        self.own.ended(took.unwrap_or(billed), billed);
        billed
    }

    /// Debits the bucket, which has this rate. `None`: the bucket does not bind. Time that is lent,
    /// or reserved by the coordinator, is not debited.
    pub(crate) fn debit(&mut self, rate: Option<u32>, billed: u64, at: u64) {
        self.set_rate(rate, at);
        if rate.is_some() {
            self.own.bucket.debit(at, billed);
        }
        // The work that is still in flight has had the card since this work ended.
        let since = (!self.is_idle()).then_some(at);
        self.set_unbilled(at, since);
    }

    fn set_rate(&mut self, rate: Option<u32>, at: u64) {
        self.own.bucket.set_rate(at, rate.unwrap_or(0));
        if rate.is_some() {
            // Otherwise each program in a loop of short programs would begin without debt.
            let debt = std::mem::take(&mut self.unpaid_debt).ns(at);
            // More than the largest possible debt was written before a reboot, by another clock.
            if debt <= timing::DEBT {
                self.own.bucket.debit(at, debt);
            }
        }
    }

    /// The coordinator accounts for the whole slice, and makes later processes of a slice in debt
    /// wait.
    pub(crate) fn leave_debts_to_the_coordinator(&mut self) {
        self.unpaid_debt = Debt::default();
    }

    fn set_unbilled(&mut self, at: u64, since: Option<u64>) {
        self.unbilled_since = since;
        self.own.bucket.set_unbilled(at, since);
    }

    /// How long the unbilled work has been running.
    pub(crate) fn ran(&self, at: u64) -> u64 {
        self.unbilled_since.map_or(0, |since| at.saturating_sub(since))
    }

    /// Reports the debt, and when it will be paid. Work in flight counts as far as it has run: if
    /// the process is killed, it is not billed later.
    pub(crate) fn report_debt(&self, words: &ComputeWords, at: u64) {
        let mut bucket = self.own.bucket.clone();
        if bucket.rate_ppm() > 0 {
            bucket.debit(at, self.ran(at));
        }
        let debt = bucket.balance(at).min(0).unsigned_abs();
        let paid_at = if debt > 0 { bucket.positive_at(at) } else { None };
        let carried = paid_at.map_or(Debt::default(), |at| Debt::new(at, bucket.rate_ppm()));
        words.debt_ns.store(debt, Ordering::Relaxed);
        words.debt.store(carried.to_word(), Ordering::Relaxed);
    }

    /// The state of the process, by its launches.
    pub(crate) fn activity(&self, terms: &Terms) -> ComputeState {
        match self.waiting {
            _ if !self.is_idle() => Running,
            [0, 0, 0] => Idle,
            // Others may have the card until there is credit.
            [0, 0, _] if terms.by_leases() => Idle,
            _ => Waiting,
        }
    }

    /// Reports the state of this process in the outermost slice's account, which the coordinator
    /// reads. Returns whether the report has changed.
    pub(crate) fn report(
        &mut self,
        seats: &Seats,
        terms: &Terms,
        state: ComputeState,
        at: u64,
    ) -> bool {
        let report = Report {
            grant: terms.grant.map_or(self.reported.grant, |grant| grant.number),
            state,
            is_stalled: self.is_stalled(at),
            is_split: self.is_split,
            // The coordinator asks only whether it needs any time.
            needs_ns: u64::from(self.waits_for_lease()),
        };
        if self.reported == report {
            return false;
        }
        let before = std::mem::replace(&mut self.reported, report).state;
        let Some(seat) = seats.outermost() else { return true };
        let Some(words) = seat.words() else { return true };
        words.active_at.store(at, Ordering::Relaxed);
        words.set_report(report);
        // While the process has the card, only its end is news, or its beginning beside others.
        let begins = before == Idle;
        let is_news = terms.grant.is_none_or(|grant| match grant.kind {
            _ if !terms.is_granted => true,
            Kind::Lease => state == Idle || begins && grant.others > 0,
            Kind::Own | Kind::Alone => false,
        });
        if is_news {
            seat.wake_coordinator();
        }
        true
    }

    /// Whether nothing has ended for as long as expected. A launch that has just come may find work
    /// that has ended without being noticed yet.
    fn is_stalled(&self, at: u64) -> bool {
        let has_just_come = self.waits_for_lease() && at < self.asking_since + NOTICED_NS;
        !has_just_come && (self.progress.is_stalled() || at >= self.stalls_at())
    }

    /// Whether a thread waits for the lease, or for room in it.
    pub(crate) fn waits_for_lease(&self) -> bool {
        let [lease, room, _] = self.waiting;
        lease + room > 0
    }

    /// Whether any thread waits.
    pub(crate) fn waits(&self) -> bool {
        self.waiting != [0; 3]
    }

    /// A thread waits for something else than `before`.
    pub(crate) fn change_waiting(
        &mut self,
        seats: &Seats,
        before: Option<WaitsFor>,
        after: Option<WaitsFor>,
        at: u64,
    ) {
        if before == after {
            return;
        }
        self.bill_waiting(seats, at);
        if !self.waits_for_lease() {
            self.asking_since = at;
        }
        let mut number = |what: Option<WaitsFor>, by: i32| {
            if let Some(number) = what.and_then(|what| self.waiting.get_mut(what as usize)) {
                *number = number.saturating_add_signed(by);
            }
        };
        number(before, -1);
        number(after, 1);
    }

    /// Adds up the time in which a thread waited for admission.
    pub(crate) fn bill_waiting(&mut self, seats: &Seats, at: u64) {
        let waited = at.saturating_sub(self.waiting_since);
        self.waiting_since = at;
        let [lease, _, credit] = self.waiting;
        if lease + credit > 0 {
            for words in seats.words() {
                words.throttled_ns.fetch_add(waited, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
