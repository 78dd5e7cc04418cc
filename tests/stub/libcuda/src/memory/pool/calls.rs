//! The driver functions that create, choose, read and set memory pools, and allocate from them.

use super::{Ahead, Pool, free_allocation, insert, share};
use crate::Answer;
use crate::boundary::{In, Out};
use crate::capture::take;
use crate::memory::graph_pool::{self, Allocation};
use crate::memory::{self, vmm};
use crate::process::{Driver, driver, handle, lock};
use crate::stream::{self, Queue};
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stub_engine::backing::Area;

/// The device of a location, which must be a device.
pub fn device_of(driver: &Driver, location: CUmemLocation) -> Answer<CUdevice> {
    match location.r#type {
        CU_MEM_LOCATION_TYPE_DEVICE => {
            // SAFETY: every field of the union is a number.
            let device = unsafe { location.unnamed1.id };
            driver.card(device)?;
            Ok(device)
        }
        CU_MEM_LOCATION_TYPE_HOST
        | CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuDeviceGetDefaultMemPool`
pub fn get_default(pool: Out<CUmemoryPool>, device: CUdevice) -> Answer {
    let driver = driver()?;
    driver.card(device)?;
    pool.put(handle(driver.pools.defaults[device as usize]))
}

/// `cuDeviceGetMemPool`
pub fn get_current(pool: Out<CUmemoryPool>, device: CUdevice) -> Answer {
    let driver = driver()?;
    driver.card(device)?;
    pool.put(handle(driver.pools.current[device as usize].load(Ordering::Relaxed)))
}

/// `cuDeviceSetMemPool`
pub fn set_current(device: CUdevice, pool: CUmemoryPool) -> Answer {
    let driver = driver()?;
    driver.card(device)?;
    let found = driver.pools.find(pool)?;
    let is_imported = found.is_imported.load(Ordering::Relaxed);
    if found.ordinal.load(Ordering::Relaxed) != device || is_imported {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    driver.pools.current[device as usize].store(pool as usize, Ordering::Relaxed);
    Ok(())
}

/// `cuMemPoolCreate`: device memory.
pub fn create(pool: Out<CUmemoryPool>, properties: In<CUmemPoolProps>) -> Answer {
    let driver = driver()?;
    let properties = properties.get()?;
    let is_known =
        properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED && properties.usage & !2 == 0;
    if pool.is_null() || !is_known {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = device_of(driver, properties.location)?;
    vmm::share::check_type(properties.handleTypes)?;
    let card = driver.devices[device as usize];
    let is_exportable = properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE;
    let file = if is_exportable { Some(share::file(driver, card)?) } else { None };
    let created = insert(&driver.pools.all, device, card, false).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Some(made) = driver.pools.all.get(created) {
        made.largest.store(properties.maxSize as u64, Ordering::Relaxed);
        *lock(&made.file) = file;
    }
    pool.put(handle(created))
}

/// `cuMemPoolDestroy`: its allocations stay valid.
pub fn destroy(pool: CUmemoryPool) -> Answer {
    let driver = driver()?;
    let found = driver.pools.find(pool)?;
    if found.is_default.load(Ordering::Relaxed) || found.is_ending.swap(true, Ordering::AcqRel) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = found.ordinal.load(Ordering::Relaxed) as usize;
    let (current, default) = (&driver.pools.current[device], driver.pools.defaults[device]);
    // The device uses its default pool again, unless another pool was chosen meanwhile.
    let relaxed = Ordering::Relaxed;
    let _ = current.compare_exchange(pool as usize, default, relaxed, relaxed);
    if found.release_spare(driver, pool as usize) {
        driver.pools.has_spare.store(true, Ordering::Release);
    }
    Ok(())
}

/// `cuMemPoolTrimTo`
pub fn trim(pool: CUmemoryPool, keep: usize) -> Answer {
    let driver = driver()?;
    let found = driver.pools.find(pool)?;
    let mut layout = lock(&found.layout);
    let mut ahead = Ahead::new(driver);
    layout.share_done(|mark| ahead.is_done(mark));
    found.shrink(driver, &mut layout, keep as u64);
    Ok(())
}

/// `cuMemPoolSetAccess`: a card cannot get access to another card's pool, nor lose access to its
/// own.
pub fn set_access(pool: CUmemoryPool, accesses: In<CUmemAccessDesc>, count: usize) -> Answer {
    let driver = driver()?;
    let found = driver.pools.find(pool)?;
    check_accesses(driver, accesses, count, found.ordinal.load(Ordering::Relaxed))
}

/// Checks accesses to memory of a device, which must be the only one that has access.
pub fn check_accesses(
    driver: &Driver,
    accesses: In<CUmemAccessDesc>,
    count: usize,
    own: CUdevice,
) -> Answer {
    (0..count).try_for_each(|index| {
        let access = accesses.get_at(index)?;
        let is_own = device_of(driver, access.location)? == own;
        match access.flags {
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE if is_own => Ok(()),
            CU_MEM_ACCESS_FLAGS_PROT_NONE if !is_own => Ok(()),
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE => Err(CUDA_ERROR_INVALID_DEVICE),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    })
}

/// `cuMemPoolGetAccess`
pub fn get_access(
    flags: Out<CUmemAccess_flags>,
    pool: CUmemoryPool,
    location: In<CUmemLocation>,
) -> Answer {
    let driver = driver()?;
    let found = driver.pools.find(pool)?;
    let device = device_of(driver, location.get()?)?;
    let is_own = device == found.ordinal.load(Ordering::Relaxed);
    flags.put(if is_own {
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    } else {
        CU_MEM_ACCESS_FLAGS_PROT_NONE
    })
}

fn alloc_on(
    driver: &'static Driver,
    pointer: Out<CUdeviceptr>,
    bytes: usize,
    pool: &Pool,
    queue: Queue,
) -> Answer {
    if pointer.is_null() || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let new = || {
        let device = pool.ordinal.load(Ordering::Relaxed);
        Ok(Arc::new(Allocation::new(driver, device, bytes as u64)?))
    };
    match take::allocation(driver, queue, new)? {
        Some(address) => pointer.put(address),
        None => pointer.put(pool.alloc(driver, bytes as u64, queue)?),
    }
}

/// `cuMemAllocAsync`: from the current pool of the stream's device.
pub fn alloc(pointer: Out<CUdeviceptr>, bytes: usize, on: CUstream) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    let device = queue.context().0.device.load(Ordering::Relaxed);
    let current = driver.pools.current[device as usize].load(Ordering::Relaxed);
    alloc_on(driver, pointer, bytes, driver.pools.find(handle(current))?, queue)
}

/// `cuMemAllocFromPoolAsync`
pub fn alloc_from(
    pointer: Out<CUdeviceptr>,
    bytes: usize,
    pool: CUmemoryPool,
    on: CUstream,
) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    alloc_on(driver, pointer, bytes, driver.pools.find(pool)?, queue)
}

/// `cuMemFreeAsync`: memory from a pool or of a graph in the stream's order, other memory at once.
pub fn free(pointer: CUdeviceptr, on: CUstream) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    if pointer == 0 {
        return Ok(());
    }
    if take::free(driver, queue, pointer)? {
        return Ok(());
    }
    let Some((space, offset)) = driver.backing.locate(pointer) else {
        return memory::free_mapped(driver, pointer);
    };
    match driver.backing.area_of(space) {
        Area::Pooled => free_allocation(driver, space, offset, Some(queue)),
        Area::Graphs => graph_pool::free(driver, pointer, Some(queue)),
        Area::Globals | Area::Arrays => Err(CUDA_ERROR_INVALID_VALUE),
        _ => memory::free_at(driver, space, offset),
    }
}

/// `cuMemPoolGetAttribute`
pub fn get_attribute(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: Out<c_void>,
) -> Answer {
    let found = driver()?.pools.find(pool)?;
    let layout = lock(&found.layout);
    match attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            value.cast().put(found.reuse[attribute as usize - 1].load(Ordering::Relaxed))
        }
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
            value.cast().put(found.threshold.load(Ordering::Relaxed))
        }
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => value.cast().put(layout.reserved.now),
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => value.cast().put(layout.reserved.peak),
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT => value.cast().put(layout.used.now),
        CU_MEMPOOL_ATTR_USED_MEM_HIGH => value.cast().put(layout.used.peak),
        CU_MEMPOOL_ATTR_ALLOCATION_TYPE => value.cast().put(CU_MEM_ALLOCATION_TYPE_PINNED),
        CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES => value.cast().put(found.handle_types()),
        CU_MEMPOOL_ATTR_LOCATION_ID => value.cast().put(found.ordinal.load(Ordering::Relaxed)),
        CU_MEMPOOL_ATTR_LOCATION_TYPE => value.cast().put(CU_MEM_LOCATION_TYPE_DEVICE),
        CU_MEMPOOL_ATTR_MAX_POOL_SIZE => value.cast().put(found.largest.load(Ordering::Relaxed)),
        CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED => value.cast().put(0i32),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuMemPoolSetAttribute`: peaks can only be reset.
pub fn set_attribute(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: Out<c_void>,
) -> Answer {
    let driver = driver()?;
    let found = driver.pools.find(pool)?;
    let level = |layout: &mut stub_engine::pool::Pool| match attribute {
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => layout.reserved.reset_peak(),
        _ => layout.used.reset_peak(),
    };
    match attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            let access: i32 = value.cast().read()?;
            found.reuse[attribute as usize - 1].store(i32::from(access != 0), Ordering::Relaxed);
        }
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
            found.threshold.store(value.cast().read()?, Ordering::Relaxed);
            driver.pools.has_spare.store(true, Ordering::Release);
        }
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
            if value.cast::<u64>().read()? != 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            level(&mut lock(&found.layout));
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}
