//! Managed memory: one address for host and card.
//!
//! Its bytes are on the host, so it takes no room on the card and may be larger. Prefetches are
//! checked and do nothing.

use crate::Answer;
use crate::boundary::Out;
use crate::capture::hooks;
use crate::context::current;
use crate::memory::{self, refused};
use crate::process::{Driver, lock};
use crate::stream;
use driver_sys::cuda::*;
use stub_engine::backing::Area;
use stub_engine::ledger::Kind;

/// `CU_DEVICE_CPU`, a macro in the header.
const CPU: CUdevice = -1;

/// `cuMemAllocManaged`
pub fn alloc(pointer: Out<CUdeviceptr>, bytes: usize, flags: u32) -> Answer {
    let (driver, context, _) = current()?;
    let is_known = matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST);
    if pointer.is_null() || bytes == 0 || !is_known {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let space = driver.backing.space(Area::Managed, context.card());
    let space = space.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    // Find addresses before the charge, because nothing else bounds the size: the ledger must never
    // contain bytes that do not exist.
    let mut arena = lock(&driver.arenas[space]);
    let offset = arena.allocate(bytes as u64, context.index()).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    // The host writes to it without a call.
    arena.mark_written(offset);
    drop(arena);
    if let Err(refusal) = driver.engine.charge(context.card(), Kind::Managed, bytes as u64) {
        memory::unplace(driver, space, offset)?;
        return Err(refused(refusal));
    }
    pointer.put(driver.backing.pointer(space, offset))
}

/// Refuses a range that is not in one managed allocation.
fn check(driver: &Driver, pointer: u64, bytes: usize) -> Answer {
    let found = memory::find(driver, pointer).filter(|found| found.area == Area::Managed);
    let found = found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if bytes == 0 || bytes as u64 > found.bytes - (pointer - found.base) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

/// A location's device ordinal, or the CPU for any part of the host.
fn device_of(location: CUmemLocation) -> Answer<CUdevice> {
    match location.r#type {
        // SAFETY: every field of the union is a number.
        CU_MEM_LOCATION_TYPE_DEVICE => Ok(unsafe { location.unnamed1.id }),
        CU_MEM_LOCATION_TYPE_HOST
        | CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(CPU),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuMemPrefetchAsync`
pub fn prefetch(pointer: u64, bytes: usize, device: CUdevice, on: CUstream) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    hooks::refuse(driver, queue)?;
    check(driver, pointer, bytes)?;
    if device != CPU {
        driver.card(device)?;
    }
    Ok(())
}

/// `cuMemPrefetchAsync_v2`
pub fn prefetch_to(
    pointer: u64,
    bytes: usize,
    location: CUmemLocation,
    flags: u32,
    on: CUstream,
) -> Answer {
    stream::check(on)?;
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    prefetch(pointer, bytes, device_of(location)?, on)
}
