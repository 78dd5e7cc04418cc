//! Physical allocations and their handles.

use super::{Bytes, GRANULARITY, Physical, Vmm, charge, place_of, share};
use crate::Answer;
use crate::boundary::{Host, In, Out};
use crate::memory::mapped::{Place, Purpose};
use crate::process::{Driver, driver, lock};
use driver_sys::cuda::*;
use stub_engine::memory_file::MemoryFile;

/// `CU_MEM_CREATE_USAGE_TILE_POOL` and `CU_MEM_CREATE_USAGE_HW_DECOMPRESS`, macros in the header.
const TILE_POOL: u16 = 1;
const DECOMPRESS: u16 = 2;

/// Checks the properties of an allocation; returns its place and the engine's card.
fn check(driver: &Driver, properties: &CUmemAllocationProp) -> Answer<(Place, Option<usize>)> {
    match properties.r#type {
        CU_MEM_ALLOCATION_TYPE_PINNED => {}
        CU_MEM_ALLOCATION_TYPE_MANAGED => return Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    share::check_type(properties.requestedHandleTypes)?;
    if properties.allocFlags.usage & !(DECOMPRESS | TILE_POOL) != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    place_of(driver, properties.location)
}

/// `cuMemGetAllocationGranularity`
pub fn granularity(
    granularity: Out<usize>,
    properties: In<CUmemAllocationProp>,
    option: CUmemAllocationGranularity_flags,
) -> Answer {
    let driver = driver()?;
    check(driver, &properties.get()?)?;
    if option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    granularity.put(GRANULARITY as usize)
}

/// `cuMemCreate`
pub fn create(
    handle: Out<CUmemGenericAllocationHandle>,
    bytes: u64,
    properties: In<CUmemAllocationProp>,
    flags: u64,
) -> Answer {
    let driver = driver()?;
    let properties = properties.get()?;
    let is_size = bytes > 0 && bytes.is_multiple_of(GRANULARITY);
    if handle.is_null() || !is_size || flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (place, card) = check(driver, &properties)?;
    card.map_or(Ok(()), |card| driver.check_lost(card))?;
    let mut vmm = lock(&driver.vmm);
    let memory = if properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE {
        charge(driver, card, None, bytes)?;
        let offset = vmm.store(driver, card, bytes).inspect_err(|_| {
            if let Some(card) = card {
                driver.engine.release(card, stub_engine::ledger::Kind::Requested, bytes);
            }
        })?;
        Bytes::Stored(offset)
    } else {
        let file = MemoryFile::create(&share::name(properties.location, card), bytes);
        let file = file.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        charge(driver, card, Some(&file), bytes)?;
        Bytes::Own(file)
    };
    let created = vmm.insert(Physical {
        bytes,
        location: properties.location,
        place,
        card,
        memory,
        handle_types: properties.requestedHandleTypes,
        is_direct: properties.allocFlags.gpuDirectRDMACapable != 0,
        handles: 1,
        mappings: 0,
        is_written: false,
    });
    handle.put(created)
}

/// `cuMemRelease`: mappings keep the memory.
pub fn release(handle: CUmemGenericAllocationHandle) -> Answer {
    let driver = driver()?;
    let mut vmm = lock(&driver.vmm);
    if vmm.release_multicast(driver, handle) {
        return Ok(());
    }
    vmm.held(handle)?.handles -= 1;
    vmm.free_unused(driver, handle);
    Ok(())
}

/// `cuMemRetainAllocationHandle`: the handle of the memory that is mapped at an address.
pub fn retain(handle: Out<CUmemGenericAllocationHandle>, address: Host) -> Answer {
    let driver = driver()?;
    if handle.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut vmm = lock(&driver.vmm);
    let found = driver.mapped.find(address.0).map(|found| found.purpose);
    let Some(Purpose::Virtual(mapped)) = found else { return Err(CUDA_ERROR_INVALID_VALUE) };
    // While it is mapped, it exists, also without handles.
    vmm.all.get_mut(&mapped).ok_or(CUDA_ERROR_INVALID_VALUE)?.handles += 1;
    handle.put(mapped)
}

/// `cuMemGetAllocationPropertiesFromHandle`
pub fn properties(
    properties: Out<CUmemAllocationProp>,
    handle: CUmemGenericAllocationHandle,
) -> Answer {
    let driver = driver()?;
    let mut vmm: std::sync::MutexGuard<'_, Vmm> = lock(&driver.vmm);
    let found = vmm.held(handle)?;
    properties.put(CUmemAllocationProp {
        r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: found.handle_types,
        location: found.location,
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st_allocFlags {
            compressionType: CU_MEM_ALLOCATION_COMP_NONE as u8,
            gpuDirectRDMACapable: found.is_direct.into(),
            usage: 0,
            reserved: [0; 4],
        },
    })
}
