//! Managed memory: one address for host and card, and advice about it.
//!
//! Its bytes are on the host, so it takes no room on the card and may be larger. Advice and
//! prefetches are checked and stored, so that programs can read them. They apply to the whole
//! allocation, even if they name a part.

use crate::Answer;
use crate::boundary::{In, Out};
use crate::capture::hooks;
use crate::context::current;
use crate::memory::{self, Found, refused};
use crate::process::{Driver, driver, lock};
use crate::stream;
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use stub_engine::backing::Area;
use stub_engine::ledger::Kind;

/// `CU_DEVICE_CPU` and `CU_DEVICE_INVALID`, macros in the header.
const CPU: CUdevice = -1;
const NOWHERE: CUdevice = -2;

/// The advice for an allocation.
struct Advice {
    is_read_mostly: bool,
    preferred: CUdevice,
    prefetched: CUdevice,
    accessed_by: Vec<CUdevice>,
}

impl Default for Advice {
    fn default() -> Self {
        Self {
            is_read_mostly: false,
            preferred: NOWHERE,
            prefetched: NOWHERE,
            accessed_by: Vec::new(),
        }
    }
}

/// Advice by first address; an allocation without advice has no entry.
#[derive(Default)]
pub struct ManagedTable(BTreeMap<u64, Advice>);

impl ManagedTable {
    /// Removes the advice of a freed allocation.
    pub fn forget(&mut self, base: u64) {
        self.0.remove(&base);
    }
}

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

/// The managed allocation that contains a range.
fn find(driver: &Driver, pointer: u64, bytes: usize) -> Answer<Found> {
    let found = memory::find(driver, pointer).filter(|found| found.area == Area::Managed);
    let found = found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if bytes == 0 || bytes as u64 > found.bytes - (pointer - found.base) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(found)
}

/// A device ordinal, or the CPU.
fn check_device(driver: &Driver, device: CUdevice) -> Answer<CUdevice> {
    if device != CPU {
        driver.card(device)?;
    }
    Ok(device)
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
    let found = find(driver, pointer, bytes)?;
    let device = check_device(driver, device)?;
    lock(&driver.managed).0.entry(found.base).or_default().prefetched = device;
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

/// `cuMemAdvise`
pub fn advise(pointer: u64, bytes: usize, advice: CUmem_advise, device: CUdevice) -> Answer {
    let driver = driver()?;
    let found = find(driver, pointer, bytes)?;
    let needs_device = matches!(
        advice,
        CU_MEM_ADVISE_SET_PREFERRED_LOCATION
            | CU_MEM_ADVISE_SET_ACCESSED_BY
            | CU_MEM_ADVISE_UNSET_ACCESSED_BY
    );
    if needs_device {
        check_device(driver, device)?;
    }
    let mut table = lock(&driver.managed);
    let known = table.0.entry(found.base).or_default();
    match advice {
        CU_MEM_ADVISE_SET_READ_MOSTLY => known.is_read_mostly = true,
        CU_MEM_ADVISE_UNSET_READ_MOSTLY => known.is_read_mostly = false,
        CU_MEM_ADVISE_SET_PREFERRED_LOCATION => known.preferred = device,
        CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => known.preferred = NOWHERE,
        CU_MEM_ADVISE_SET_ACCESSED_BY if known.accessed_by.contains(&device) => {}
        CU_MEM_ADVISE_SET_ACCESSED_BY => known.accessed_by.push(device),
        CU_MEM_ADVISE_UNSET_ACCESSED_BY => known.accessed_by.retain(|other| *other != device),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

/// `cuMemAdvise_v2`
pub fn advise_at(
    pointer: u64,
    bytes: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> Answer {
    driver()?;
    let needs_location = matches!(
        advice,
        CU_MEM_ADVISE_SET_PREFERRED_LOCATION
            | CU_MEM_ADVISE_SET_ACCESSED_BY
            | CU_MEM_ADVISE_UNSET_ACCESSED_BY
    );
    let device = if needs_location { device_of(location)? } else { NOWHERE };
    advise(pointer, bytes, advice, device)
}

fn location_type(device: CUdevice) -> CUmemLocationType {
    match device {
        NOWHERE => CU_MEM_LOCATION_TYPE_INVALID,
        CPU => CU_MEM_LOCATION_TYPE_HOST,
        _ => CU_MEM_LOCATION_TYPE_DEVICE,
    }
}

/// `cuMemRangeGetAttribute`
pub fn range_attribute(
    data: Out<c_void>,
    size: usize,
    attribute: CUmem_range_attribute,
    pointer: u64,
    bytes: usize,
) -> Answer {
    let driver = driver()?;
    let found = find(driver, pointer, bytes)?;
    let table = lock(&driver.managed);
    let nothing = Advice::default();
    let known = table.0.get(&found.base).unwrap_or(&nothing);
    let value = match attribute {
        CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
            let count = size / size_of::<CUdevice>();
            if count == 0 || !size.is_multiple_of(size_of::<CUdevice>()) || data.is_null() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let devices = known.accessed_by.iter().copied().chain(std::iter::repeat(NOWHERE));
            for (index, device) in devices.take(count).enumerate() {
                data.cast().put_at(index, device);
            }
            return Ok(());
        }
        CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => i32::from(known.is_read_mostly),
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION
        | CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => known.preferred,
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
        | CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => known.prefetched,
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => {
            location_type(known.preferred).cast_signed()
        }
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => {
            location_type(known.prefetched).cast_signed()
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if size != size_of::<i32>() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    data.cast().put(value)
}

/// `cuMemRangeGetAttributes`
pub fn range_attributes(
    data: In<*mut c_void>,
    sizes: In<usize>,
    attributes: In<CUmem_range_attribute>,
    count: usize,
    pointer: u64,
    bytes: usize,
) -> Answer {
    driver()?;
    if count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for index in 0..count {
        let (out, size) = (Out::of(data.get_at(index)?), sizes.get_at(index)?);
        range_attribute(out, size, attributes.get_at(index)?, pointer, bytes)?;
    }
    Ok(())
}

/// `cuStreamAttachMemAsync`: for a whole allocation; 0 stands for its size.
pub fn attach(on: CUstream, pointer: u64, bytes: usize, flags: u32) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    hooks::refuse(driver, queue)?;
    let found = find(driver, pointer, 1)?;
    let is_whole = found.base == pointer && (bytes == 0 || bytes as u64 == found.bytes);
    let is_known = match flags {
        CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST => true,
        // Memory cannot be attached to a default stream.
        CU_MEM_ATTACH_SINGLE => stream::is_made(on),
        _ => false,
    };
    if is_whole && is_known { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}
