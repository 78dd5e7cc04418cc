//! What NVML tells about memory, seen from inside the slice: the same numbers as [`crate::info`].
//!
//! A card that is not part of the slice has no memory here, as for the driver.

use std::ffi::{CStr, c_char};

use driver_sys::nvml::{NVML_SUCCESS, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t};

use crate::cards::{self, Card};
use crate::slice::{self, Limited, Slice};
use crate::table::real;

pub(crate) unsafe fn memory_info(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t {
    // SAFETY: the program's own arguments.
    let result = unsafe { real::nvmlDeviceGetMemoryInfo(device, memory) };
    if result == NVML_SUCCESS
        && let Some((limited, card)) = card(device)
    {
        // SAFETY: NVML has just written it.
        let memory = unsafe { &mut *memory };
        memory.total = memory.total.min(limited.limit(&card));
        memory.used = limited.used(&card).min(memory.total);
        memory.free = memory.free.min(limited.left(&card)).min(memory.total - memory.used);
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
    if result == NVML_SUCCESS
        && let Some((limited, card)) = card(device)
    {
        // SAFETY: NVML has just written it.
        let memory = unsafe { &mut *memory };
        memory.total = memory.total.min(limited.limit(&card));
        memory.used = limited.used(&card).min(memory.total);
        memory.free = memory.free.min(limited.left(&card)).min(memory.total - memory.used);
        memory.reserved = memory.total - memory.used - memory.free;
    }
    result
}

/// The card behind an NVML handle, if it is in the slice.
fn card(device: nvmlDevice_t) -> Option<(&'static Limited, Card)> {
    let Slice::Limited(limited) = slice::current() else { return None };
    let mut text: [c_char; 96] = [0; 96];
    // SAFETY: the buffer is as long as said.
    let result = unsafe { real::nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96) };
    if result != NVML_SUCCESS {
        return None;
    }
    // SAFETY: NVML ends the text with NUL inside the buffer.
    let uuid = unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok()?;
    Some((limited, cards::by_uuid(limited, uuid)))
}
