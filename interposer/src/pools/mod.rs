//! The memory pools of this process: what each of them holds of a card is charged.
//!
//! A pool takes memory from the card in chunks, of a size that only the driver knows, and keeps what
//! was freed until a synchronisation or a trim: that is what others in the slice cannot have. So a
//! pool's charge follows what the driver says it has reserved. Before an allocation it is raised to
//! what the program will then have asked for; afterwards, when the driver has decided, to what was
//! taken; if that is over the limit, the allocation is undone. After everything that can give memory
//! back the driver is asked again.
//!
//! Here is the table of pools; [`pool`] is one of them.

mod pool;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use driver_sys::cuda::{
    CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEMPOOL_ATTR_ALLOCATION_TYPE,
    CU_MEMPOOL_ATTR_LOCATION_ID, CU_MEMPOOL_ATTR_LOCATION_TYPE, CUDA_SUCCESS, CUdevice,
    CUmemPool_attribute, CUmemoryPool,
};

use crate::allocations::{Epoch, Full};
use crate::memory;
use crate::slice::{Card, Limited};
use crate::table::real;

pub(crate) use pool::{Pool, Take};

/// More pools than any program was seen to have at once; further ones are refused.
const MAX_POOLS: usize = 4096;
static POOLS: [Pool; MAX_POOLS] = [const { Pool::new() }; MAX_POOLS];

/// How many places were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Held while a pool enters or leaves a place, and while the driver makes or destroys one: it gives
/// handles out again.
static PLACES: Mutex<()> = Mutex::new(());
/// Whether anything was ever charged for a pool.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether pools may hold something: most programs have none, and ask only this.
#[inline]
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// The pool with this handle, if this process has allocated from it or made it.
pub(crate) fn known_as(handle: CUmemoryPool) -> Option<&'static Pool> {
    in_use().find(|pool| pool.is(handle))
}

/// The pool with this handle; `None` where it keeps no memory of a card's.
pub(crate) fn find(handle: CUmemoryPool) -> Result<Option<&'static Pool>, Full> {
    if let Some(pool) = known_as(handle) {
        return Ok(Some(pool));
    }
    let Some(device) = device_of(handle) else { return Ok(None) };
    let _places = lock(&PLACES);
    enter(handle, device, false).map(Some)
}

/// Takes a pool into the table that `make` makes for the program.
pub(crate) fn create<E>(
    make: impl FnOnce() -> Result<(CUmemoryPool, CUdevice), E>,
) -> Result<Result<&'static Pool, Full>, E> {
    let _places = lock(&PLACES);
    let (handle, device) = make()?;
    Ok(enter(handle, device, true))
}

/// With the places locked.
fn enter(handle: CUmemoryPool, device: CUdevice, created: bool) -> Result<&'static Pool, Full> {
    if let Some(pool) = known_as(handle) {
        return Ok(pool);
    }
    let (place, pool) = POOLS.iter().enumerate().find(|(_, pool)| pool.is_free()).ok_or(Full)?;
    pool.occupy(handle, device, created);
    USED.fetch_max(place + 1, Ordering::Release);
    Ok(pool)
}

fn in_use() -> impl Iterator<Item = &'static Pool> {
    POOLS.iter().take(USED.load(Ordering::Acquire)).filter(|pool| !pool.is_free())
}

/// The device of a pool that the driver made: a device's default one, or what newer drivers tell.
/// Managed memory is the current card's, as where it is allocated without a pool.
fn device_of(handle: CUmemoryPool) -> Option<CUdevice> {
    let mut count = 0;
    // SAFETY: a local variable.
    if unsafe { real::cuDeviceGetCount(&raw mut count) } != CUDA_SUCCESS {
        return None;
    }
    let is_default = |device: &CUdevice| default_of(*device) == Some(handle);
    (0..count).find(is_default).or_else(|| {
        let place: u32 = attribute(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE)?;
        if place == CU_MEM_LOCATION_TYPE_DEVICE {
            return attribute(handle, CU_MEMPOOL_ATTR_LOCATION_ID);
        }
        let kind: u32 = attribute(handle, CU_MEMPOOL_ATTR_ALLOCATION_TYPE)?;
        let is_managed = kind == CU_MEM_ALLOCATION_TYPE_MANAGED;
        memory::current().filter(|_| is_managed).map(|(device, _)| device)
    })
}

fn default_of(device: CUdevice) -> Option<CUmemoryPool> {
    let mut default: CUmemoryPool = std::ptr::null_mut();
    // SAFETY: a local variable.
    let result = unsafe { real::cuDeviceGetDefaultMemPool(&raw mut default, device) };
    (result == CUDA_SUCCESS).then_some(default)
}

/// The pool that a device's allocations come from.
pub(crate) fn current_of(device: CUdevice) -> Option<CUmemoryPool> {
    let mut pool: CUmemoryPool = std::ptr::null_mut();
    // SAFETY: a local variable.
    let result = unsafe { real::cuDeviceGetMemPool(&raw mut pool, device) };
    (result == CUDA_SUCCESS).then_some(pool)
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

/// An allocation of the pool in this place is freed.
pub(crate) fn freed(limited: &'static Limited, place: usize, bytes: u64) {
    if let Some(pool) = POOLS.get(place) {
        pool.freed(limited, bytes);
    }
}

/// Asks the driver again what all pools hold: it may have given memory back.
#[cold]
pub(crate) fn refresh(limited: &'static Limited) {
    in_use().for_each(|pool| pool.refresh(limited));
}

/// As [`refresh`], but waits for no other thread.
#[cold]
pub(crate) fn refresh_idle(limited: &'static Limited) {
    in_use().for_each(|pool| pool.refresh_if_idle(limited));
}

/// Gives back what the pools on a card hold without use: before a refusal, not otherwise, because a
/// program may want to keep it. A pool that another thread allocates from at this moment is left out
/// by whoever holds the lock of one (`but`): two of them could wait for each other.
#[cold]
pub(crate) fn trim(limited: &'static Limited, card: &Card, but: Option<&'static Pool>) {
    for pool in in_use().filter(|pool| pool.device() == card.device) {
        match but {
            Some(own) if std::ptr::eq(own, pool) => {}
            Some(_) => pool.trim_if_idle(limited),
            None => pool.trim(limited),
        }
    }
}

/// The primary context of a device has ended; with it the driver may have emptied the device's pools.
pub(crate) fn device_reset(limited: &'static Limited, device: CUdevice, before: Epoch) {
    in_use().filter(|pool| pool.device() == device).for_each(|pool| pool.reset(limited, before));
}

/// Books are whole between any two statements that could panic, so poison means nothing.
fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
