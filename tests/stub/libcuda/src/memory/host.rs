//! Pinned host memory: allocated here, or registered memory of the program. It is not on the card,
//! so it is not charged.

use crate::Answer;
use crate::boundary::{Host, Out, OutWide};
use crate::context::current;
use crate::process::lock;
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;

const PAGE: usize = 4096;

/// A range of pinned memory.
#[derive(Clone, Copy)]
pub struct Pinned {
    pub base: u64,
    pub bytes: u64,
    /// Whether it is registered memory of the program.
    pub is_registered: bool,
    /// The handle of its context.
    pub context: usize,
}

/// The pinned ranges, by first address.
#[derive(Default)]
pub struct HostTable(BTreeMap<u64, Pinned>);

impl HostTable {
    /// The range that contains all `bytes` from `address` on.
    pub fn find(&self, address: u64, bytes: u64) -> Option<Pinned> {
        let (_, found) = self.0.range(..=address).next_back()?;
        let inside = address - found.base;
        (inside < found.bytes && bytes <= found.bytes - inside).then_some(*found)
    }

    fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let before = self.0.range(..address + bytes).next_back();
        before.is_some_and(|(_, found)| found.base + found.bytes > address)
    }
}

fn layout(bytes: u64) -> Answer<Layout> {
    Layout::from_size_align(bytes as usize, PAGE).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)
}

/// `cuMemHostAlloc`
pub fn alloc(pointer: Out<*mut c_void>, bytes: u64, flags: u32) -> Answer {
    let (driver, _, context) = current()?;
    if pointer.is_null() || bytes == 0 || flags & !0x7 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the size is not 0.
    let memory = unsafe { alloc_zeroed(layout(bytes)?) };
    if memory.is_null() {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    let base = memory as u64;
    // With unified addressing every pinned range is portable and mapped.
    let pinned = Pinned { base, bytes, is_registered: false, context };
    lock(&driver.host).0.insert(base, pinned);
    pointer.put(memory.cast())
}

/// `cuMemAllocHost`
pub fn alloc_plain(pointer: Out<*mut c_void>, bytes: u64) -> Answer {
    alloc(pointer, bytes, 0)
}

/// `cuMemFreeHost`
pub fn free(pointer: Host) -> Answer {
    let (driver, ..) = current()?;
    let mut table = lock(&driver.host);
    let found = table.0.get(&pointer.0).filter(|found| !found.is_registered).copied();
    let found = found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    table.0.remove(&pointer.0);
    // SAFETY: `alloc` made it with the same layout, and it cannot be freed twice.
    unsafe { dealloc(pointer.0 as *mut u8, layout(found.bytes)?) };
    Ok(())
}

/// `cuMemHostRegister`
pub fn register(pointer: Host, bytes: u64, flags: u32) -> Answer {
    let (driver, _, context) = current()?;
    if pointer.0 == 0 || bytes == 0 || flags & !0xf != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut table = lock(&driver.host);
    if table.overlaps(pointer.0, bytes) {
        return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    let pinned = Pinned { base: pointer.0, bytes, is_registered: true, context };
    table.0.insert(pointer.0, pinned);
    Ok(())
}

/// `cuMemHostUnregister`
pub fn unregister(pointer: Host) -> Answer {
    let (driver, ..) = current()?;
    let mut table = lock(&driver.host);
    match table.0.get(&pointer.0) {
        Some(found) if found.is_registered => {
            table.0.remove(&pointer.0);
            Ok(())
        }
        _ => Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
    }
}

/// `cuMemHostGetDevicePointer`
pub fn device_pointer(device: OutWide, pointer: Host, flags: u32) -> Answer {
    let (driver, ..) = current()?;
    if flags != 0 || lock(&driver.host).find(pointer.0, 1).is_none() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    device.put(pointer.0)
}
