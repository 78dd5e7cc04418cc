//! The memory pools of this process. A pool is charged for what it holds of its card.
//!
//! A pool takes memory from the card in chunks whose size only the driver knows, and keeps freed
//! memory until a synchronisation or a trim. Other processes of the slice cannot have that memory,
//! so the charge follows what the driver reports as reserved. Before an allocation, the charge is
//! raised by the most that the pool can grow by. Afterwards it is set to what the pool has. After
//! every call that can return memory to the card, the driver is asked again.
//!
//! This file has the table of pools; [`pool`] is one pool, and [`graph_memory`] the pool that each
//! device has for graphs.

mod attributes;
pub mod graph_memory;
mod pool;

use std::sync::atomic::{AtomicUsize, Ordering};

use driver_sys::cuda::{CUdevice, CUmemoryPool};
use vgpu_driver::guard::lock;
use vgpu_driver::real::Outcome;

use crate::allocations::{Allocation, Epoch};
use crate::limited::{Card, Limited};
use crate::table::Full;
use pool::ENTRIES;

pub use attributes::current_of;
pub use pool::{Pool, Request, any_charged};

/// More pools than any known program has at once; further ones are refused.
const MAX_POOLS: usize = 4096;
static POOLS: [Pool; MAX_POOLS] = [const { Pool::new() }; MAX_POOLS];

/// How many entries were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The pool with this handle, if this process has created it or allocated from it.
pub fn known_as(handle: CUmemoryPool) -> Option<&'static Pool> {
    in_use().find(|pool| pool.is(handle))
}

/// The pool with this handle; `None` if its memory is not on a card.
pub fn find(handle: CUmemoryPool) -> Result<Option<&'static Pool>, Full> {
    if let Some(pool) = known_as(handle) {
        return Ok(Some(pool));
    }
    let Some(device) = attributes::device_of(handle) else { return Ok(None) };
    let _entries = lock(&ENTRIES);
    enter(handle, device, false).map(Some)
}

/// Enters a pool that `make` creates for the program.
pub fn create<E>(
    make: impl FnOnce() -> Result<(CUmemoryPool, CUdevice), E>,
) -> Result<Result<&'static Pool, Full>, E> {
    let _entries = lock(&ENTRIES);
    let (handle, device) = make()?;
    Ok(enter(handle, device, true))
}

/// The caller holds [`ENTRIES`].
fn enter(handle: CUmemoryPool, device: CUdevice, created: bool) -> Result<&'static Pool, Full> {
    if let Some(pool) = known_as(handle) {
        return Ok(pool);
    }
    let (index, pool) = POOLS.iter().enumerate().find(|(_, pool)| pool.is_free()).ok_or(Full)?;
    pool.occupy(index, handle, device, created);
    USED.fetch_max(index + 1, Ordering::Release);
    Ok(pool)
}

fn in_use() -> impl Iterator<Item = &'static Pool> {
    POOLS.iter().take(USED.load(Ordering::Acquire)).filter(|pool| !pool.is_free())
}

/// Allocates from a pool. The caller must remember the allocation.
pub fn allocate(
    pool: &'static Pool,
    limited: &'static Limited,
    bytes: u64,
    request: &impl Request,
) -> Outcome<Allocation> {
    pool.allocate(limited, bytes, request, |card| trim(limited, card, Busy::Skip))
}

/// An allocation of the pool with this index is freed.
pub(crate) fn freed(limited: &'static Limited, index: usize, bytes: u64) {
    if let Some(pool) = POOLS.get(index) {
        pool.freed(limited, bytes);
    }
}

/// What to do about a pool from which another thread allocates at this moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// Wait for the thread.
    Wait,
    /// Skip the pool. A thread that allocates must: two such threads could wait for each other.
    Skip,
}

/// Sets the charge of all pools to what the driver reports now: it may have returned memory to the
/// card.
#[cold]
pub fn refresh(limited: &'static Limited, busy: Busy) {
    in_use().for_each(|pool| pool.refresh(limited, busy));
}

/// Returns to the card what its pools and graphs hold without use. Only before a refusal, because a
/// program may want to keep it.
#[cold]
pub(crate) fn trim(limited: &'static Limited, card: &Card, busy: Busy) {
    graph_memory::trim_if_idle(limited, card);
    in_use()
        .filter(|pool| pool.device() == card.device)
        .for_each(|pool| pool.trim_unused(limited, busy));
}

/// The primary context of a device has ended. The driver may have emptied the device's pools with
/// it.
pub fn device_reset(limited: &'static Limited, device: CUdevice, before: Epoch) {
    in_use().filter(|pool| pool.device() == device).for_each(|pool| pool.reset(limited, before));
}
