//! Which row of each level a card is: cards are named by UUID, whatever order a program sees them in.

use std::ffi::c_char;
use std::fmt::Write;

use driver_sys::cuda::{CUDA_SUCCESS, CUdevice, CUuuid};

use crate::settled::Settled;
use crate::slice::{Card, Limited};
use crate::table::real;

/// More devices than any driver shows to one process.
const MAX_DEVICES: usize = 64;
static CARDS: [Settled<Card>; MAX_DEVICES] = [const { Settled::new() }; MAX_DEVICES];

/// The card behind a driver's device number; `None` if the driver does not know it (yet).
pub(crate) fn of_device(limited: &Limited, device: CUdevice) -> Option<&'static Card> {
    let cell = CARDS.get(usize::try_from(device).ok()?)?;
    if let Some(card) = cell.get() {
        return Some(card);
    }
    let uuid = uuid_of(device)?;
    Some(cell.get_or_decide(|| limited.card(device, &uuid)))
}

/// The card with this UUID, as NVML writes it.
pub(crate) fn by_uuid(limited: &Limited, uuid: &str) -> Card {
    limited.card(-1, uuid)
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
