//! The open batches of a thread, and the launch budget, which is for one of them.
//!
//! A thread mostly works on its own batches. The meter and threads that end a stream or a context
//! also reach them, so each thread's batches have a lock, with almost no contention.
//!
//! Only the thread itself records events, beside its own launches and its own other work. If its
//! launches stop, the meter ends the batch ([`Thread::look`]), and so it does for a thread that has
//! ended.

use std::cell::OnceCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hami_share::limiter::BATCH_NS;
use vgpu_driver::guard::lock;
use vgpu_driver::{context, process};

use super::contents::Contents;
use super::flight::Flight;
use super::open_batch::{Batch, Ended};
use crate::budget::kinds::Kinds;
use crate::budget::{self, Budget, Estimate};
use crate::clock::{METER, QUIET_NS, now};
use crate::contexts::{self, Ends, Life};
use crate::launch::{Launch, Queue, Stream};
use crate::limiter::card::CardLimiter;
use crate::limiter::verdict::New;
use crate::{capture, events};

const _: () = assert!(BATCH_NS < Estimate::UNPAYABLE_NS as u64);

/// No launch joins a batch this long after its first one, so that a program that launches now and
/// then is billed soon.
const OLD_NS: u64 = 4_000_000;

/// The streams, by [`bit_of`], whose next batch has a single launch, which is measured alone. A
/// batch there has just been billed as predicted, and the prediction may be wrong.
static MEASURE_NEXT: AtomicU64 = AtomicU64::new(0);

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
    /// Null when the thread has ended. It changes only under the lock of `open`.
    budget: AtomicPtr<Budget>,
    open: Mutex<Open>,
}

/// The state of a thread between its launches.
#[derive(Default)]
struct Open {
    batches: Vec<Batch>,
    kinds: Kinds,
}

/// The threads that have launched something, also those that have ended and still have batches.
static THREADS: Mutex<Vec<Arc<Thread>>> = Mutex::new(Vec::new());

/// Leaves a thread's batches to the meter when the thread ends.
struct Registered(Arc<Thread>);

impl Drop for Registered {
    fn drop(&mut self) {
        // In a child of fork these are copies, and a lock may be held forever.
        if process::is_forked_copy() {
            return;
        }
        // The streams live on, but the thread's budget does not.
        let open = &mut *lock(&self.0.open);
        let budget = budget::of_thread();
        open.count_used(budget.withdraw());
        budget.retire();
        open.seal();
        self.0.budget.store(null_mut(), Ordering::Release);
    }
}

thread_local! {
    static OWN: OnceCell<Registered> = const { OnceCell::new() };
}

/// Runs `body` with the calling thread's batches; `None` in a thread that is ending.
pub(crate) fn with_own<T>(body: impl FnOnce(&Thread) -> T) -> Option<T> {
    OWN.try_with(|own| {
        let registered = own.get_or_init(|| {
            let budget = std::ptr::from_ref(budget::of_thread()).cast_mut();
            let thread = Arc::new(Thread { budget: budget.into(), open: Mutex::default() });
            lock(&THREADS).push(Arc::clone(&thread));
            Registered(thread)
        });
        body(&registered.0)
    })
    .ok()
}

/// The calling thread has waited for some streams: its launches there have ended.
pub(crate) fn note_end(ended: Ended, which: impl Fn(Stream) -> bool) {
    let _ = OWN.try_with(|own| {
        let Some(Registered(thread)) = own.get() else { return };
        let open = &mut *lock(&thread.open);
        let used = thread.used();
        for batch in open.batches.iter_mut().filter(|batch| which(batch.stream)) {
            batch.note_end(ended, if batch.has_budget { used } else { Estimate::default() });
        }
    });
}

/// All threads that have launched something and may have batches.
pub(crate) fn threads() -> Vec<Arc<Thread>> {
    let mut threads = lock(&THREADS);
    threads.retain(|thread| thread.lives() || !lock(&thread.open).batches.is_empty());
    threads.clone()
}

/// The measured time of a batch did not show whether the predictions of its kernels were right.
pub(crate) fn measure_next(queue: Queue) {
    MEASURE_NEXT.fetch_or(bit_of(queue), Ordering::Relaxed);
}

/// A bit for a stream. Several streams may have the same bit.
fn bit_of(queue: Queue) -> u64 {
    1 << (queue >> 58)
}

fn must_measure(queue: Queue) -> bool {
    let bit = bit_of(queue);
    MEASURE_NEXT.fetch_and(!bit, Ordering::Relaxed) & bit != 0
}

impl Thread {
    fn lives(&self) -> bool {
        !self.budget.load(Ordering::Acquire).is_null()
    }

    /// The launches that used the budget. The caller holds the lock of `open`, so the thread does
    /// not end.
    fn used(&self) -> Estimate {
        // SAFETY: null, or the budget of a thread that lives.
        let budget = unsafe { self.budget.load(Ordering::Acquire).as_ref() };
        budget.map(Budget::used).unwrap_or_default()
    }

    /// Adds a launch to the open batch of its stream. `None` if there is no such batch, or it has
    /// no room.
    pub(crate) fn join(&self, launch: &Launch, stream: Stream) -> Option<Next> {
        let open = &mut *lock(&self.open);
        open.count_used(budget::of_thread().withdraw());
        let cost = open.kinds.cost(launch);
        let batches = &mut open.batches;
        let batch = batches.iter_mut().find(|batch| batch.stream == stream)?;
        let cost = cost.filter(|cost| !batch.is_sealed && batch.contents.has_room(*cost));
        let Some(cost) = cost else {
            close(batches, |batch| batch.stream == stream && !batch.is_stalled);
            return None;
        };
        batch.contents.add(launch.key(), cost);
        Some(grant(batch, &mut open.kinds, cost))
    }

    /// Adds a launch to the open batch of its stream, if that batch began in a stall with a launch
    /// of unknown cost. So a stall of any length needs few of our events, and does not fill the
    /// driver's queue.
    fn join_stalled(&self, stream: Stream, new: &New) -> bool {
        let open = &mut *lock(&self.open);
        let open = open.batches.iter_mut().find(|batch| batch.stream == stream);
        let Some(batch) = open.filter(|batch| batch.is_stalled) else { return false };
        batch.add_stalled(new);
        batch.limiter.join_batches(new);
        true
    }

    /// Opens a batch with a launch that the limiter has admitted.
    pub(crate) fn open(
        &self,
        limiter: &'static CardLimiter,
        launch: &Launch,
        stream: Stream,
        new: &New,
        is_stalled: bool,
    ) -> Next {
        if is_stalled && self.join_stalled(stream, new) {
            return Next::Launch;
        }
        let expected = new.predicted;
        let mut opened_at = 0;
        let start = context::with_current(stream.context, || {
            let start = events::take(stream.context)?;
            opened_at = now();
            start.record(stream.handle).then_some(start)
        });
        let Some(start) = start.flatten() else {
            // It cannot be measured, so it is billed as predicted.
            limiter.bill_unmeasured(stream.queue(), expected, expected);
            return Next::Launch;
        };
        let mut all = lock(&self.open);
        let open = &mut *all;
        open.count_used(budget::of_thread().withdraw());
        // A signal handler of this thread may have opened one since.
        close(&mut open.batches, |batch| batch.stream == stream);
        // The meter does not look at a stream that may be captured. Without its thread, no batch
        // ends when its launches stop.
        let is_single = limiter.is_one_by_one(opened_at)
            || METER.has_no_thread()
            || capture::any()
            || must_measure(stream.queue());
        let cost = open.kinds.cost(launch);
        let contents = Contents::begin(launch.key(), cost, limiter.batch_ns(), is_single);
        let mut batch = Batch::open(limiter, stream, start, opened_at, contents, expected);
        batch.is_stalled = is_stalled && cost.is_none();
        let next = if batch.is_stalled {
            Next::Launch
        } else {
            grant(&mut batch, &mut open.kinds, cost.unwrap_or(1))
        };
        open.batches.push(batch);
        drop(all);
        METER.wake_by(opened_at + QUIET_NS);
        next
    }

    /// The driver has taken the last launch of a batch, in a call that took `in_call`.
    pub(crate) fn launched(&self, in_call: u64) {
        let batches = &mut lock(&self.open).batches;
        for batch in batches.iter_mut().filter(|batch| batch.is_closing) {
            batch.in_call = in_call;
        }
        close(batches, |batch| batch.is_closing);
    }

    /// Closes the open batches on some streams. Called by the thread itself.
    pub(crate) fn close_all(&self, which: impl Fn(Stream) -> bool) {
        let open = &mut *lock(&self.open);
        if open.has(&which) {
            open.count_used(budget::of_thread().withdraw());
            close(&mut open.batches, |batch| which(batch.stream));
        }
    }

    /// Closes the open batches on some streams. Called by a thread that ends them. If this thread
    /// makes a launch at the same time, that launch is not billed.
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
            open.count_used(self.used());
        }
    }

    /// Closes the open batches for further launches.
    pub(crate) fn seal(&self) {
        let open = &mut *lock(&self.open);
        self.count_from_outside(open);
        open.seal();
    }

    /// Called by the meter. Ends the batches whose launches have stopped and are done, in contexts
    /// that live. Launches no longer join batches on the cards in `over`. Returns when to look
    /// again. At the process's exit (`is_last`), all launches have stopped.
    pub(crate) fn look(
        &self,
        at: u64,
        over: &[&'static CardLimiter],
        ends: &Ends,
        is_last: bool,
    ) -> u64 {
        let open = &mut *lock(&self.open);
        let used = self.used();
        let mut must_seal = false;
        for batch in open.batches.iter_mut().filter(|batch| !batch.is_closing) {
            let used = if batch.has_budget { used } else { Estimate::default() };
            let has_stopped = batch.has_stopped(at, used);
            let is_old = at >= batch.opened_at + OLD_NS;
            let is_over = over.iter().any(|one| std::ptr::eq(*one, batch.limiter));
            if !batch.is_sealed && (has_stopped || is_old || is_over || is_last) {
                batch.is_sealed = true;
                must_seal = true;
            }
        }
        if must_seal {
            self.count_from_outside(open);
        }
        let mut again_at = u64::MAX;
        let mut index = 0;
        while let Some(batch) = open.batches.get_mut(index) {
            let lives = ends.life(batch.stream.context, contexts::age()) == Life::Lives;
            if !lives || batch.is_closing {
                index += 1;
                continue;
            }
            match batch.look(at, is_last) {
                Ok((end, window)) => open.batches.remove(index).end(end, window),
                Err(at) => {
                    again_at = again_at.min(at);
                    index += 1;
                }
            }
        }
        again_at
    }

    /// The open batches, as if they ended now.
    pub(crate) fn so_far(&self) -> Vec<Flight> {
        lock(&self.open).batches.iter().map(Batch::so_far).collect()
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

    fn seal(&mut self) {
        self.batches.iter_mut().for_each(|batch| batch.is_sealed = true);
    }

    fn has(&self, which: impl Fn(Stream) -> bool) -> bool {
        self.batches.iter().any(|batch| which(batch.stream))
    }
}

/// Grants a budget for the room that the batch has left. It leaves out the last launch, so that the
/// batch is closed right behind it; which one that is, is known if all cost the same as this one
/// (`cost`).
fn grant(batch: &mut Batch, kinds: &mut Kinds, cost: u64) -> Next {
    if !batch.contents.has_room(cost) {
        batch.is_closing = true;
        return Next::LaunchAndClose;
    }
    let (ns, launches) = batch.contents.largest_budget(cost);
    if launches > 0 {
        if batch.contents.key.is_some() {
            kinds.set_own();
        }
        budget::of_thread().grant(kinds.table(), batch.stream.handle, ns, launches);
        batch.has_budget = true;
    }
    Next::Launch
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
