//! The meter: a thread that measures and bills batches. The first limited launch starts it.
//!
//! The meter polls events instead of waiting in the driver. So it is never in the driver for long,
//! and the program may end its contexts, or exit, at any time.
//!
//! The thread cannot be created where the system refuses more threads: `RLIMIT_NPROC`, the limit of
//! a container on its processes, or a seccomp filter. Then the threads that need admission do its
//! work ([`look_here`]): whenever one of them asks for a batch, and as long as it waits. So the share
//! holds. Between two launches nobody looks. So work is billed at the next launch, at the end of its
//! context or at exit, and the coordinator learns late that the process has become idle.

#![allow(clippy::disallowed_methods)] // the only thread that the library starts

mod exit;
mod timelines;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, TryLockError};

use driver_sys::cuda::{CU_STREAM_CAPTURE_MODE_RELAXED, CUstreamCaptureMode};
use vgpu_driver::guard::guard;
use vgpu_driver::{context, process, real};

use self::timelines::{Span, Timelines};
use crate::batch::flight::{self, Flight, LONGEST_POLL_NS, SHORTEST_POLL_NS};
use crate::batch::thread::{self, Thread};
use crate::clock::{METER, QUIET_NS, now};
use crate::contexts::{self, Life};
use crate::events::{self, Reached};
use crate::launch::Stream;
use crate::limiter::card::{self, CardLimiter};
use crate::limiter::state::EngineTime;

/// The [`process::tag`] of the process in which the meter was started; 0 before the first start.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// Any open batch is closed after this long.
const OLD_NS: u64 = 4_000_000;
/// The meter sleeps no longer than this.
const DEADLINE_NS: u64 = 1_000_000_000;
/// No batch that is open, or was just closed, began longer ago than this, however late the meter
/// is.
const YOUNG_NS: u64 = 100_000_000;

/// Whether the meter runs in this process.
pub(crate) fn has_started() -> bool {
    STARTED.load(Ordering::Acquire) == process::tag()
}

/// Starts the meter if it does not run.
pub(crate) fn start() {
    if has_started() {
        return;
    }
    let own = process::tag();
    let before = STARTED.load(Ordering::Acquire);
    if before == own
        || STARTED.compare_exchange(before, own, Ordering::AcqRel, Ordering::Acquire).is_err()
    {
        return;
    }
    let started = without_signals(|| {
        let thread = std::thread::Builder::new().name("hami-meter".into()).stack_size(256 << 10);
        thread.spawn(run).is_ok()
    });
    METER.set_has_no_thread(!started);
    exit::register();
}

/// If the meter has no thread: looks at everything once, and returns when to look again.
pub(crate) fn look_here() -> u64 {
    if !METER.has_no_thread() {
        return u64::MAX;
    }
    here(Meter::look).unwrap_or_else(|| now() + SHORTEST_POLL_NS)
}

/// If the meter has no thread: its last look, at exit.
fn last_look_here() {
    here(Meter::last_look);
}

/// Does the work of the meter that has no thread; `None` if another thread is doing it.
fn here(work: impl FnOnce(&mut Meter) -> u64) -> Option<u64> {
    static METER_HERE: Mutex<Option<Meter>> = Mutex::new(None);
    // A handler that launches would need the locks that it has interrupted.
    without_signals(|| {
        let mut meter = match METER_HERE.try_lock() {
            Ok(meter) => meter,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(work(meter.get_or_insert_default()))
    })
}

/// Runs `body` with all signals blocked. A new thread inherits the mask, and the program's signals
/// are for the program's threads.
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

fn run() {
    let mut mode: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: a local variable and this thread alone. In relaxed mode polling invalidates no
    // capture. A late wake-up of this thread would be idle time of the card.
    unsafe {
        real::cuThreadExchangeStreamCaptureMode(&raw mut mode);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000);
    }
    let mut meter = Meter::default();
    loop {
        let seen = METER.wake.count();
        let is_last = exit::is_requested();
        let again_at = guard(|| if is_last { meter.last_look() } else { meter.look() });
        let again_at = again_at.unwrap_or_else(|| now() + LONGEST_POLL_NS);
        if is_last {
            exit::done();
        }
        METER.set(again_at);
        if flight::is_inbox_empty() {
            METER.wake.wait_until(seen, again_at);
        }
    }
}

/// The state of the meter's thread.
#[derive(Default)]
struct Meter {
    flights: Vec<Flight>,
    timelines: Timelines,
}

impl Meter {
    /// Looks at everything once. Returns when to look again.
    fn look(&mut self) -> u64 {
        flight::take_all(&mut self.flights);
        self.bill_ended();
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

    /// The process exits: bills the batches that have ended and, so far, those that still run.
    fn last_look(&mut self) -> u64 {
        close_open();
        flight::take_all(&mut self.flights);
        self.bill_ended();
        // The card needs a moment to reach an event, even if no work is before it.
        let until = now() + QUIET_NS;
        while !self.flights.is_empty() && now() < until {
            METER.wake.wait_until(METER.wake.count(), now() + SHORTEST_POLL_NS);
            self.bill_ended();
        }
        let at = now();
        for limiter in card::all() {
            let own = self.flights.iter().filter(|flight| std::ptr::eq(flight.limiter, limiter));
            let ran = own.map(|flight| flight.busy_time(at.saturating_sub(flight.opened_at()), at));
            limiter.leave(ran.max(), at);
        }
        self.look()
    }

    /// Bills the batches that have ended.
    fn bill_ended(&mut self) {
        // Held for some microseconds, so that no context begins to end meanwhile.
        let ends = contexts::hold();
        let mut index = 0;
        while let Some(flight) = self.flights.get(index) {
            let life = ends.life(flight.context, flight.age);
            let reached = match life {
                Life::Lives => flight.end.reached(),
                Life::Ending => Reached::NotYet,
                Life::Ended => Reached::Lost,
            };
            if reached == Reached::NotYet {
                index += 1;
                continue;
            }
            let flight = self.flights.remove(index);
            let measured = match reached {
                Reached::Yes => {
                    context::with_current(flight.context, || self.measure(&flight)).flatten()
                }
                // The driver waits for the work in a context before it ends the context.
                _ if life == Life::Ended => {
                    Some(flight.expected.max(now().saturating_sub(flight.closed_at)))
                }
                _ => None,
            };
            let time =
                measured.map_or(EngineTime::Unmeasured(flight.expected), EngineTime::Measured);
            flight.limiter.bill(flight.queue, flight.expected, time);
            if life == Life::Lives {
                self.release_events(&flight);
            }
        }
        self.timelines.forget_ended(&ends);
    }

    /// The engine time of a batch that has ended; `None` if the driver cannot tell.
    fn measure(&mut self, flight: &Flight) -> Option<u64> {
        let elapsed = u64::try_from(flight.end.since(flight.start)?).unwrap_or(0);
        let span = elapsed.saturating_sub(flight.gap);
        let at = now();
        let is_shared = flight.limiter.possible_users(at) > 1;
        let busy = flight.busy_time(span, at);
        if !is_shared {
            flight.learn(span);
            if flight.launches > 1 && span - busy > span / 4 {
                flight.limiter.note_idle(at);
            }
        }
        // If other processes use the card, all streams of this process stand still at once in their
        // time slices. So no stream can have used what another one has left over.
        let free = if is_shared { span } else { busy };
        let oldest = self.flights.iter().map(Flight::opened_at).min().unwrap_or(at);
        let oldest_ago = at.saturating_sub(oldest) + YOUNG_NS;
        let span = Span { elapsed, gap: flight.gap, busy: free, oldest_ago };
        Some(busy.min(self.timelines.newly_covered(flight, &span).unwrap_or(busy)))
    }

    /// Keeps the events of a batch for later ones, unless others are measured from them.
    fn release_events(&self, flight: &Flight) {
        for event in [flight.start, flight.end] {
            if !self.timelines.has_epoch(event) {
                events::release(flight.context, event);
            }
        }
    }
}

/// Closes the batches that get no more launches, and all batches on the cards in `due`. Returns
/// when to look again.
fn close_stale(at: u64, due: &[&'static CardLimiter]) -> u64 {
    let mut again_at = u64::MAX;
    for thread in thread::threads() {
        close(&thread, thread.stale(at, QUIET_NS, OLD_NS, due));
        if thread.has_open() {
            again_at = again_at.min(at + QUIET_NS);
        }
    }
    again_at
}

/// Closes every open batch, except those whose last launch is being made.
pub(crate) fn close_open() {
    for thread in thread::threads() {
        close(&thread, thread.stale(now(), 0, 0, &[]));
    }
}

/// Closes a thread's batches on those of these streams whose contexts live.
fn close(thread: &Thread, streams: Vec<Stream>) {
    for stream in streams {
        let ends = contexts::hold();
        if ends.life(stream.context, contexts::age()) == Life::Lives {
            context::with_current(stream.context, || {
                thread.close_from_outside(|open| open == stream);
            });
        }
    }
}
