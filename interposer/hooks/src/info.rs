//! The memory of a card as the slice sees it.
//!
//! total = min(limit, card's total); free = min(rest of the limit, card's free memory). The driver
//! is called with the program's own pointers, so the result for NULL is the driver's.

use driver_sys::cuda::{CUDA_SUCCESS, CUdevice, CUresult};
use vgpu_slice::{Slice, cards, charging, current};

around! {
    mem_get_info(free: *mut usize, total: *mut usize) -> CUresult
        = cuMemGetInfo_v2, |call| lower_current(call(), free, total);
    mem_get_info_v1(free: *mut u32, total: *mut u32) -> CUresult
        = cuMemGetInfo, |call| lower_current(call(), free, total);
    device_total_mem(bytes: *mut usize, device: CUdevice) -> CUresult
        = cuDeviceTotalMem_v2, |call| lower_total(call(), bytes, device);
    device_total_mem_v1(bytes: *mut u32, device: CUdevice) -> CUresult
        = cuDeviceTotalMem, |call| lower_total(call(), bytes, device);
}

/// A size in one of the two ABIs. The old one has 32 bits; a larger size is capped, as the driver
/// does.
trait Size: Copy {
    fn min_with(self, bytes: u64) -> Self;
}

impl Size for usize {
    fn min_with(self, bytes: u64) -> Self {
        self.min(bytes as usize)
    }
}

impl Size for u32 {
    fn min_with(self, bytes: u64) -> Self {
        self.min(u32::try_from(bytes).unwrap_or(u32::MAX))
    }
}

fn lower<T: Size>(value: *mut T, bytes: u64) {
    if !value.is_null() {
        // SAFETY: not null, and the driver has just written it.
        unsafe { *value = (*value).min_with(bytes) };
    }
}

/// Lowers what the driver has written, if its `result` is a success.
fn lower_current<T: Size>(result: CUresult, free: *mut T, total: *mut T) -> CUresult {
    if let (CUDA_SUCCESS, Slice::Limited(limited)) = (result, current())
        && let Some(card) = charging::current_card(limited)
    {
        lower(free, limited.left(card));
        lower(total, limited.limit(card));
    }
    result
}

/// As [`lower_current`].
fn lower_total<T: Size>(result: CUresult, bytes: *mut T, device: CUdevice) -> CUresult {
    if let (CUDA_SUCCESS, Slice::Limited(limited)) = (result, current())
        && let Some(card) = cards::of_device(limited, device)
    {
        lower(bytes, limited.limit(card));
    }
    result
}
