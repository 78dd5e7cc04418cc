//! Devices: found by index, UUID, PCI bus id or serial number, what identifies them, and their
//! memory.

use crate::Answer;
use crate::boundary::{In, Out, Text, array, put_text};
use crate::engine::{devices, watch};
use crate::mig;
use core::ffi::{CStr, c_char};
use driver_sys::nvml::*;
use std::sync::Arc;
use stub_engine::mig::DEVICES_MAX;
use stub_engine::profile::Card;
use stub_engine::{MAX_CARDS, Watch};

/// A device handle is the address of its card's byte here. Behind the cards are their MIG devices.
static HANDLES: [u8; MAX_CARDS * (1 + DEVICES_MAX)] = [0; MAX_CARDS * (1 + DEVICES_MAX)];

/// The handle of a card or a MIG device.
pub fn handle(card: usize) -> nvmlDevice_t {
    (&raw const HANDLES[card]).cast_mut().cast()
}

fn check_lost(watch: &dyn Watch, card: usize) -> Answer {
    if watch.counters().health.lost.has(card) { Err(NVML_ERROR_GPU_IS_LOST) } else { Ok(()) }
}

/// The engine and the number of a device's card or of a MIG device, unless the card is lost.
pub fn find_card(device: nvmlDevice_t) -> Answer<(Arc<dyn Watch>, usize)> {
    let watch = watch()?;
    let number = (device as usize).wrapping_sub(HANDLES.as_ptr() as usize);
    let cards = watch.cards().len();
    if number >= cards * (1 + DEVICES_MAX) {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    check_lost(&*watch, number.checked_sub(cards).map_or(number, |it| it / DEVICES_MAX))?;
    Ok((watch, number))
}

/// The same; a MIG device must exist.
pub fn find(device: nvmlDevice_t) -> Answer<(Arc<dyn Watch>, usize)> {
    let (watch, number) = find_card(device)?;
    if let Some(number) = number.checked_sub(watch.cards().len()) {
        mig::find_device(number)?;
    }
    Ok((watch, number))
}

/// The same, for what NVML does not know of MIG devices.
pub fn find_whole(device: nvmlDevice_t) -> Answer<(Arc<dyn Watch>, usize)> {
    let (watch, card) = find(device)?;
    if card < watch.cards().len() { Ok((watch, card)) } else { Err(NVML_ERROR_NOT_SUPPORTED) }
}

/// A copy of a device's card, or of a MIG device as a card of its own.
pub fn card(device: nvmlDevice_t) -> Answer<Card> {
    let (watch, number) = find_card(device)?;
    match number.checked_sub(watch.cards().len()) {
        None => Ok(watch.cards()[number].clone()),
        Some(number) => Ok(mig::find_device(number)?.as_card),
    }
}

fn put_first(device: Out<nvmlDevice_t>, is_wanted: impl Fn(&Card) -> bool) -> Answer {
    let watch = watch()?;
    if device.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let devices = devices()?;
    let found = devices.iter().find(|card| is_wanted(&watch.cards()[**card])).copied();
    let (card, number) = match found {
        Some(card) => (card, card),
        None => mig::find_by(is_wanted)?.ok_or(NVML_ERROR_NOT_FOUND)?,
    };
    check_lost(&*watch, card)?;
    device.put(handle(number))
}

/// `nvmlDeviceGetCount`
pub fn count(count: Out<u32>) -> Answer {
    count.put(devices()?.len() as u32)
}

/// `nvmlDeviceGetHandleByIndex`
pub fn by_index(index: u32, device: Out<nvmlDevice_t>) -> Answer {
    let card = devices()?.get(index as usize).copied().ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
    check_lost(&*watch()?, card)?;
    device.put(handle(card))
}

/// `nvmlDeviceGetHandleByUUID`
pub fn by_uuid(uuid: Text, device: Out<nvmlDevice_t>) -> Answer {
    watch()?;
    let uuid = uuid.get()?;
    put_first(device, |card| card.uuid() == uuid)
}

/// `nvmlDeviceGetHandleByUUIDV`
pub fn by_uuid_v(uuid: In<nvmlUUID_t>, device: Out<nvmlDevice_t>) -> Answer {
    watch()?;
    let uuid = uuid.get()?;
    if uuid.version != version_of::<nvmlUUID_t>(1) {
        return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    match uuid.r#type {
        NVML_UUID_TYPE_ASCII => {
            // SAFETY: the type says which field is set; the text ends with NUL by its
            // documentation.
            let text = unsafe { CStr::from_ptr((&raw const uuid.value).cast::<c_char>()) };
            put_first(device, |card| text.to_bytes() == card.uuid().as_bytes())
        }
        NVML_UUID_TYPE_BINARY => {
            // SAFETY: the type says which field is set.
            let bytes = unsafe { uuid.value.bytes };
            put_first(device, |card| card.uuid_bytes == bytes)
        }
        _ => Err(NVML_ERROR_INVALID_ARGUMENT),
    }
}

/// `nvmlDeviceGetHandleByPciBusId`
pub fn by_pci_bus_id(text: Text, device: Out<nvmlDevice_t>) -> Answer {
    watch()?;
    let text = text.get()?;
    // Domains have four or eight digits.
    let wanted = text.trim_start_matches('0').to_ascii_uppercase();
    put_first(device, |card| card.pci_bus_id().trim_start_matches('0') == wanted)
}

/// `nvmlDeviceGetHandleBySerial`
pub fn by_serial(serial: Text, device: Out<nvmlDevice_t>) -> Answer {
    watch()?;
    let serial = serial.get()?;
    put_first(device, |card| card.serial() == serial)
}

/// The version word of a structure: its size, and its version in the top byte.
pub const fn version_of<T>(version: u32) -> u32 {
    size_of::<T>() as u32 | version << 24
}

/// `nvmlDeviceGetName`
pub fn name(device: nvmlDevice_t, name: Out<c_char>, size: u32) -> Answer {
    put_text(name, &card(device)?.profile.name, size)
}

/// `nvmlDeviceGetUUID`
pub fn uuid(device: nvmlDevice_t, uuid: Out<c_char>, size: u32) -> Answer {
    put_text(uuid, &card(device)?.uuid(), size)
}

/// `nvmlDeviceGetSerial`
pub fn serial(device: nvmlDevice_t, serial: Out<c_char>, size: u32) -> Answer {
    put_text(serial, &card(device)?.serial(), size)
}

/// `nvmlDeviceGetIndex`: the position among the cards that the process has, or of a MIG device among
/// those of its card.
pub fn index(device: nvmlDevice_t, index: Out<u32>) -> Answer {
    let (watch, card) = find(device)?;
    if let Some(number) = card.checked_sub(watch.cards().len()) {
        return index.put((number % DEVICES_MAX) as u32);
    }
    let position = devices()?.iter().position(|device| *device == card);
    index.put(position.ok_or(NVML_ERROR_INVALID_ARGUMENT)? as u32)
}

/// `nvmlDeviceGetMinorNumber`: the number of the device node.
pub fn minor_number(device: nvmlDevice_t, number: Out<u32>) -> Answer {
    number.put(find_whole(device)?.1 as u32)
}

/// `nvmlDeviceGetBrand`
pub fn brand(device: nvmlDevice_t, brand: Out<nvmlBrandType_t>) -> Answer {
    brand.put(card(device)?.profile.brand)
}

/// `nvmlDeviceGetArchitecture`
pub fn architecture(device: nvmlDevice_t, architecture: Out<nvmlDeviceArchitecture_t>) -> Answer {
    architecture.put(card(device)?.profile.architecture)
}

/// `nvmlDeviceGetCudaComputeCapability`
pub fn compute_capability(device: nvmlDevice_t, major: Out<i32>, minor: Out<i32>) -> Answer {
    let capability = card(device)?.profile.compute_capability;
    if minor.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    major.put(capability.0 as i32)?;
    minor.put(capability.1 as i32)
}

/// The first version of [`nvmlPciInfo_t`], which the function without a version still fills.
#[repr(C)]
struct PciInfoV1 {
    bus_id: [c_char; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
}

/// The second version; the reserved words at its end stay unchanged.
#[repr(C)]
struct PciInfoV2 {
    first: PciInfoV1,
    subsystem_id: u32,
}

fn pci_v1(card: &Card) -> PciInfoV1 {
    PciInfoV1 {
        bus_id: array(&card.pci_bus_id()),
        domain: 0,
        bus: card.pci_bus(),
        device: 0,
        device_id: card.profile.pci_device_id,
    }
}

/// `nvmlDeviceGetPciInfo`
pub fn pci_info(device: nvmlDevice_t, info: Out<nvmlPciInfo_t>) -> Answer {
    info.cast().put(pci_v1(&card(device)?))
}

/// `nvmlDeviceGetPciInfo_v2`
pub fn pci_info_v2(device: nvmlDevice_t, info: Out<nvmlPciInfo_t>) -> Answer {
    let card = card(device)?;
    let subsystem_id = card.profile.pci_device_id;
    info.cast().put(PciInfoV2 { first: pci_v1(&card), subsystem_id })
}

/// `nvmlDeviceGetPciInfo_v3`
pub fn pci_info_v3(device: nvmlDevice_t, info: Out<nvmlPciInfo_t>) -> Answer {
    let card = card(device)?;
    info.put(nvmlPciInfo_t {
        busIdLegacy: array(&card.pci_bus_id()),
        domain: 0,
        bus: card.pci_bus(),
        device: 0,
        pciDeviceId: card.profile.pci_device_id,
        pciSubSystemId: card.profile.pci_device_id,
        busId: array(&format!("0000{}", card.pci_bus_id())),
    })
}

/// `nvmlDeviceIsMigDeviceHandle`
pub fn is_mig(device: nvmlDevice_t, answer: Out<u32>) -> Answer {
    answer.put(u32::from(card(device)?.profile.mig))
}

/// Total, reserved and used bytes of a card that has memory of its own.
fn memory_of(device: nvmlDevice_t) -> Answer<(u64, u64, u64)> {
    let (watch, number) = find(device)?;
    let used = watch.used(number).ok_or(NVML_ERROR_GPU_IS_LOST)?;
    let profile = card(device)?.profile;
    if !profile.nvml_memory {
        return Err(NVML_ERROR_NOT_SUPPORTED);
    }
    Ok((profile.memory, profile.reserved, used))
}

/// `nvmlDeviceGetMemoryInfo`: what the driver reserves counts as used.
pub fn memory(device: nvmlDevice_t, memory: Out<nvmlMemory_t>) -> Answer {
    let (total, reserved, used) = memory_of(device)?;
    let used = used + reserved;
    memory.put(nvmlMemory_t { total, free: total.saturating_sub(used), used })
}

/// `nvmlDeviceGetMemoryInfo_v2`
pub fn memory_v2(device: nvmlDevice_t, memory: Out<nvmlMemory_v2_t>) -> Answer {
    let (total, reserved, used) = memory_of(device)?;
    let version = version_of::<nvmlMemory_v2_t>(2);
    if memory.read()?.version != version {
        return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let free = total.saturating_sub(used + reserved);
    memory.put(nvmlMemory_v2_t { version, total, reserved, free, used })
}

/// `nvmlDeviceGetBAR1MemoryInfo`
pub fn bar1_memory(device: nvmlDevice_t, memory: Out<nvmlBAR1Memory_t>) -> Answer {
    let (total, ..) = memory_of(device)?;
    // A window as large as the card, and a little of it in use.
    let (total, used) = (total.next_power_of_two(), 1 << 20);
    memory.put(nvmlBAR1Memory_t { bar1Total: total, bar1Free: total - used, bar1Used: used })
}
