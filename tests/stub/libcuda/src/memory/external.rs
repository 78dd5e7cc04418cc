//! External memory: memory of another API, such as a graphics API, that the program passes as a
//! descriptor.
//!
//! It belongs to a context and is charged to the context's card. It lives until it is destroyed and
//! its buffers are freed.

use crate::Answer;
use crate::boundary::{In, Out};
use crate::context::{Context, current};
use crate::memory::mapped::{Place, Purpose};
use crate::memory::refused;
use crate::process::{Driver, driver, handle, lock};
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use stub_engine::ledger::Kind;
use stub_engine::memory_file::MemoryFile;

/// `CUDA_EXTERNAL_MEMORY_DEDICATED`, a macro in the header.
const DEDICATED: u32 = 1;

struct External {
    file: MemoryFile,
    bytes: u64,
    card: usize,
    device: CUdevice,
    /// The owner number of its context.
    owner: u32,
    buffers: u64,
    is_destroyed: bool,
}

/// The external memory of this process, by handle.
#[derive(Default)]
pub struct ExternalTable {
    all: BTreeMap<usize, External>,
    last: usize,
}

impl ExternalTable {
    fn held(&mut self, memory: CUexternalMemory) -> Answer<&mut External> {
        let found = self.all.get_mut(&(memory as usize)).filter(|found| !found.is_destroyed);
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    fn free_unused(&mut self, driver: &Driver, memory: usize) {
        let is_unused = |found: &External| found.is_destroyed && found.buffers == 0;
        if self.all.get(&memory).is_some_and(is_unused)
            && let Some(External { card, bytes, .. }) = self.all.remove(&memory)
        {
            driver.engine.release(card, Kind::Requested, bytes);
        }
    }
}

/// `cuImportExternalMemory`: on success the descriptor is the driver's.
pub fn import(
    memory: Out<CUexternalMemory>,
    described: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
) -> Answer {
    let (driver, context, _) = current()?;
    let described = described.get()?;
    if memory.is_null() || described.size == 0 || described.flags & !DEDICATED != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match described.r#type {
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD => {}
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32..=CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD => {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    // SAFETY: the type says which field is set.
    let descriptor = unsafe { described.handle.fd };
    let file = MemoryFile::duplicate(descriptor).map_err(|_| CUDA_ERROR_INVALID_HANDLE)?;
    if file.bytes() < described.size {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (card, bytes) = (context.card(), described.size);
    driver.engine.charge(card, Kind::Requested, bytes).map_err(refused)?;
    let mut table = lock(&driver.external);
    // Like the address of an object.
    table.last += 64;
    let imported = (1 << 33) + table.last;
    let device = context.device.load(Ordering::Relaxed);
    let (owner, buffers, is_destroyed) = (context.index(), 0, false);
    let external = External { file, bytes, card, device, owner, buffers, is_destroyed };
    table.all.insert(imported, external);
    // SAFETY: by the function's documentation it is the driver's from here on.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    memory.put(handle(imported))
}

/// `cuExternalMemoryGetMappedBuffer`
pub fn buffer(
    pointer: Out<CUdeviceptr>,
    memory: CUexternalMemory,
    described: In<CUDA_EXTERNAL_MEMORY_BUFFER_DESC>,
) -> Answer {
    let driver = driver()?;
    let described = described.get()?;
    let end = described.offset.checked_add(described.size).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut table = lock(&driver.external);
    let found = table.held(memory)?;
    if pointer.is_null() || described.size == 0 || described.flags != 0 || end > found.bytes {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (range, purpose) = (described.offset..end, Purpose::External(memory as usize));
    let (place, owner) = (Place::Device(found.device), Some(found.owner));
    let mapped = driver.mapped.add(&found.file, &range, purpose, place, owner)?;
    found.buffers += 1;
    pointer.put(mapped)
}

/// `cuMemFree` of a buffer: the memory stays.
pub fn free_buffer(driver: &Driver, pointer: u64) -> Answer {
    let mut table = lock(&driver.external);
    let is_buffer = |purpose| matches!(purpose, Purpose::External(_));
    let mapped = driver.mapped.remove(pointer, is_buffer).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let Purpose::External(memory) = mapped.purpose else { return Err(CUDA_ERROR_INVALID_VALUE) };
    if let Some(found) = table.all.get_mut(&memory) {
        found.buffers -= 1;
    }
    table.free_unused(driver, memory);
    Ok(())
}

/// `cuDestroyExternalMemory`
pub fn destroy(memory: CUexternalMemory) -> Answer {
    let driver = driver()?;
    let mut table = lock(&driver.external);
    table.held(memory)?.is_destroyed = true;
    table.free_unused(driver, memory as usize);
    Ok(())
}

/// Frees the buffers and the memory of a context.
pub fn free_all(driver: &Driver, context: &Context) {
    for (pointer, purpose) in driver.mapped.owned_by(context.index()) {
        if let Purpose::External(_) = purpose {
            // Another thread may have freed it meanwhile.
            let _ = free_buffer(driver, pointer);
        }
    }
    let mut table = lock(&driver.external);
    let owned = table.all.iter().filter(|(_, found)| found.owner == context.index());
    for memory in owned.map(|(memory, _)| *memory).collect::<Vec<_>>() {
        if let Some(found) = table.all.get_mut(&memory) {
            found.is_destroyed = true;
        }
        table.free_unused(driver, memory);
    }
}
