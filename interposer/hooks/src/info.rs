//! The memory of a card as the slice sees it.
//!
//! total = min(limit, card's total); free = min(rest of the limit, card's free memory). The driver
//! is called with the program's own pointers, so the result for NULL is the driver's.

use driver_sys::cuda::{CUDA_SUCCESS, CUdevice, CUresult};
use vgpu_driver::real;
use vgpu_slice::{Slice, cards, charging, current};

pub(crate) unsafe fn mem_get_info(free: *mut usize, total: *mut usize) -> CUresult {
    // SAFETY: the program's own arguments.
    let result = unsafe { real::cuMemGetInfo_v2(free, total) };
    if result == CUDA_SUCCESS {
        // SAFETY: the driver accepted the pointers.
        unsafe { lower_current(free, total) };
    }
    result
}

pub(crate) unsafe fn mem_get_info_v1(free: *mut u32, total: *mut u32) -> CUresult {
    // SAFETY: the program's own arguments.
    let result = unsafe { real::cuMemGetInfo(free, total) };
    if result == CUDA_SUCCESS {
        // SAFETY: the driver accepted the pointers.
        unsafe { lower_current(free, total) };
    }
    result
}

pub(crate) unsafe fn device_total_mem(bytes: *mut usize, device: CUdevice) -> CUresult {
    // SAFETY: the program's own arguments.
    let result = unsafe { real::cuDeviceTotalMem_v2(bytes, device) };
    if result == CUDA_SUCCESS {
        // SAFETY: the driver accepted the pointer.
        unsafe { lower_total(bytes, device) };
    }
    result
}

pub(crate) unsafe fn device_total_mem_v1(bytes: *mut u32, device: CUdevice) -> CUresult {
    // SAFETY: the program's own arguments.
    let result = unsafe { real::cuDeviceTotalMem(bytes, device) };
    if result == CUDA_SUCCESS {
        // SAFETY: the driver accepted the pointer.
        unsafe { lower_total(bytes, device) };
    }
    result
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

unsafe fn lower<T: Size>(value: *mut T, bytes: u64) {
    if !value.is_null() {
        // SAFETY: not null, and the driver has just written it.
        unsafe { *value = (*value).min_with(bytes) };
    }
}

unsafe fn lower_current<T: Size>(free: *mut T, total: *mut T) {
    let Slice::Limited(limited) = current() else { return };
    let Some(card) = charging::current_card(limited) else { return };
    // SAFETY: as the caller's.
    unsafe {
        lower(free, limited.left(card));
        lower(total, limited.limit(card));
    }
}

unsafe fn lower_total<T: Size>(bytes: *mut T, device: CUdevice) {
    let Slice::Limited(limited) = current() else { return };
    let Some(card) = cards::of_device(limited, device) else { return };
    // SAFETY: as the caller's.
    unsafe { lower(bytes, limited.limit(card)) };
}
