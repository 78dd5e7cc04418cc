//! The meter: one thread, started by the first limited launch, that sees batches through.
//!
//! It polls their events instead of waiting in the driver, so that it never is inside it for long: the
//! program may end its contexts, or itself, at any time.

#![allow(clippy::disallowed_methods)] // the one thread that we start

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use driver_sys::cuda::{CU_STREAM_CAPTURE_MODE_RELAXED, CUstreamCaptureMode};
use hami_share::limiter::{Busy, bill, idle};

use super::batch::{self, Flight, Stream, lock};
use super::card::{self, CardLimiter};
use super::contexts::{self, Life};
use super::events::{self, Event, Reached, in_context};
use super::sleep::{Bell, now};
use crate::boundary::guard;
use crate::table::real;

/// The fork generation (plus 1) that the meter was started in; 0: none was.
static STARTED: AtomicU32 = AtomicU32::new(0);
static INBOX: Mutex<Vec<Flight>> = Mutex::new(Vec::new());
static BELL: Bell = Bell::new();
/// When it will look again by itself.
static AWAKE_AT: AtomicU64 = AtomicU64::new(0);

/// An open batch that is not added to is closed after this long, and any after `OLD_NS`.
const QUIET_NS: u64 = 200_000;
const OLD_NS: u64 = 4_000_000;
/// The shortest and longest time between two looks at an event.
const POLL_NS: std::ops::RangeInclusive<u64> = 20_000..=500_000;
/// Sleeping longer than this would be sleeping for ever.
const DEADLINE_NS: u64 = 1_000_000_000;
/// An epoch older than this is replaced, because a float counts the milliseconds since.
const EPOCH_NS: i64 = 500_000_000;

/// Where a timeline begins: batches may have begun before the one that is its first epoch.
const FIRST_EPOCH_NS: i64 = 10_000_000_000;

/// Whether anything was ever metered in this process.
pub(super) fn has_started() -> bool {
    STARTED.load(Ordering::Acquire) == hami_account::fork::generation().wrapping_add(1)
}

/// Starts the meter if it is not there; false where none can be had.
pub(super) fn start() -> bool {
    if has_started() {
        return true;
    }
    let own = hami_account::fork::generation().wrapping_add(1);
    let before = STARTED.load(Ordering::Acquire);
    if before == own
        || STARTED.compare_exchange(before, own, Ordering::AcqRel, Ordering::Acquire).is_err()
    {
        return true;
    }
    let started = without_signals(|| {
        let thread = std::thread::Builder::new().name("hami-meter".into()).stack_size(256 << 10);
        thread.spawn(run).is_ok()
    });
    if !started {
        STARTED.store(before, Ordering::Release);
    }
    started
}

/// A thread inherits its mask: the program's signals are for the program's threads.
fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: sets on the stack, and this thread's own mask, which is put back.
    unsafe {
        let (mut every, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut every);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, &raw mut before);
        let done = body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        done
    }
}

/// A batch is in flight.
pub(super) fn take_off(flight: Flight) {
    let soon = flight.closed_at + QUIET_NS;
    lock(&INBOX).push(flight);
    if AWAKE_AT.load(Ordering::Acquire) > soon {
        BELL.ring();
    }
}

/// Somebody has opened a batch: it must not be forgotten.
pub(super) fn wake_by(instant: u64) {
    if AWAKE_AT.load(Ordering::Acquire) > instant + QUIET_NS {
        BELL.ring();
    }
}

fn run() {
    let mut mode: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: a local variable; the thread is ours, and polling must spoil nobody's capture. Late
    // wake-ups of this thread would be idle time of the card.
    unsafe {
        real::cuThreadExchangeStreamCaptureMode(&raw mut mode);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000);
    }
    let mut meter = Meter::default();
    loop {
        let heard = BELL.heard();
        let again_at = guard(|| meter.look()).unwrap_or_else(|| now() + *POLL_NS.end());
        AWAKE_AT.store(again_at, Ordering::Release);
        if lock(&INBOX).is_empty() {
            BELL.wait_until(heard, again_at);
        }
    }
}

/// What the thread knows.
#[derive(Default)]
struct Meter {
    flights: Vec<Flight>,
    timelines: Vec<Timeline>,
}

/// The time of a context's card, counted from an event.
struct Timeline {
    context: usize,
    born: u64,
    epoch: Event,
    /// When the epoch was.
    epoch_at: i64,
    busy: Busy,
}

impl Meter {
    /// One look at everything; when to look again.
    fn look(&mut self) -> u64 {
        self.flights.append(&mut lock(&INBOX));
        self.land();
        let at = now();
        let mut again_at = at + DEADLINE_NS;
        let mut due = Vec::new();
        for limiter in card::all() {
            let look = limiter.look(at);
            again_at = again_at.min(look.again_at);
            if look.must_close {
                due.push(limiter);
            }
        }
        again_at = again_at.min(close_stale(at, &due));
        let polls = self.flights.iter().map(|flight| flight.poll_at(at));
        polls.fold(again_at, u64::min)
    }

    /// Bills the batches that have ended.
    fn land(&mut self) {
        // Held all the while: no context begins to end meanwhile, and it is a matter of microseconds.
        let ends = contexts::hold();
        let mut place = 0;
        while let Some(flight) = self.flights.get(place) {
            let life = ends.life(flight.context, flight.born);
            let reached = match life {
                Life::Lives => flight.end.reached(),
                Life::Ending => Reached::NotYet,
                Life::Ended => Reached::Lost,
            };
            if reached == Reached::NotYet {
                place += 1;
                continue;
            }
            let flight = self.flights.remove(place);
            let billed = match reached {
                Reached::Yes => in_context(flight.context, || self.measure(&flight)).flatten(),
                // The driver has waited for what was in a context that it has ended.
                _ if life == Life::Ended => {
                    Some(flight.expected.max(now().saturating_sub(flight.closed_at)))
                }
                _ => None,
            };
            let billed = billed.unwrap_or(flight.expected);
            flight.limiter.ended(flight.queue, flight.expected, billed);
            if life == Life::Lives {
                self.keep(&flight);
            }
        }
        self.timelines.retain(|line| ends.life(line.context, line.born) != Life::Ended);
    }

    /// The engine time of a batch that has ended, or `None` where the driver cannot tell.
    fn measure(&mut self, flight: &Flight) -> Option<u64> {
        let elapsed = u64::try_from(flight.end.since(flight.start)?).unwrap_or(0);
        let span = elapsed.saturating_sub(flight.gap);
        let at = now();
        let company = flight.limiter.hidden_company(at);
        let billed = if company > 1 {
            // Others' turns may be in the elapsed time, so what was learned without them is believed,
            // as far as there are enough others to explain it.
            let least = span / u64::from(company);
            flight.predicted.map_or(span, |predicted| predicted.clamp(least, span))
        } else {
            let billed = bill(span, flight.window, flight.predicted, flight.launches);
            flight.learn(span);
            billed
        };
        Some(billed.min(self.newly_covered(flight, elapsed).unwrap_or(billed)))
    }

    /// How much of the batch's time no other batch of its context had.
    fn newly_covered(&mut self, flight: &Flight, elapsed: u64) -> Option<u64> {
        let place = self.timelines.iter().position(|line| line.context == flight.context);
        let place = place.unwrap_or_else(|| {
            self.timelines.push(Timeline {
                context: flight.context,
                born: flight.born,
                epoch: flight.start,
                epoch_at: FIRST_EPOCH_NS,
                busy: Busy::default(),
            });
            self.timelines.len() - 1
        });
        let line = self.timelines.get_mut(place)?;
        let start = if line.epoch == flight.start {
            line.epoch_at
        } else {
            line.epoch_at + flight.start.since(line.epoch)?
        };
        let end = start + elapsed.cast_signed();
        let from = u64::try_from(start).ok()?;
        // Batches that are still in flight began before this one ended, or will begin later.
        let oldest = from.saturating_sub(DEADLINE_NS);
        let covered = line.busy.add(from, u64::try_from(end).ok()?, oldest);
        if end - line.epoch_at > EPOCH_NS {
            let before = std::mem::replace(&mut line.epoch, flight.end);
            line.epoch_at = end;
            // Its own events are kept, once, when all is measured.
            if before != flight.start {
                events::give_back(line.context, before);
            }
        }
        Some(covered)
    }

    /// Keeps the events of a batch for the next one, but for an epoch.
    fn keep(&self, flight: &Flight) {
        for event in [flight.start, flight.end] {
            if !self.timelines.iter().any(|line| line.epoch == event) {
                events::give_back(flight.context, event);
            }
        }
    }
}

impl Flight {
    /// When to look whether it has ended: when it should have, and then often at first.
    fn poll_at(&self, at: u64) -> u64 {
        let flying = at.saturating_sub(self.closed_at);
        let (soonest, latest) = (*POLL_NS.start(), *POLL_NS.end());
        if flying < self.expected {
            // A batch ahead of it may have to end first; it was predicted as well.
            let left = self.expected - flying;
            return at + left.clamp(soonest, latest);
        }
        at + (flying / 64).clamp(soonest, latest)
    }

    /// Remembers what its kernel took, where it was one and nearly nothing else was in the time. That
    /// there was one launch is not enough: the meter closes a batch long after its last one.
    fn learn(&self, span: u64) {
        let (Some(key), 1..) = (self.key, self.launches) else { return };
        if let Some(doubt) = self.sample {
            // Between what it took at least and at most, what is known is as good as anything; beyond
            // them it is wrong, and that weighs more than one launch that happens to differ.
            let known = batch::cost_of(key);
            let each = known.map_or(span, |known| known.clamp(span.saturating_sub(doubt), span));
            batch::learn(key, each, if known.is_none_or(|known| known == each) { 1 } else { 8 });
            return;
        }
        let idle = self
            .predicted
            .map_or(self.window, |predicted| idle(self.window, predicted, self.launches));
        if idle <= span / 50 {
            batch::learn(key, span / u64::from(self.launches), self.launches);
        }
    }
}

/// Closes the batches that nobody adds to, and all on the cards that are due; when to look again.
fn close_stale(at: u64, due: &[&'static CardLimiter]) -> u64 {
    let mut again_at = u64::MAX;
    for thread in batch::threads() {
        close(&thread, thread.stale(at, QUIET_NS, OLD_NS, due));
        if thread.has_open() {
            again_at = again_at.min(at + QUIET_NS);
        }
    }
    again_at
}

/// Closes every batch that is open, but those whose last launch is being made.
pub(super) fn close_open() {
    for thread in batch::threads() {
        close(&thread, thread.stale(now(), 0, 0, &[]));
    }
}

/// Closes a thread's batches on streams whose contexts live.
fn close(thread: &batch::Thread, streams: Vec<Stream>) {
    for stream in streams {
        let ends = contexts::hold();
        if ends.life(stream.context, contexts::age()) == Life::Lives {
            in_context(stream.context, || {
                thread.close_from_outside(|open| open == stream);
            });
        }
    }
}
