//! Reservations of addresses, mappings there, and who has access to them.

use super::{GRANULARITY, Physical, Vmm, place_of};
use crate::Answer;
use crate::boundary::{In, Out};
use crate::device;
use crate::memory::mapped::{Access, Mapped, Place, Purpose, Table};
use crate::process::{Driver, driver, lock};
use driver_sys::cuda::*;
use stub_engine::backing::AddressRange;

const PAGE: u64 = 4096;

/// `cuMemAddressReserve`: at the wanted address if it is free.
pub fn reserve(
    pointer: Out<CUdeviceptr>,
    bytes: u64,
    alignment: u64,
    wanted: CUdeviceptr,
    flags: u64,
) -> Answer {
    let driver = driver()?;
    let is_range = bytes > 0 && bytes.is_multiple_of(PAGE) && wanted.is_multiple_of(PAGE);
    let is_aligned = alignment == 0 || alignment.is_power_of_two();
    if pointer.is_null() || !is_range || !is_aligned || flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let reserved = AddressRange::reserve(bytes, alignment.max(GRANULARITY), wanted);
    let reserved = reserved.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    driver.mapped.mark_used();
    let start = reserved.start;
    driver.mapped.table().reservations.insert(start, reserved);
    pointer.put(start)
}

/// `cuMemAddressFree`
pub fn free(pointer: CUdeviceptr, bytes: u64) -> Answer {
    let driver = driver()?;
    let mut table = driver.mapped.table();
    let found = table.reservations.get(&pointer).filter(|found| found.bytes == bytes);
    if found.is_none() || table.overlaps(pointer, bytes) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Dropping it frees the addresses.
    table.reservations.remove(&pointer);
    Ok(())
}

fn check_range(pointer: u64, bytes: u64) -> Answer {
    let is_range =
        bytes > 0 && bytes.is_multiple_of(GRANULARITY) && pointer.is_multiple_of(GRANULARITY);
    if is_range && pointer.checked_add(bytes).is_some() {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// `cuMemMap`: a whole allocation, without access, so the memory has no bytes at the address yet.
pub fn map(
    pointer: CUdeviceptr,
    bytes: u64,
    offset: u64,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> Answer {
    let driver = driver()?;
    check_range(pointer, bytes)?;
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut vmm = lock(&driver.vmm);
    let physical = vmm.held(handle)?;
    if offset != 0 || bytes != physical.bytes {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut table = driver.mapped.table();
    let is_free = table.reservation(pointer, bytes).is_some() && !table.overlaps(pointer, bytes);
    if !is_free {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    physical.mappings += 1;
    let mapped = Mapped {
        bytes,
        purpose: Purpose::Virtual(handle),
        place: physical.place,
        owner: None,
        access: Access::default(),
        is_written: false,
        addresses: None,
    };
    table.mappings.insert(pointer, mapped);
    Ok(())
}

/// `cuMemUnmap`: whole mappings.
pub fn unmap(pointer: CUdeviceptr, bytes: u64) -> Answer {
    let driver = driver()?;
    let mut vmm = lock(&driver.vmm);
    let mut table = driver.mapped.table();
    let mut unused = Vec::new();
    for start in table.whole(pointer, bytes)? {
        let Some(mapped) = table.mappings.remove(&start) else { continue };
        if mapped.access.all() != 0
            && let Some(range) = table.reservation(start, mapped.bytes)
        {
            range.clear(&(start..start + mapped.bytes));
        }
        let Purpose::Virtual(handle) = mapped.purpose else { continue };
        if let Some(physical) = vmm.all.get_mut(&handle) {
            physical.mappings -= 1;
            physical.is_written |= mapped.is_written;
            unused.push(handle);
        }
    }
    drop(table);
    for handle in unused {
        vmm.free_unused(driver, handle);
    }
    Ok(())
}

/// Checks that a place can have access to a physical allocation.
fn check_access(driver: &Driver, place: Place, physical: &Physical) -> Answer {
    match (place, physical.place) {
        (_, Place::Host) => Ok(()),
        (Place::Host, Place::Device(_)) => Err(CUDA_ERROR_INVALID_VALUE),
        (Place::Device(device), Place::Device(owner)) if device == owner => Ok(()),
        (Place::Device(device), Place::Device(owner)) => {
            driver.card(owner)?;
            let mut is_peer = 0;
            device::can_access_peer(Out::of(&raw mut is_peer), device, owner)?;
            if is_peer == 0 { Err(CUDA_ERROR_INVALID_DEVICE) } else { Ok(()) }
        }
    }
}

/// The access that a mapping shall have.
fn changed(
    driver: &Driver,
    vmm: &Vmm,
    mapped: &Mapped,
    wanted: &[(Place, CUmemAccess_flags)],
) -> Answer<Access> {
    let Purpose::Virtual(handle) = mapped.purpose else { return Err(CUDA_ERROR_INVALID_VALUE) };
    let physical = vmm.all.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut access = mapped.access;
    for (place, flags) in wanted {
        if *flags != CU_MEM_ACCESS_FLAGS_PROT_NONE {
            check_access(driver, *place, physical)?;
        }
        access.set(*place, *flags);
    }
    Ok(access)
}

/// Makes the bytes at a mapping's addresses as accessible as `access` says.
fn apply(vmm: &Vmm, table: &mut Table, start: u64, access: Access) -> Answer {
    let Some(mapped) = table.mappings.get(&start) else { return Ok(()) };
    let (Purpose::Virtual(handle), bytes) = (mapped.purpose, mapped.bytes) else { return Ok(()) };
    if access.all() != mapped.access.all() {
        if access.all() == CU_MEM_ACCESS_FLAGS_PROT_NONE {
            if let Some(range) = table.reservation(start, bytes) {
                range.clear(&(start..start + bytes));
            }
        } else {
            let can_write = access.all() == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            let (file, range) = vmm.file_of(handle, bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let done = file.map_at(start, &range, can_write);
            done.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        }
    }
    if let Some(mapped) = table.mappings.get_mut(&start) {
        mapped.access = access;
        // The host writes to its own memory without a call.
        mapped.is_written |= mapped.place == Place::Host;
    }
    Ok(())
}

/// `cuMemSetAccess`: of whole mappings.
pub fn set_access(
    pointer: CUdeviceptr,
    bytes: u64,
    accesses: In<CUmemAccessDesc>,
    count: usize,
) -> Answer {
    let driver = driver()?;
    check_range(pointer, bytes)?;
    if count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut wanted = Vec::new();
    for index in 0..count {
        let access = accesses.get_at(index)?;
        if !matches!(
            access.flags,
            CU_MEM_ACCESS_FLAGS_PROT_NONE
                | CU_MEM_ACCESS_FLAGS_PROT_READ
                | CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        ) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        wanted.push((place_of(driver, access.location)?.0, access.flags));
    }
    let vmm = lock(&driver.vmm);
    let mut table = driver.mapped.table();
    // Everything is checked before anything changes.
    let mut changes = Vec::new();
    for start in table.whole(pointer, bytes)? {
        let mapped = table.mappings.get(&start).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        changes.push((start, changed(driver, &vmm, mapped, &wanted)?));
    }
    changes.into_iter().try_for_each(|(start, access)| apply(&vmm, &mut table, start, access))
}
