//! NVML, seen from inside the slice: whoever asks it sees what the CUDA driver lets a program have.
//!
//! NVML tells about the whole machine, and frameworks and monitors believe it: they count cards by
//! it, size their caches by it and list processes by it. What it tells here:
//!
//! | asked for | answered | where |
//! |---|---|---|
//! | a card's memory | limit, use and rest of the slice, as [`crate::info`] tells it | [`memory`] |
//! | the processes on a card | those of the slice, with what its account says they hold | [`processes`] |
//! | cards by number, UUID, serial, PCI bus id | those that every level has a row for | [`cards`] |
//! | utilisation, clocks, power, names, … | the card's own: not hooked, see `policy.toml` | |
//!
//! NVML is asked first, with the program's own arguments where they do not say too much, and its
//! errors are the program's. No lock is held while it runs.
//!
//! A handle of a card outside the slice can still be had through links and topology. Such a card has
//! no memory here, as for the driver, no number, and no processes but the slice's own. Where the
//! slice itself is refused, as in cuInit, there is no card: a count of 0, no number and no name finds
//! one, and what is asked of a handle all the same is answered with `NVML_ERROR_UNKNOWN`.

mod cards;
mod memory;
mod processes;

use std::ffi::{CStr, c_char};

use driver_sys::nvml::{NVML_ERROR_UNKNOWN, NVML_SUCCESS, nvmlDevice_t, nvmlReturn_t};

use crate::init;
use crate::slice::{Card, Limited};
use crate::table::real;

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

/// The answer about a device where the slice is refused: there is none.
#[cold]
fn refused(reason: &str) -> nvmlReturn_t {
    init::say_refusal(reason);
    NVML_ERROR_UNKNOWN
}

/// Does something with a device's UUID; `None` if NVML does not tell it.
fn with_uuid<T>(device: nvmlDevice_t, look: impl FnOnce(&str) -> T) -> Option<T> {
    let mut text: [c_char; 96] = [0; 96];
    // SAFETY: the buffer is as long as said.
    if unsafe { real::nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96) } != NVML_SUCCESS {
        return None;
    }
    // SAFETY: NVML ends the text with NUL inside the buffer.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok().map(look)
}

/// A device as the slice knows it.
fn card_of(limited: &Limited, device: nvmlDevice_t) -> Option<Card> {
    let mut place = 0;
    // SAFETY: a local variable.
    let known = unsafe { real::nvmlDeviceGetIndex(device, &raw mut place) } == NVML_SUCCESS;
    let place = known.then_some(place as usize);
    with_uuid(device, |uuid| crate::cards::of_nvml(limited, uuid, place))
}
