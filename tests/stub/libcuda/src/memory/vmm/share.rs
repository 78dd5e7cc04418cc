//! Physical allocations of several processes: a descriptor of the allocation's file is passed on.

use super::{Bytes, Physical, charge, place_of};
use crate::Answer;
use crate::boundary::{Host, Out};
use crate::memory::mapped::Place;
use crate::process::{Driver, driver, lock};
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::os::fd::IntoRawFd;
use stub_engine::memory_file::MemoryFile;

/// Checks the types of handles that an allocation can have: none, or a descriptor.
pub fn check_type(kind: CUmemAllocationHandleType) -> Answer {
    match kind {
        CU_MEM_HANDLE_TYPE_NONE | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => Ok(()),
        CU_MEM_HANDLE_TYPE_FABRIC | CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT => {
            Err(CUDA_ERROR_NOT_SUPPORTED)
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Checks the type of a handle that is exported or imported.
pub fn check_exportable(kind: CUmemAllocationHandleType) -> Answer {
    check_type(kind)?;
    if kind == CU_MEM_HANDLE_TYPE_NONE { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// The name of a file with an allocation: its location, with the engine's number of the card, which
/// is the same in all processes.
pub fn name(location: CUmemLocation, card: Option<usize>) -> String {
    // SAFETY: every field of the union is a number.
    let id = card.map_or_else(|| unsafe { location.unnamed1.id }, |card| card as i32);
    format!("memory {} {id}", location.r#type)
}

/// The location in a file's name.
fn location_in(driver: &Driver, name: &str) -> Option<Answer<CUmemLocation>> {
    let (kind, id) = name.strip_prefix("memory ")?.split_once(' ')?;
    let (kind, mut id) = (kind.parse().ok()?, id.parse().ok()?);
    if kind == CU_MEM_LOCATION_TYPE_DEVICE {
        let device = driver.devices.iter().position(|card| Ok(*card) == usize::try_from(id));
        // The process does not see this card.
        let Some(device) = device else { return Some(Err(CUDA_ERROR_INVALID_DEVICE)) };
        id = device as i32;
    }
    Some(Ok(CUmemLocation { r#type: kind, unnamed1: CUmemLocation_st_unnamed1 { id } }))
}

/// `cuMemExportToShareableHandle`
pub fn export(
    descriptor: Out<c_void>,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> Answer {
    let driver = driver()?;
    check_exportable(kind)?;
    if descriptor.is_null() || flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut vmm = lock(&driver.vmm);
    let physical = vmm.held(handle)?;
    let Bytes::Own(file) = &physical.memory else { return Err(CUDA_ERROR_INVALID_VALUE) };
    let keeper = match physical.card {
        Some(card) => driver.engine.export(card, [file.inode(), 0], file.descriptor()),
        None => (std::process::id(), file.descriptor()),
    };
    let exported = file.export(keeper).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)?;
    descriptor.cast().put(exported.into_raw_fd())
}

/// `cuMemImportFromShareableHandle`: a new handle, also in the process that has exported the memory.
/// The descriptor stays the program's.
pub fn import(
    handle: Out<CUmemGenericAllocationHandle>,
    descriptor: Host,
    kind: CUmemAllocationHandleType,
) -> Answer {
    let driver = driver()?;
    check_exportable(kind)?;
    if handle.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let file = MemoryFile::duplicate(descriptor.0 as i32).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let name = file.what().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let location = location_in(driver, &name).ok_or(CUDA_ERROR_INVALID_VALUE)??;
    let (place, card): (Place, _) = place_of(driver, location)?;
    let mut vmm = lock(&driver.vmm);
    card.map_or(Ok(()), |card| driver.check_lost(card))?;
    let bytes = file.bytes();
    charge(driver, card, Some(&file), bytes)?;
    let imported = vmm.insert(Physical {
        bytes,
        location,
        place,
        card,
        memory: Bytes::Own(file),
        handle_types: CU_MEM_HANDLE_TYPE_NONE,
        is_direct: false,
        handles: 1,
        mappings: 0,
        is_written: false,
    });
    handle.put(imported)
}
