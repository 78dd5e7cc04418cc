//! Linear allocation and free.
//!
//! Allocate: charge every level of the slice, call the driver, remember the pointer; a refusal never
//! reaches the driver. Free: forget the pointer, call the driver, give the bytes back. In this order
//! nobody can be given bytes that the driver still holds, and no other thread that is handed the
//! same pointer again can meet our old entry.

use driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUcontext, CUdevice, CUdeviceptr, CUdeviceptr_v1,
    CUresult,
};

use crate::allocations::{self, Allocation, Full};
use crate::cards;
use crate::init;
use crate::slice::{self, Card, Limited, Slice};
use crate::table::real;

pub(crate) unsafe fn alloc(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAlloc_v2(pointer, bytes) };
    if pointer.is_null() {
        return driver();
    }
    // SAFETY: read only after the driver has written it.
    charged(bytes as u64, driver, || unsafe { *pointer })
}

pub(crate) unsafe fn alloc_v1(pointer: *mut CUdeviceptr_v1, bytes: u32) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAlloc(pointer, bytes) };
    if pointer.is_null() {
        return driver();
    }
    // SAFETY: read only after the driver has written it.
    charged(u64::from(bytes), driver, || u64::from(unsafe { *pointer }))
}

pub(crate) unsafe fn free(pointer: CUdeviceptr) -> CUresult {
    // SAFETY: the program's own argument.
    uncharged(pointer, || unsafe { real::cuMemFree_v2(pointer) })
}

pub(crate) unsafe fn free_v1(pointer: CUdeviceptr_v1) -> CUresult {
    // SAFETY: the program's own argument.
    uncharged(u64::from(pointer), || unsafe { real::cuMemFree(pointer) })
}

/// One allocation of a known size; `pointer` reads what the driver wrote.
fn charged(
    bytes: u64,
    driver: impl FnOnce() -> CUresult,
    pointer: impl FnOnce() -> u64,
) -> CUresult {
    let limited = match slice::current() {
        Slice::Open => return driver(),
        Slice::Refused(_) => return CUDA_ERROR_OUT_OF_MEMORY,
        Slice::Limited(limited) => limited,
    };
    // What the driver refuses by itself (no context, no bytes, not initialised) it refuses with us.
    let Some((device, context)) = current().filter(|_| bytes != 0) else { return driver() };
    // A card that cannot be told is none of ours.
    let Some(card) = cards::of_device(limited, device) else { return CUDA_ERROR_OUT_OF_MEMORY };
    if !limited.charge(card, bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let result = driver();
    if result != CUDA_SUCCESS {
        limited.uncharge(card, bytes);
        return result;
    }
    let allocation = Allocation::new(pointer(), bytes, context, card.device);
    match allocations::insert(allocation) {
        Ok(None) => {}
        // The driver hands a pointer out again when what was there is gone: with its context, whose
        // end another thread has not told us yet.
        Ok(Some(gone)) => settle(limited, &[gone]),
        Err(Full) => {
            // SAFETY: the driver has just handed this out, and nobody else has seen it yet.
            unsafe { real::cuMemFree_v2(allocation.pointer) };
            limited.uncharge(card, bytes);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    CUDA_SUCCESS
}

/// One free; pointers that we never saw are the driver's business alone.
fn uncharged(pointer: u64, driver: impl FnOnce() -> CUresult) -> CUresult {
    let Slice::Limited(limited) = slice::current() else { return driver() };
    if init::inherited() {
        return driver();
    }
    let Some(allocation) = allocations::remove(pointer) else { return driver() };
    let result = driver();
    if result == CUDA_SUCCESS {
        settle(limited, &[allocation]);
    } else {
        // There was room for this entry a moment ago; at worst the bytes stay charged.
        let _ = allocations::insert(allocation);
    }
    result
}

/// Gives back the bytes of allocations that the driver has freed.
pub(crate) fn settle(limited: &Limited, freed: &[Allocation]) {
    for allocation in freed {
        if let Some(card) = cards::of_device(limited, allocation.device) {
            limited.uncharge(card, allocation.bytes);
        }
    }
}

/// The card of this thread's context.
pub(crate) fn current_card(limited: &'static Limited) -> Option<&'static Card> {
    cards::of_device(limited, current()?.0)
}

/// The device and context of this thread, if there are any in this very process.
fn current() -> Option<(CUdevice, CUcontext)> {
    if init::inherited() {
        return None;
    }
    let mut device: CUdevice = -1;
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: both are written to local variables.
    let results =
        unsafe { (real::cuCtxGetDevice(&raw mut device), real::cuCtxGetCurrent(&raw mut context)) };
    (results == (CUDA_SUCCESS, CUDA_SUCCESS)).then_some((device, context))
}
