//! The memory pools of this process: what each of them holds of a card is charged.
//!
//! A pool takes memory from the card in chunks, of a size that only the driver knows, and keeps what
//! was freed until a synchronisation or a trim: that is what others in the slice cannot have. So a
//! pool's charge follows what the driver says it has reserved. Before an allocation it is raised to
//! what the program will then have asked for; afterwards, when the driver has decided, to what was
//! taken; if that is over the limit, the allocation is undone. After everything that can give memory
//! back the driver is asked again.
//!
//! One lock per pool, held while the driver allocates from it: two allocations at once could not be
//! told apart in its numbers.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use driver_sys::cuda::{
    CU_MEM_LOCATION_TYPE_DEVICE, CU_MEMPOOL_ATTR_LOCATION_ID, CU_MEMPOOL_ATTR_LOCATION_TYPE,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice, CUmemPool_attribute, CUmemoryPool, CUresult,
};

use crate::allocations::{self, Allocation, Epoch, Full, Owner};
use crate::cards;
use crate::memory;
use crate::slice::{Card, Limited};
use crate::table::real;

/// More pools than any program was seen to make; further ones are refused.
const MAX_POOLS: usize = 4096;
static POOLS: [Pool; MAX_POOLS] = [const { Pool::new() }; MAX_POOLS];

/// How many places were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Held while a pool enters or leaves a place.
static ENTER: Mutex<()> = Mutex::new(());
/// Whether anything was ever charged for a pool.
static ANY: AtomicBool = AtomicBool::new(false);

/// A pool that this process allocates from.
pub(crate) struct Pool {
    /// The driver's handle; 0: destroyed, or nobody's place.
    handle: AtomicUsize,
    device: AtomicI32,
    books: Mutex<Books>,
}

/// What is known of a pool's memory, in bytes.
#[derive(Default)]
struct Books {
    charged: u64,
    /// What the program asked for and has not freed. The driver counts this as well, but whether
    /// before or after a free's turn in its stream, it does not say.
    live: u64,
}

/// Whether pools may hold something: most programs have none, and ask only this.
#[inline]
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// The pool with this handle, if this process has allocated from it or made it.
pub(crate) fn known_as(handle: CUmemoryPool) -> Option<&'static Pool> {
    known().find(|pool| pool.is(handle))
}

/// The pool with this handle; `None` where it keeps no memory of a card's.
pub(crate) fn find(handle: CUmemoryPool) -> Result<Option<&'static Pool>, Full> {
    if let Some(pool) = known_as(handle) {
        return Ok(Some(pool));
    }
    let Some(device) = device_of(handle) else { return Ok(None) };
    let _entering = lock(&ENTER);
    place_for(handle, device).map(Some)
}

/// Takes a pool into the table that `make` makes: under the lock under which pools are destroyed,
/// because the driver gives their handles out again.
pub(crate) fn enter<E>(
    make: impl FnOnce() -> Result<(CUmemoryPool, CUdevice), E>,
) -> Result<Result<&'static Pool, Full>, E> {
    let _entering = lock(&ENTER);
    let (handle, device) = make()?;
    Ok(place_for(handle, device))
}

fn place_for(handle: CUmemoryPool, device: CUdevice) -> Result<&'static Pool, Full> {
    if let Some(pool) = known_as(handle) {
        return Ok(pool);
    }
    let place = POOLS.iter().position(Pool::is_free).ok_or(Full)?;
    let pool = POOLS.get(place).ok_or(Full)?;
    pool.device.store(device, Ordering::Relaxed);
    pool.handle.store(handle as usize, Ordering::Release);
    USED.fetch_max(place + 1, Ordering::Release);
    Ok(pool)
}

fn known() -> impl Iterator<Item = &'static Pool> {
    POOLS.iter().take(USED.load(Ordering::Acquire))
}

/// The device of a pool that somebody else made: a device's default one, or what newer drivers tell.
fn device_of(handle: CUmemoryPool) -> Option<CUdevice> {
    let mut count = 0;
    // SAFETY: a local variable.
    if unsafe { real::cuDeviceGetCount(&raw mut count) } != CUDA_SUCCESS {
        return None;
    }
    let is_default = |device: &CUdevice| {
        let mut default: CUmemoryPool = std::ptr::null_mut();
        // SAFETY: a local variable.
        let result = unsafe { real::cuDeviceGetDefaultMemPool(&raw mut default, *device) };
        result == CUDA_SUCCESS && default == handle
    };
    (0..count).find(is_default).or_else(|| {
        let kind = attribute::<u32>(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE)?;
        let on_device = kind == CU_MEM_LOCATION_TYPE_DEVICE;
        on_device.then(|| attribute::<CUdevice>(handle, CU_MEMPOOL_ATTR_LOCATION_ID))?
    })
}

/// One number of a pool's, of the width that its attribute has.
fn attribute<T: Default>(handle: CUmemoryPool, which: CUmemPool_attribute) -> Option<T> {
    // Room for the widest, whatever a driver writes.
    let mut value = [T::default(), T::default()];
    // SAFETY: a handle that the driver checks, and a local variable.
    let result = unsafe { real::cuMemPoolGetAttribute(handle, which, value.as_mut_ptr().cast()) };
    let [value, _] = value;
    (result == CUDA_SUCCESS).then_some(value)
}

impl Pool {
    const fn new() -> Self {
        Self {
            handle: AtomicUsize::new(0),
            device: AtomicI32::new(0),
            books: Mutex::new(Books { charged: 0, live: 0 }),
        }
    }

    fn is(&'static self, handle: CUmemoryPool) -> bool {
        !handle.is_null() && self.handle.load(Ordering::Acquire) == handle as usize
    }

    /// Whether another pool may have this place: this one is destroyed and holds nothing.
    fn is_free(&'static self) -> bool {
        let books = lock(&self.books);
        self.handle.load(Ordering::Relaxed) == 0 && books.charged == 0 && books.live == 0
    }

    fn handle(&'static self) -> CUmemoryPool {
        self.handle.load(Ordering::Acquire) as CUmemoryPool
    }

    fn device(&'static self) -> CUdevice {
        self.device.load(Ordering::Relaxed)
    }

    fn place(&'static self) -> usize {
        // SAFETY: every pool is an element of the table.
        unsafe { std::ptr::from_ref(self).offset_from_unsigned(POOLS.as_ptr()) }
    }

    fn card(&'static self, limited: &'static Limited) -> Option<&'static Card> {
        cards::of_device(limited, self.device())
    }

    /// Whether nothing of the pool is in use, by the driver's count.
    fn is_unused(&'static self) -> bool {
        attribute::<u64>(self.handle(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == Some(0)
    }

    /// Bytes that the pool has of its card; `None` where it is gone and nobody can be asked.
    fn reserved(&'static self) -> Option<u64> {
        attribute(self.handle(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    }

    /// One allocation: `got` reads the pointer that the driver wrote, `undo` takes it back from the
    /// program.
    pub(crate) fn allocate(
        &'static self,
        limited: &'static Limited,
        bytes: u64,
        driver: impl FnOnce() -> CUresult,
        got: impl FnOnce() -> u64,
        undo: impl FnOnce(),
    ) -> CUresult {
        let Some(card) = self.card(limited) else { return CUDA_ERROR_OUT_OF_MEMORY };
        let mut books = lock(&self.books);
        if limited.left(card) < books.missing(bytes) {
            // The other pools' locks are not taken while this one is held.
            drop(books);
            trim(limited, card);
            books = lock(&self.books);
        }
        let missing = books.missing(bytes);
        if missing != 0 && !limited.charge(card, missing) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        ANY.store(true, Ordering::Relaxed);
        books.charged += missing;
        let result = driver();
        if result != CUDA_SUCCESS {
            books.charged -= missing;
            limited.uncharge(card, missing);
            return result;
        }
        let pointer = got();
        books.live += bytes;
        let is_covered = self.follow(limited, card, &mut books);
        drop(books);
        let owner = Owner::pool(self.place());
        let allocation = Allocation::new(pointer, bytes, owner, self.device());
        let is_remembered = memory::remember(limited, allocation).is_ok();
        if is_remembered && (is_covered || self.cover(limited, card)) {
            return CUDA_SUCCESS;
        }
        allocations::remove(pointer);
        undo();
        // Not in the stream's order: as long as the stream is busy, chunk upon chunk would pass the
        // limit. Nobody has used the pointer, so there is nothing to wait for.
        // SAFETY: what the driver has just handed out, and the program does not know.
        unsafe { real::cuMemFree_v2(pointer) };
        self.freed(limited, bytes);
        trim(limited, card);
        CUDA_ERROR_OUT_OF_MEMORY
    }

    /// Lets the charge follow what the pool has reserved, as far as that can be had; whether it
    /// could be.
    fn follow(&'static self, limited: &Limited, card: &Card, books: &mut Books) -> bool {
        let Some(reserved) = self.reserved() else { return true };
        if reserved < books.charged {
            limited.uncharge(card, books.charged - reserved);
            books.charged = reserved;
        }
        let more = reserved - books.charged;
        // Asked before, so that what is not the program's request counts as no refusal.
        if more == 0 || (limited.left(card) >= more && limited.charge(card, more)) {
            books.charged = reserved;
            return true;
        }
        false
    }

    /// The pool took more than is left of the limit: whether room can be made for that.
    #[cold]
    fn cover(&'static self, limited: &'static Limited, card: &Card) -> bool {
        trim(limited, card);
        let mut books = lock(&self.books);
        let Some(reserved) = self.reserved() else { return true };
        let more = reserved.saturating_sub(books.charged);
        // This is the refusal that the program sees.
        if more == 0 || limited.charge(card, more) {
            books.charged += more;
            return true;
        }
        false
    }

    /// The program has freed this many bytes.
    fn freed(&'static self, limited: &'static Limited, bytes: u64) {
        let Some(card) = self.card(limited) else { return };
        let mut books = lock(&self.books);
        books.live = books.live.saturating_sub(bytes);
        self.follow(limited, card, &mut books);
    }

    /// Asks the driver again what the pool holds.
    pub(crate) fn refresh(&'static self, limited: &'static Limited) {
        let Some(card) = self.card(limited) else { return };
        let mut books = lock(&self.books);
        if self.handle().is_null() && books.live == 0 && books.charged != 0 {
            // A pool that was destroyed goes with its last allocation.
            limited.uncharge(card, books.charged);
            *books = Books::default();
        } else {
            self.follow(limited, card, &mut books);
        }
    }

    /// Destroys the pool by `driver`: what is live lives on without it, and its memory goes with
    /// the last of that.
    pub(crate) fn destroy(
        &'static self,
        limited: &'static Limited,
        driver: impl FnOnce() -> CUresult,
    ) -> CUresult {
        let _entering = lock(&ENTER);
        // Afterwards it can be asked no more. What it keeps without use goes with it in any case.
        // SAFETY: a handle that the driver checks.
        unsafe { real::cuMemPoolTrimTo(self.handle(), 0) };
        self.refresh(limited);
        let is_unused = self.is_unused();
        let result = driver();
        if result == CUDA_SUCCESS {
            self.handle.store(0, Ordering::Release);
            if is_unused {
                self.refresh(limited);
            }
        }
        result
    }
}

impl Books {
    /// What is to be charged before `bytes` more can be in use.
    fn missing(&self, bytes: u64) -> u64 {
        self.live.saturating_add(bytes).saturating_sub(self.charged)
    }
}

/// An allocation of the pool in this place is freed.
pub(crate) fn freed(limited: &'static Limited, place: usize, bytes: u64) {
    if let Some(pool) = POOLS.get(place) {
        pool.freed(limited, bytes);
    }
}

/// Asks the driver again what all pools hold: it may have given memory back.
#[cold]
pub(crate) fn refresh(limited: &'static Limited) {
    known().for_each(|pool| pool.refresh(limited));
}

/// Gives back what the pools on a card hold without use: before a refusal, not otherwise, because a
/// program may want to keep it.
#[cold]
pub(crate) fn trim(limited: &'static Limited, card: &Card) {
    for pool in known().filter(|pool| pool.device() == card.device && !pool.handle().is_null()) {
        // SAFETY: a handle that the driver checks.
        unsafe { real::cuMemPoolTrimTo(pool.handle(), 0) };
        pool.refresh(limited);
    }
}

/// A context has ended; with a primary one the driver may have emptied its device's pools.
pub(crate) fn context_ended(limited: &'static Limited, before: Epoch) {
    for pool in known() {
        if pool.is_unused() {
            let gone = allocations::remove_owned(Owner::pool(pool.place()), before);
            let mut books = lock(&pool.books);
            books.live = books.live.saturating_sub(gone.iter().map(|entry| entry.bytes).sum());
        }
        pool.refresh(limited);
    }
}

/// The books are whole between any two statements that could panic, so poison means nothing.
fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
