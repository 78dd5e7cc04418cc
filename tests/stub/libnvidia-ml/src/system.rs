//! The driver as a whole: versions, process names, descriptions of errors.

use crate::Answer;
use crate::boundary::{Out, put_text};
use crate::engine::watch;
use core::ffi::{CStr, c_char};
use driver_sys::nvml::*;
use stub_engine::profile::Profile;
use stub_engine::symbols::NEWEST;

/// The profile of the first card, which has the driver's versions.
fn profile() -> Answer<Profile> {
    let watch = watch()?;
    watch.cards().first().map(|card| card.profile.clone()).ok_or(NVML_ERROR_NOT_FOUND)
}

/// `nvmlSystemGetDriverVersion`
pub fn driver_version(version: Out<c_char>, size: u32) -> Answer {
    put_text(version, &profile()?.driver_version, size)
}

/// `nvmlSystemGetNVMLVersion`
pub fn nvml_version(version: Out<c_char>, size: u32) -> Answer {
    let profile = profile()?;
    let major = profile.cuda_version.unwrap_or(NEWEST) / 1000;
    put_text(version, &format!("{major}.{}", profile.driver_version), size)
}

/// `nvmlSystemGetCudaDriverVersion`
pub fn cuda_version(version: Out<i32>) -> Answer {
    version.put(profile()?.cuda_version.unwrap_or(NEWEST))
}

/// `nvmlSystemGetProcessName`
pub fn process_name(pid: u32, name: Out<c_char>, size: u32) -> Answer {
    watch()?;
    if name.is_null() || size == 0 {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).map_err(|_| NVML_ERROR_NOT_FOUND)?;
    let path = path.to_string_lossy();
    // NVML truncates this text only.
    name.put_text(&path, size as usize)
}

/// `nvmlErrorString`
pub fn error_string(code: nvmlReturn_t) -> &'static CStr {
    match code {
        NVML_SUCCESS => c"Success",
        NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        NVML_ERROR_NOT_FOUND => c"Not Found",
        NVML_ERROR_INSUFFICIENT_SIZE => c"Insufficient Size",
        NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        NVML_ERROR_TIMEOUT => c"Timeout",
        NVML_ERROR_FUNCTION_NOT_FOUND => c"Function Not Found",
        NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        NVML_ERROR_IN_USE => c"In use by another client",
        NVML_ERROR_INSUFFICIENT_RESOURCES => c"Insufficient Resources",
        NVML_ERROR_RESET_REQUIRED => c"GPU requires restart",
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        _ => c"Unknown Error",
    }
}
