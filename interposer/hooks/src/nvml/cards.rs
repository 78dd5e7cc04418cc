//! The cards of the slice: those for which every layer has a row, in NVML's order, or in the order
//! in which they were chosen.
//!
//! The first such card is number 0, whatever number NVML has for it, and other cards are not found
//! by any name. Without a limits page every card is shown, and nothing is changed.
//!
//! A GPU with MIG slices is shown if one of them is part of the slice, because a program finds a
//! MIG slice through its GPU. NVML returns no handle for a card that has failed or may not be
//! opened; such a card cannot be identified and is not counted.

use std::ffi::c_char;

use driver_sys::nvml::{
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_FOUND, NVML_SUCCESS, nvmlDevice_t, nvmlReturn_t,
    nvmlUUID_t,
};
use vgpu_driver::real;
use vgpu_slice::{Limited, Slice, current};

use super::{refused, with_uuid};

/// The cards that this process sees.
enum Shown {
    All,
    Of(&'static Limited),
    None,
}

impl Shown {
    fn here() -> Self {
        match current() {
            Slice::Unlimited => Self::All,
            Slice::Limited(limited) if limited.has_every_card() => Self::All,
            Slice::Limited(limited) => Self::Of(limited),
            Slice::Refused(reason) => {
                refused(reason);
                Self::None
            }
        }
    }

    fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    fn includes(&self, device: nvmlDevice_t) -> bool {
        self.place(device).is_some()
    }

    /// Where the device is counted; see [`Limited::place`].
    fn place(&self, device: nvmlDevice_t) -> Option<usize> {
        match self {
            Self::All => Some(0),
            Self::Of(limited) => {
                let of_slices = || mig_slices(device).filter_map(|slice| place(limited, slice));
                place(limited, device).or_else(|| of_slices().min())
            }
            Self::None => None,
        }
    }
}

fn place(limited: &Limited, device: nvmlDevice_t) -> Option<usize> {
    with_uuid(device, |uuid| limited.place(uuid)).flatten()
}

/// The MIG slices of a GPU; none if it is not in MIG mode.
fn mig_slices(device: nvmlDevice_t) -> impl Iterator<Item = nvmlDevice_t> {
    let mut most = 0;
    // SAFETY: a local variable.
    let known = unsafe { real::nvmlDeviceGetMaxMigDeviceCount(device, &raw mut most) };
    let most = if known == NVML_SUCCESS { most } else { 0 };
    (0..most).filter_map(move |index| {
        handle(|found| {
            // SAFETY: `found` is a local variable.
            unsafe { real::nvmlDeviceGetMigDeviceHandleByIndex(device, index, found) }
        })
    })
}

/// The handle that a call writes; `None` if the call fails.
fn handle(driver: impl FnOnce(*mut nvmlDevice_t) -> nvmlReturn_t) -> Option<nvmlDevice_t> {
    let mut found: nvmlDevice_t = std::ptr::null_mut();
    (driver(&raw mut found) == NVML_SUCCESS).then_some(found)
}

/// One of the two ways in which NVML numbers cards. The old one leaves out cards that this user may
/// not open.
struct Numbering {
    count: unsafe fn(*mut u32) -> nvmlReturn_t,
    by_index: unsafe fn(u32, *mut nvmlDevice_t) -> nvmlReturn_t,
}

const OLD: Numbering =
    Numbering { count: real::nvmlDeviceGetCount, by_index: real::nvmlDeviceGetHandleByIndex };
const NEW: Numbering =
    Numbering { count: real::nvmlDeviceGetCount_v2, by_index: real::nvmlDeviceGetHandleByIndex_v2 };

impl Numbering {
    /// The cards that are shown, of the `all` cards that NVML counts.
    fn cards(&self, shown: &Shown, all: u32) -> impl Iterator<Item = nvmlDevice_t> {
        // SAFETY: `found` is a local variable.
        let cards =
            (0..all).filter_map(|index| handle(|found| unsafe { (self.by_index)(index, found) }));
        let mut placed: Vec<_> =
            cards.filter_map(|device| Some((shown.place(device)?, device))).collect();
        placed.sort_by_key(|&(place, _)| place);
        placed.into_iter().map(|(_, device)| device)
    }

    unsafe fn tell_count(&self, count: *mut u32) -> nvmlReturn_t {
        // SAFETY: the program's own argument.
        let result = unsafe { (self.count)(count) };
        let shown = Shown::here();
        if result == NVML_SUCCESS && !shown.is_all() {
            // SAFETY: NVML has just written it.
            unsafe { *count = self.cards(&shown, *count).count() as u32 };
        }
        result
    }

    unsafe fn find(&self, index: u32, device: *mut nvmlDevice_t) -> nvmlReturn_t {
        let shown = Shown::here();
        if device.is_null() || shown.is_all() {
            // SAFETY: the program's own arguments.
            return unsafe { (self.by_index)(index, device) };
        }
        let mut all = 0;
        // SAFETY: a local variable.
        let result = unsafe { (self.count)(&raw mut all) };
        if result != NVML_SUCCESS {
            return result;
        }
        match self.cards(&shown, all).nth(index as usize) {
            Some(found) => {
                // SAFETY: not null, and the program's own argument.
                unsafe { *device = found };
                NVML_SUCCESS
            }
            None => NVML_ERROR_INVALID_ARGUMENT,
        }
    }
}

pub(crate) unsafe fn count(count: *mut u32) -> nvmlReturn_t {
    // SAFETY: the program's own argument.
    unsafe { NEW.tell_count(count) }
}

pub(crate) unsafe fn count_v1(count: *mut u32) -> nvmlReturn_t {
    // SAFETY: the program's own argument.
    unsafe { OLD.tell_count(count) }
}

pub(crate) unsafe fn by_index(index: u32, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the program's own arguments.
    unsafe { NEW.find(index, device) }
}

pub(crate) unsafe fn by_index_v1(index: u32, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the program's own arguments.
    unsafe { OLD.find(index, device) }
}

/// The number of this device. The number of a MIG slice within its GPU is not changed.
pub(crate) unsafe fn index(device: nvmlDevice_t, index: *mut u32) -> nvmlReturn_t {
    let shown = Shown::here();
    if index.is_null() || shown.is_all() {
        // SAFETY: the program's own arguments.
        return unsafe { real::nvmlDeviceGetIndex(device, index) };
    }
    let (mut own, mut all) = (0, 0);
    // SAFETY: local variables.
    let result = unsafe {
        match real::nvmlDeviceGetIndex(device, &raw mut own) {
            NVML_SUCCESS => (NEW.count)(&raw mut all),
            error => error,
        }
    };
    if result != NVML_SUCCESS {
        return result;
    }
    let number = NEW.cards(&shown, all).position(|card| card == device);
    let Some(number) = number.or_else(|| is_mig_slice(device).then_some(own as usize)) else {
        return NVML_ERROR_INVALID_ARGUMENT;
    };
    // SAFETY: not null, and the program's own argument.
    unsafe { *index = number as u32 };
    NVML_SUCCESS
}

fn is_mig_slice(device: nvmlDevice_t) -> bool {
    let mut answer = 0;
    // SAFETY: a local variable.
    let result = unsafe { real::nvmlDeviceIsMigDeviceHandle(device, &raw mut answer) };
    result == NVML_SUCCESS && answer != 0
}

pub(crate) unsafe fn by_uuid(uuid: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the program's own arguments, or a variable of ours for the handle.
    unsafe { named(device, |device| real::nvmlDeviceGetHandleByUUID(uuid, device)) }
}

pub(crate) unsafe fn by_uuid_v(uuid: *const nvmlUUID_t, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: as above.
    unsafe { named(device, |device| real::nvmlDeviceGetHandleByUUIDV(uuid, device)) }
}

pub(crate) unsafe fn by_serial(serial: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: as above.
    unsafe { named(device, |device| real::nvmlDeviceGetHandleBySerial(serial, device)) }
}

pub(crate) unsafe fn by_pci_bus_id(id: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: as above.
    unsafe { named(device, |device| real::nvmlDeviceGetHandleByPciBusId_v2(id, device)) }
}

pub(crate) unsafe fn by_pci_bus_id_v1(
    id: *const c_char,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    // SAFETY: as above.
    unsafe { named(device, |device| real::nvmlDeviceGetHandleByPciBusId(id, device)) }
}

/// A MIG slice of a GPU. NVML's numbers of MIG slices may have gaps; hidden slices make more of
/// them.
pub(crate) unsafe fn mig_by_index(
    gpu: nvmlDevice_t,
    index: u32,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    // SAFETY: as above.
    unsafe { named(device, |device| real::nvmlDeviceGetMigDeviceHandleByIndex(gpu, index, device)) }
}

/// Returns the device that NVML found, if it is shown.
unsafe fn named(
    device: *mut nvmlDevice_t,
    driver: impl FnOnce(*mut nvmlDevice_t) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let shown = Shown::here();
    if device.is_null() || shown.is_all() {
        return driver(device);
    }
    let mut found: nvmlDevice_t = std::ptr::null_mut();
    let result = driver(&raw mut found);
    if result != NVML_SUCCESS {
        return result;
    }
    if !shown.includes(found) {
        return NVML_ERROR_NOT_FOUND;
    }
    // SAFETY: not null, and the program's own argument.
    unsafe { *device = found };
    NVML_SUCCESS
}
