//! Which row of each level a card is: cards are named by UUID, whatever order a program sees them in.

use std::ffi::c_char;
use std::fmt::Write;

use driver_sys::cuda::{CUDA_SUCCESS, CUdevice, CUuuid};

use crate::settings;
use crate::settled::Settled;
use crate::slice::{Card, Limited};
use crate::table::real;

/// More devices than any driver shows to one process.
const MAX_DEVICES: usize = 64;
static CARDS: [Settled<Card>; MAX_DEVICES] = [const { Settled::new() }; MAX_DEVICES];

/// The devices that the driver was told to show, as cuInit found them.
static VISIBLE: Settled<Option<Vec<String>>> = Settled::new();

/// Remembers what the driver reads in cuInit; a program may set it until then.
pub(crate) fn note_visible() {
    VISIBLE.get_or_decide(settings::visible_devices);
}

/// The place of a device among all cards of the machine; `None` where only its UUID was named.
fn place_of(device: CUdevice) -> Option<usize> {
    let device = usize::try_from(device).ok()?;
    match VISIBLE.get() {
        Some(Some(list)) => list.get(device)?.parse().ok(),
        _ => Some(device),
    }
}

/// The card behind a driver's device number; `None` if the driver does not know it (yet).
pub(crate) fn of_device(limited: &Limited, device: CUdevice) -> Option<&'static Card> {
    let cell = CARDS.get(usize::try_from(device).ok()?)?;
    if let Some(card) = cell.get() {
        return Some(card);
    }
    let uuid = uuid_of(device)?;
    Some(cell.get_or_decide(|| limited.card(device, &uuid, place_of(device))))
}

/// The card with this UUID, as NVML writes it, in this place among all cards.
pub(crate) fn of_nvml(limited: &Limited, uuid: &str, place: Option<usize>) -> Card {
    limited.card(-1, uuid, place)
}

/// A device's UUID as text; of a MIG slice its own, where the driver has the newer call.
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
