//! Linear, pitched and managed memory, and free.
//!
//! Allocate: charge every level of the slice, call the driver, remember the pointer; a refusal never
//! reaches the driver. Free: forget the pointer, call the driver, give the bytes back. In this order
//! nobody can be given bytes that the driver still holds, and no other thread that is handed the
//! same pointer again can meet our old entry.
//!
//! Managed memory is charged in full where it is allocated, wherever its pages are: any kernel can
//! bring all of it to the card.

use driver_sys::cuda::{
    CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUcontext,
    CUdevice, CUdeviceptr, CUdeviceptr_v1, CUresult,
};

use crate::allocations::{self, Allocation, Full, Owner};
use crate::boundary::guard;
use crate::cards;
use crate::init;
use crate::pools;
use crate::slice::{self, Card, Limited, Slice};
use crate::table::real;

/// Rows of pitched memory begin at multiples of this on every card so far. Where a driver takes
/// more, the rest is charged when it is known.
const PITCH: u64 = 512;

/// The driver is expected to refuse these arguments, in its own words. What it gives all the same is
/// charged when it is known.
const UNEXPECTED: u64 = 0;

pub(crate) unsafe fn alloc(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAlloc_v2(pointer, bytes) };
    if pointer.is_null() {
        return driver();
    }
    // SAFETY: read only after the driver has written it.
    charged(bytes as u64, driver, || Got { pointer: unsafe { *pointer }, bytes: bytes as u64 })
}

pub(crate) unsafe fn alloc_v1(pointer: *mut CUdeviceptr_v1, bytes: u32) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAlloc(pointer, bytes) };
    if pointer.is_null() {
        return driver();
    }
    let bytes = u64::from(bytes);
    // SAFETY: read only after the driver has written it.
    charged(bytes, driver, || Got { pointer: u64::from(unsafe { *pointer }), bytes })
}

pub(crate) unsafe fn alloc_managed(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    flags: u32,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAllocManaged(pointer, bytes, flags) };
    if pointer.is_null() {
        return driver();
    }
    let is_known = matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST);
    let expected = if is_known { bytes as u64 } else { UNEXPECTED };
    // SAFETY: read only after the driver has written it.
    charged(expected, driver, || Got { pointer: unsafe { *pointer }, bytes: bytes as u64 })
}

pub(crate) unsafe fn alloc_pitch(
    pointer: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAllocPitch_v2(pointer, pitch, width, height, element) };
    if pointer.is_null() || pitch.is_null() {
        return driver();
    }
    let height = height as u64;
    // SAFETY: read only after the driver has written them.
    let got = || unsafe { Got { pointer: *pointer, bytes: height.saturating_mul(*pitch as u64) } };
    charged(pitched(width as u64, height, element), driver, got)
}

pub(crate) unsafe fn alloc_pitch_v1(
    pointer: *mut CUdeviceptr_v1,
    pitch: *mut u32,
    width: u32,
    height: u32,
    element: u32,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAllocPitch(pointer, pitch, width, height, element) };
    if pointer.is_null() || pitch.is_null() {
        return driver();
    }
    let height = u64::from(height);
    // SAFETY: read only after the driver has written them.
    let got = || unsafe { Got { pointer: (*pointer).into(), bytes: height * u64::from(*pitch) } };
    charged(pitched(width.into(), height, element), driver, got)
}

/// What pitched memory will take.
fn pitched(width: u64, height: u64, element: u32) -> u64 {
    let is_known = matches!(element, 4 | 8 | 16);
    let row = width.checked_next_multiple_of(PITCH).filter(|_| is_known);
    row.and_then(|row| row.checked_mul(height)).unwrap_or(UNEXPECTED)
}

pub(crate) unsafe fn free(pointer: CUdeviceptr) -> CUresult {
    // SAFETY: the program's own argument.
    uncharged(pointer, || unsafe { real::cuMemFree_v2(pointer) })
}

pub(crate) unsafe fn free_v1(pointer: CUdeviceptr_v1) -> CUresult {
    // SAFETY: the program's own argument.
    uncharged(u64::from(pointer), || unsafe { real::cuMemFree(pointer) })
}

/// What the driver gave.
struct Got {
    pointer: u64,
    bytes: u64,
}

/// One allocation of an expected size; `got` reads what the driver wrote.
fn charged(
    expected: u64,
    driver: impl FnOnce() -> CUresult,
    got: impl FnOnce() -> Got,
) -> CUresult {
    let limited = match slice::current() {
        Slice::Open => return driver(),
        Slice::Refused(_) => return CUDA_ERROR_OUT_OF_MEMORY,
        Slice::Limited(limited) => limited,
    };
    // What the driver refuses by itself (no context, not initialised) it refuses with us.
    let Some((device, context)) = current() else { return driver() };
    // A card that cannot be told is none of ours.
    let Some(card) = cards::of_device(limited, device) else { return CUDA_ERROR_OUT_OF_MEMORY };
    if expected != 0 && !charge(limited, card, expected) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let result = driver();
    if result != CUDA_SUCCESS {
        if expected != 0 {
            limited.uncharge(card, expected);
        }
        return result;
    }
    let got = got();
    if got.bytes > expected && !charge(limited, card, got.bytes - expected) {
        return take_back(limited, card, got.pointer, expected);
    }
    if got.bytes < expected {
        limited.uncharge(card, expected - got.bytes);
    }
    let owner = Owner::context(context);
    let allocation = Allocation::new(got.pointer, got.bytes, owner, card.device);
    match remember(limited, allocation) {
        Ok(()) => CUDA_SUCCESS,
        Err(Full) => take_back(limited, card, got.pointer, got.bytes),
    }
}

/// Remembers what the driver has just handed out.
pub(crate) fn remember(limited: &'static Limited, allocation: Allocation) -> Result<(), Full> {
    if let Some(gone) = allocations::insert(allocation)? {
        // The driver hands a pointer out again when what was there is gone: with its context, whose
        // end another thread has not told us yet.
        settle(limited, &[gone]);
    }
    Ok(())
}

/// Frees what the driver has just handed out and nobody has seen yet.
#[cold]
fn take_back(limited: &Limited, card: &Card, pointer: u64, charged: u64) -> CUresult {
    // SAFETY: a pointer of the driver's that the program does not use: it is told of no success.
    unsafe { real::cuMemFree_v2(pointer) };
    limited.uncharge(card, charged);
    CUDA_ERROR_OUT_OF_MEMORY
}

/// Charges; what pools of this process keep without use makes room before anything is refused.
fn charge(limited: &'static Limited, card: &Card, bytes: u64) -> bool {
    if pools::any() {
        if limited.try_charge(card, bytes) {
            return true;
        }
        pools::trim(limited, card, None);
    }
    limited.charge(card, bytes)
}

/// One free; pointers that we never saw are the driver's business alone.
pub(crate) fn uncharged(pointer: u64, driver: impl FnOnce() -> CUresult) -> CUresult {
    let Slice::Limited(limited) = slice::current() else { return driver() };
    if init::inherited() {
        return driver();
    }
    let Some(allocation) = allocations::remove(pointer) else { return driver() };
    let result = driver();
    if result == CUDA_SUCCESS {
        // The driver has answered: whatever goes wrong now, it must not be asked again.
        guard(|| settle(limited, &[allocation]));
    } else {
        // There was room for this entry a moment ago; at worst the bytes stay charged.
        let _ = allocations::insert(allocation);
    }
    result
}

/// Gives back the bytes of allocations that the driver has freed.
pub(crate) fn settle(limited: &'static Limited, freed: &[Allocation]) {
    for allocation in freed {
        if let Some(place) = allocation.owner.as_pool() {
            pools::freed(limited, place, allocation.bytes);
        } else if let Some(card) = cards::of_device(limited, allocation.device) {
            limited.uncharge(card, allocation.bytes);
        }
    }
}

/// The card of this thread's context.
pub(crate) fn current_card(limited: &'static Limited) -> Option<&'static Card> {
    cards::of_device(limited, current()?.0)
}

/// The device and context of this thread, if there are any in this very process.
pub(crate) fn current() -> Option<(CUdevice, CUcontext)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pitched_size_is_rows_of_whole_pitches_and_never_wraps() {
        assert_eq!(pitched(1, 3, 4), 3 * 512);
        assert_eq!(pitched(513, 2, 16), 2 * 1024);
        assert_eq!(pitched(u64::MAX, 1, 4), UNEXPECTED);
        assert_eq!(pitched(1 << 40, 1 << 40, 4), UNEXPECTED);
    }
}
