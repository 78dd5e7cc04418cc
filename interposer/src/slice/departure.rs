//! Whether the driver has freed what a dead process held: asked of NVML, which lists a process until
//! then.
//!
//! NVML counts processes as the host does, so the answer is worth something only where this process
//! and the dead one are numbered as on the host. Everywhere else, and where NVML is not to be had or
//! speaks for MPS clients collectively, the account waits out its grace instead.

use driver_sys::nvml::{NVML_SUCCESS, nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_t};
use hami_account::{Departed, ProcessIdentity};

use crate::driver::Library;
use crate::roads::objects;
use crate::table::real;

/// The inode of the first PID namespace, fixed by the kernel (`PROC_PID_INIT_INO`).
const HOST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Room for the processes of one card; where there are more, the grace serves.
const LISTED: usize = 512;

/// The answer for one dead process. Called rarely: a request is about to be refused, and somebody
/// who still holds bytes is dead.
pub(super) fn departed(process: &ProcessIdentity) -> Departed {
    if process.pid_namespace != HOST_NAMESPACE {
        return Departed::Unknown;
    }
    match is_listed(process.pid) {
        // After exec the number goes on with another program, which may use a card by itself.
        Some(true) if is_running(process) => Departed::Unknown,
        Some(true) => Departed::No,
        Some(false) => Departed::Yes,
        None => Departed::Unknown,
    }
}

/// Whether the process is there and is no zombie.
fn is_running(process: &ProcessIdentity) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)) else {
        return false;
    };
    // The name in parentheses may hold anything, also parentheses and blanks.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let state = fields.next();
    let start_time = fields.nth(18).and_then(|field| field.parse().ok());
    start_time == Some(process.start_time) && !matches!(state, Some("Z" | "X"))
}

/// Whether any card lists the process; `None` if that cannot be told.
fn is_listed(pid: u32) -> Option<bool> {
    // A CUDA program need not have loaded NVML. It is loaded and initialised here once, and stays.
    objects::load(Library::Nvml.soname())?;
    let mut count = 0;
    // SAFETY: a local variable.
    let ready = unsafe { (real::nvmlInit_v2(), real::nvmlDeviceGetCount_v2(&raw mut count)) };
    if ready != (NVML_SUCCESS, NVML_SUCCESS) {
        return None;
    }
    let mut listed = false;
    for index in 0..count {
        let mut device: nvmlDevice_t = std::ptr::null_mut();
        // SAFETY: a local variable.
        if unsafe { real::nvmlDeviceGetHandleByIndex_v2(index, &raw mut device) } != NVML_SUCCESS {
            return None;
        }
        // Processes that an MPS server works for are not listed themselves.
        if !processes(device, real::nvmlDeviceGetMPSComputeRunningProcesses_v3)?.is_empty() {
            return None;
        }
        let compute = processes(device, real::nvmlDeviceGetComputeRunningProcesses_v3)?;
        let graphics = processes(device, real::nvmlDeviceGetGraphicsRunningProcesses_v3)?;
        listed |= compute.contains(&pid) || graphics.contains(&pid);
    }
    Some(listed)
}

type List = unsafe fn(nvmlDevice_t, *mut u32, *mut nvmlProcessInfo_t) -> nvmlReturn_t;

fn processes(device: nvmlDevice_t, list: List) -> Option<Vec<u32>> {
    let empty =
        nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let mut infos = vec![empty; LISTED];
    let mut count = LISTED as u32;
    // SAFETY: room for as many as `count` says.
    match unsafe { list(device, &raw mut count, infos.as_mut_ptr()) } {
        NVML_SUCCESS => Some(infos.iter().take(count as usize).map(|info| info.pid).collect()),
        _ => None,
    }
}
