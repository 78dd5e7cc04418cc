//! Whether the driver has freed the memory of a dead process.
//!
//! If a sweeper runs, the grants page has the answer: the coordinator compares NVML's lists with
//! the dead processes, and writes which of them have *departed*, that is, whose memory is free.
//! Otherwise the library asks NVML itself, which lists a process until its memory is free. NVML's
//! PIDs belong to one PID namespace, which the limits page names. So its list is useful only if
//! this process and the dead one are in that namespace. In all other cases, if NVML cannot be
//! loaded, and if a card has processes of an MPS server, the answer is unknown. Then the memory
//! counts as free after the account's grace period.

use std::os::unix::fs::MetadataExt;

use driver_sys::nvml::{NVML_SUCCESS, nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_t};
use hami_account::{Account, Dead, Departed, ProcessIdentity};
use hami_limits::NamespaceId;
use hami_limits::clock::monotonic_ns;
use hami_limits::grants::{GrantsView, SWEEP_SILENCE_NS};
use vgpu_driver::symbols::Library;
use vgpu_driver::{objects, real};

/// Room for the processes of one card. If there are more, the grace period decides.
const LISTED: usize = 512;

/// Whether the driver has freed the memory of this dead process. It is called only when a slot is
/// reaped whose process still holds bytes.
pub(crate) fn departed(
    dead: &Dead,
    grants: Option<&GrantsView>,
    nvml_namespace: Option<NamespaceId>,
) -> Departed {
    if let Some(said) = grants.and_then(|grants| said_by_the_node(dead, grants)) {
        return said;
    }
    decide(
        nvml_namespace.filter(|named| own_namespace() == Some(*named)),
        &dead.identity,
        is_listed,
    )
}

/// How long after the last sweep the grants page still decides. A sweeper or coordinator that is
/// restarted is silent for about as long as `SWEEP_SILENCE_NS`. So from then on the grace period
/// runs once more, before memory that the last sweep saw in use counts as free.
const REPORTED_NS: u64 = SWEEP_SILENCE_NS + Account::GRACE.as_nanos() as u64;

/// The answer of the grants page; `None` if no recent sweep is recorded there.
fn said_by_the_node(dead: &Dead, grants: &GrantsView) -> Option<Departed> {
    let (now, swept_at) = (monotonic_ns(), grants.swept_at());
    // A time in the future was written before a reboot.
    if swept_at == 0 || swept_at > now || now - swept_at > REPORTED_NS {
        return None;
    }
    let is_free = dead.joined_at != 0 && grants.departed(dead.slot) == dead.joined_at;
    Some(if is_free { Departed::Yes } else { Departed::No })
}

/// The PID namespace of this process; `None` without /proc.
fn own_namespace() -> Option<NamespaceId> {
    let file = std::fs::metadata("/proc/self/ns/pid").ok()?;
    Some(NamespaceId { device: file.dev(), inode: file.ino() })
}

/// The answer of NVML's lists, if they have the PIDs of the process's namespace.
fn decide(
    nvml_namespace: Option<NamespaceId>,
    process: &ProcessIdentity,
    is_listed: impl FnOnce(u32) -> Option<bool>,
) -> Departed {
    if nvml_namespace.is_none_or(|namespace| namespace.inode != process.pid_namespace) {
        return Departed::Unknown;
    }
    match is_listed(process.pid) {
        // After exec another program has the same PID, and it may use a card as well.
        Some(true) if process.is_running() => Departed::Unknown,
        Some(true) => Departed::No,
        Some(false) => Departed::Yes,
        None => Departed::Unknown,
    }
}

/// Whether any card lists the process; `None` if NVML cannot tell.
fn is_listed(pid: u32) -> Option<bool> {
    // The program may not have loaded NVML. This loads it for the life of the process.
    objects::load(Library::Nvml.soname())?;
    // SAFETY: no arguments. NVML counts its users; each success is paired with a shutdown, so the
    // program's count does not change.
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
    // SAFETY: there is room for `count` entries.
    match unsafe { list(device, &raw mut count, infos.as_mut_ptr()) } {
        NVML_SUCCESS => Some(infos.iter().take(count as usize).map(|info| info.pid).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, pid_namespace: u64) -> ProcessIdentity {
        ProcessIdentity { pid, start_time: 1, pid_namespace }
    }

    const SEVEN: Option<NamespaceId> = Some(NamespaceId { device: 4, inode: 7 });

    #[test]
    fn nvml_decides_if_its_numbers_are_the_namespace_of_the_process() {
        let dead = process(u32::MAX, 7);
        assert_eq!(decide(SEVEN, &dead, |_| Some(true)), Departed::No);
        assert_eq!(decide(SEVEN, &dead, |_| Some(false)), Departed::Yes);
        assert_eq!(decide(SEVEN, &dead, |_| None), Departed::Unknown);
    }

    #[test]
    fn nvml_is_not_called_for_a_process_of_another_namespace() {
        for (namespace, dead) in [(SEVEN, process(2, 8)), (None, process(2, 7))] {
            assert_eq!(decide(namespace, &dead, |_| unreachable!()), Departed::Unknown);
        }
    }

    #[test]
    fn a_number_that_another_program_has_after_exec_decides_nothing() {
        let own = ProcessIdentity::own();
        let namespace = NamespaceId { device: 4, inode: own.pid_namespace };
        assert_eq!(decide(Some(namespace), &own, |_| Some(true)), Departed::Unknown);
    }
}
