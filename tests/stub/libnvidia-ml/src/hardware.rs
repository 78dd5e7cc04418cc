//! The board: clocks, power, temperature, and the fabric of `NVLink` switches, which no card
//! reaches. A card that computes nothing idles at fixed values.

use crate::Answer;
use crate::boundary::Out;
use crate::device::{card, find, version_of};
use driver_sys::nvml::*;

const TEMPERATURE_C: u32 = 34;
const SHUTDOWN_C: u32 = 92;
const SLOWDOWN_C: u32 = 89;
const LANES: u32 = 16;
const IDLE_POWER_PERCENT: u32 = 15;

/// A clock in MHz, from the profile's attributes in kHz.
fn clock_of(device: nvmlDevice_t, kind: nvmlClockType_t) -> Answer<u32> {
    let card = card(device)?;
    let name = match kind {
        NVML_CLOCK_GRAPHICS | NVML_CLOCK_SM | NVML_CLOCK_VIDEO => "clock_rate",
        NVML_CLOCK_MEM => "memory_clock_rate",
        _ => return Err(NVML_ERROR_INVALID_ARGUMENT),
    };
    Ok(card.profile.attributes.get(name).map_or(0, |khz| khz.unsigned_abs() / 1000))
}

/// `nvmlDeviceGetClockInfo`, `nvmlDeviceGetMaxClockInfo`, `nvmlDeviceGetApplicationsClock`
pub fn clock(device: nvmlDevice_t, kind: nvmlClockType_t, mhz: Out<u32>) -> Answer {
    mhz.put(clock_of(device, kind)?)
}

/// `nvmlDeviceGetClock`
pub fn clock_by_id(
    device: nvmlDevice_t,
    kind: nvmlClockType_t,
    _id: nvmlClockId_t,
    mhz: Out<u32>,
) -> Answer {
    clock(device, kind, mhz)
}

/// `nvmlDeviceGetTemperature`
pub fn temperature(
    device: nvmlDevice_t,
    sensor: nvmlTemperatureSensors_t,
    celsius: Out<u32>,
) -> Answer {
    find(device)?;
    if sensor != NVML_TEMPERATURE_GPU {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    celsius.put(TEMPERATURE_C)
}

/// `nvmlDeviceGetTemperatureV`
pub fn temperature_v(device: nvmlDevice_t, out: Out<nvmlTemperature_t>) -> Answer {
    find(device)?;
    let request = out.read()?;
    if request.version != version_of::<nvmlTemperature_t>(1) {
        return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    if request.sensorType != NVML_TEMPERATURE_GPU {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    out.put(nvmlTemperature_t { temperature: TEMPERATURE_C as i32, ..request })
}

/// `nvmlDeviceGetTemperatureThreshold`
pub fn temperature_threshold(
    device: nvmlDevice_t,
    kind: nvmlTemperatureThresholds_t,
    celsius: Out<u32>,
) -> Answer {
    find(device)?;
    match kind {
        NVML_TEMPERATURE_THRESHOLD_SHUTDOWN => celsius.put(SHUTDOWN_C),
        NVML_TEMPERATURE_THRESHOLD_SLOWDOWN | NVML_TEMPERATURE_THRESHOLD_GPU_MAX => {
            celsius.put(SLOWDOWN_C)
        }
        _ if kind < NVML_TEMPERATURE_THRESHOLD_COUNT => Err(NVML_ERROR_NOT_SUPPORTED),
        _ => Err(NVML_ERROR_INVALID_ARGUMENT),
    }
}

/// `nvmlDeviceGetPowerUsage`
pub fn power(device: nvmlDevice_t, milliwatts: Out<u32>) -> Answer {
    milliwatts.put(card(device)?.profile.power_limit_mw / 100 * IDLE_POWER_PERCENT)
}

/// `nvmlDeviceGetEnforcedPowerLimit`, `nvmlDeviceGetPowerManagementLimit`, and the default one
pub fn power_limit(device: nvmlDevice_t, milliwatts: Out<u32>) -> Answer {
    milliwatts.put(card(device)?.profile.power_limit_mw)
}

/// `nvmlDeviceGetPersistenceMode`, `nvmlDeviceGetPowerManagementMode`
pub fn enabled(device: nvmlDevice_t, mode: Out<nvmlEnableState_t>) -> Answer {
    find(device)?;
    mode.put(NVML_FEATURE_ENABLED)
}

/// `nvmlDeviceGetDisplayMode`, `nvmlDeviceGetDisplayActive`
pub fn disabled(device: nvmlDevice_t, mode: Out<nvmlEnableState_t>) -> Answer {
    find(device)?;
    mode.put(NVML_FEATURE_DISABLED)
}

/// `nvmlDeviceGetComputeMode`
pub fn compute_mode(device: nvmlDevice_t, mode: Out<nvmlComputeMode_t>) -> Answer {
    find(device)?;
    mode.put(NVML_COMPUTEMODE_DEFAULT)
}

/// `nvmlDeviceGetPerformanceState`, `nvmlDeviceGetPowerState`
pub fn performance_state(device: nvmlDevice_t, state: Out<nvmlPstates_t>) -> Answer {
    find(device)?;
    state.put(NVML_PSTATE_0)
}

/// `nvmlDeviceGetMemoryBusWidth`
pub fn memory_bus_width(device: nvmlDevice_t, bits: Out<u32>) -> Answer {
    let card = card(device)?;
    let width = card.profile.attributes.get("global_memory_bus_width");
    bits.put(width.map_or(0, |bits| bits.unsigned_abs()))
}

/// `nvmlDeviceGetVirtualizationMode`
pub fn virtualization(device: nvmlDevice_t, mode: Out<nvmlGpuVirtualizationMode_t>) -> Answer {
    find(device)?;
    mode.put(NVML_GPU_VIRTUALIZATION_MODE_NONE)
}

/// `nvmlDeviceGetCurrPcieLinkWidth`, `nvmlDeviceGetMaxPcieLinkWidth`
pub fn link_width(device: nvmlDevice_t, lanes: Out<u32>) -> Answer {
    find(device)?;
    lanes.put(LANES)
}

fn has_ecc(device: nvmlDevice_t) -> Answer<bool> {
    Ok(card(device)?.profile.attributes.get("ecc_enabled").is_some_and(|ecc| *ecc != 0))
}

/// `nvmlDeviceGetEccMode`
pub fn ecc_mode(
    device: nvmlDevice_t,
    current: Out<nvmlEnableState_t>,
    pending: Out<nvmlEnableState_t>,
) -> Answer {
    let mode = nvmlEnableState_t::from(has_ecc(device)?);
    if pending.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    current.put(mode)?;
    pending.put(mode)
}

/// `nvmlDeviceGetTotalEccErrors`: there never was one.
pub fn ecc_errors(
    device: nvmlDevice_t,
    _kind: nvmlMemoryErrorType_t,
    _counter: nvmlEccCounterType_t,
    errors: Out<u64>,
) -> Answer {
    if has_ecc(device)? { errors.put(0) } else { Err(NVML_ERROR_NOT_SUPPORTED) }
}

/// `NVML_DEVICE_ARCH_AMPERE`, a macro in the header: older cards retire pages instead.
const NVML_DEVICE_ARCH_AMPERE: u32 = 7;

/// `nvmlDeviceGetRemappedRows`: no row was remapped, but a test can let remapping fail.
pub fn remapped_rows(
    device: nvmlDevice_t,
    correctable: Out<u32>,
    uncorrectable: Out<u32>,
    is_pending: Out<u32>,
    has_failed: Out<u32>,
) -> Answer {
    let (watch, card) = find(device)?;
    let outs = [correctable, uncorrectable, is_pending, has_failed];
    if outs.iter().any(|out| out.is_null()) {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    if watch.cards()[card].profile.architecture < NVML_DEVICE_ARCH_AMPERE {
        return Err(NVML_ERROR_NOT_SUPPORTED);
    }
    for out in [correctable, uncorrectable, is_pending] {
        out.put(0)?;
    }
    has_failed.put(u32::from(watch.counters().health.remap_failed.has(card)))
}

/// Cards before Hopper have no fabric functions.
fn check_fabric(device: nvmlDevice_t) -> Answer {
    let knows = card(device)?.profile.architecture >= NVML_DEVICE_ARCH_HOPPER;
    if knows { Ok(()) } else { Err(NVML_ERROR_NOT_SUPPORTED) }
}

/// `NVML_DEVICE_ARCH_HOPPER` and `NVML_GPU_FABRIC_STATE_NOT_SUPPORTED`, macros in the header.
const NVML_DEVICE_ARCH_HOPPER: u32 = 9;
const STATE_NOT_SUPPORTED: nvmlGpuFabricState_t = 0;

/// `nvmlDeviceGetGpuFabricInfo`
pub fn fabric(device: nvmlDevice_t, info: Out<nvmlGpuFabricInfo_t>) -> Answer {
    check_fabric(device)?;
    info.put(nvmlGpuFabricInfo_t {
        clusterUuid: [0; 16],
        status: NVML_SUCCESS,
        cliqueId: 0,
        state: STATE_NOT_SUPPORTED,
    })
}

/// `nvmlDeviceGetGpuFabricInfoV`
pub fn fabric_v(device: nvmlDevice_t, info: Out<nvmlGpuFabricInfoV_t>) -> Answer {
    check_fabric(device)?;
    // The version is the first field of all forms.
    let version = info.cast::<u32>().read()?;
    let second = nvmlGpuFabricInfo_v2_t {
        version,
        clusterUuid: [0; 16],
        status: NVML_SUCCESS,
        cliqueId: 0,
        state: STATE_NOT_SUPPORTED,
        healthMask: 0,
    };
    if version == version_of::<nvmlGpuFabricInfo_v2_t>(2) {
        return info.cast().put(second);
    }
    if version != version_of::<nvmlGpuFabricInfo_v3_t>(3) {
        return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let nvmlGpuFabricInfo_v2_t { clusterUuid, status, cliqueId, state, healthMask, .. } = second;
    info.put(nvmlGpuFabricInfo_v3_t {
        version,
        clusterUuid,
        status,
        cliqueId,
        state,
        healthMask,
        healthSummary: 0,
    })
}
