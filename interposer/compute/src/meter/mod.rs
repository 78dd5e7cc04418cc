//! The meter: a thread that measures and bills batches. The first limited launch starts it.
//!
//! The meter polls events instead of waiting in the driver. So it is never in the driver for long,
//! and the program may end its contexts, or exit, at any time.
//!
//! The thread cannot be created where the system refuses more threads: `RLIMIT_NPROC`, the limit of
//! a container on its processes, or a seccomp filter. Then the threads that need admission do its
//! work ([`look_here`]): whenever one of them asks for a batch, and as long as it waits. So the
//! share holds. But nothing is measured between two launches: work is billed at the next launch, at
//! the end of its context or at exit, and the coordinator learns late that the process has become
//! idle.

#![allow(clippy::disallowed_methods)] // the only thread that the library starts

mod exit;
mod timelines;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, TryLockError};

use driver_sys::cuda::{CU_STREAM_CAPTURE_MODE_RELAXED, CUstreamCaptureMode};
use vgpu_driver::guard::guard;
use vgpu_driver::{context, process, real};

use self::timelines::Timelines;
use crate::batch::flight::{self, End, Flight, LONGEST_POLL_NS, SHORTEST_POLL_NS};
use crate::batch::thread;
use crate::clock::{METER, QUIET_NS, now};
use crate::contexts::{self, Life};
use crate::events::{self, Reached};
use crate::launch::Queue;
use crate::limiter::card::{self, CardLimiter};
use crate::limiter::state::EngineTime;

/// The [`process::tag`] of the process in which the meter was started; 0 before the first start.
static STARTED: AtomicU32 = AtomicU32::new(0);

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
        self.bill_ended(false);
        let at = now();
        let mut again_at = at + DEADLINE_NS;
        let mut over = Vec::new();
        for limiter in card::all() {
            let look = limiter.look(at);
            again_at = again_at.min(look.again_at);
            if look.must_close {
                over.push(limiter);
            }
        }
        again_at = again_at.min(look_at_open(at, &over, false));
        self.next_flights().iter().map(|flight| flight.next_poll).fold(again_at, u64::min)
    }

    /// The process exits: bills the batches that have ended and, so far, those that still run.
    fn last_look(&mut self) -> u64 {
        look_at_open(now(), &[], true);
        flight::take_all(&mut self.flights);
        self.bill_ended(true);
        // The card needs a moment to reach an event, even if no work is before it.
        let until = now() + QUIET_NS;
        while !self.flights.is_empty() && now() < until {
            METER.wake.wait_until(METER.wake.count(), now() + SHORTEST_POLL_NS);
            self.bill_ended(true);
        }
        let at = now();
        let open: Vec<Flight> = thread::threads().iter().flat_map(|one| one.so_far()).collect();
        for limiter in card::all() {
            let running = self.flights.iter().chain(&open);
            let own = running.filter(|flight| std::ptr::eq(flight.limiter, limiter));
            let ran = own.map(|flight| flight.busy_time(at.saturating_sub(flight.opened_at), at));
            limiter.leave(ran.max(), at);
        }
        self.look()
    }

    /// The oldest batch of each stream: no later one ends before it.
    fn next_flights(&self) -> Vec<&Flight> {
        let mut next: Vec<&Flight> = Vec::new();
        for flight in &self.flights {
            if next.iter().all(|one| one.queue != flight.queue) {
                next.push(flight);
            }
        }
        next
    }

    /// Bills the batches that have ended, among those that it is time to poll, or among `all`.
    fn bill_ended(&mut self, all: bool) {
        let polled_at = now();
        // Held for some microseconds, so that no context begins to end meanwhile.
        let ends = contexts::hold();
        let mut running: Vec<Queue> = Vec::new();
        let mut index = 0;
        while let Some(flight) = self.flights.get_mut(index) {
            if running.contains(&flight.queue) {
                index += 1;
                continue;
            }
            let is_due = all || polled_at >= flight.next_poll;
            let life = ends.life(flight.context, flight.age);
            let reached = match life {
                Life::Ended => Reached::Lost,
                Life::Lives if is_due => reached(&mut self.timelines, flight),
                Life::Lives | Life::Ending => Reached::NotYet,
            };
            if reached == Reached::NotYet {
                running.push(flight.queue);
                if is_due {
                    flight.next_poll = flight.poll_at(polled_at);
                }
                index += 1;
                continue;
            }
            let flight = self.flights.remove(index);
            self.bill_one(&flight, life, reached);
            let at = now();
            if let Some(next) = self.flights.iter_mut().find(|next| next.queue == flight.queue) {
                (next.runs_since, next.next_poll) = (at, at);
            }
        }
        self.timelines.forget_ended(&ends);
    }

    /// Bills a batch that has ended.
    fn bill_one(&mut self, flight: &Flight, life: Life, reached: Reached) {
        let measured = match reached {
            Reached::Yes => {
                context::with_current(flight.context, || self.measure(flight)).flatten()
            }
            // The driver waits for the work in a context before it ends the context.
            _ if life == Life::Ended => {
                Some(flight.expected.max(now().saturating_sub(flight.closed_at)))
            }
            _ => None,
        };
        let time = measured.map_or(EngineTime::Unmeasured(flight.expected), EngineTime::Measured);
        flight.limiter.bill(flight.queue, flight.expected, time);
        if life == Life::Lives {
            self.release_events(flight);
        }
    }

    /// The engine time of a batch that has ended; `None` if the driver cannot tell.
    fn measure(&mut self, flight: &Flight) -> Option<u64> {
        let (from, until) = self.timelines.of(flight).span(flight)?;
        let (span, at) = (until - from, now());
        let users = flight.limiter.possible_users(at);
        let is_shared = users > 1;
        let busy = flight.busy_time(span, at);
        if flight.limiter.may_have_waited(flight.opened_at, at) {
            // Its time says nothing about its kernels.
        } else if flight.limiter.others(at) > 0 {
            flight.learn_shared(span, users);
        } else if !is_shared {
            // Beside other streams a launch cannot be measured alone.
            if !flight.learn(span) && flight.limiter.streams() <= 1 {
                thread::measure_next(flight.queue);
            }
            if flight.launches > 1 && span - busy > span / 4 {
                flight.limiter.note_idle(at);
            }
        }
        // In the time slices of other processes, all streams of this process stand still at once.
        // So no stream can have used time that another stream left idle.
        let free = if is_shared { span } else { busy };
        let oldest = self.flights.iter().map(|flight| flight.opened_at).min().unwrap_or(at);
        let oldest_ago = at.saturating_sub(oldest) + YOUNG_NS;
        let covered = self.timelines.of(flight).cover(flight, (from, until), free, oldest_ago);
        Some(busy.min(covered))
    }

    /// Keeps the events of a batch for later ones, unless others are measured from them.
    fn release_events(&self, flight: &Flight) {
        for event in flight.events() {
            if !self.timelines.has_epoch(event) {
                events::release(flight.context, event);
            }
        }
    }
}

/// Whether the card has finished a batch whose context lives.
fn reached(timelines: &mut Timelines, flight: &Flight) -> Reached {
    let reached = flight.reached();
    if reached == Reached::Yes && matches!(flight.end, End::Predicted) {
        let timeline = timelines.of(flight);
        let until = context::with_current(flight.context, || timeline.ends_at(flight));
        if until.flatten().is_some_and(|until| now() < until) {
            return Reached::NotYet;
        }
    }
    reached
}

/// Ends the open batches that are done. Returns when to look again.
fn look_at_open(at: u64, over: &[&'static CardLimiter], is_last: bool) -> u64 {
    // No context begins to end meanwhile.
    let ends = contexts::hold();
    let looks = thread::threads();
    looks.iter().map(|thread| thread.look(at, over, &ends, is_last)).min().unwrap_or(u64::MAX)
}
