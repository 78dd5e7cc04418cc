//! The fabric of `NVLink` switches: what a card says that reaches none.

use crate::Answer;
use crate::boundary::Out;
use crate::device::{card, version_of};
use driver_sys::nvml::*;

/// Cards before Hopper do not know of a fabric at all.
fn check(device: nvmlDevice_t) -> Answer {
    let knows = card(device)?.profile.architecture >= NVML_DEVICE_ARCH_HOPPER;
    if knows { Ok(()) } else { Err(NVML_ERROR_NOT_SUPPORTED) }
}

/// `NVML_DEVICE_ARCH_HOPPER` and `NVML_GPU_FABRIC_STATE_NOT_SUPPORTED`, macros in the header.
const NVML_DEVICE_ARCH_HOPPER: u32 = 9;
const STATE_NOT_SUPPORTED: nvmlGpuFabricState_t = 0;

/// `nvmlDeviceGetGpuFabricInfo`
pub fn info(device: nvmlDevice_t, info: Out<nvmlGpuFabricInfo_t>) -> Answer {
    check(device)?;
    info.put(nvmlGpuFabricInfo_t {
        clusterUuid: [0; 16],
        status: NVML_SUCCESS,
        cliqueId: 0,
        state: STATE_NOT_SUPPORTED,
    })
}

/// `nvmlDeviceGetGpuFabricInfoV`
pub fn info_v(device: nvmlDevice_t, info: Out<nvmlGpuFabricInfoV_t>) -> Answer {
    check(device)?;
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
