//! Descriptors of exported memory. An open descriptor keeps the memory, also when this process has
//! released every handle and every mapping. The library does not see when a program closes it. So
//! before a refusal, and when more memory is created, it looks whether the descriptor is still open.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use driver_sys::cuda::CUdevice;

use crate::cards;
use crate::limited::Limited;
use crate::table::{Entry, Full, Table};

/// The descriptors that this process has exported, and that it had not closed when last seen.
static EXPORTS: Table<Export> = Table::new();
/// How many of them are all that keeps their memory.
static ORPHANS: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone, Copy)]
struct Export {
    /// 1 + the descriptor.
    key: u64,
    /// Which file the descriptor refers to: a program may close it and get its number again.
    file: (u64, u64),
    /// The memory's handle; 0 once this process has no other hold on the memory.
    handle: u64,
    device: CUdevice,
    /// The charged bytes, once the handle is 0.
    bytes: u64,
}

// SAFETY: numbers; without a key it is an empty entry.
unsafe impl Entry for Export {
    fn key(&self) -> u64 {
        self.key
    }
}

impl Export {
    fn is_open(&self) -> bool {
        file_of((self.key - 1) as RawFd) == Some(self.file)
    }
}

/// Device and inode of an open descriptor.
fn file_of(descriptor: RawFd) -> Option<(u64, u64)> {
    // SAFETY: zero bytes are a valid value of this structure of numbers.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a local variable.
    let found = unsafe { libc::fstat(descriptor, &raw mut status) } == 0;
    found.then_some((status.st_dev, status.st_ino))
}

/// Notes a descriptor that the driver has returned for the memory behind a handle.
pub(crate) fn exported(
    limited: &Limited,
    descriptor: RawFd,
    handle: u64,
    device: CUdevice,
) -> Result<(), Full> {
    let Some(file) = file_of(descriptor) else { return Ok(()) };
    let key = descriptor as u64 + 1;
    if let Some(replaced) = EXPORTS.insert(Export { key, file, handle, device, bytes: 0 })? {
        // The program has closed a descriptor with the same number.
        release(limited, &replaced);
    }
    Ok(())
}

/// This process's last handle and mapping of some memory are gone. If one of its descriptors is open,
/// the bytes stay charged on account of that.
pub(crate) fn inherit(handle: u64, device: CUdevice, bytes: u64) -> bool {
    let exports = EXPORTS.remove_all(|export| export.handle == handle && export.device == device);
    let Some(open) = exports.into_iter().find(Export::is_open) else { return false };
    let is_kept = EXPORTS.insert(Export { handle: 0, bytes, ..open }).is_ok();
    if is_kept {
        ORPHANS.fetch_add(1, Ordering::Relaxed);
    }
    is_kept
}

/// Whether descriptors may be all that keeps some memory. In most programs none does.
#[inline]
pub(crate) fn any_left() -> bool {
    ORPHANS.load(Ordering::Relaxed) > 0
}

/// Uncharges memory that only descriptors kept that the program has closed.
#[inline]
pub fn release_closed(limited: &Limited) {
    if any_left() {
        look_for_closed(limited);
    }
}

#[cold]
fn look_for_closed(limited: &Limited) {
    for closed in EXPORTS.remove_all(|export| export.handle == 0 && !export.is_open()) {
        release(limited, &closed);
    }
}

/// Uncharges the memory of a closed descriptor, if nothing else kept it.
fn release(limited: &Limited, closed: &Export) {
    if closed.handle != 0 {
        return;
    }
    ORPHANS.fetch_sub(1, Ordering::Relaxed);
    if let Some(card) = cards::of_device(limited, closed.device) {
        limited.uncharge(card, closed.bytes);
    }
}
