//! Whether the driver has freed the memory of a dead process. NVML lists a process until then.
//!
//! NVML uses the host's process numbers, so its list is useful only if this process and the dead
//! one are numbered as on the host. In all other cases, and if NVML cannot be loaded or an MPS
//! server stands for its clients, the account waits for its grace period instead.

use driver_sys::nvml::{NVML_SUCCESS, nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_t};
use hami_account::{Departed, ProcessIdentity};
use vgpu_driver::symbols::Library;
use vgpu_driver::{objects, real};

/// Room for the processes of one card. If there are more, the grace period decides.
const LISTED: usize = 512;

/// Whether the driver has freed the memory of this dead process. Called rarely: before a request is
/// refused, if a dead process still holds bytes.
pub(crate) fn departed(process: &ProcessIdentity) -> Departed {
    decide(&ProcessIdentity::own(), process, is_listed)
}

fn decide(
    own: &ProcessIdentity,
    process: &ProcessIdentity,
    is_listed: impl FnOnce(u32) -> Option<bool>,
) -> Departed {
    if !own.is_numbered_as_on_the_host() || !process.is_numbered_as_on_the_host() {
        return Departed::Unknown;
    }
    match is_listed(process.pid) {
        // After exec another program has the number, and it may use a card as well.
        Some(true) if process.is_running() => Departed::Unknown,
        Some(true) => Departed::No,
        Some(false) => Departed::Yes,
        None => Departed::Unknown,
    }
}

/// Whether any card lists the process; `None` if NVML cannot tell.
fn is_listed(pid: u32) -> Option<bool> {
    // A CUDA program need not have loaded NVML. This loads it for the life of the process.
    objects::load(Library::Nvml.soname())?;
    // SAFETY: no arguments. Each success is paired with a shutdown, so NVML's count for the program
    // does not change.
    if unsafe { real::nvmlInit_v2() } != NVML_SUCCESS {
        return None;
    }
    let listed = is_on_a_list(pid);
    // SAFETY: as above.
    unsafe { real::nvmlShutdown() };
    listed
}

fn is_on_a_list(pid: u32) -> Option<bool> {
    let mut count = 0;
    // SAFETY: a local variable.
    if unsafe { real::nvmlDeviceGetCount_v2(&raw mut count) } != NVML_SUCCESS {
        return None;
    }
    let mut listed = false;
    for index in 0..count {
        let mut device: nvmlDevice_t = std::ptr::null_mut();
        // SAFETY: a local variable.
        if unsafe { real::nvmlDeviceGetHandleByIndex_v2(index, &raw mut device) } != NVML_SUCCESS {
            return None;
        }
        // The clients of an MPS server are not listed themselves.
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: u64 = 0xEFFF_FFFC;

    fn process(pid: u32, pid_namespace: u64) -> ProcessIdentity {
        ProcessIdentity { pid, start_time: 1, pid_namespace }
    }

    #[test]
    fn nvml_decides_if_both_are_numbered_as_on_the_host() {
        let (own, dead) = (process(1, HOST), process(u32::MAX, HOST));
        assert_eq!(decide(&own, &dead, |_| Some(true)), Departed::No);
        assert_eq!(decide(&own, &dead, |_| Some(false)), Departed::Yes);
        assert_eq!(decide(&own, &dead, |_| None), Departed::Unknown);
    }

    #[test]
    fn nvml_is_not_called_if_one_of_them_is_in_a_container() {
        for (own, dead) in [(HOST, 7), (7, HOST), (7, 7), (HOST, 0)] {
            let answer = decide(&process(1, own), &process(2, dead), |_| unreachable!());
            assert_eq!(answer, Departed::Unknown);
        }
    }

    #[test]
    fn a_number_that_another_program_has_after_exec_decides_nothing() {
        let own = ProcessIdentity { pid_namespace: HOST, ..ProcessIdentity::own() };
        assert_eq!(decide(&own, &own, |_| Some(true)), Departed::Unknown);
    }
}
