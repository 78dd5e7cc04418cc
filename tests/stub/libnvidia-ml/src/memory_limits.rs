//! The driver's own memory limits for cgroups. The server has them.

use crate::Answer;
use crate::boundary::{In, Out, Text};
use crate::device::find_whole;
use core::ffi::c_char;
use driver_sys::nvml::*;
use stub_engine::arguments::FromC;
use stub_engine::memory_limits::{Call, Limits};

fn ask(
    device: nvmlDevice_t,
    name: *const c_char,
    set: Option<Limits>,
) -> Answer<nvmlGetMemoryLimits_v1_t> {
    let (watch, card) = find_whole(device)?;
    // SAFETY: the structure's field is a string of the caller's.
    let cgroup = unsafe { Text::from_c(name) }.get()?.into();
    let reply = watch.memory_limits(card, &Call { cgroup, set }).ok_or(NVML_ERROR_GPU_IS_LOST)?;
    let (Limits { soft, hard }, used) = reply?;
    Ok(nvmlGetMemoryLimits_v1_t {
        nameSpace: name,
        softLimit: soft,
        hardLimit: hard,
        currentUsed: used,
    })
}

/// `nvmlDeviceSetMemoryLimits_v1`
pub fn set(device: nvmlDevice_t, limits: In<nvmlSetMemoryLimits_v1_t>) -> Answer {
    find_whole(device)?;
    let nvmlSetMemoryLimits_v1_t { nameSpace, softLimit: soft, hardLimit: hard } = limits.get()?;
    ask(device, nameSpace, Some(Limits { soft, hard })).map(drop)
}

/// `nvmlDeviceGetMemoryLimits_v1`
pub fn get(device: nvmlDevice_t, limits: Out<nvmlGetMemoryLimits_v1_t>) -> Answer {
    find_whole(device)?;
    limits.put(ask(device, limits.read()?.nameSpace, None)?)
}
