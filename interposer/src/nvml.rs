//! What NVML tells about memory, seen from inside the slice: the same numbers as [`crate::info`].
//!
//! A card that is not part of the slice has no memory here, as for the driver.

use std::ffi::{CStr, c_char};

use driver_sys::nvml::{NVML_SUCCESS, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t};

use crate::cards;
use crate::slice::{self, Slice};
use crate::table::real;

pub(crate) unsafe fn memory_info(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t {
    // SAFETY: the program's own arguments.
    let result = unsafe { real::nvmlDeviceGetMemoryInfo(device, memory) };
    if result == NVML_SUCCESS {
        // SAFETY: NVML has just written it.
        let memory = unsafe { &mut *memory };
        if let Some(seen) = seen(device, memory.total, memory.free) {
            (memory.total, memory.used, memory.free) = (seen.total, seen.used, seen.free);
        }
    }
    result
}

/// The second form has a place for what is neither used nor free.
pub(crate) unsafe fn memory_info_v2(
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    // SAFETY: the program's own arguments.
    let result = unsafe { real::nvmlDeviceGetMemoryInfo_v2(device, memory) };
    if result == NVML_SUCCESS {
        // SAFETY: NVML has just written it.
        let memory = unsafe { &mut *memory };
        if let Some(seen) = seen(device, memory.total, memory.free) {
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

/// What the slice makes of the card's own numbers; `None` where no limit holds.
fn seen(device: nvmlDevice_t, total: u64, free: u64) -> Option<Seen> {
    let Slice::Limited(limited) = slice::current() else { return None };
    let mut text: [c_char; 96] = [0; 96];
    // SAFETY: the buffer is as long as said.
    let result = unsafe { real::nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96) };
    if result != NVML_SUCCESS {
        return None;
    }
    // SAFETY: NVML ends the text with NUL inside the buffer.
    let uuid = unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok()?;
    let mut place = 0;
    // SAFETY: a local variable.
    let known = unsafe { real::nvmlDeviceGetIndex(device, &raw mut place) } == NVML_SUCCESS;
    let card = cards::of_nvml(limited, uuid, known.then_some(place as usize));
    let total = total.min(limited.limit(&card));
    let used = limited.used(&card).min(total);
    Some(Seen { total, used, free: free.min(limited.left(&card)).min(total - used) })
}
