//! One memory pool, and its books.
//!
//! The books are locked while the driver allocates from the pool: two allocations at once could not
//! be told apart in its numbers, and a small request must not be refused for a large one that is
//! about to be undone.
//!
//! A pool that its program destroys while something of it is in use goes on without its handle, and
//! the driver tells nobody what it still holds. So it is destroyed for the driver only when it is
//! empty; until then it keeps nothing without use, and nothing can be had from it.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use driver_sys::cuda::{
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_SUCCESS, CUdevice, CUmemoryPool, CUresult,
};

use super::{ANY, PLACES, POOLS, attribute, current_of, default_of, lock, trim};
use crate::allocations::{self, Allocation, Epoch, Owner};
use crate::cards;
use crate::memory;
use crate::slice::{Card, Limited};
use crate::table::real;

/// A pool that this process allocates from.
pub(crate) struct Pool {
    /// The driver's handle; 0: nobody's place.
    handle: AtomicUsize,
    device: AtomicI32,
    /// Whoever waits for the books waits here first: else a thread that comes back at once could
    /// keep all others waiting.
    turn: Mutex<()>,
    books: Mutex<Books>,
}

/// What is known of a pool's memory, in bytes.
struct Books {
    /// In whole units of the account: it rounds every charge up, and they must add up.
    charged: u64,
    /// What the program asked for and has not freed. The driver counts this as well, but whether
    /// before or after a free's turn in its stream, it does not say.
    live: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The driver's own: it cannot be destroyed.
    Default,
    Created,
    /// Destroyed by the program, and not yet empty.
    Ending,
}

impl Books {
    const EMPTY: Self = Self { charged: 0, live: 0, state: State::Default };

    /// Nothing is left of a pool that the program has destroyed.
    fn are_closed(&self) -> bool {
        self.state == State::Ending && self.live == 0 && self.charged == 0
    }
}

/// What one allocation needs of the driver and of the program's memory.
pub(crate) trait Take {
    /// Asks the driver for it.
    fn take(&self, pool: CUmemoryPool) -> CUresult;
    /// The pointer that the driver has written.
    fn pointer(&self) -> u64;
    /// Frees it again, as if it had been refused; whether it could be freed.
    fn undo(&self) -> bool;
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self {
            handle: AtomicUsize::new(0),
            device: AtomicI32::new(0),
            turn: Mutex::new(()),
            books: Mutex::new(Books::EMPTY),
        }
    }

    pub(super) fn is(&self, handle: CUmemoryPool) -> bool {
        !handle.is_null() && self.handle.load(Ordering::Acquire) == handle as usize
    }

    pub(super) fn is_free(&self) -> bool {
        self.handle.load(Ordering::Acquire) == 0
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device.load(Ordering::Relaxed)
    }

    /// With the places locked, and this one free.
    pub(super) fn occupy(&'static self, handle: CUmemoryPool, device: CUdevice, created: bool) {
        self.lock_books().state = if created { State::Created } else { State::Default };
        self.device.store(device, Ordering::Relaxed);
        self.handle.store(handle as usize, Ordering::Release);
    }

    fn handle(&self) -> CUmemoryPool {
        self.handle.load(Ordering::Acquire) as CUmemoryPool
    }

    fn lock_books(&'static self) -> MutexGuard<'static, Books> {
        let _turn = lock(&self.turn);
        lock(&self.books)
    }

    fn owner(&self) -> Owner {
        // SAFETY: every pool is an element of the table.
        Owner::pool(unsafe { std::ptr::from_ref(self).offset_from_unsigned(POOLS.as_ptr()) })
    }

    fn card(&self, limited: &'static Limited) -> Option<&'static Card> {
        cards::of_device(limited, self.device())
    }

    /// Bytes that the pool has of its card, in whole units.
    fn reserved(&self) -> Option<u64> {
        attribute(self.handle(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT).map(whole)
    }

    /// One allocation.
    pub(crate) fn allocate(
        &'static self,
        limited: &'static Limited,
        bytes: u64,
        request: &impl Take,
    ) -> CUresult {
        let Some(card) = self.card(limited) else { return CUDA_ERROR_OUT_OF_MEMORY };
        let mut books = self.lock_books();
        if books.state == State::Ending {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let asked = whole(books.live.saturating_add(bytes));
        if !self.raise(limited, card, &mut books, || asked) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        ANY.store(true, Ordering::Relaxed);
        let result = request.take(self.handle());
        if result != CUDA_SUCCESS {
            self.follow(limited, card, &mut books);
            return result;
        }
        let pointer = request.pointer();
        books.live += bytes;
        if !self.follow(limited, card, &mut books)
            && !self.raise(limited, card, &mut books, || self.reserved().unwrap_or(asked))
        {
            // Not in the stream's order: as long as the stream is busy, chunk upon chunk would pass
            // the limit. Nobody has used the pointer, so there is nothing to wait for.
            if request.undo() {
                books.live -= bytes;
            }
            self.shrink(limited, card, &mut books);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        drop(books);
        let allocation = Allocation::new(pointer, bytes, self.owner(), self.device());
        if memory::remember(limited, allocation).is_ok() {
            return CUDA_SUCCESS;
        }
        // What cannot be freed stays charged.
        if request.undo() {
            self.freed(limited, bytes);
        }
        CUDA_ERROR_OUT_OF_MEMORY
    }

    /// Raises the charge to what is wanted, or refuses the program. Before that, what pools hold
    /// without use makes room; this may also lower what is wanted.
    fn raise(
        &'static self,
        limited: &'static Limited,
        card: &Card,
        books: &mut Books,
        wanted: impl Fn() -> u64,
    ) -> bool {
        let target = wanted();
        if target <= books.charged {
            return true;
        }
        if limited.try_charge(card, target - books.charged) {
            books.charged = target;
            return true;
        }
        self.shrink(limited, card, books);
        trim(limited, card, Some(self));
        let target = wanted();
        if target > books.charged {
            if !limited.charge(card, target - books.charged) {
                return false;
            }
            books.charged = target;
        }
        true
    }

    /// Lets the charge follow what the pool has reserved; false where more was taken than can be
    /// had.
    fn follow(&self, limited: &Limited, card: &Card, books: &mut Books) -> bool {
        let Some(reserved) = self.reserved() else { return true };
        if reserved < books.charged {
            limited.uncharge(card, books.charged - reserved);
        } else if reserved > books.charged && !limited.try_charge(card, reserved - books.charged) {
            return false;
        }
        books.charged = reserved;
        true
    }

    /// Gives back what is held without use.
    fn shrink(&self, limited: &Limited, card: &Card, books: &mut Books) {
        // SAFETY: a handle that the driver checks.
        unsafe { real::cuMemPoolTrimTo(self.handle(), 0) };
        self.follow(limited, card, books);
    }

    pub(super) fn trim(&'static self, limited: &'static Limited) {
        let Some(card) = self.card(limited) else { return };
        self.shrink(limited, card, &mut self.lock_books());
    }

    pub(super) fn trim_if_idle(&'static self, limited: &'static Limited) {
        if let Some(card) = self.card(limited)
            && let Some(mut books) = try_lock(&self.books)
        {
            self.shrink(limited, card, &mut books);
        }
    }

    /// The program has freed this many bytes.
    pub(super) fn freed(&'static self, limited: &'static Limited, bytes: u64) {
        let mut books = self.lock_books();
        books.live = books.live.saturating_sub(bytes);
        drop(books);
        self.refresh(limited);
    }

    /// Asks the driver again what the pool holds.
    pub(crate) fn refresh(&'static self, limited: &'static Limited) {
        self.update(limited, self.lock_books());
    }

    /// As [`Self::refresh`], unless another thread is at it: who only looks must not wait.
    pub(super) fn refresh_if_idle(&'static self, limited: &'static Limited) {
        if let Some(books) = try_lock(&self.books) {
            self.update(limited, books);
        }
    }

    fn update(&'static self, limited: &'static Limited, mut books: MutexGuard<'static, Books>) {
        let Some(card) = self.card(limited) else { return };
        match books.state {
            State::Ending => self.shrink(limited, card, &mut books),
            _ if books.charged == 0 => {}
            _ => {
                self.follow(limited, card, &mut books);
            }
        }
        if books.are_closed() {
            drop(books);
            self.end();
        }
    }

    /// The program destroys the pool.
    pub(crate) fn destroy(
        &'static self,
        limited: &'static Limited,
        driver: impl FnOnce() -> CUresult,
    ) -> CUresult {
        let Some(card) = self.card(limited) else { return driver() };
        let mut books = self.lock_books();
        match books.state {
            State::Default => return driver(),
            State::Ending => return CUDA_ERROR_INVALID_VALUE,
            State::Created => {}
        }
        books.state = State::Ending;
        let mut nothing = 0_u64;
        // SAFETY: a handle that the driver checks, and a local variable of the attribute's width.
        unsafe {
            real::cuMemPoolSetAttribute(
                self.handle(),
                CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                (&raw mut nothing).cast(),
            );
        }
        // As the driver does: a device falls back to its default pool.
        if current_of(self.device()) == Some(self.handle())
            && let Some(default) = default_of(self.device())
        {
            // SAFETY: handles of the driver's.
            unsafe { real::cuDeviceSetMemPool(self.device(), default) };
        }
        self.shrink(limited, card, &mut books);
        drop(books);
        self.refresh(limited);
        CUDA_SUCCESS
    }

    /// Destroys a pool that is empty, and leaves its place to another.
    fn end(&'static self) {
        let _places = lock(&PLACES);
        let mut books = self.lock_books();
        // Another thread may have come first, and another pool have the place.
        if !books.are_closed() {
            return;
        }
        // SAFETY: the program destroyed it, and nothing of it is in use.
        unsafe { real::cuMemPoolDestroy(self.handle()) };
        *books = Books::EMPTY;
        self.handle.store(0, Ordering::Release);
    }

    /// The primary context of the pool's device has ended.
    pub(super) fn reset(&'static self, limited: &'static Limited, before: Epoch) {
        if attribute::<u64>(self.handle(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == Some(0) {
            let gone = allocations::remove_owned(self.owner(), before);
            let mut books = self.lock_books();
            books.live = books.live.saturating_sub(gone.iter().map(|entry| entry.bytes).sum());
        }
        self.refresh(limited);
    }
}

fn try_lock(books: &'static Mutex<Books>) -> Option<MutexGuard<'static, Books>> {
    match books.try_lock() {
        Ok(books) => Some(books),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Rounded up to whole units of the account.
fn whole(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(hami_account::UNIT).unwrap_or(u64::MAX)
}
