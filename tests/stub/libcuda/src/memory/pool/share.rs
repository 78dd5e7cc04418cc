//! Memory pools of several processes.
//!
//! A pool that can be exported has its chunks in one memory file, at the same offsets as in its
//! space. Another process that imports the pool can map allocations of it. They stay the owner's:
//! the ledger does not charge the importer, also when the owner ends first.

use super::{Pool, insert};
use crate::Answer;
use crate::boundary::{Host, In, Out};
use crate::memory::mapped::{Place, Purpose};
use crate::memory::vmm::share::check_exportable;
use crate::process::{Driver, driver, handle, lock};
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stub_engine::backing::Area;
use stub_engine::memory_file::MemoryFile;

const MAGIC: u64 = u64::from_le_bytes(*b"stubpool");

/// A file for the chunks of a pool on this card.
pub fn file(driver: &Driver, card: usize) -> Answer<Arc<MemoryFile>> {
    let space = driver.backing.space(Area::Pooled, card).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let bytes = driver.backing.spaces()[space];
    let file = MemoryFile::create(&format!("pool {card}"), bytes);
    file.map(Arc::new).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)
}

impl Pool {
    /// The file of a pool that another process can import.
    fn exportable(&self) -> Answer<Arc<MemoryFile>> {
        let file = lock(&self.file).clone();
        let is_own = !self.is_imported.load(Ordering::Relaxed);
        file.filter(|_| is_own).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// The types of handles that it was created for.
    pub fn handle_types(&self) -> CUmemAllocationHandleType {
        if lock(&self.file).is_some() {
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        } else {
            CU_MEM_HANDLE_TYPE_NONE
        }
    }
}

/// `cuMemPoolExportToShareableHandle`
pub fn export(
    descriptor: Out<c_void>,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> Answer {
    let driver = driver()?;
    let found = driver.pools.find(pool)?;
    check_exportable(kind)?;
    if descriptor.is_null() || flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let file = found.exportable()?;
    let keeper = (std::process::id(), file.descriptor());
    let exported = file.export(keeper).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)?;
    descriptor.cast().put(exported.into_raw_fd())
}

/// `cuMemPoolImportFromShareableHandle`: a pool that cannot allocate. The descriptor stays the
/// program's.
pub fn import(
    pool: Out<CUmemoryPool>,
    descriptor: Host,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> Answer {
    let driver = driver()?;
    check_exportable(kind)?;
    if pool.is_null() || flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let file = MemoryFile::duplicate(descriptor.0 as i32).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let name = file.what().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let card = name.strip_prefix("pool ").and_then(|card| card.parse::<usize>().ok());
    let card = card.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let device = driver.devices.iter().position(|known| *known == card);
    let device = device.ok_or(CUDA_ERROR_INVALID_DEVICE)? as CUdevice;
    let created = insert(&driver.pools.all, device, card, false).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Some(made) = driver.pools.all.get(created) {
        *lock(&made.file) = Some(Arc::new(file));
        made.is_imported.store(true, Ordering::Relaxed);
    }
    pool.put(handle(created))
}

/// `cuMemPoolExportPointer`
pub fn export_pointer(data: Out<CUmemPoolPtrExportData>, pointer: CUdeviceptr) -> Answer {
    let driver = driver()?;
    let (space, offset) = driver.backing.locate(pointer).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if driver.backing.area_of(space) != Area::Pooled {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let chunk = lock(&driver.arenas[space]).find(offset).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let found = driver.pools.all.at(chunk.owner as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let (base, bytes) =
        super::find_live(driver, chunk.owner, offset).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let words = [MAGIC, found.1.exportable()?.inode(), base, bytes];
    let mut reserved = [0; 64];
    for (place, byte) in reserved.iter_mut().zip(words.into_iter().flat_map(u64::to_le_bytes)) {
        *place = byte;
    }
    data.put(CUmemPoolPtrExportData { reserved })
}

/// `cuMemPoolImportPointer`
pub fn import_pointer(
    pointer: Out<CUdeviceptr>,
    pool: CUmemoryPool,
    data: In<CUmemPoolPtrExportData>,
) -> Answer {
    let driver = driver()?;
    let found = driver.pools.find(pool)?;
    let data = data.get()?.reserved;
    let (words, _) = data.as_chunks::<8>();
    let [magic, inode, base, bytes] = [0, 1, 2, 3].map(|index| u64::from_le_bytes(words[index]));
    let file = lock(&found.file).clone().filter(|_| found.is_imported.load(Ordering::Relaxed));
    let file = file.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let end = base.checked_add(bytes).filter(|end| *end <= file.bytes());
    let end = end.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if pointer.is_null() || magic != MAGIC || inode != file.inode() || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let place = Place::Device(found.ordinal.load(Ordering::Relaxed));
    let purpose = Purpose::Pool(pool as usize);
    pointer.put(driver.mapped.add(&file, &(base..end), purpose, place, None)?)
}

/// Frees a pointer that was imported; the allocation stays.
pub fn free_imported(driver: &Driver, pointer: u64) -> bool {
    driver.mapped.remove(pointer, |purpose| matches!(purpose, Purpose::Pool(_))).is_some()
}
