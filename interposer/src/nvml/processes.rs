//! The processes on a card: those of the innermost slice, with what its account says they hold.
//!
//! NVML lists every process of the machine, also what it holds for its context; the slice's account
//! knows its own processes by pid and what each was charged, and a list adds up to the `used` of
//! [`super::memory`]. So NVML says who is on the card, and the account who of them is shown. A
//! process that joined the slice is shown with 0 bytes until it holds some.
//!
//! Pids are compared as this PID namespace numbers processes. Where NVML numbers them as the host
//! does (old drivers, and in part newer ones, for programs in containers) a list is empty rather
//! than somebody else's. What a process did before it ended is shown no more, once it has.
//!
//! A list may grow between two calls, and NVML counts more processes than are shown, so it is asked
//! with an array of ours, and the program's protocol (ask with 0, then with as much room as it was
//! told) is spoken here with the slice's count.

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

use super::{card_of, refused};
use crate::slice::{self, Limited, Slice};
use crate::table::real;

/// Room for the processes of most cards; NVML says where it needs more.
const ROOM: usize = 64;
/// More processes than any card has: NVML is not believed that it needs room for more.
const MOST: usize = 1 << 16;
/// How often NVML is asked again because its list has grown.
const ATTEMPTS: u32 = 8;

/// One line of a list. Lines are plain data: all zeroes are one.
trait Row: Copy {
    /// What NVML answers where it has nothing to list.
    const NOTHING: nvmlReturn_t = NVML_SUCCESS;
    /// What NVML answers where it has, and is given no array.
    const NO_ARRAY: nvmlReturn_t = NVML_ERROR_INVALID_ARGUMENT;

    fn pid(&self) -> u32;

    /// Writes down what the process holds, where the line has a place for it.
    fn set_memory(&mut self, _bytes: u64) {}
}

macro_rules! rows_with_memory {
    ($($row:ident)*) => {$(
        impl Row for $row {
            fn pid(&self) -> u32 {
                self.pid
            }

            fn set_memory(&mut self, bytes: u64) {
                self.usedGpuMemory = bytes;
            }
        }
    )*};
}

macro_rules! rows_of_utilization {
    ($($row:ident)*) => {$(
        impl Row for $row {
            const NOTHING: nvmlReturn_t = NVML_ERROR_NOT_FOUND;
            const NO_ARRAY: nvmlReturn_t = NVML_ERROR_INSUFFICIENT_SIZE;

            fn pid(&self) -> u32 {
                self.pid
            }
        }
    )*};
}

rows_with_memory! { nvmlProcessInfo_v1_t nvmlProcessInfo_v2_t nvmlProcessDetail_v1_t }
rows_of_utilization! { nvmlProcessUtilizationSample_t nvmlProcessUtilizationInfo_v1_t }

/// A list of pids alone.
impl Row for u32 {
    fn pid(&self) -> u32 {
        *self
    }
}

macro_rules! lists {
    ($($name:ident, $row:ident, $driver:ident;)*) => {$(
        pub(crate) unsafe fn $name(
            device: nvmlDevice_t,
            count: *mut u32,
            rows: *mut $row,
        ) -> nvmlReturn_t {
            // SAFETY: the program's own arguments; NVML gets an array with as much room as it is told.
            unsafe { list(device, count, rows, |count, rows| real::$driver(device, count, rows)) }
        }
    )*};
}

// The names without a version have the shorter line.
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
        if let Some(answer) = left_to_nvml(info, |info| info.version, driver) {
            return answer;
        }
        let mut ours = *info;
        let (count, rows) = (&raw mut (*info).processSamplesCount, (*info).procUtilArray);
        list(device, count, rows, |count, rows| {
            (ours.processSamplesCount, ours.procUtilArray) = (*count, rows);
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
        if let Some(answer) = left_to_nvml(info, |info| info.version, driver) {
            return answer;
        }
        let mut ours = *info;
        let (count, rows) = (&raw mut (*info).numProcArrayEntries, (*info).procArray);
        list(device, count, rows, |count, rows| {
            (ours.numProcArrayEntries, ours.procArray) = (*count, rows);
            let result = driver(&raw mut ours);
            *count = ours.numProcArrayEntries;
            result
        })
    }
}

/// The answer where a structure that holds a list is none of ours to read: nothing is limited, there
/// is none, or its version is another than 1. NVML refuses such a version, unless it is newer than
/// this library; then the program has to make do with version 1.
unsafe fn left_to_nvml<T>(
    place: *mut T,
    version: fn(&T) -> u32,
    driver: impl FnOnce(*mut T) -> nvmlReturn_t,
) -> Option<nvmlReturn_t> {
    // The version word is the structure's size, and its version in the top byte.
    let known = size_of::<T>() as u32 | 1 << 24;
    match slice::current() {
        Slice::Open => Some(driver(place)),
        Slice::Refused(reason) => Some(refused(reason)),
        // SAFETY: the program's own argument.
        Slice::Limited(_) if unsafe { place.as_ref() }.map(version) == Some(known) => None,
        Slice::Limited(_) => Some(match driver(place) {
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
    // SAFETY: the program's own arguments, or a place of ours for the numbers.
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
    // SAFETY: the program's own argument; it says there whose numbers it wants.
    let pid = unsafe { stats.as_ref() }.map_or(0, |stats| stats.pid);
    // SAFETY: as above.
    unsafe {
        of_process(device, pid, stats, |stats| real::nvmlDeviceGetAccountingStats_v2(device, stats))
    }
}

/// Tells what NVML knows about one process, if it is shown.
unsafe fn of_process<T: Copy>(
    device: nvmlDevice_t,
    pid: u32,
    place: *mut T,
    driver: impl FnOnce(*mut T) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let limited = match slice::current() {
        Slice::Limited(limited) if !place.is_null() => limited,
        Slice::Refused(reason) => return refused(reason),
        _ => return driver(place),
    };
    // SAFETY: not null, and the program's own argument; what it says there NVML may have to read.
    let mut found = unsafe { *place };
    let result = driver(&raw mut found);
    if result != NVML_SUCCESS {
        return result;
    }
    if held(&members(limited, device), pid).is_none() {
        return NVML_ERROR_NOT_FOUND;
    }
    // SAFETY: as above.
    unsafe { *place = found };
    NVML_SUCCESS
}

/// Tells the slice's part of a list. `driver` asks NVML for all of it.
unsafe fn list<T: Row>(
    device: nvmlDevice_t,
    count: *mut u32,
    rows: *mut T,
    mut driver: impl FnMut(*mut u32, *mut T) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let limited = match slice::current() {
        Slice::Limited(limited) if !count.is_null() => limited,
        Slice::Refused(reason) => return refused(reason),
        _ => return driver(count, rows),
    };
    let shown = match all(&mut driver) {
        // Whoever is listed has joined before, so the members are asked for afterwards.
        Ok(rows) => of_slice(rows, &members(limited, device)),
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
    if rows.is_null() {
        return T::NO_ARRAY;
    }
    // SAFETY: the program says that there is room for so many.
    unsafe { rows.copy_from_nonoverlapping(shown.as_ptr(), shown.len()) };
    NVML_SUCCESS
}

/// All that NVML lists.
fn all<T: Row>(
    driver: &mut impl FnMut(*mut u32, *mut T) -> nvmlReturn_t,
) -> Result<Vec<T>, nvmlReturn_t> {
    let mut rows = Vec::new();
    let mut room = ROOM;
    for _ in 0..ATTEMPTS {
        if rows.try_reserve_exact(room).is_err() {
            return Err(NVML_ERROR_MEMORY);
        }
        // SAFETY: zeroes are a row; see `Row`.
        rows.resize(room, unsafe { zeroed() });
        let mut count = room as u32;
        match driver(&raw mut count, rows.as_mut_ptr()) {
            NVML_SUCCESS => {
                rows.truncate(count as usize);
                return Ok(rows);
            }
            // A little more than it needs: the list may grow until it is asked again.
            NVML_ERROR_INSUFFICIENT_SIZE if (count as usize) < MOST => {
                room = (count as usize + ROOM).max(2 * room);
            }
            NVML_ERROR_INSUFFICIENT_SIZE => return Err(NVML_ERROR_MEMORY),
            error => return Err(error),
        }
        rows.clear();
    }
    Err(NVML_ERROR_UNKNOWN)
}

/// The rows of members, with what each of them holds.
fn of_slice<T: Row>(rows: Vec<T>, members: &[Living]) -> Vec<T> {
    let shown = rows.into_iter().filter_map(|mut row| {
        row.set_memory(held(members, row.pid())?);
        Some(row)
    });
    shown.collect()
}

fn members(limited: &Limited, device: nvmlDevice_t) -> Vec<Living> {
    card_of(limited, device).map(|card| limited.living(&card).collect()).unwrap_or_default()
}

/// What a process holds; `None` if it is no member.
fn held(members: &[Living], pid: u32) -> Option<u64> {
    members.iter().find(|member| member.pid == pid).map(|member| member.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32) -> nvmlProcessInfo_v1_t {
        nvmlProcessInfo_v1_t { pid, usedGpuMemory: u64::MAX }
    }

    /// An NVML whose list grows by 100 between any two calls.
    fn growing() -> impl FnMut(*mut u32, *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t {
        let mut listed = 100;
        move |count, rows| {
            let mine = listed;
            listed += 100;
            // SAFETY: both come from `all`, with as much room as `count` says.
            unsafe {
                let room = count.replace(mine);
                if room < mine {
                    return NVML_ERROR_INSUFFICIENT_SIZE;
                }
                (0..mine).for_each(|pid| rows.add(pid as usize).write(row(pid)));
            }
            NVML_SUCCESS
        }
    }

    #[test]
    fn a_list_that_grows_is_asked_for_again() {
        let rows = all(&mut growing()).unwrap_or_default();
        let pids: Vec<_> = rows.iter().map(Row::pid).collect();
        assert_eq!(pids, (0..rows.len() as u32).collect::<Vec<_>>());
        assert!(rows.len() >= 200);
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
    fn members_alone_are_shown_with_what_they_hold() {
        let members = [Living { pid: 7, bytes: 512 }, Living { pid: 9, bytes: 0 }];
        let shown = of_slice(vec![row(5), row(9), row(7)], &members);
        let shown: Vec<_> = shown.iter().map(|row| (row.pid, row.usedGpuMemory)).collect();
        assert_eq!(shown, [(9, 0), (7, 512)]);
    }
}
