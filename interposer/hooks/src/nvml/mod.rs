//! NVML as the slice sees it: what it reports agrees with what the CUDA driver lets a program use.
//!
//! NVML reports on the whole machine. Frameworks and monitors count cards, size their caches and
//! list processes by it. Inside a slice it reports:
//!
//! | query | result | module |
//! |---|---|---|
//! | a card's memory | limit, use and rest of the slice, as in [`crate::info`] | [`memory`] |
//! | the processes on a card | those of the slice, with the bytes that they hold in its account | [`processes`] |
//! | cards by number, UUID, serial, PCI bus id | those for which every layer has a row | [`cards`] |
//! | utilisation, clocks, power, names, … | the card's own: not hooked, see `policy.toml` | |
//!
//! NVML is called first, with the program's own arguments unless they would reveal too much, and
//! the program gets its errors. No lock is held while NVML runs.
//!
//! A program can still get a handle of a card outside the slice through links and topology. Such a
//! card has no memory here, as for the driver, no number, and only processes of the slice. If the
//! slice is refused, as in cuInit, there is no card: the count is 0, no number and no name finds
//! one, and queries with a handle return `NVML_ERROR_UNKNOWN`.

mod cards;
mod memory;
mod processes;

use std::ffi::{CStr, c_char};

use driver_sys::nvml::{NVML_ERROR_UNKNOWN, NVML_SUCCESS, nvmlDevice_t, nvmlReturn_t};
use vgpu_driver::real;
use vgpu_slice::{Card, Limited};

use crate::init;

pub(crate) use cards::{
    by_index, by_index_v1, by_pci_bus_id, by_pci_bus_id_v1, by_serial, by_uuid, by_uuid_v, count,
    count_v1, index, mig_by_index,
};
pub(crate) use memory::{memory_info, memory_info_v2};
pub(crate) use processes::{
    accounting_pids, accounting_stats, accounting_stats_v2, compute, compute_v1, compute_v2,
    details, graphics, graphics_v1, graphics_v2, mps, mps_v1, mps_v2, processes_utilization,
    utilization,
};

/// The result of a query about a device if the slice is refused.
#[cold]
fn refused(reason: &str) -> nvmlReturn_t {
    init::report_refusal(reason);
    NVML_ERROR_UNKNOWN
}

/// Runs `body` with a device's UUID; `None` if NVML does not report it.
fn with_uuid<T>(device: nvmlDevice_t, body: impl FnOnce(&str) -> T) -> Option<T> {
    let mut text: [c_char; 96] = [0; 96];
    // SAFETY: the buffer has this length.
    if unsafe { real::nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96) } != NVML_SUCCESS {
        return None;
    }
    // SAFETY: NVML ends the text with NUL inside the buffer.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok().map(body)
}

/// A device as the slice knows it.
fn card_of(limited: &Limited, device: nvmlDevice_t) -> Option<Card> {
    let mut index = 0;
    // SAFETY: a local variable.
    let known = unsafe { real::nvmlDeviceGetIndex(device, &raw mut index) } == NVML_SUCCESS;
    let index = known.then_some(index as usize);
    with_uuid(device, |uuid| vgpu_slice::cards::of_nvml(limited, uuid, index))
}
