//! The ticket: what a thread may launch without asking.
//!
//! A limited launch must cost a few nanoseconds, so the gate ([`super::gate`]) answers for many launches
//! at once: as long as a thread launches the same kernel with the same grid on the same stream, the
//! wrapper in [`crate::arch`] takes one off the thread's ticket and jumps. Whoever has a reason to
//! look again moves the epoch on, and every ticket is void.
//!
//! The ticket is a thread-local that assembly can reach with two instructions, which Rust's own
//! cannot be; [`crate::arch`] defines it.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::card::CardLimiter;
use super::contexts;

/// Tickets of another epoch are void. A thread's ticket is zero at first, and no epoch is.
pub(crate) static EPOCH: AtomicU32 = AtomicU32::new(1);

/// One thread's ticket. Its own thread writes it; the meter only reads how much of it is left.
#[repr(C)]
pub(crate) struct Ticket {
    pub(crate) function: AtomicUsize,
    pub(crate) stream: AtomicUsize,
    pub(crate) grid: [AtomicU32; 3],
    pub(crate) epoch: AtomicU32,
    /// Launches that are left; the one that finds 0 makes it `u32::MAX`.
    pub(crate) left: AtomicU32,
    /// Launches it was made for.
    pub(crate) granted: AtomicU32,
    /// The thread's current context, 0 where it has to be asked for, and the limiter of its card.
    context: AtomicUsize,
    limiter: AtomicPtr<CardLimiter>,
    /// How many contexts had ended when that was found.
    age: AtomicU32,
}

/// Bytes that [`crate::arch`] reserves for it in each thread.
pub(crate) const SIZE: usize = 64;
const _: () = assert!(size_of::<Ticket>() <= SIZE);

impl Ticket {
    /// Lets the next `count` such launches pass.
    pub(crate) fn issue(&self, function: usize, stream: usize, grid: [u32; 3], count: u32) {
        self.function.store(function, Ordering::Relaxed);
        self.stream.store(stream, Ordering::Relaxed);
        for (place, size) in self.grid.iter().zip(grid) {
            place.store(size, Ordering::Relaxed);
        }
        self.left.store(count, Ordering::Relaxed);
        self.granted.store(count, Ordering::Relaxed);
        self.epoch.store(EPOCH.load(Ordering::Acquire), Ordering::Release);
    }

    /// How many launches were made on it.
    pub(crate) fn used(&self) -> u32 {
        let left = self.left.load(Ordering::Relaxed);
        let granted = self.granted.load(Ordering::Relaxed);
        granted.saturating_sub(if left == u32::MAX { 0 } else { left })
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

    /// Void; how many launches were made on it.
    pub(crate) fn take_back(&self) -> u32 {
        let used = self.used();
        self.void();
        self.granted.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
        used
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
