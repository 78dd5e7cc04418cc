//! Devices: which cards are devices, and their properties, from the card's profile.

mod attributes;

use crate::Answer;
use crate::boundary::{Out, OutWide};
use crate::process::driver;
use core::ffi::c_char;
use driver_sys::cuda::*;
use stub_engine::profile::Card;

/// `cuDriverGetVersion`
pub fn driver_version(version: Out<i32>) -> Answer {
    version.put(crate::version::of_driver().ok_or(CUDA_ERROR_NO_DEVICE)?)
}

/// `cuDeviceGetCount`
pub fn count(count: Out<i32>) -> Answer {
    count.put(driver()?.devices.len() as i32)
}

/// `cuDeviceGet`
pub fn get(device: Out<CUdevice>, ordinal: i32) -> Answer {
    driver()?.card(ordinal)?;
    device.put(ordinal)
}

/// `cuDeviceGetName`
pub fn name(name: Out<c_char>, size: i32, device: CUdevice) -> Answer {
    let card = driver()?.card(device)?;
    let size = usize::try_from(size).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    name.put_text(&card.profile.name, size)
}

/// `cuDeviceGetUuid`, `cuDeviceGetUuid_v2`
pub fn uuid(uuid: Out<CUuuid>, device: CUdevice) -> Answer {
    let card = driver()?.card(device)?;
    uuid.put(CUuuid { bytes: card.uuid_bytes.map(|byte| byte as c_char) })
}

/// `cuDeviceTotalMem`
pub fn total_memory(bytes: OutWide, device: CUdevice) -> Answer {
    bytes.put(driver()?.card(device)?.profile.usable())
}

/// `cuDeviceComputeCapability`
pub fn compute_capability(major: Out<i32>, minor: Out<i32>, device: CUdevice) -> Answer {
    let capability = driver()?.card(device)?.profile.compute_capability;
    if minor.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    major.put(capability.0 as i32)?;
    minor.put(capability.1 as i32)
}

/// The value of an attribute of a card.
pub fn attribute_of(card: &Card, attribute: CUdevice_attribute) -> Answer<i32> {
    if attribute == 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let profile = &card.profile;
    Ok(match attribute {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => profile.compute_capability.0 as i32,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => profile.compute_capability.1 as i32,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => profile.sm_count as i32,
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => card.pci_bus() as i32,
        CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID => card.index as i32,
        CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID => profile.pci_device_id.cast_signed(),
        _ => {
            let name = attributes::name(attribute);
            name.and_then(|name| profile.attributes.get(name)).copied().unwrap_or(0)
        }
    })
}

/// `cuDeviceGetAttribute`
pub fn attribute(value: Out<i32>, attribute: CUdevice_attribute, device: CUdevice) -> Answer {
    let (driver, found) = (driver()?, attribute_of(driver()?.card(device)?, attribute)?);
    let is_mps = attribute == CU_DEVICE_ATTRIBUTE_MPS_ENABLED;
    value.put(if is_mps { driver.is_mps_client.into() } else { found })
}

/// `cuDeviceGetPCIBusId`
pub fn pci_bus_id(text: Out<c_char>, size: i32, device: CUdevice) -> Answer {
    let card = driver()?.card(device)?;
    let size = usize::try_from(size).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    text.put_text(&card.pci_bus_id(), size)
}

/// `cuDeviceCanAccessPeer`: the stub's cards are not connected.
pub fn can_access_peer(answer: Out<i32>, device: CUdevice, peer: CUdevice) -> Answer {
    let driver = driver()?;
    driver.card(device)?;
    driver.card(peer)?;
    answer.put(0)
}

/// The cards behind device ordinals 0, 1, …, as `CUDA_VISIBLE_DEVICES` chooses them among those that
/// the process has. Of a card in MIG mode these are its MIG devices.
///
/// An entry is an index, a UUID or the start of one. The list ends at the first entry that matches
/// no card. If a card is named twice, no card is visible. The index of a card in MIG mode stands for
/// its first MIG device, and a MIG device is the last one: a process cannot use two.
pub fn visible<'a>(cards: &'a [Card], list: Option<&str>) -> Vec<&'a Card> {
    let mut devices: Vec<&Card> = match list {
        None => firsts(cards).collect(),
        Some(list) => list.split(',').map_while(|entry| named(cards, entry.trim())).collect(),
    };
    let is_twice = |(at, card): (usize, &&Card)| devices[..at].contains(card);
    if devices.iter().enumerate().any(is_twice) {
        return Vec::new();
    }
    let first_mig_device = devices.iter().position(|card| card.is_mig_device);
    devices.truncate(first_mig_device.map_or(devices.len(), |at| at + 1));
    devices
}

/// Each card, or its first MIG device.
fn firsts(cards: &[Card]) -> impl Iterator<Item = &Card> {
    let before = |at: usize| at.checked_sub(1).map(|at| cards[at].index);
    cards
        .iter()
        .enumerate()
        .filter(move |(at, card)| before(*at) != Some(card.index))
        .map(|it| it.1)
}

fn named<'a>(cards: &'a [Card], entry: &str) -> Option<&'a Card> {
    if let Ok(position) = entry.parse::<usize>() {
        return firsts(cards).nth(position);
    }
    if !entry.starts_with("GPU-") && !entry.starts_with("MIG-") {
        return None;
    }
    let mut found = cards.iter().filter(|card| card.uuid().starts_with(entry));
    match (found.next(), found.next()) {
        (Some(card), None) => Some(card),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stub_engine::profile;

    fn indices(cards: &[Card], list: Option<&str>) -> Vec<usize> {
        visible(cards, list).iter().map(|card| card.index).collect()
    }

    #[test]
    fn every_spelling_of_a_card_is_understood() {
        let cards = profile::cards("a100,a100,a100-mig-3g").expect("cards");
        let (second, mig) = (cards[1].uuid(), cards[2].uuid());
        let of = |list: &str| indices(&cards, Some(list));
        assert_eq!(indices(&cards, None), [0, 1, 2]);
        assert_eq!(of("1, 0"), [1, 0]);
        assert_eq!(of(&second), [1]);
        assert_eq!(of(&second[..12]), [1]);
        assert_eq!(of(&format!("{mig},0")), [2, 0]);
        assert!(of("").is_empty());
        assert!(of("-1").is_empty());
        assert_eq!(of("1,7,0"), [1], "the list ends at the first wrong entry");
        assert!(of("GPU-").is_empty(), "a prefix of several cards names none");
        assert!(of("0,0").is_empty(), "a card named twice");
        assert!(of("all").is_empty());
        let some = |list| indices(&cards[1..], list);
        assert_eq!(some(None), [1, 2], "the process has two of the cards");
        assert_eq!(some(Some("1,0")), [2, 1], "indices count the cards that the process has");
        assert!(some(Some("2")).is_empty());
        assert!(some(Some(&cards[0].uuid())).is_empty());
    }
}
