//! The meter: one thread, started by the first limited launch, that sees batches through.
//!
//! It polls their events instead of waiting in the driver, so that it never is inside it for long: the
//! program may end its contexts, or itself, at any time.

#![allow(clippy::disallowed_methods)] // the one thread that we start

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use driver_sys::cuda::{CU_STREAM_CAPTURE_MODE_RELAXED, CUstreamCaptureMode};

use super::batch::{self, Stream, lock};
use super::card::{self, CardLimiter};
use super::contexts::{self, Life};
use super::events::{self, Reached, in_context};
use super::exit;
use super::flight::{Flight, LONGEST_POLL_NS, SHORTEST_POLL_NS};
use super::sleep::{Bell, now};
use super::state::Took;
use super::timelines::{Span, Timelines};
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
/// Sleeping longer than this would be sleeping for ever.
const DEADLINE_NS: u64 = 1_000_000_000;
/// Batches that are open, or just closed, were begun no longer ago, however late the meter is.
const YOUNG_NS: u64 = 100_000_000;

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
    if started {
        exit::register();
    } else {
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

/// It looks at once.
pub(super) fn wake() {
    BELL.ring();
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
        let is_last = exit::is_asked();
        let again_at = guard(|| if is_last { meter.last_look() } else { meter.look() });
        let again_at = again_at.unwrap_or_else(|| now() + LONGEST_POLL_NS);
        if is_last {
            exit::done();
        }
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
    timelines: Timelines,
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

    /// The process exits: bills what has ended, and what still runs so far, and says so at once.
    fn last_look(&mut self) -> u64 {
        close_open();
        self.flights.append(&mut lock(&INBOX));
        self.land();
        // The card needs a moment to reach an event, even where nothing is before it.
        let until = now() + QUIET_NS;
        while !self.flights.is_empty() && now() < until {
            BELL.wait_until(BELL.heard(), now() + SHORTEST_POLL_NS);
            self.land();
        }
        let at = now();
        for limiter in card::all() {
            let own = self.flights.iter().filter(|flight| std::ptr::eq(flight.limiter, limiter));
            let ran = own.map(|flight| flight.believed(at.saturating_sub(flight.opened_at()), at));
            limiter.leave(ran.max(), at);
        }
        self.look()
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
            let took = match reached {
                Reached::Yes => in_context(flight.context, || self.measure(&flight)).flatten(),
                // The driver has waited for what was in a context that it has ended.
                _ if life == Life::Ended => {
                    Some(flight.expected.max(now().saturating_sub(flight.closed_at)))
                }
                _ => None,
            };
            let took = took.map_or(Took::Unmeasured(flight.expected), Took::Measured);
            flight.limiter.bill(flight.queue, flight.expected, took);
            if life == Life::Lives {
                self.keep(&flight);
            }
        }
        self.timelines.forget_ended(&ends);
    }

    /// The engine time of a batch that has ended, or `None` where the driver cannot tell.
    fn measure(&mut self, flight: &Flight) -> Option<u64> {
        let elapsed = u64::try_from(flight.end.since(flight.start)?).unwrap_or(0);
        let span = elapsed.saturating_sub(flight.gap);
        let at = now();
        let is_hidden = flight.limiter.hidden_company(at) > 1;
        let busy = flight.believed(span, at);
        if !is_hidden {
            flight.learn(span);
            if flight.launches > 1 && span - busy > span / 4 {
                flight.limiter.note_idle(at);
            }
        }
        // Beside others all streams of the process stand still at once, in the others' turns: what is
        // over in one is none that another can have had.
        let free = if is_hidden { span } else { busy };
        let oldest = self.flights.iter().map(Flight::opened_at).min().unwrap_or(at);
        let oldest_ago = at.saturating_sub(oldest) + YOUNG_NS;
        let span = Span { elapsed, gap: flight.gap, busy: free, oldest_ago };
        Some(busy.min(self.timelines.newly_covered(flight, &span).unwrap_or(busy)))
    }

    /// Keeps the events of a batch for the next one, but for an epoch.
    fn keep(&self, flight: &Flight) {
        for event in [flight.start, flight.end] {
            if !self.timelines.has_epoch(event) {
                events::give_back(flight.context, event);
            }
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
