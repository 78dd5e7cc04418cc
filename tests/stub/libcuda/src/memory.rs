//! Linear device memory: allocated, freed, looked up, counted.

use crate::Answer;
use crate::arguments::OutWide;
use crate::context::{Context, current};
use crate::process::{Driver, driver, lock};
use driver_sys::cuda::*;
use stub_engine::Refusal;
use stub_engine::arena::{ALIGNMENT, Allocation, Freed};
use stub_engine::ledger::Kind;

/// The driver's words for the engine's refusal.
pub fn refused(refusal: Refusal) -> CUresult {
    match refusal {
        Refusal::OutOfMemory => CUDA_ERROR_OUT_OF_MEMORY,
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
    let space = if pointer.is_narrow() { driver.backing.narrow_space(card) } else { Some(card) };
    let space = space.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
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

/// `cuMemFree`
pub fn free(pointer: u64) -> Answer {
    let (driver, ..) = current()?;
    if pointer == 0 {
        return Ok(());
    }
    let (space, offset) = driver.backing.locate(pointer).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    free_at(driver, space, offset)
}

fn free_at(driver: &Driver, space: usize, offset: u64) -> Answer {
    let mut arena = lock(&driver.arenas[space]);
    let Freed { allocation, discard } = arena.free(offset).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if let Some(range) = discard {
        // Under the lock, so that the pages are gone before anyone gets the addresses again.
        driver.backing.discard(space, &range);
    }
    drop(arena);
    driver.engine.release(driver.backing.card_of(space), Kind::Requested, allocation.bytes);
    Ok(())
}

/// Frees everything a context owns.
pub fn free_all(driver: &Driver, context: &Context) {
    for (space, arena) in driver.arenas.iter().enumerate() {
        let owned = lock(arena).owned_by(context.index());
        for offset in owned {
            // Freed meanwhile by another thread is freed all the same.
            let _ = free_at(driver, space, offset);
        }
    }
}

/// `cuMemGetInfo`
pub fn info(free: OutWide, total: OutWide) -> Answer {
    let (driver, context, _) = current()?;
    let usable = driver.engine.cards()[context.card()].profile.usable();
    let used = driver.engine.used(context.card()).ok_or(CUDA_ERROR_DEVICE_UNAVAILABLE)?;
    free.put_if_wanted(usable.saturating_sub(used));
    total.put_if_wanted(usable);
    Ok(())
}

/// The allocation that a device pointer lies in, and its address space.
pub fn find(driver: &Driver, pointer: u64) -> Option<(usize, Allocation)> {
    let (space, offset) = driver.backing.locate(pointer)?;
    lock(&driver.arenas[space]).find(offset).map(|found| (space, found))
}

/// `cuMemGetAddressRange`
pub fn address_range(base: OutWide, size: OutWide, pointer: u64) -> Answer {
    let driver = driver()?;
    current()?;
    let (space, found) = find(driver, pointer).ok_or(CUDA_ERROR_NOT_FOUND)?;
    base.put_if_wanted(driver.backing.pointer(space, found.base));
    size.put_if_wanted(found.bytes);
    Ok(())
}

/// Checks that `bytes` from a device pointer on are one allocation's, and notes a write.
pub fn check(driver: &Driver, pointer: u64, bytes: u64, is_written: bool) -> Answer {
    let (space, offset) = driver.backing.locate(pointer).ok_or(CUDA_ERROR_INVALID_VALUE)?;
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
