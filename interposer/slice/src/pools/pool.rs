//! One memory pool and what is charged for it.
//!
//! The pool's state is locked while the driver allocates from the pool, for two reasons. In the
//! driver's numbers, two allocations at once cannot be separated. And a small request must not be
//! refused because of a large one that is about to be undone.
//!
//! A program may destroy a pool while memory of it is in use. The pool then lives on without its
//! handle, and the driver no longer reports what it holds. So the pool is destroyed for the driver
//! only when it is empty. Until then it keeps no unused memory, and allocations from it fail.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use driver_sys::cuda::{
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUdevice,
    CUmemoryPool, CUresult,
};
use vgpu_driver::guard::lock;
use vgpu_driver::real::{self, Outcome, check};

use super::Busy;
use super::attributes::{attribute, current_of, default_of};
use crate::allocations::{Allocation, Epoch, LINEAR, Owner};
use crate::cards;
use crate::limited::{Card, Limited};
use crate::reported::{Charge, Reported};

/// Whether any pool was ever charged.
static ANY_CHARGED: AtomicBool = AtomicBool::new(false);
/// Held while a pool enters or leaves the table, and while the driver creates or destroys one,
/// because it reuses handles.
pub(super) static ENTRIES: Mutex<()> = Mutex::new(());

/// Whether pools may hold memory. Most programs have none, and pay only for this load.
#[inline]
pub fn any_charged() -> bool {
    ANY_CHARGED.load(Ordering::Relaxed)
}

/// An entry of the table: a pool that this process allocates from, or free.
pub struct Pool {
    /// The driver's handle; 0 if the entry is free.
    handle: AtomicUsize,
    device: AtomicI32,
    index: AtomicUsize,
    /// A thread that waits for the state holds this first. Otherwise a thread that returns at once
    /// could keep all others waiting.
    turn: Mutex<()>,
    state: Mutex<State>,
}

/// The known sizes of a pool's memory, in bytes.
struct State {
    charge: Charge,
    /// The bytes that the program has requested and not freed. The driver counts this as well, but
    /// does not document whether before or after the free has run in its stream.
    live: u64,
    origin: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The driver's own pool: it cannot be destroyed.
    Default,
    /// The program has created it.
    Created,
    /// The program has destroyed it, and it is not empty yet.
    Destroyed,
}

impl State {
    const EMPTY: Self = Self { charge: Charge::NONE, live: 0, origin: Origin::Default };

    /// Whether the program has destroyed the pool and it is empty.
    fn has_ended(&self) -> bool {
        self.origin == Origin::Destroyed && self.live == 0 && self.charge.bytes == 0
    }
}

/// One request for memory of a pool: the driver's calls that it needs, with the program's
/// arguments.
pub trait Request {
    /// Calls the driver to allocate.
    fn allocate(&self, pool: CUmemoryPool) -> CUresult;
    /// The pointer that the driver has written.
    fn pointer(&self) -> u64;
    /// Frees the memory as if it had been refused. Returns whether the driver freed it.
    fn undo(&self) -> bool;
    /// Waits until the stream has done its work, or until that takes too long.
    fn wait(&self);
}

/// A pool grows by this, measured on an H200 ...
const CHUNK: u64 = 32 << 20;
/// ... and by multiples of this for larger requests.
const GRAIN: u64 = 2 << 20;
/// Allocations begin at multiples of this.
const ALIGNMENT: u64 = 512;

impl Reported for Pool {
    fn reserved(&self) -> Option<u64> {
        attribute(self.handle(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    }

    fn trim(&self) {
        // SAFETY: a handle that the driver checks.
        unsafe { real::cuMemPoolTrimTo(self.handle(), 0) };
    }
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self {
            handle: AtomicUsize::new(0),
            device: AtomicI32::new(0),
            index: AtomicUsize::new(0),
            turn: Mutex::new(()),
            state: Mutex::new(State::EMPTY),
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

    /// Fills a free entry. The caller holds [`ENTRIES`].
    pub(super) fn occupy(
        &'static self,
        index: usize,
        handle: CUmemoryPool,
        device: CUdevice,
        created: bool,
    ) {
        self.lock_state().origin = if created { Origin::Created } else { Origin::Default };
        self.device.store(device, Ordering::Relaxed);
        self.index.store(index, Ordering::Relaxed);
        self.handle.store(handle as usize, Ordering::Release);
    }

    fn handle(&self) -> CUmemoryPool {
        self.handle.load(Ordering::Acquire) as CUmemoryPool
    }

    fn lock_state(&'static self) -> MutexGuard<'static, State> {
        let _turn = lock(&self.turn);
        lock(&self.state)
    }

    fn state(&'static self, busy: Busy) -> Option<MutexGuard<'static, State>> {
        if busy == Busy::Wait {
            return Some(self.lock_state());
        }
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn owner(&self) -> Owner {
        Owner::pool(self.index.load(Ordering::Relaxed))
    }

    fn card(&self, limited: &'static Limited) -> Option<&'static Card> {
        cards::of_device(limited, self.device())
    }

    /// One allocation. `make_room` trims other pools of the card before a refusal.
    pub(super) fn allocate(
        &'static self,
        limited: &'static Limited,
        bytes: u64,
        request: &impl Request,
        make_room: impl Fn(&Card),
    ) -> Outcome<Allocation> {
        let card = self.card(limited).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut state = self.lock_state();
        if state.origin == Origin::Destroyed {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let live = state.live;
        let taken = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        // Only the driver knows which freed memory the request can have, so none of it counts.
        let growth = if taken <= state.charge.spare {
            0
        } else {
            bytes.checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX).max(CHUNK)
        };
        let make_room = |card: &Card, charged: u64| {
            make_room(card);
            self.trim();
            // What the program has freed returns to the card when the stream has done its work.
            let reserved = self.reserved().unwrap_or(charged);
            let left = limited.left(card) + charged.saturating_sub(reserved);
            if left < growth && growth <= left + reserved.saturating_sub(live) {
                request.wait();
            }
        };
        let wanted = |charged: u64| charged.saturating_add(growth);
        state.charge.raise(self, limited, card, wanted, make_room)?;
        let (before, spare) = (state.charge.bytes - growth, state.charge.spare);
        ANY_CHARGED.store(true, Ordering::Relaxed);
        if let Err(error) = check(request.allocate(self.handle())) {
            state.charge.follow(self, limited, card);
            return Err(error);
        }
        let pointer = request.pointer();
        state.live += bytes;
        if !state.charge.follow(self, limited, card) {
            // A driver with larger chunks. Not in the stream's order: while the stream is busy, one
            // chunk after another would exceed the limit.
            if request.undo() {
                state.live -= bytes;
            }
            state.charge.shrink(self, limited, card);
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        // If the pool has less than before, another thread's wait may have returned the spare
        // bytes.
        let free = match state.charge.bytes.cmp(&before) {
            Less => 0,
            Equal => spare,
            Greater => state.charge.bytes - before,
        };
        state.charge.spare = free.saturating_sub(taken);
        Ok(Allocation::new(pointer, bytes, self.owner(), self.device()))
    }

    pub(super) fn trim_unused(&'static self, limited: &'static Limited, busy: Busy) {
        if let (Some(card), Some(mut state)) = (self.card(limited), self.state(busy)) {
            state.charge.shrink(self, limited, card);
        }
    }

    /// Subtracts bytes that the program has freed.
    pub fn freed(&'static self, limited: &'static Limited, bytes: u64) {
        let mut state = self.lock_state();
        state.live = state.live.saturating_sub(bytes);
        drop(state);
        self.refresh(limited, Busy::Wait);
    }

    /// Sets the charge to what the driver reports now.
    pub fn refresh(&'static self, limited: &'static Limited, busy: Busy) {
        let (Some(card), Some(mut state)) = (self.card(limited), self.state(busy)) else { return };
        match state.origin {
            Origin::Destroyed => state.charge.shrink(self, limited, card),
            _ if state.charge.bytes == 0 => {}
            _ => {
                state.charge.follow(self, limited, card);
            }
        }
        if state.has_ended() {
            drop(state);
            self.end();
        }
    }

    /// The program destroys the pool. `call` destroys it for the driver.
    pub fn destroy(
        &'static self,
        limited: &'static Limited,
        call: impl FnOnce() -> CUresult,
    ) -> Outcome {
        let Some(card) = self.card(limited) else { return check(call()) };
        let mut state = self.lock_state();
        match state.origin {
            Origin::Default => return check(call()),
            Origin::Destroyed => return Err(CUDA_ERROR_INVALID_VALUE),
            Origin::Created => {}
        }
        state.origin = Origin::Destroyed;
        let mut nothing = 0_u64;
        // SAFETY: a handle that the driver checks, and a local variable of the attribute's width.
        unsafe {
            real::cuMemPoolSetAttribute(
                self.handle(),
                CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                (&raw mut nothing).cast(),
            );
        }
        // As in the driver, the device's default pool becomes current.
        if current_of(self.device()) == Some(self.handle())
            && let Some(default) = default_of(self.device())
        {
            // SAFETY: handles of the driver's.
            unsafe { real::cuDeviceSetMemPool(self.device(), default) };
        }
        state.charge.shrink(self, limited, card);
        drop(state);
        self.refresh(limited, Busy::Wait);
        Ok(())
    }

    /// Destroys an empty pool for the driver, and frees its entry.
    fn end(&'static self) {
        let _entries = lock(&ENTRIES);
        let mut state = self.lock_state();
        // Another thread may have been first, and another pool may have the entry.
        if !state.has_ended() {
            return;
        }
        // SAFETY: the program has destroyed it, and nothing of it is in use.
        unsafe { real::cuMemPoolDestroy(self.handle()) };
        *state = State::EMPTY;
        self.handle.store(0, Ordering::Release);
    }

    /// The primary context of the pool's device has ended.
    pub(super) fn reset(&'static self, limited: &'static Limited, before: Epoch) {
        if attribute::<u64>(self.handle(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == Some(0) {
            let ended = LINEAR.remove_owned(self.owner(), before);
            let mut state = self.lock_state();
            state.live = state.live.saturating_sub(ended.iter().map(|entry| entry.bytes).sum());
        }
        self.refresh(limited, Busy::Wait);
    }
}
