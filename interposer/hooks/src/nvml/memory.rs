//! A card's memory: the same numbers as in [`crate::info`].
//!
//! The window through which the host accesses a card (BAR1) is other memory. It is not limited, and
//! its numbers are the card's own.

use driver_sys::nvml::{NVML_SUCCESS, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t};
use vgpu_driver::real;
use vgpu_slice::{Limited, Slice, current};

use super::{card_of, refused};

pub(crate) unsafe fn memory_info(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t {
    if let Slice::Refused(reason) = current() {
        return refused(reason);
    }
    // SAFETY: the program's own arguments.
    let result = unsafe { real::nvmlDeviceGetMemoryInfo(device, memory) };
    if let (NVML_SUCCESS, Slice::Limited(limited)) = (result, current()) {
        // SAFETY: NVML has just written it.
        let memory = unsafe { &mut *memory };
        if let Some(seen) = seen(limited, device, memory.total, memory.free) {
            (memory.total, memory.used, memory.free) = (seen.total, seen.used, seen.free);
        }
    }
    result
}

/// The second form also has a field for memory that is neither used nor free, and a version that
/// NVML checks.
pub(crate) unsafe fn memory_info_v2(
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    if let Slice::Refused(reason) = current() {
        return refused(reason);
    }
    // SAFETY: the program's own arguments.
    let result = unsafe { real::nvmlDeviceGetMemoryInfo_v2(device, memory) };
    if let (NVML_SUCCESS, Slice::Limited(limited)) = (result, current()) {
        // SAFETY: NVML has just written it.
        let memory = unsafe { &mut *memory };
        if let Some(seen) = seen(limited, device, memory.total, memory.free) {
            (memory.total, memory.used, memory.free) = (seen.total, seen.used, seen.free);
            memory.reserved = seen.total - seen.used - seen.free;
        }
    }
    result
}

/// A card's memory in bytes as the slice sees it; used + free ≤ total.
struct Seen {
    total: u64,
    used: u64,
    free: u64,
}

/// The memory as the slice sees it, from the numbers of the card.
fn seen(limited: &Limited, device: nvmlDevice_t, total: u64, free: u64) -> Option<Seen> {
    let card = card_of(limited, device)?;
    let total = total.min(limited.limit(&card));
    // First, because it releases the bytes of dead processes, which then do not count as used.
    let left = limited.left(&card);
    let used = limited.used(&card).min(total);
    Some(Seen { total, used, free: free.min(left).min(total - used) })
}
