//! Accounting: the use of a card by each process.
//!
//! It is off until it is turned on, as on real cards. The switch is this process's own. Only
//! processes that are on the card are accounted for, not those that have ended.

use crate::Answer;
use crate::boundary::Out;
use crate::device::find_whole as find;
use crate::processes::{list, put_rows};
use driver_sys::nvml::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;
use stub_engine::{MAX_CARDS, ProcessUse};

/// The number of processes that real cards account for.
const PLACES: u32 = 4000;

static IS_ON: [AtomicBool; MAX_CARDS] = [const { AtomicBool::new(false) }; MAX_CARDS];

/// `nvmlDeviceGetAccountingMode`
pub fn mode(device: nvmlDevice_t, mode: Out<nvmlEnableState_t>) -> Answer {
    let (_, card) = find(device)?;
    mode.put(nvmlEnableState_t::from(IS_ON[card].load(Ordering::Relaxed)))
}

/// `nvmlDeviceSetAccountingMode`
pub fn set_mode(device: nvmlDevice_t, mode: nvmlEnableState_t) -> Answer {
    let (_, card) = find(device)?;
    if mode > NVML_FEATURE_ENABLED {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    IS_ON[card].store(mode == NVML_FEATURE_ENABLED, Ordering::Relaxed);
    Ok(())
}

/// `nvmlDeviceGetAccountingBufferSize`
pub fn buffer_size(device: nvmlDevice_t, size: Out<u32>) -> Answer {
    find(device)?;
    size.put(PLACES)
}

fn accounted(device: nvmlDevice_t) -> Answer<Vec<ProcessUse>> {
    let (_, card) = find(device)?;
    if IS_ON[card].load(Ordering::Relaxed) { list(device) } else { Ok(Vec::new()) }
}

/// `nvmlDeviceGetAccountingPids`
pub fn pids(device: nvmlDevice_t, count: Out<u32>, pids: Out<u32>) -> Answer {
    let found: Vec<_> = accounted(device)?.iter().map(|process| process.pid).collect();
    put_rows(&found, count, pids)
}

fn of(device: nvmlDevice_t, pid: u32) -> Answer<ProcessUse> {
    accounted(device)?.into_iter().find(|process| process.pid == pid).ok_or(NVML_ERROR_NOT_FOUND)
}

/// When a process was started, in microseconds; 0 if that is unknown.
fn started(pid: u32) -> u64 {
    let entry = std::fs::metadata(format!("/proc/{pid}"));
    let start = entry.and_then(|entry| entry.modified()).ok();
    let since = start.and_then(|start| start.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_micros() as u64)
}

/// `nvmlDeviceGetAccountingStats`
pub fn stats(device: nvmlDevice_t, pid: u32, stats: Out<nvmlAccountingStats_t>) -> Answer {
    find(device)?;
    if stats.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let process = of(device, pid)?;
    stats.put(nvmlAccountingStats_t {
        gpuUtilization: 0,
        memoryUtilization: 0,
        maxMemoryUsage: process.peak,
        // A process that still runs has none yet.
        time: 0,
        startTime: started(pid),
        isRunning: 1,
        reserved: [0; 5],
    })
}

/// `nvmlDeviceGetAccountingStats_v2`
pub fn stats_v2(device: nvmlDevice_t, stats: Out<nvmlAccountingStats_v2_t>) -> Answer {
    find(device)?;
    let pid = stats.read()?.pid;
    let process = of(device, pid)?;
    stats.put(nvmlAccountingStats_v2_t {
        pid,
        isRunning: 1,
        gpuUtilization: 0,
        memoryUtilization: 0,
        maxMemoryUsage: process.peak,
        sampleCount: 0,
        sumGpuUtil: 0,
        sumFbUtil: 0,
        time: 0,
        startTime: started(pid),
    })
}
