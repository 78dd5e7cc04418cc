//! The limiter of one card in this process: it delays launches, and bills them.
//!
//! A launch calls [`CardLimiter::admit`], which waits until the launch may be made. Events around
//! launches ([`CardLimiter::record`]) show when they have ended. The meter polls the events, and
//! calls [`CardLimiter::ended`]. It also calls [`CardLimiter::look`], which sends heartbeats and
//! reports the end of work. The arithmetic is in `hami_share`.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use driver_sys::cuda::CUdevice;
use hami_account::ComputeState::{Idle, Running, Waiting};
use hami_share::timing;
use vgpu_driver::context;
use vgpu_driver::guard::lock;
use vgpu_driver::racy_once::RacyOnce;
use vgpu_slice::cards::{self, MAX_DEVICES};
use vgpu_slice::{Limited, Seat};

use crate::capture::{self, Capturing};
use crate::clock::{METER, Wake, now};
use crate::events::{self, Event, Reached};
use crate::launch::{Queue, Stream};
use crate::seats::{Seats, Terms};
use crate::state::{State, Verdict, WaitsFor};
use crate::streams::{Due, OnStream};

/// The limiter of a card that may have a share.
pub struct CardLimiter {
    seats: Seats,
    state: Mutex<State>,
    /// Woken when work in flight has ended.
    changed: Wake,
}

/// An admitted launch.
pub(crate) enum Admitted {
    /// No share binds this process now.
    Unlimited,
    /// It counts as in flight. `starts`: an event belongs before it; `records`: behind it.
    Limited { starts: bool, records: bool },
}

static LIMITERS: [RacyOnce<CardLimiter>; MAX_DEVICES] = [const { RacyOnce::new() }; MAX_DEVICES];

/// The limiter of a device; `None` if the driver does not know the device.
pub(crate) fn of_device(
    limited: &'static Limited,
    device: CUdevice,
) -> Option<&'static CardLimiter> {
    let cell = LIMITERS.get(usize::try_from(device).ok()?)?;
    if let Some(limiter) = cell.get() {
        return Some(limiter);
    }
    let card = cards::of_device(limited, device)?;
    Some(cell.get_or_init(|| CardLimiter::new(Seats::new(limited.seats(card)))))
}

/// The limiters of all cards.
pub(crate) fn all() -> impl Iterator<Item = &'static CardLimiter> {
    LIMITERS.iter().filter_map(RacyOnce::get)
}

impl CardLimiter {
    fn new(seats: Seats) -> Self {
        let at = now();
        let state = State::new(seats.unpaid_debt(at), at);
        Self { seats, state: Mutex::new(state), changed: Wake::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until a launch of a function on a stream may be made. `meter` does the meter's work if
    /// the meter has no thread, and returns when to call it again.
    pub(crate) fn admit(
        &self,
        stream: Stream,
        function: usize,
        meter: impl Fn() -> u64,
    ) -> Admitted {
        let queue = stream.queue();
        let mut waits_for = None;
        let mut asked = None;
        loop {
            let meter_at = meter();
            let seen = self.changed.count();
            let at = now();
            let asked_at = *asked.get_or_insert(at);
            let mut state = self.state();
            let terms = self.seats.terms(at);
            if terms.by_leases() {
                state.leave_debts_to_the_coordinator();
            }
            let verdict = state.verdict(&terms, (queue, function), (asked_at, at));
            let next = match verdict {
                Verdict::Wait { what, .. } => Some(what),
                Verdict::Unlimited | Verdict::Go { .. } => None,
            };
            state.change_waiting(&self.seats, waits_for, next, at);
            waits_for = next;
            let until = match verdict {
                Verdict::Unlimited => return Admitted::Unlimited,
                Verdict::Go { depth, cost, has_lease } => {
                    if !has_lease {
                        state.report(&self.seats, &terms, Running, at);
                    } else if state.is_idle() && !self.reports_in_time(&mut state, &terms, at) {
                        continue;
                    }
                    let was_idle = state.is_idle();
                    let launched = state.launched(stream, (function, cost), depth, at);
                    drop(state);
                    if was_idle {
                        METER.wake_by(at + timing::QUIET);
                    }
                    let is_idle = |last: Event| last.reached() == Reached::Yes;
                    let starts = launched.starts || launched.starts_if.is_some_and(is_idle);
                    return Admitted::Limited { starts, records: launched.records };
                }
                Verdict::Wait { until, .. } => until,
            };
            let activity = state.activity(&terms);
            state.report(&self.seats, &terms, activity, at);
            let is_open = state.on_mut(queue).is_some_and(|on| on.pace.open() > 0);
            drop(state);
            if is_open {
                // While the thread waits, it launches nothing that an event would be behind.
                self.record(stream, false);
            }
            METER.wake_by(at + timing::QUIET);
            let until = until.min(meter_at).min(at + timing::RECHECK);
            let seat = self.seats.outermost().filter(|_| waits_for != Some(WaitsFor::Room));
            match (seat, terms.grant) {
                (Some(seat), Some(grant)) => {
                    let timeout = Duration::from_nanos(until.saturating_sub(now()));
                    seat.wait_for_grant(grant.number, timeout);
                }
                _ => self.changed.wait_until(seen, until),
            }
        }
    }

    /// Reports that work begins. False if that is too late: the coordinator may have seen no
    /// process running, and granted the card to another one. The next round finds out.
    fn reports_in_time(&self, state: &mut State, terms: &Terms, at: u64) -> bool {
        if !state.report(&self.seats, terms, Running, at) {
            return true;
        }
        // Either the coordinator sees the report before it grants the card to another process, or
        // this sees the new grant.
        fence(Ordering::SeqCst);
        let at = now();
        if self.seats.terms(at).is_granted {
            return true;
        }
        state.report(&self.seats, terms, Waiting, at);
        false
    }

    /// Records an event before a launch that has been admitted.
    pub(crate) fn record_start(&self, stream: Stream) {
        let Some(event) = record(stream) else { return };
        let mut state = self.state();
        let before = state.on_mut(stream.queue()).and_then(|on| on.start.replace(event));
        drop(state);
        if let Some(before) = before {
            events::release(stream.context, before);
        }
    }

    /// Records an event behind the launches of a stream. The launching thread calls this, beside
    /// work of its own. `is_behind_launch`: it has just made a launch. An event of another thread
    /// may have come between the admission of this launch and the launch.
    pub(crate) fn record(&self, stream: Stream, is_behind_launch: bool) {
        let can = capture::state_of(stream.handle) == Capturing::No;
        let event = if can { record(stream) } else { None };
        let at = now();
        let mut state = self.state();
        let poll_at = state.close(stream.queue(), event, is_behind_launch, at);
        drop(state);
        match (poll_at, event) {
            (Some(poll_at), _) => METER.wake_by(poll_at),
            (None, Some(event)) => events::release(stream.context, event),
            (None, None) => {}
        }
    }

    /// Records an event behind the open launches of the streams in a context, which is current. The
    /// calling thread is about to wait for them, or to begin a capture.
    pub(crate) fn record_open(&self, context: usize) {
        let state = self.state();
        let may_record = |on: &&OnStream| {
            // In the default stream, an event waits for all blocking streams, and they for it.
            let is_safe = !on.stream.is_legacy() || state.busy <= 1;
            let is_here = on.stream.context == context && on.queue == on.stream.queue();
            on.pace.open() > 0 && is_here && is_safe
        };
        let open = state.streams.iter().filter(may_record);
        let open: Vec<Stream> = open.map(|on| on.stream).collect();
        drop(state);
        for stream in open {
            self.record(stream, false);
        }
    }

    /// Other work than launches comes next in some streams, or the streams end.
    pub(crate) fn interrupt(&self, is_it: impl Fn(Stream) -> bool) {
        let mut state = self.state();
        let mut open = Vec::new();
        for on in state.streams.iter_mut().filter(|on| is_it(on.stream)) {
            on.is_broken = true;
            if on.pace.open() > 0 {
                open.push(on.stream);
            }
        }
        drop(state);
        for stream in open {
            self.record(stream, false);
        }
    }

    /// The oldest work of each stream that is to be polled now; `all`: also that which should not
    /// have ended. And when to poll next.
    pub(crate) fn due(&self, at: u64, all: bool) -> (Vec<Due>, u64) {
        let state = self.state();
        let mut next = u64::MAX;
        let mut due = Vec::new();
        for on in &state.streams {
            let Some(oldest) = on.due() else { continue };
            let quiet_at = match oldest.end {
                Some(_) => 0,
                // An event follows when the driver has taken the launch.
                None if on.is_recording => continue,
                None => on.launched_at + timing::QUIET,
            };
            let poll_at = on.poll_at.max(quiet_at);
            if all || at >= poll_at {
                due.push(oldest);
            } else {
                next = next.min(poll_at);
            }
        }
        (due, next)
    }

    /// The oldest work of the other streams in a context.
    pub(crate) fn others(&self, queue: Queue, context: usize) -> Vec<Due> {
        let state = self.state();
        let others = state.streams.iter().filter(|on| on.stream.context == context);
        others.filter(|on| on.queue != queue).filter_map(OnStream::due).collect()
    }

    /// The oldest work of a stream has not ended at `at`. Returns when to poll it again.
    pub(crate) fn not_yet(&self, due: &Due, at: u64) -> u64 {
        let mut state = self.state();
        let Some(on) = state.on_mut(due.queue).filter(|on| on.is_due(due)) else { return at };
        on.poll_at = on.poll_after(at);
        on.poll_at
    }

    /// The oldest work of a stream has ended. `took`: its time on the card, if that is known;
    /// `busy`: the part of it that no other stream has used; `end`: by the timeline of its context.
    pub(crate) fn ended(&self, due: &Due, took: Option<u64>, busy: u64, end: Option<i64>) {
        let at = now();
        let mut state = self.state();
        let Some(on) = state.on_mut(due.queue).filter(|on| on.is_due(due)) else { return };
        on.ended_at = end;
        if due.end.is_none() {
            on.start = None;
        }
        let (users, others) = self.seats.possible_users(at);
        let busy = busy / (users + others);
        let billed = state.ended(due.queue, (took, busy), others, at);
        self.debit(&mut state, billed, at);
        drop(state);
        self.changed.wake_all();
    }

    /// A context has ended: the work in it will never be measured. The driver has waited for it.
    pub(crate) fn forget(&self, context: usize) {
        let at = now();
        let mut state = self.state();
        let ran = state.ran(at);
        let busy = |on: &OnStream| !on.pace.is_idle();
        let lost = state.streams.iter().filter(|on| on.stream.context == context && busy(on));
        let lost = lost.count();
        state.streams.retain(|on| on.stream.context != context);
        state.note_contexts();
        if lost == 0 {
            return;
        }
        state.busy -= lost;
        let rest = !state.is_idle();
        let billed = state.wall.bill(at, ran, rest);
        state.idle_since = at;
        self.debit(&mut state, billed, at);
        drop(state);
        self.changed.wake_all();
    }

    fn debit(&self, state: &mut State, billed: u64, at: u64) {
        state.debit(self.seats.terms(at).rate, billed, at);
        for words in self.seats.words() {
            words.used_ns.fetch_add(billed, Ordering::Relaxed);
            state.report_debt(words, at);
        }
    }

    /// Called by the meter: sends a heartbeat, and reports the end of work. Returns when to look
    /// again.
    pub(crate) fn look(&self, at: u64) -> u64 {
        let mut state = self.state();
        if state.reported.state == Idle && state.is_idle() && !state.waits() {
            return u64::MAX;
        }
        self.send_heartbeat(&mut state, at);
        let terms = self.seats.terms(at);
        state.read_unblock(&terms, at);
        let has_lease = terms.by_leases() && terms.is_granted;
        let lingers_until = state.idle_since + timing::LINGER;
        if has_lease
            && state.is_idle()
            && !state.waits()
            && state.reported.state == Running
            && at < lingers_until
        {
            return lingers_until;
        }
        let activity = state.activity(&terms);
        state.report(&self.seats, &terms, activity, at);
        if activity == Idle { u64::MAX } else { at + timing::HEARTBEAT }
    }

    /// Called when the process exits. Bills the work that still runs, and makes at once the reports
    /// that would come later. If the work goes on, only the rest of it is billed.
    pub(crate) fn leave(&self, at: u64) {
        let mut state = self.state();
        let ran = state.ran(at);
        if ran > 0 {
            let rest = !state.is_idle();
            let billed = state.wall.bill(at, ran, rest);
            self.debit(&mut state, billed, at);
        }
        if state.is_idle() {
            state.report(&self.seats, &self.seats.terms(at), Idle, at);
            for words in self.seats.words() {
                words.metered_at.store(0, Ordering::Relaxed);
            }
        }
    }

    fn send_heartbeat(&self, state: &mut State, at: u64) {
        if let Some(words) = self.seats.outermost().and_then(Seat::words) {
            words.active_at.store(at, Ordering::Relaxed);
        }
        for words in self.seats.words() {
            words.metered_at.store(at, Ordering::Relaxed);
            state.report_debt(words, at);
        }
        state.bill_waiting(&self.seats, at);
    }
}

/// Records an event in a stream.
fn record(stream: Stream) -> Option<Event> {
    context::with_current(stream.context, || {
        let event = events::take(stream.context)?;
        if event.record(stream.handle) {
            return Some(event);
        }
        events::release(stream.context, event);
        None
    })
    .flatten()
}
