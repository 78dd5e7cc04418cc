//! Linear device memory, and what all kinds of memory share: free, lookup, charge.

pub mod array;
pub mod copy;
pub mod external;
pub mod fill;
pub mod forms;
pub mod graph_pool;
pub mod host;
pub mod ipc;
pub mod managed;
pub mod mapped;
pub mod pointer;
pub mod pool;
pub mod shared_runs;
pub mod texture;
pub mod vmm;
pub mod volume;

use crate::Answer;
use crate::boundary::OutWide;
use crate::context::{Context, current};
use crate::process::{Driver, driver, lock};
use driver_sys::cuda::*;
use stub_engine::Refusal;
use stub_engine::arena::{ALIGNMENT, Arena, Freed};
use stub_engine::backing::Area;
use stub_engine::ledger::{Kind, ObjectId};

/// The driver's error code for the engine's refusal.
pub fn refused(refusal: Refusal) -> CUresult {
    match refusal {
        Refusal::OutOfMemory => CUDA_ERROR_OUT_OF_MEMORY,
        Refusal::Unknown => CUDA_ERROR_INVALID_HANDLE,
        Refusal::Lost => CUDA_ERROR_DEVICE_UNAVAILABLE,
    }
}

/// `cuMemAlloc`
pub fn alloc(pointer: OutWide, bytes: u64) -> Answer {
    let (driver, context, _) = current()?;
    if pointer.is_null() || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let card = context.card();
    let area = if pointer.is_narrow() { Area::Narrow } else { Area::Linear };
    let space = driver.backing.space(area, card).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    pointer.put(alloc_in(driver, context, space, bytes)?)
}

/// `cuMemAllocPitch`: rows start at multiples of the allocation alignment.
pub fn alloc_pitch(
    pointer: OutWide,
    pitch: OutWide,
    width: u64,
    height: u64,
    element: u32,
) -> Answer {
    current()?;
    let is_element = matches!(element, 4 | 8 | 16);
    if pitch.is_null() || width == 0 || height == 0 || !is_element {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(ALIGNMENT).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let bytes = row.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    alloc(pointer, bytes)?;
    pitch.put(row)
}

/// The kind of charge for the bytes of a space.
fn kind_of(driver: &Driver, space: usize) -> Kind {
    if driver.backing.area_of(space) == Area::Managed { Kind::Managed } else { Kind::Requested }
}

fn alloc_in(driver: &Driver, context: &Context, space: usize, bytes: u64) -> Answer<u64> {
    let card = context.card();
    driver.engine.charge(card, Kind::Requested, bytes).map_err(refused)?;
    let offset = lock(&driver.arenas[space]).allocate(bytes, context.index());
    let Some(offset) = offset else {
        driver.engine.release(card, Kind::Requested, bytes);
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    };
    Ok(driver.backing.pointer(space, offset))
}

/// `cuMemFree`: also for memory from a pool or of a graph; the program guarantees that nothing uses it any more.
pub fn free(pointer: u64) -> Answer {
    let (driver, ..) = current()?;
    if pointer == 0 {
        return Ok(());
    }
    let Some((space, offset)) = driver.backing.locate(pointer) else {
        return free_mapped(driver, pointer);
    };
    match driver.backing.area_of(space) {
        Area::Pooled => pool::free_allocation(driver, space, offset, None),
        Area::Graphs => graph_pool::free(driver, pointer, None),
        Area::Globals | Area::Arrays => Err(CUDA_ERROR_INVALID_VALUE),
        _ => free_at(driver, space, offset),
    }
}

/// Frees a pointer to memory of another process or another API.
pub fn free_mapped(driver: &Driver, pointer: u64) -> Answer {
    if pool::share::free_imported(driver, pointer) {
        return Ok(());
    }
    external::free_buffer(driver, pointer)
}

/// Frees an allocation that belongs to a context.
pub fn free_at(driver: &Driver, space: usize, offset: u64) -> Answer {
    let mut arena = lock(&driver.arenas[space]);
    let found = arena.find(offset).filter(|found| found.base == offset);
    let bytes = found.ok_or(CUDA_ERROR_INVALID_VALUE)?.bytes;
    let kind = kind_of(driver, space);
    // Before the addresses are free. A program that gets them again knows that the old allocation
    // has ended, and a ledger that still contained its bytes would show a peak that never was.
    let card = driver.backing.card_of(space);
    match shared_object(driver, space, offset) {
        Some(object) => driver.engine.drop_hold(card, object),
        None => driver.engine.release(card, kind, bytes),
    }
    unplace_in(driver, &mut arena, space, offset)
}

/// The shared allocation of the ledger that an allocation with an IPC handle is.
#[inline]
fn shared_object(driver: &Driver, space: usize, offset: u64) -> Option<ObjectId> {
    if !driver.shared_runs.is_used() {
        return None;
    }
    lock(&driver.ipc).forget(driver.backing.pointer(space, offset))
}

/// Frees the addresses of an allocation.
#[inline]
pub fn unplace(driver: &Driver, space: usize, offset: u64) -> Answer {
    unplace_in(driver, &mut lock(&driver.arenas[space]), space, offset)
}

#[inline]
fn unplace_in(driver: &Driver, arena: &mut Arena, space: usize, offset: u64) -> Answer {
    let Freed { discard, .. } = arena.free(offset).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if let Some(range) = discard {
        // Under the lock, so that the pages are discarded before the addresses are reused.
        if !shared_runs::end(driver, space, &range) {
            driver.backing.discard(space, &range);
        }
    }
    Ok(())
}

/// Frees everything a context owns.
pub fn free_all(driver: &Driver, context: &Context) {
    external::free_all(driver, context);
    ipc::close_all(driver, context);
    for (space, arena) in driver.arenas.iter().enumerate() {
        let area = driver.backing.area_of(space);
        if matches!(area, Area::Pooled | Area::Graphs) {
            continue;
        }
        let owned = lock(arena).owned_by(context.index());
        for offset in owned {
            // Another thread may have freed it meanwhile.
            let _ = match area {
                Area::Globals => unplace(driver, space, offset),
                _ => free_at(driver, space, offset),
            };
        }
    }
}

/// `cuMemGetInfo`
pub fn info(free: OutWide, total: OutWide) -> Answer {
    let (driver, context, _) = current()?;
    let usable = driver.engine.cards()[context.card()].profile.usable();
    let used = driver.engine.used(context.card()).ok_or(CUDA_ERROR_DEVICE_UNAVAILABLE)?;
    free.put_optional(usable.saturating_sub(used));
    total.put_optional(usable);
    Ok(())
}

/// An allocation of any kind.
pub struct Found {
    /// Its first address.
    pub base: u64,
    /// The requested bytes.
    pub bytes: u64,
    /// Its kind.
    pub area: Area,
    /// The owner number of its context; in [`Area::Pooled`], of its pool; in [`Area::Graphs`], the
    /// ordinal of its device.
    pub owner: u32,
}

/// The allocation that contains a device pointer. The address of an array's element is none.
pub fn find(driver: &Driver, pointer: u64) -> Option<Found> {
    let (space, offset) = driver.backing.locate(pointer)?;
    find_at(driver, space, offset).filter(|found| found.area != Area::Arrays)
}

fn find_at(driver: &Driver, space: usize, offset: u64) -> Option<Found> {
    let area = driver.backing.area_of(space);
    let found = lock(&driver.arenas[space]).find(offset)?;
    let (base, bytes) = match area {
        Area::Pooled => pool::find_live(driver, found.owner, offset)?,
        Area::Graphs => {
            let pointer = driver.backing.pointer(space, offset);
            let (base, bytes) = driver.graph_memory.containing(pointer, 1)?;
            return Some(Found { base, bytes, area, owner: found.owner });
        }
        _ => (found.base, found.bytes),
    };
    let base = driver.backing.pointer(space, base);
    Some(Found { base, bytes, area, owner: found.owner })
}

/// `cuMemGetAddressRange`: not of virtual memory that nothing has access to.
pub fn address_range(base: OutWide, size: OutWide, pointer: u64) -> Answer {
    let driver = driver()?;
    current()?;
    let (start, bytes) = if let Some(mapped) = driver.mapped.find(pointer) {
        if mapped.access.all() == CU_MEM_ACCESS_FLAGS_PROT_NONE {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
        (mapped.base, mapped.bytes)
    } else {
        let found = find(driver, pointer).ok_or(CUDA_ERROR_NOT_FOUND)?;
        (found.base, found.bytes)
    };
    base.put_optional(start);
    size.put_optional(bytes);
    Ok(())
}

/// Checks that `bytes` from a device pointer on are in one allocation, and records a write.
pub fn check(driver: &Driver, pointer: u64, bytes: u64, is_written: bool) -> Answer {
    let Some((space, offset)) = driver.backing.locate(pointer) else {
        return driver.mapped.check(pointer, bytes, is_written);
    };
    match driver.backing.area_of(space) {
        Area::Arrays => return Err(CUDA_ERROR_INVALID_VALUE),
        Area::Pooled => {
            // A chunk has many allocations, so its own bounds are not enough.
            let found = find_at(driver, space, offset).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if bytes > found.bytes - (pointer - found.base) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Area::Graphs => {
            // A block has many allocations, also at the same addresses.
            driver.graph_memory.containing(pointer, bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        }
        _ => {}
    }
    check_at(driver, space, offset, bytes, is_written)
}

/// Checks that `bytes` from an offset on are in one allocation, and records a write.
fn check_at(driver: &Driver, space: usize, offset: u64, bytes: u64, is_written: bool) -> Answer {
    let mut arena = lock(&driver.arenas[space]);
    let found = arena.find(offset).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if bytes > found.bytes - (offset - found.base) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if is_written {
        arena.mark_written(offset);
    }
    Ok(())
}
