//! Finds the slice's card for a device number of the driver. Slices name cards by UUID, because
//! programs see cards in different orders.

use std::ffi::c_char;
use std::fmt::Write;

use driver_sys::cuda::{CUDA_SUCCESS, CUdevice, CUuuid};
use vgpu_driver::racy_once::RacyOnce;
use vgpu_driver::real;

use crate::limited::{Card, Limited};
use crate::settings;

/// More devices than any driver shows to one process.
pub const MAX_DEVICES: usize = 64;
static CARDS: [RacyOnce<Card>; MAX_DEVICES] = [const { RacyOnce::new() }; MAX_DEVICES];

/// `CUDA_VISIBLE_DEVICES` as the driver found it in cuInit.
static VISIBLE: RacyOnce<Option<Vec<String>>> = RacyOnce::new();

/// Records the variable that the driver reads in cuInit. A program may change it until then.
pub fn note_visible_devices() {
    VISIBLE.get_or_init(settings::visible_devices);
}

/// The position of a device among all cards of the machine; `None` if the variable names it by
/// UUID.
fn index_of(device: CUdevice) -> Option<usize> {
    let device = usize::try_from(device).ok()?;
    match VISIBLE.get() {
        Some(Some(list)) => list.get(device)?.parse().ok(),
        _ => Some(device),
    }
}

/// The card with a device number of the driver; `None` if the driver does not know the number, or
/// not yet.
pub fn of_device(limited: &Limited, device: CUdevice) -> Option<&'static Card> {
    let cell = CARDS.get(usize::try_from(device).ok()?)?;
    if let Some(card) = cell.get() {
        return Some(card);
    }
    let uuid = uuid_of(device)?;
    Some(cell.get_or_init(|| limited.card(device, &uuid, index_of(device))))
}

/// The card with this UUID, as NVML writes it, at this position among all cards.
pub fn of_nvml(limited: &Limited, uuid: &str, index: Option<usize>) -> Card {
    limited.card(-1, uuid, index)
}

/// The UUIDs of the devices that the driver shows.
pub(crate) fn uuids() -> Vec<String> {
    let mut count = 0;
    // SAFETY: a local variable.
    match unsafe { real::cuDeviceGetCount(&raw mut count) } {
        CUDA_SUCCESS => (0..count).filter_map(uuid_of).collect(),
        _ => Vec::new(),
    }
}

/// The UUID of a device as text. For a MIG slice it is the slice's own, if the driver has the newer
/// call.
fn uuid_of(device: CUdevice) -> Option<String> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: a local variable of the size that both calls write.
    let found = unsafe {
        real::cuDeviceGetUuid_v2(&raw mut uuid, device) == CUDA_SUCCESS
            || real::cuDeviceGetUuid(&raw mut uuid, device) == CUDA_SUCCESS
    };
    found.then(|| text_of(&uuid.bytes))
}

fn text_of(bytes: &[c_char; 16]) -> String {
    let mut text = String::from("GPU-");
    for (index, &byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{:02x}", byte as u8);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvml_writes_it() {
        let bytes = std::array::from_fn(|index| index as c_char);
        assert_eq!(text_of(&bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
