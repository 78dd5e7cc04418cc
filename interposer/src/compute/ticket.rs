//! The ticket: what a thread may launch without asking.
//!
//! A limited launch must cost a few nanoseconds, so the gate ([`super::gate`]) answers for many launches
//! at once. It gives the thread a budget for one stream, in predicted engine time and in launches; and
//! the thread keeps a table of what each kind of launch is predicted to take
//! ([`super::batch`]). The wrapper in [`crate::arch`] looks the kind up, takes its price off the
//! budget and jumps. What is not in the table, is for another stream, or is more than is left, comes
//! to the gate. Whoever has a reason to look again moves the epoch on, and every ticket is void.
//!
//! The ticket is a thread-local that assembly can reach with two instructions, which Rust's own
//! cannot be; [`crate::arch`] defines it.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::batch::Line;
use super::card::CardLimiter;
use super::contexts;

/// Tickets of another epoch are void. A thread's ticket is zero at first, and no epoch is.
pub(crate) static EPOCH: AtomicU32 = AtomicU32::new(1);

/// One thread's ticket. Only its own thread writes it, and what was granted only while it holds the lock
/// of its batches. Whoever holds that lock may read how much of it was used: `granted` stands still
/// then, and `left`, one word, only becomes less by whole launches. So all is relaxed.
#[repr(C)]
pub(crate) struct Ticket {
    pub(crate) epoch: AtomicU32,
    /// As the program writes it.
    pub(crate) stream: AtomicUsize,
    /// A [`Price`]: what is left.
    pub(crate) left: AtomicU64,
    /// The table of prices, where the ticket has ever been valid.
    pub(crate) kinds: AtomicPtr<Line>,
    /// A [`Price`]: what it was made for.
    granted: AtomicU64,
    /// The thread's current context, 0 where it has to be asked for, and the limiter of its card.
    context: AtomicUsize,
    limiter: AtomicPtr<CardLimiter>,
    /// How many contexts had ended when that was found.
    age: AtomicU32,
}

/// Bytes that [`crate::arch`] reserves for it in each thread.
pub(crate) const SIZE: usize = 64;
const _: () = assert!(size_of::<Ticket>() <= SIZE);

/// What launches take off a ticket, and so also their sum and what is left: predicted nanoseconds in
/// the upper half; in the lower the launches, and below them how many of them were *others*, of
/// another kind than the one that the batch has had so far.
///
/// The highest bit of each half is 0, and becomes 1 when more is taken off it than is left: so the
/// wrapper takes all off with one subtraction, and looks at two signs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Price(u64);

const NS_SHIFT: u32 = 32;
const LAUNCHES_SHIFT: u32 = 16;
const OTHER: u64 = 1;

impl Price {
    /// More than any batch can pay: the price of what no batch may take unasked.
    pub(crate) const DEAR_NS: u32 = 1 << 22;
    const MOST_LAUNCHES: u32 = 0x7fff;
    const MOST_NS: u32 = 0x7fff_ffff;

    /// Of one launch that is predicted to take so long.
    pub(crate) const fn of_launch(ns: u32) -> Self {
        Self((ns as u64) << NS_SHIFT | 1 << LAUNCHES_SHIFT | OTHER)
    }

    /// A budget.
    fn budget(ns: u64, launches: u32) -> Self {
        let ns = ns.min(u64::from(Self::MOST_NS));
        let launches = u64::from(launches.min(Self::MOST_LAUNCHES));
        // As many others as can be counted: fewer launches than that are made on one ticket.
        Self(ns << NS_SHIFT | launches << LAUNCHES_SHIFT | u64::from(u16::MAX))
    }

    /// The same, counted as one of the batch's own kind, or as another.
    pub(crate) const fn as_other(self, is_other: bool) -> Self {
        Self(self.0 & !OTHER | is_other as u64)
    }

    #[cfg(test)]
    pub(crate) const fn plus(self, more: Self) -> Self {
        Self(self.0 + more.0)
    }

    pub(crate) const fn ns(self) -> u32 {
        (self.0 >> NS_SHIFT) as u32
    }

    pub(crate) const fn launches(self) -> u32 {
        self.0 as u32 >> LAUNCHES_SHIFT
    }

    /// Whether launches of another kind are among them.
    pub(crate) const fn has_others(self) -> bool {
        self.0 as u16 > 0
    }
}

impl Ticket {
    /// Lets launches on a stream pass: so many, that together are predicted to take so long.
    pub(super) fn issue(&self, kinds: *const Line, stream: usize, ns: u64, launches: u32) {
        let Price(budget) = Price::budget(ns, launches);
        self.stream.store(stream, Ordering::Relaxed);
        self.kinds.store(kinds.cast_mut(), Ordering::Relaxed);
        self.granted.store(budget, Ordering::Relaxed);
        self.left.store(budget, Ordering::Relaxed);
        // Last: a handler that interrupts this must not find an old budget valid.
        self.epoch.store(EPOCH.load(Ordering::Acquire), Ordering::Release);
    }

    /// The sum of the launches that were made on it.
    pub(super) fn used(&self) -> Price {
        let left = self.left.load(Ordering::Relaxed);
        Price(self.granted.load(Ordering::Relaxed).wrapping_sub(left))
    }

    /// The context that the thread has current and its card's limiter, if nothing has changed since
    /// that was noted.
    pub(super) fn place(&self) -> Option<(usize, &'static CardLimiter)> {
        let context = self.context.load(Ordering::Relaxed);
        if context == 0 || self.age.load(Ordering::Relaxed) != contexts::age() as u32 {
            return None;
        }
        // SAFETY: stored by `note_place`, and limiters live as long as the process.
        Some((context, unsafe { self.limiter.load(Ordering::Relaxed).as_ref() }?))
    }

    pub(super) fn note_place(&self, context: usize, limiter: &'static CardLimiter) {
        self.context.store(context, Ordering::Relaxed);
        self.limiter.store(std::ptr::from_ref(limiter).cast_mut(), Ordering::Relaxed);
        self.age.store(contexts::age() as u32, Ordering::Relaxed);
    }

    /// The thread has another current context, in which the same handles mean other streams.
    pub(super) fn forget_place(&self) {
        self.context.store(0, Ordering::Relaxed);
        self.void();
    }

    /// No longer valid; what was launched on it still counts.
    fn void(&self) {
        self.epoch.store(0, Ordering::Relaxed);
    }

    /// Void; the sum of the launches that were made on it.
    pub(super) fn take_back(&self) -> Price {
        let used = self.used();
        self.void();
        self.granted.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
        used
    }

    /// Void for good: the table of prices goes.
    pub(super) fn give_up(&self) {
        self.take_back();
        self.kinds.store(null_mut(), Ordering::Relaxed);
    }
}

/// The calling thread's.
pub(crate) fn mine() -> &'static Ticket {
    // SAFETY: the address of this thread's own block of `SIZE` bytes, zero at first, which is a valid
    // ticket; it lives as long as the thread, and callers do not hand it on beyond that.
    unsafe { &*crate::arch::ticket() }
}

/// Makes every thread's ticket void.
pub(crate) fn revoke_all() {
    // 0 is the epoch of no ticket.
    if EPOCH.fetch_add(1, Ordering::AcqRel) == u32::MAX {
        EPOCH.store(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
