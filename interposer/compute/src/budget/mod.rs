//! The launch budget: how much a thread may launch without admission.
//!
//! A limited launch must cost a few nanoseconds, so admission decides for many launches at once. It
//! grants the thread a budget for one stream, in predicted engine time and in launches. The thread
//! also has a table with an estimate for each kind of launch ([`kinds`]). The launch wrapper looks
//! the kind up, subtracts its estimate from the budget and jumps to the driver. A launch needs
//! admission if its kind is not in the table, if it is on another stream, or if the budget has too
//! little left. To force a re-check, increment the epoch; this invalidates all budgets.

pub(crate) mod costs;
mod estimate;
pub mod kinds;
mod thread_block;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub use costs::learn;
pub use estimate::Estimate;

use self::kinds::Line;
use crate::contexts;
use crate::launch::Launch;
use crate::limiter::card::CardLimiter;

/// The epoch of valid budgets. Never 0, which is the epoch of a thread's initial budget.
pub static EPOCH: AtomicU32 = AtomicU32::new(1);

/// The budget of one thread. Only its own thread writes it, and `granted` only while it holds the
/// lock of its batches. Another thread that holds that lock may read how much was used: `granted`
/// does not change then, and `left` is one word that only decreases by whole launches. So relaxed
/// accesses suffice.
#[repr(C)]
pub struct Budget {
    /// Whether the budget is valid: [`EPOCH`] when it was granted.
    pub epoch: AtomicU32,
    /// The number of contexts that had ended when the driver was asked for the current one.
    age: AtomicU32,
    /// The stream, as [`Launch::stream`] names it and most programs write it.
    pub stream: AtomicUsize,
    /// The same for functions in which NULL means the thread's own stream.
    pub stream_ptsz: AtomicUsize,
    /// The rest of the budget, an [`Estimate`].
    pub left: AtomicU64,
    /// The table of kinds; null until a budget is granted.
    pub kinds: AtomicPtr<Line>,
    /// The whole budget, an [`Estimate`].
    granted: AtomicU64,
    /// The thread's current context and the limiter of its card. 0: the driver must be asked.
    context: AtomicUsize,
    limiter: AtomicPtr<CardLimiter>,
}

const _: () = assert!(size_of::<Budget>() <= thread_block::SIZE);

impl Budget {
    /// Grants `launches` launches on a stream that together are predicted to take `ns`.
    pub fn grant(&self, kinds: *const Line, stream: usize, ns: u64, launches: u32) {
        let Estimate(budget) = Estimate::of_budget(ns, launches);
        self.stream.store(stream, Ordering::Relaxed);
        self.stream_ptsz.store(Launch::per_thread_handle(stream), Ordering::Relaxed);
        self.kinds.store(kinds.cast_mut(), Ordering::Relaxed);
        self.granted.store(budget, Ordering::Relaxed);
        self.left.store(budget, Ordering::Relaxed);
        // Last: a signal handler that interrupts this must not find an old budget valid.
        self.epoch.store(EPOCH.load(Ordering::Acquire), Ordering::Release);
    }

    /// The sum of the launches that used the budget.
    pub fn used(&self) -> Estimate {
        let left = self.left.load(Ordering::Relaxed);
        Estimate(self.granted.load(Ordering::Relaxed).wrapping_sub(left))
    }

    /// The thread's current context and its card's limiter, if they are known and nothing has
    /// changed.
    pub(crate) fn current(&self) -> Option<(usize, &'static CardLimiter)> {
        let context = self.context.load(Ordering::Relaxed);
        if context == 0 || self.age.load(Ordering::Relaxed) != contexts::age() as u32 {
            return None;
        }
        // SAFETY: stored by `note_current`, and limiters live as long as the process.
        Some((context, unsafe { self.limiter.load(Ordering::Relaxed).as_ref() }?))
    }

    pub(crate) fn note_current(&self, context: usize, limiter: &'static CardLimiter) {
        self.context.store(context, Ordering::Relaxed);
        self.limiter.store(std::ptr::from_ref(limiter).cast_mut(), Ordering::Relaxed);
        self.age.store(contexts::age() as u32, Ordering::Relaxed);
    }

    /// The thread has another current context, in which the same handles mean other streams.
    pub fn forget_current(&self) {
        self.context.store(0, Ordering::Relaxed);
        self.invalidate();
    }

    /// Makes the budget invalid. The launches that used it still count.
    fn invalidate(&self) {
        self.epoch.store(0, Ordering::Relaxed);
    }

    /// Withdraws the budget, and returns the sum of the launches that used it.
    pub fn withdraw(&self) -> Estimate {
        let used = self.used();
        self.invalidate();
        self.granted.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
        used
    }

    /// Withdraws the budget before the table of kinds is freed.
    pub fn retire(&self) {
        self.withdraw();
        self.kinds.store(null_mut(), Ordering::Relaxed);
    }
}

/// The calling thread's budget.
pub fn of_thread() -> &'static Budget {
    // SAFETY: this thread's own block, which is large enough and initially zero, a valid budget. It
    // lives as long as the thread, and no caller keeps the reference longer.
    unsafe { &*thread_block::address().cast() }
}

/// Invalidates the budgets of all threads.
pub fn revoke_all() {
    // 0 is the epoch of no budget.
    if EPOCH.fetch_add(1, Ordering::AcqRel) == u32::MAX {
        EPOCH.store(1, Ordering::Release);
    }
}
