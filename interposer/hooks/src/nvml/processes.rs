//! The processes on a card: those of the innermost slice, with the bytes that they hold in its
//! account.
//!
//! NVML lists every process of the machine, with the memory of its context. The slice's account has
//! its own processes by pid, with the bytes that each was charged, and they add up to the `used` of
//! [`super::memory`]. `used` can be more: by measured memory, and by memory that belongs to no
//! living process. So NVML decides which processes are on the card, and the account decides which
//! of them are shown. A process that has joined the slice is shown with 0 bytes until it holds
//! some.
//!
//! Pids are those of this PID namespace. If NVML uses the host's pids (old drivers, and partly
//! newer ones, for programs in containers), a list is empty; it never shows a process of another
//! slice. Processes that have ended are not shown.
//!
//! A list may grow between two calls, and NVML counts more processes than are shown. So NVML writes
//! to an array of ours, and the program's protocol (call with 0, then with as much room as that
//! call returned) uses the slice's count.

use std::mem::zeroed;

use driver_sys::nvml::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_INSUFFICIENT_SIZE,
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_MEMORY, NVML_ERROR_NOT_FOUND, NVML_ERROR_UNKNOWN,
    NVML_SUCCESS, nvmlAccountingStats_t, nvmlAccountingStats_v2_t, nvmlDevice_t,
    nvmlProcessDetail_v1_t, nvmlProcessDetailList_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t,
    nvmlProcessInfo_v2_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_t, nvmlReturn_t,
};
use hami_account::Living;
use vgpu_driver::real;
use vgpu_slice::{Limited, Slice, current};

use super::{card_of, refused};

/// Room for the processes of most cards. NVML reports if it needs more.
const ROOM: usize = 64;
/// More processes than any card has. If NVML reports that it needs more room, that is an error.
const MOST: usize = 1 << 16;
/// How often NVML is called again because its list has grown.
const ATTEMPTS: u32 = 8;

/// An entry of a list. Entries are plain data: all zeroes are a valid one.
trait Entry: Copy {
    /// What NVML returns for an empty list.
    const NOTHING: nvmlReturn_t = NVML_SUCCESS;
    /// What NVML returns if the list is not empty and there is no array.
    const NO_ARRAY: nvmlReturn_t = NVML_ERROR_INVALID_ARGUMENT;

    fn pid(&self) -> u32;

    /// Sets what the process holds, if the entry has a field for it.
    fn set_memory(&mut self, _bytes: u64) {}
}

macro_rules! entries_with_memory {
    ($($entry:ident)*) => {$(
        impl Entry for $entry {
            fn pid(&self) -> u32 {
                self.pid
            }

            fn set_memory(&mut self, bytes: u64) {
                self.usedGpuMemory = bytes;
            }
        }
    )*};
}

macro_rules! entries_of_utilization {
    ($($entry:ident)*) => {$(
        impl Entry for $entry {
            const NOTHING: nvmlReturn_t = NVML_ERROR_NOT_FOUND;
            const NO_ARRAY: nvmlReturn_t = NVML_ERROR_INSUFFICIENT_SIZE;

            fn pid(&self) -> u32 {
                self.pid
            }
        }
    )*};
}

entries_with_memory! { nvmlProcessInfo_v1_t nvmlProcessInfo_v2_t nvmlProcessDetail_v1_t }
entries_of_utilization! { nvmlProcessUtilizationSample_t nvmlProcessUtilizationInfo_v1_t }

/// An entry of a list of pids.
impl Entry for u32 {
    fn pid(&self) -> u32 {
        *self
    }
}

macro_rules! lists {
    ($($name:ident, $entry:ident, $driver:ident;)*) => {$(
        pub(crate) unsafe fn $name(
            device: nvmlDevice_t,
            count: *mut u32,
            entries: *mut $entry,
        ) -> nvmlReturn_t {
            // SAFETY: the program's own arguments; NVML gets an array with as much room as the
            // count says.
            unsafe { list(device, count, entries, |count, entries| {
                real::$driver(device, count, entries)
            }) }
        }
    )*};
}

// The names without a version have the shorter entry.
lists! {
    compute_v1, nvmlProcessInfo_v1_t, nvmlDeviceGetComputeRunningProcesses;
    compute_v2, nvmlProcessInfo_v2_t, nvmlDeviceGetComputeRunningProcesses_v2;
    compute, nvmlProcessInfo_t, nvmlDeviceGetComputeRunningProcesses_v3;
    graphics_v1, nvmlProcessInfo_v1_t, nvmlDeviceGetGraphicsRunningProcesses;
    graphics_v2, nvmlProcessInfo_v2_t, nvmlDeviceGetGraphicsRunningProcesses_v2;
    graphics, nvmlProcessInfo_t, nvmlDeviceGetGraphicsRunningProcesses_v3;
    mps_v1, nvmlProcessInfo_v1_t, nvmlDeviceGetMPSComputeRunningProcesses;
    mps_v2, nvmlProcessInfo_v2_t, nvmlDeviceGetMPSComputeRunningProcesses_v2;
    mps, nvmlProcessInfo_t, nvmlDeviceGetMPSComputeRunningProcesses_v3;
    accounting_pids, u32, nvmlDeviceGetAccountingPids;
}

pub(crate) unsafe fn utilization(
    device: nvmlDevice_t,
    samples: *mut nvmlProcessUtilizationSample_t,
    count: *mut u32,
    since: u64,
) -> nvmlReturn_t {
    // SAFETY: as for the lists above.
    unsafe {
        list(device, count, samples, |count, samples| {
            real::nvmlDeviceGetProcessUtilization(device, samples, count, since)
        })
    }
}

pub(crate) unsafe fn processes_utilization(
    device: nvmlDevice_t,
    info: *mut nvmlProcessesUtilizationInfo_t,
) -> nvmlReturn_t {
    // SAFETY: the program's own argument, as for the lists above.
    unsafe {
        let driver = |info| real::nvmlDeviceGetProcessesUtilizationInfo(device, info);
        if let Some(result) = left_to_nvml(info, |info| info.version, driver) {
            return result;
        }
        let mut ours = *info;
        let (count, entries) = (&raw mut (*info).processSamplesCount, (*info).procUtilArray);
        list(device, count, entries, |count, entries| {
            (ours.processSamplesCount, ours.procUtilArray) = (*count, entries);
            let result = driver(&raw mut ours);
            *count = ours.processSamplesCount;
            result
        })
    }
}

pub(crate) unsafe fn details(
    device: nvmlDevice_t,
    info: *mut nvmlProcessDetailList_t,
) -> nvmlReturn_t {
    // SAFETY: the program's own argument, as for the lists above.
    unsafe {
        let driver = |info| real::nvmlDeviceGetRunningProcessDetailList(device, info);
        if let Some(result) = left_to_nvml(info, |info| info.version, driver) {
            return result;
        }
        let mut ours = *info;
        let (count, entries) = (&raw mut (*info).numProcArrayEntries, (*info).procArray);
        list(device, count, entries, |count, entries| {
            (ours.numProcArrayEntries, ours.procArray) = (*count, entries);
            let result = driver(&raw mut ours);
            *count = ours.numProcArrayEntries;
            result
        })
    }
}

/// The result if the library must not read a structure with a list: nothing is limited, the pointer
/// is NULL, or the version is not 1. NVML refuses other versions unless it is newer than this
/// library; then the program gets the error that makes it use version 1.
unsafe fn left_to_nvml<T>(
    info: *mut T,
    version: fn(&T) -> u32,
    driver: impl FnOnce(*mut T) -> nvmlReturn_t,
) -> Option<nvmlReturn_t> {
    // The version word is the structure's size, and its version in the top byte.
    let known = size_of::<T>() as u32 | 1 << 24;
    match current() {
        Slice::Unlimited => Some(driver(info)),
        Slice::Refused(reason) => Some(refused(reason)),
        // SAFETY: the program's own argument.
        Slice::Limited(_) if unsafe { info.as_ref() }.map(version) == Some(known) => None,
        Slice::Limited(_) => Some(match driver(info) {
            NVML_SUCCESS => NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            error => error,
        }),
    }
}

pub(crate) unsafe fn accounting_stats(
    device: nvmlDevice_t,
    pid: u32,
    stats: *mut nvmlAccountingStats_t,
) -> nvmlReturn_t {
    // SAFETY: the program's own arguments, or a variable of ours for the numbers.
    unsafe {
        of_process(device, pid, stats, |stats| {
            real::nvmlDeviceGetAccountingStats(device, pid, stats)
        })
    }
}

pub(crate) unsafe fn accounting_stats_v2(
    device: nvmlDevice_t,
    stats: *mut nvmlAccountingStats_v2_t,
) -> nvmlReturn_t {
    // SAFETY: the program's own argument, which has the pid.
    let pid = unsafe { stats.as_ref() }.map_or(0, |stats| stats.pid);
    // SAFETY: as above.
    unsafe {
        of_process(device, pid, stats, |stats| real::nvmlDeviceGetAccountingStats_v2(device, stats))
    }
}

/// Writes what NVML reports about one process, if that process is shown.
unsafe fn of_process<T: Copy>(
    device: nvmlDevice_t,
    pid: u32,
    stats: *mut T,
    driver: impl FnOnce(*mut T) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let limited = match current() {
        Slice::Limited(limited) if !stats.is_null() => limited,
        Slice::Refused(reason) => return refused(reason),
        _ => return driver(stats),
    };
    // SAFETY: not null, and the program's own argument. NVML may have to read what is there.
    let mut found = unsafe { *stats };
    let result = driver(&raw mut found);
    if result != NVML_SUCCESS {
        return result;
    }
    if held(&members(limited, device), pid).is_none() {
        return NVML_ERROR_NOT_FOUND;
    }
    // SAFETY: as above.
    unsafe { *stats = found };
    NVML_SUCCESS
}

/// Writes the slice's part of a list. `driver` gets the whole list from NVML.
unsafe fn list<T: Entry>(
    device: nvmlDevice_t,
    count: *mut u32,
    entries: *mut T,
    mut driver: impl FnMut(*mut u32, *mut T) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let limited = match current() {
        Slice::Limited(limited) if !count.is_null() => limited,
        Slice::Refused(reason) => return refused(reason),
        _ => return driver(count, entries),
    };
    let shown = match all(&mut driver) {
        // A process joins before it is listed, so the members are read afterwards.
        Ok(entries) => of_slice(entries, &members(limited, device)),
        Err(NVML_ERROR_NOT_FOUND) => Vec::new(),
        Err(error) => return error,
    };
    // SAFETY: not null, and the program's own argument.
    let room = unsafe { count.replace(shown.len() as u32) };
    if shown.is_empty() {
        return T::NOTHING;
    }
    if (room as usize) < shown.len() {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    if entries.is_null() {
        return T::NO_ARRAY;
    }
    // SAFETY: the program's count says that there is room for so many.
    unsafe { entries.copy_from_nonoverlapping(shown.as_ptr(), shown.len()) };
    NVML_SUCCESS
}

/// The whole list of NVML.
fn all<T: Entry>(
    driver: &mut impl FnMut(*mut u32, *mut T) -> nvmlReturn_t,
) -> Result<Vec<T>, nvmlReturn_t> {
    let mut entries = Vec::new();
    let mut room = ROOM;
    for _ in 0..ATTEMPTS {
        if entries.try_reserve_exact(room).is_err() {
            return Err(NVML_ERROR_MEMORY);
        }
        // SAFETY: zeroes are a valid entry; see `Entry`.
        entries.resize(room, unsafe { zeroed() });
        let mut count = room as u32;
        match driver(&raw mut count, entries.as_mut_ptr()) {
            NVML_SUCCESS => {
                entries.truncate(count as usize);
                return Ok(entries);
            }
            // A little more than it needs: the list may grow before the next call.
            NVML_ERROR_INSUFFICIENT_SIZE if (count as usize) < MOST => {
                room = (count as usize + ROOM).max(2 * room);
            }
            NVML_ERROR_INSUFFICIENT_SIZE => return Err(NVML_ERROR_MEMORY),
            error => return Err(error),
        }
        entries.clear();
    }
    Err(NVML_ERROR_UNKNOWN)
}

/// The entries of members, with the bytes that each of them holds.
fn of_slice<T: Entry>(entries: Vec<T>, members: &[Living]) -> Vec<T> {
    let shown = entries.into_iter().filter_map(|mut entry| {
        entry.set_memory(held(members, entry.pid())?);
        Some(entry)
    });
    shown.collect()
}

fn members(limited: &Limited, device: nvmlDevice_t) -> Vec<Living> {
    card_of(limited, device).map(|card| limited.living(&card).collect()).unwrap_or_default()
}

/// The bytes that a process holds; `None` if it is not a member.
fn held(members: &[Living], pid: u32) -> Option<u64> {
    members.iter().find(|member| member.pid == pid).map(|member| member.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32) -> nvmlProcessInfo_v1_t {
        nvmlProcessInfo_v1_t { pid, usedGpuMemory: u64::MAX }
    }

    /// An NVML whose list grows by 100 between any two calls.
    fn growing() -> impl FnMut(*mut u32, *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t {
        let mut listed = 100;
        move |count, entries| {
            let now = listed;
            listed += 100;
            // SAFETY: both come from `all`, with as much room as the count says.
            unsafe {
                let room = count.replace(now);
                if room < now {
                    return NVML_ERROR_INSUFFICIENT_SIZE;
                }
                (0..now).for_each(|pid| entries.add(pid as usize).write(entry(pid)));
            }
            NVML_SUCCESS
        }
    }

    #[test]
    fn a_list_that_grows_is_read_again() {
        let entries = all(&mut growing()).unwrap_or_default();
        let pids: Vec<_> = entries.iter().map(Entry::pid).collect();
        assert_eq!(pids, (0..entries.len() as u32).collect::<Vec<_>>());
        assert!(entries.len() >= 200);
    }

    #[test]
    fn a_list_that_never_fits_ends_in_an_error() {
        let mut driver = |count: *mut u32, _: *mut u32| {
            // SAFETY: comes from `all`.
            unsafe { *count += 1 };
            NVML_ERROR_INSUFFICIENT_SIZE
        };
        assert_eq!(all(&mut driver), Err(NVML_ERROR_UNKNOWN));
        let mut liar = |count: *mut u32, _: *mut u32| {
            // SAFETY: as above.
            unsafe { *count = u32::MAX };
            NVML_ERROR_INSUFFICIENT_SIZE
        };
        assert_eq!(all(&mut liar), Err(NVML_ERROR_MEMORY));
    }

    #[test]
    fn only_members_are_shown_with_the_bytes_that_they_hold() {
        let members = [Living { pid: 7, bytes: 512 }, Living { pid: 9, bytes: 0 }];
        let shown = of_slice(vec![entry(5), entry(9), entry(7)], &members);
        let shown: Vec<_> = shown.iter().map(|entry| (entry.pid, entry.usedGpuMemory)).collect();
        assert_eq!(shown, [(9, 0), (7, 512)]);
    }
}
