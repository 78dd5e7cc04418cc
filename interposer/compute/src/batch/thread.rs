//! The open batches of a thread, and the launch budget, which is for one of them.
//!
//! A thread mostly works on its own batches. The meter and threads that end a stream or a context
//! also reach them, so each thread's batches have a lock, with almost no contention.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex};

use hami_share::limiter::BATCH_NS;
use vgpu_driver::guard::lock;
use vgpu_driver::{context, process};

use super::contents::Contents;
use super::open_batch::Batch;
use crate::budget::kinds::Kinds;
use crate::budget::{self, Budget, Estimate};
use crate::clock::{METER, QUIET_NS, now};
use crate::launch::{Launch, Stream};
use crate::limiter::card::CardLimiter;
use crate::{capture, events};

const _: () = assert!(BATCH_NS < Estimate::UNPAYABLE_NS as u64);

/// About one batch in this many has a single launch, so that each kernel is measured alone now and
/// then, whatever the order of launches is. The first batches, as many, have a single launch too,
/// because nothing is known yet.
const SAMPLED: u32 = 16;
/// The most open batches of a thread: as many streams as programs have. Beyond that the oldest is
/// closed, and idle time after its last launch is billed.
const MAX_OPEN: usize = 64;

/// The next step of a launch after its admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It goes to the driver.
    Launch,
    /// It goes to the driver, and the batch is closed when the driver has taken it.
    LaunchAndClose,
}

/// One thread that launches.
pub(crate) struct Thread {
    budget: *const Budget,
    open: Mutex<Open>,
}

/// The state of a thread between its launches.
#[derive(Default)]
struct Open {
    batches: Vec<Batch>,
    /// How many batches there have been.
    opened: u32,
    kinds: Kinds,
}

// SAFETY: the budget is read through atomics, and only while the thread is in `THREADS`.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

/// The threads that have launched something.
static THREADS: Mutex<Vec<Arc<Thread>>> = Mutex::new(Vec::new());

/// Closes a thread's batches when the thread ends.
struct Registered(Arc<Thread>);

impl Drop for Registered {
    fn drop(&mut self) {
        // In a child of fork these are copies, and a lock may be held forever.
        if process::is_forked_copy() {
            return;
        }
        // The streams live on, but the thread's budget does not.
        self.0.close_all(|_| true);
        self.0.budget().retire();
        lock(&THREADS).retain(|thread| !Arc::ptr_eq(thread, &self.0));
    }
}

thread_local! {
    static OWN: OnceCell<Registered> = const { OnceCell::new() };
}

/// Runs `body` with the calling thread's batches; `None` in a thread that is ending.
pub(crate) fn with_own<T>(body: impl FnOnce(&Thread) -> T) -> Option<T> {
    OWN.try_with(|own| {
        let registered = own.get_or_init(|| {
            let thread = Thread { budget: budget::of_thread(), open: Mutex::default() };
            let thread = Arc::new(thread);
            lock(&THREADS).push(Arc::clone(&thread));
            Registered(thread)
        });
        body(&registered.0)
    })
    .ok()
}

/// All threads that have launched something.
pub(crate) fn threads() -> Vec<Arc<Thread>> {
    lock(&THREADS).clone()
}

impl Thread {
    fn budget(&self) -> &Budget {
        // SAFETY: the thread is in `THREADS` and so it lives, or it is the caller.
        unsafe { &*self.budget }
    }

    /// Adds a launch to the open batch of its stream. `None` if there is no such batch, or it has
    /// no room.
    pub(crate) fn join(&self, launch: &Launch, stream: Stream) -> Option<Next> {
        let open = &mut *lock(&self.open);
        open.count_used(self.budget().withdraw());
        let cost = open.kinds.cost(launch);
        let batches = &mut open.batches;
        let batch = batches.iter_mut().find(|batch| batch.stream == stream)?;
        let Some(cost) = cost.filter(|cost| batch.contents.has_room(*cost)) else {
            close(batches, |batch| batch.stream == stream);
            return None;
        };
        batch.contents.add(launch.key(), cost);
        Some(grant(self.budget(), batch, &mut open.kinds, cost))
    }

    /// Opens a batch with a launch that the limiter has admitted.
    pub(crate) fn open(
        &self,
        limiter: &'static CardLimiter,
        launch: &Launch,
        stream: Stream,
        expected: u64,
    ) -> Next {
        let start = events::take(stream.context);
        let Some(start) = start.filter(|start| start.record(stream.handle, stream.is_threads_own))
        else {
            // It cannot be measured, so it is billed as predicted.
            limiter.bill_unmeasured(stream.queue(), expected, expected);
            return Next::Launch;
        };
        let mut all = lock(&self.open);
        let open = &mut *all;
        open.count_used(self.budget().withdraw());
        let batches = &mut open.batches;
        // A signal handler of this thread may have opened one since.
        close(batches, |batch| batch.stream == stream);
        if batches.len() >= MAX_OPEN {
            let oldest = batches.first().map(|batch| batch.stream);
            close(batches, |batch| Some(batch.stream) == oldest);
        }
        open.opened = open.opened.wrapping_add(1);
        // Other threads cannot record an event in a thread's own stream, nor in one that may be
        // captured. Without the meter's thread none closes a batch when its launches stop.
        let is_single = limiter.is_one_by_one(now())
            || METER.has_no_thread()
            || stream.is_threads_own
            || capture::any()
            || open.opened <= SAMPLED
            || is_sampled(open.opened);
        let cost = open.kinds.cost(launch);
        let contents = Contents::begin(launch.key(), cost, is_single);
        let mut batch = Batch::open(limiter, stream, start, contents, expected);
        let next = grant(self.budget(), &mut batch, &mut open.kinds, cost.unwrap_or(1));
        let opened_at = batch.opened_at;
        open.batches.push(batch);
        drop(all);
        METER.wake_by(opened_at + QUIET_NS);
        next
    }

    /// The driver has taken the last launch of a batch.
    pub(crate) fn launched(&self) {
        let at = now();
        let batches = &mut lock(&self.open).batches;
        for batch in
            batches.iter_mut().filter(|batch| batch.is_closing && batch.contents.launches == 1)
        {
            batch.launched_at = Some(at);
        }
        close(batches, |batch| batch.is_closing);
    }

    /// Closes the open batches on some streams. Called by the thread itself.
    pub(crate) fn close_all(&self, which: impl Fn(Stream) -> bool) {
        let open = &mut *lock(&self.open);
        if open.has(&which) {
            open.count_used(self.budget().withdraw());
            close(&mut open.batches, |batch| which(batch.stream));
        }
    }

    /// Closes the open batches on some streams. Called by another thread. If this thread launches
    /// at the very same moment, that launch is not billed.
    pub(crate) fn close_from_outside(&self, which: impl Fn(Stream) -> bool) {
        let open = &mut *lock(&self.open);
        if open.has(&which) {
            self.count_from_outside(open);
            close(&mut open.batches, |batch| which(batch.stream));
        }
    }

    fn count_from_outside(&self, open: &mut Open) {
        budget::revoke_all();
        if open.batches.iter().any(|batch| batch.has_budget) {
            open.count_used(self.budget().used());
        }
    }

    /// The streams of the open batches that got no launch for `quiet`, or are `age` old, or are on
    /// a card in `due`, whose batches must all be closed.
    pub(crate) fn stale(
        &self,
        at: u64,
        quiet: u64,
        age: u64,
        due: &[&'static CardLimiter],
    ) -> Vec<Stream> {
        let batches = &mut lock(&self.open).batches;
        let mut stale = Vec::new();
        for batch in batches.iter_mut().filter(|batch| !batch.is_closing) {
            let used = if batch.has_budget { self.budget().used().launches() } else { 0 };
            let launches = batch.contents.launches + used;
            if batch.seen.0 != launches {
                batch.seen = (launches, at);
            }
            let is_old = at >= batch.seen.1 + quiet || at >= batch.opened_at + age;
            if is_old || due.iter().any(|limiter| std::ptr::eq(*limiter, batch.limiter)) {
                stale.push(batch.stream);
            }
        }
        stale
    }

    /// Whether there are open batches.
    pub(crate) fn has_open(&self) -> bool {
        !lock(&self.open).batches.is_empty()
    }

    /// The context has ended: its batches will never be measured.
    pub(crate) fn forget(&self, context: usize) {
        let open = &mut *lock(&self.open);
        self.count_from_outside(open);
        open.batches.retain(|batch| {
            let has_ended = batch.stream.context == context;
            if has_ended {
                batch.forget();
            }
            !has_ended
        });
    }
}

impl Open {
    /// Adds the launches that used the budget to its batch.
    fn count_used(&mut self, used: Estimate) {
        for batch in self.batches.iter_mut().filter(|batch| batch.has_budget) {
            batch.add_used(used);
        }
    }

    fn has(&self, which: impl Fn(Stream) -> bool) -> bool {
        self.batches.iter().any(|batch| which(batch.stream))
    }
}

/// Grants a budget for the room that the batch has left. It leaves out the last launch, so that the
/// batch is closed right behind it; which one that is, is known if all cost the same as this one
/// (`cost`).
fn grant(budget: &Budget, batch: &mut Batch, kinds: &mut Kinds, cost: u64) -> Next {
    if !batch.contents.has_room(cost) {
        batch.is_closing = true;
        return Next::LaunchAndClose;
    }
    let (ns, launches) = batch.contents.largest_budget(cost);
    // The wrappers that read the budget compare handles, which do not tell threads' own streams
    // apart.
    if launches > 0 && !batch.stream.is_threads_own {
        if batch.contents.key.is_some() {
            kinds.set_own();
        }
        budget.grant(kinds.table(), batch.stream.handle, ns, launches);
        batch.has_budget = true;
    }
    Next::Launch
}

/// Whether the batch with this number gets a single launch. The distance between such batches
/// varies: with a fixed one, a program that repeats the same kernels could keep in step with it,
/// and only the same few kernels would be measured.
fn is_sampled(number: u32) -> bool {
    // The multipliers of MurmurHash3's finalizer, in which every bit reaches every other.
    let mixed = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    let mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    (mixed ^ mixed >> 16).is_multiple_of(SAMPLED)
}

/// Closes some batches.
fn close(batches: &mut Vec<Batch>, which: impl Fn(&Batch) -> bool) {
    let mut index = 0;
    while let Some(batch) = batches.get(index) {
        if which(batch) {
            let batch = batches.remove(index);
            context::with_current(batch.stream.context, || batch.close());
        } else {
            index += 1;
        }
    }
}
