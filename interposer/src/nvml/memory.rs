//! A card's memory: the same numbers as [`crate::info`].
//!
//! The window through which the host reaches into a card (BAR1) is not this memory and is not
//! limited; it is left as it is.

use driver_sys::nvml::{NVML_SUCCESS, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t};

use super::{card_of, refused};
use crate::slice::{self, Limited, Slice};
use crate::table::real;

pub(crate) unsafe fn memory_info(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t {
    if let Slice::Refused(reason) = slice::current() {
        return refused(reason);
    }
    // SAFETY: the program's own arguments.
    let result = unsafe { real::nvmlDeviceGetMemoryInfo(device, memory) };
    if let (NVML_SUCCESS, Slice::Limited(limited)) = (result, slice::current()) {
        // SAFETY: NVML has just written it.
        let memory = unsafe { &mut *memory };
        if let Some(seen) = seen(limited, device, memory.total, memory.free) {
            (memory.total, memory.used, memory.free) = (seen.total, seen.used, seen.free);
        }
    }
    result
}

/// The second form has a place for what is neither used nor free, and a version that NVML checks.
pub(crate) unsafe fn memory_info_v2(
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    if let Slice::Refused(reason) = slice::current() {
        return refused(reason);
    }
    // SAFETY: the program's own arguments.
    let result = unsafe { real::nvmlDeviceGetMemoryInfo_v2(device, memory) };
    if let (NVML_SUCCESS, Slice::Limited(limited)) = (result, slice::current()) {
        // SAFETY: NVML has just written it.
        let memory = unsafe { &mut *memory };
        if let Some(seen) = seen(limited, device, memory.total, memory.free) {
            (memory.total, memory.used, memory.free) = (seen.total, seen.used, seen.free);
            memory.reserved = seen.total - seen.used - seen.free;
        }
    }
    result
}

/// A card's memory in bytes, seen from inside the slice; used + free ≤ total.
struct Seen {
    total: u64,
    used: u64,
    free: u64,
}

/// What the slice makes of the card's own numbers.
fn seen(limited: &Limited, device: nvmlDevice_t, total: u64, free: u64) -> Option<Seen> {
    let card = card_of(limited, device)?;
    let total = total.min(limited.limit(&card));
    // First: it lets go of what the dead held, which is then not used either.
    let left = limited.left(&card);
    let used = limited.used(&card).min(total);
    Some(Seen { total, used, free: free.min(left).min(total - used) })
}
