//! The meter: a thread that measures and bills work that has ended. The first limited launch starts
//! it.
//!
//! The meter polls events instead of waiting in the driver. So it is never in the driver for long,
//! and the program may end its contexts, or exit, at any time.
//!
//! The thread cannot be created where the system refuses more threads: `RLIMIT_NPROC`, the limit of
//! a container on its processes, or a seccomp filter. Then the threads that need admission do its
//! work ([`look_here`]): whenever one of them asks for admission, and as long as it waits. So the
//! share holds. But nothing is measured between two launches: work is billed at the next launch, at
//! the end of its context or at exit, and the coordinator learns late that the process has become
//! idle.

#![allow(clippy::disallowed_methods)] // the only thread that the library starts

mod exit;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, TryLockError};

use driver_sys::cuda::{CU_STREAM_CAPTURE_MODE_RELAXED, CUstreamCaptureMode};
use hami_share::timing;
use vgpu_driver::guard::guard;
use vgpu_driver::{context, process, real};

use crate::capture;
use crate::card::{self, CardLimiter};
use crate::clock::{METER, now};
use crate::contexts::{self, Life};
use crate::events::{self, Reached};
use crate::launch::Stream;
use crate::streams::Due;
use crate::timeline::Timelines;

/// The [`process::tag`] of the process in which the meter was started; 0 before the first start.
static STARTED: AtomicU32 = AtomicU32::new(0);

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
    here(Meter::look).unwrap_or_else(|| now() + timing::SHORTEST_POLL)
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
        let again_at = again_at
            .unwrap_or_else(|| now() + timing::LONGEST_POLL)
            .min(now() + timing::METER_SLEEP);
        if is_last {
            exit::done();
        }
        METER.set(again_at);
        METER.wake.wait_until(seen, again_at);
    }
}

/// The state of the meter's thread.
#[derive(Default)]
struct Meter {
    timelines: Timelines,
}

impl Meter {
    /// Looks at everything once. Returns when to look again.
    fn look(&mut self) -> u64 {
        let polled = self.poll(false);
        let at = now();
        card::all().map(|limiter| limiter.look(at)).fold(polled, u64::min)
    }

    /// The process exits: bills the work that has ended and, so far, that which still runs.
    fn last_look(&mut self) -> u64 {
        // The card needs a moment to reach an event, even if no work is before it.
        let until = now() + timing::QUIET;
        while self.poll(true) < u64::MAX && now() < until {
            METER.wake.wait_until(METER.wake.count(), now() + timing::SHORTEST_POLL);
        }
        let at = now();
        card::all().for_each(|limiter| limiter.leave(at));
        self.look()
    }

    /// Bills the work that has ended, among that which it is time to poll, or among `all`. Returns
    /// when to poll again; `u64::MAX` if nothing is in flight.
    fn poll(&mut self, all: bool) -> u64 {
        // Held for some microseconds, so that no context begins to end meanwhile.
        let ends = contexts::hold();
        let mut again_at = u64::MAX;
        for limiter in card::all() {
            loop {
                let at = now();
                let (due, next) = limiter.due(at, all);
                again_at = again_at.min(next);
                let mut have_ended = false;
                for due in due {
                    if self.poll_one(limiter, &due, ends.life(due.stream.context, due.age)) {
                        have_ended = true;
                    } else {
                        again_at = again_at.min(limiter.not_yet(&due, now()));
                    }
                }
                // Behind what has ended there may be more that has.
                if !have_ended {
                    break;
                }
            }
        }
        self.timelines.forget_ended(&ends);
        again_at
    }

    /// Bills the oldest work of a stream if it has ended. Returns whether it has.
    fn poll_one(&mut self, limiter: &'static CardLimiter, due: &Due, life: Life) -> bool {
        let reached = match (life, due.end) {
            (Life::Lives, Some(end)) => end.reached(),
            (Life::Lives, None) => is_done(due.stream),
            (Life::Ending, _) => Reached::NotYet,
            (Life::Ended, _) => Reached::Lost,
        };
        if reached == Reached::NotYet {
            return false;
        }
        let elapsed = now().saturating_sub(due.runs_since);
        // Without an event, the end is not known, but how long such work takes.
        let longest = match due.end {
            None if due.expected > 0 => elapsed.min(due.expected),
            _ => elapsed,
        };
        let measure =
            || self.timelines.span(due, longest, || limiter.others(due.queue, due.stream.context));
        let span = match reached {
            Reached::Yes => context::with_current(due.stream.context, measure).flatten(),
            _ => None,
        };
        match span {
            Some(span) => {
                let took = due.end.map(|_| span.took);
                limiter.ended(due, took, span.new, Some(span.end));
            }
            None => limiter.ended(due, None, longest, None),
        }
        if life == Life::Lives {
            self.timelines.release(due);
        }
        true
    }
}

/// Whether the card has finished all work in a stream.
fn is_done(stream: Stream) -> Reached {
    if stream.is_threads_own() || capture::any() {
        return Reached::Lost;
    }
    let done = context::with_current(stream.context, || events::is_done(stream.handle));
    done.unwrap_or(Reached::Lost)
}
