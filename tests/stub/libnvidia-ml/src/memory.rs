//! Memory of a card, as NVML counts it.

use crate::Answer;
use crate::boundary::Out;
use crate::device::{find, version_of};
use driver_sys::nvml::*;

/// Total, reserved and used bytes of a card.
fn figures(device: nvmlDevice_t) -> Answer<(u64, u64, u64)> {
    let (watch, card) = find(device)?;
    let used = watch.used(card).ok_or(NVML_ERROR_GPU_IS_LOST)?;
    let profile = &watch.cards()[card].profile;
    Ok((profile.memory, profile.reserved, used))
}

/// `nvmlDeviceGetMemoryInfo`: what the driver reserves counts as used.
pub fn info(device: nvmlDevice_t, memory: Out<nvmlMemory_t>) -> Answer {
    let (total, reserved, used) = figures(device)?;
    let used = used + reserved;
    memory.put(nvmlMemory_t { total, free: total.saturating_sub(used), used })
}

/// `nvmlDeviceGetMemoryInfo_v2`
pub fn info_v2(device: nvmlDevice_t, memory: Out<nvmlMemory_v2_t>) -> Answer {
    let (total, reserved, used) = figures(device)?;
    let version = version_of::<nvmlMemory_v2_t>(2);
    if memory.read()?.version != version {
        return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let free = total.saturating_sub(used + reserved);
    memory.put(nvmlMemory_v2_t { version, total, reserved, free, used })
}

/// `nvmlDeviceGetBAR1MemoryInfo`
pub fn bar1(device: nvmlDevice_t, memory: Out<nvmlBAR1Memory_t>) -> Answer {
    let (total, ..) = figures(device)?;
    // A window as large as the card, and a little of it in use.
    let (total, used) = (total.next_power_of_two(), 1 << 20);
    memory.put(nvmlBAR1Memory_t { bar1Total: total, bar1Free: total - used, bar1Used: used })
}
