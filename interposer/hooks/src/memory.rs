//! Linear, pitched and managed memory: what the hooks expect each call to allocate.
//!
//! Managed memory is charged in full where it is allocated, wherever its pages are, because any
//! kernel can bring all of them to the card.

use driver_sys::cuda::{
    CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST, CUdeviceptr, CUdeviceptr_v1, CUresult,
};
use vgpu_driver::real::{self, Outcome, check};
use vgpu_slice::allocations::LINEAR;
use vgpu_slice::charging::{self, Allocated, Taken};

use crate::external;

/// Rows of pitched memory begin at multiples of this on every known card. If a driver takes more,
/// the rest is charged afterwards.
const PITCH: u64 = 512;

/// The driver is expected to refuse these arguments. If it allocates anyway, the memory is charged
/// afterwards.
const UNEXPECTED: u64 = 0;

pub(crate) unsafe fn alloc(pointer: *mut CUdeviceptr, bytes: usize) -> Outcome {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real::cuMemAlloc_v2(pointer, bytes) };
    if pointer.is_null() {
        return check(call());
    }
    // SAFETY: read only after the driver has written it.
    let allocated = || unsafe { Allocated { key: *pointer, bytes: bytes as u64 } };
    charging::allocate(&LINEAR, Taken::InGranules, bytes as u64, call, allocated)
}

pub(crate) unsafe fn alloc_v1(pointer: *mut CUdeviceptr_v1, bytes: u32) -> Outcome {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real::cuMemAlloc(pointer, bytes) };
    if pointer.is_null() {
        return check(call());
    }
    let bytes = u64::from(bytes);
    // SAFETY: read only after the driver has written it.
    let allocated = || unsafe { Allocated { key: u64::from(*pointer), bytes } };
    charging::allocate(&LINEAR, Taken::InGranules, bytes, call, allocated)
}

pub(crate) unsafe fn alloc_managed(pointer: *mut CUdeviceptr, bytes: usize, flags: u32) -> Outcome {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real::cuMemAllocManaged(pointer, bytes, flags) };
    if pointer.is_null() {
        return check(call());
    }
    let is_known = matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST);
    let expected = if is_known { bytes as u64 } else { UNEXPECTED };
    // SAFETY: read only after the driver has written it.
    let allocated = || unsafe { Allocated { key: *pointer, bytes: bytes as u64 } };
    charging::allocate(&LINEAR, Taken::Exactly, expected, call, allocated)
}

pub(crate) unsafe fn alloc_pitch(
    pointer: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Outcome {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real::cuMemAllocPitch_v2(pointer, pitch, width, height, element) };
    if pointer.is_null() || pitch.is_null() {
        return check(call());
    }
    let height = height as u64;
    // SAFETY: read only after the driver has written them.
    let allocated =
        || unsafe { Allocated { key: *pointer, bytes: height.saturating_mul(*pitch as u64) } };
    charging::allocate(
        &LINEAR,
        Taken::InGranules,
        pitched(width as u64, height, element),
        call,
        allocated,
    )
}

pub(crate) unsafe fn alloc_pitch_v1(
    pointer: *mut CUdeviceptr_v1,
    pitch: *mut u32,
    width: u32,
    height: u32,
    element: u32,
) -> Outcome {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real::cuMemAllocPitch(pointer, pitch, width, height, element) };
    if pointer.is_null() || pitch.is_null() {
        return check(call());
    }
    let height = u64::from(height);
    // SAFETY: read only after the driver has written them.
    let allocated =
        || unsafe { Allocated { key: (*pointer).into(), bytes: height * u64::from(*pitch) } };
    charging::allocate(
        &LINEAR,
        Taken::InGranules,
        pitched(width.into(), height, element),
        call,
        allocated,
    )
}

/// The bytes that pitched memory is expected to take.
fn pitched(width: u64, height: u64, element: u32) -> u64 {
    let is_known = matches!(element, 4 | 8 | 16);
    let row = width.checked_next_multiple_of(PITCH).filter(|_| is_known);
    row.and_then(|row| row.checked_mul(height)).unwrap_or(UNEXPECTED)
}

pub(crate) unsafe fn free(pointer: CUdeviceptr) -> Outcome {
    // SAFETY: the program's own argument.
    release(pointer, || unsafe { real::cuMemFree_v2(pointer) })
}

pub(crate) unsafe fn free_v1(pointer: CUdeviceptr_v1) -> Outcome {
    // SAFETY: the program's own argument.
    release(u64::from(pointer), || unsafe { real::cuMemFree(pointer) })
}

#[inline]
fn release(pointer: u64, call: impl FnOnce() -> CUresult) -> Outcome {
    if external::has_buffer(pointer) {
        return external::free_buffer(pointer, call);
    }
    charging::free(&LINEAR, pointer, call)
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
