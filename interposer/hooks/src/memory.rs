//! Linear, pitched and managed memory: what the hooks expect each call to allocate.
//!
//! Managed memory is charged in full where it is allocated, wherever its pages are, because any
//! kernel can bring all of them to the card.

use driver_sys::cuda::{
    CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST, CUdeviceptr, CUdeviceptr_v1, CUresult,
};
use vgpu_driver::real::{Outcome, check};
use vgpu_slice::allocations::LINEAR;
use vgpu_slice::charging;
use vgpu_slice::reserve::{Allocated, Taken};

use crate::external;

/// Rows of pitched memory begin at multiples of this on every known card. If a driver takes more,
/// the rest is charged afterwards.
const PITCH: u64 = 512;

/// The driver is expected to refuse these arguments. If it allocates anyway, the memory is charged
/// afterwards.
const UNEXPECTED: u64 = 0;

around! {
    alloc(pointer: *mut CUdeviceptr, bytes: usize) -> Outcome = cuMemAlloc_v2,
        |call| allocate(pointer, Taken::InGranules, bytes as u64, call, || bytes as u64);
    alloc_v1(pointer: *mut CUdeviceptr_v1, bytes: u32) -> Outcome = cuMemAlloc,
        |call| allocate(pointer, Taken::InGranules, bytes.into(), call, || bytes.into());
    alloc_managed(pointer: *mut CUdeviceptr, bytes: usize, flags: u32) -> Outcome
        = cuMemAllocManaged, |call| {
            let is_known = matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST);
            let expected = if is_known { bytes as u64 } else { UNEXPECTED };
            allocate(pointer, Taken::Exactly, expected, call, || bytes as u64)
        };
    alloc_pitch(
        pointer: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: u32
    ) -> Outcome = cuMemAllocPitch_v2, |call| {
        let expected = pitched(pitch, width as u64, height as u64, element);
        // SAFETY: read only after the driver has written it.
        let row = || unsafe { *pitch } as u64;
        allocate(pointer, Taken::InGranules, expected, call, || row().saturating_mul(height as u64))
    };
    alloc_pitch_v1(
        pointer: *mut CUdeviceptr_v1, pitch: *mut u32, width: u32, height: u32, element: u32
    ) -> Outcome = cuMemAllocPitch, |call| {
        let expected = pitched(pitch, width.into(), height.into(), element);
        // SAFETY: read only after the driver has written it.
        let row = || u64::from(unsafe { *pitch });
        allocate(pointer, Taken::InGranules, expected, call, || row() * u64::from(height))
    };
    free(pointer: CUdeviceptr) -> Outcome = cuMemFree_v2, |call| release(pointer, call);
    free_v1(pointer: CUdeviceptr_v1) -> Outcome = cuMemFree, |call| release(pointer.into(), call);
}

/// The bytes that pitched memory is expected to take.
fn pitched<P>(pitch: *const P, width: u64, height: u64, element: u32) -> u64 {
    let is_known = matches!(element, 4 | 8 | 16) && !pitch.is_null();
    let row = width.checked_next_multiple_of(PITCH).filter(|_| is_known);
    row.and_then(|row| row.checked_mul(height)).unwrap_or(UNEXPECTED)
}

/// Allocates with `call`, after which the driver has written `pointer` and what `bytes` reads. If
/// `pointer` is null, the driver refuses.
#[inline]
fn allocate<P: Copy + Into<u64>>(
    pointer: *mut P,
    taken: Taken,
    expected: u64,
    call: impl FnOnce() -> CUresult,
    bytes: impl FnOnce() -> u64,
) -> Outcome {
    if pointer.is_null() {
        return check(call());
    }
    // SAFETY: read only after the driver has written it.
    let allocated = || Allocated { key: unsafe { *pointer }.into(), bytes: bytes() };
    charging::allocate(&LINEAR, taken, expected, call, allocated)
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
        let pitched = |width, height, element| pitched(&PITCH, width, height, element);
        assert_eq!(pitched(1, 3, 4), 3 * 512);
        assert_eq!(pitched(513, 2, 16), 2 * 1024);
        assert_eq!(pitched(u64::MAX, 1, 4), UNEXPECTED);
        assert_eq!(pitched(1 << 40, 1 << 40, 4), UNEXPECTED);
    }
}
