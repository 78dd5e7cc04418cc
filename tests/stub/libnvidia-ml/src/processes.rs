//! The processes on a card, and how busy they keep it.

use crate::Answer;
use crate::boundary::Out;
use crate::device::{find, version_of};
use crate::mig;
use driver_sys::nvml::*;
use std::time::{SystemTime, UNIX_EPOCH};
use stub_engine::ProcessUse;
use stub_engine::clock::{Clock, RealClock};
use stub_engine::time::PERIOD_NS;

/// A row of a process list, in one of its versions.
trait Row {
    fn of(process: &ProcessUse) -> Self;
}

/// The IDs of a process's instances, as lists have them.
fn instances_of(process: &ProcessUse) -> (u32, u32) {
    process.instances.unwrap_or((u32::MAX, u32::MAX))
}

impl Row for nvmlProcessInfo_v1_t {
    fn of(process: &ProcessUse) -> Self {
        Self { pid: process.pid, usedGpuMemory: process.bytes }
    }
}

impl Row for nvmlProcessInfo_v2_t {
    fn of(process: &ProcessUse) -> Self {
        Self {
            pid: process.pid,
            usedGpuMemory: process.bytes,
            gpuInstanceId: instances_of(process).0,
            computeInstanceId: instances_of(process).1,
        }
    }
}

/// The processes on a card, with those on its MIG devices, or on one MIG device.
pub fn list(device: nvmlDevice_t) -> Answer<Vec<ProcessUse>> {
    let (watch, number) = find(device)?;
    let on = |number| watch.processes(number, RealClock.now()).ok_or(NVML_ERROR_GPU_IS_LOST);
    let (devices, mut rows) = match number.checked_sub(watch.cards().len()) {
        Some(number) => (vec![mig::find_device(number)?], Vec::new()),
        None => (mig::devices_of(number)?, on(number)?),
    };
    for device in devices {
        let instances = Some(device.ids());
        rows.extend(on(device.index()?)?.into_iter().map(|row| ProcessUse { instances, ..row }));
    }
    Ok(rows)
}

/// Fills an array of `count` rows, and writes the number of rows to `count`.
pub fn put_rows<T>(rows: &[T], count: Out<u32>, infos: Out<T>) -> Answer
where
    T: Copy,
{
    let room = count.read()? as usize;
    count.put(rows.len() as u32)?;
    if room < rows.len() {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    if infos.is_null() && !rows.is_empty() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    for (index, row) in rows.iter().enumerate() {
        infos.put_at(index, *row);
    }
    Ok(())
}

/// `nvmlDeviceGetComputeRunningProcesses`
pub fn compute_v1(
    device: nvmlDevice_t,
    count: Out<u32>,
    infos: Out<nvmlProcessInfo_v1_t>,
) -> Answer {
    put_rows(&list(device)?.iter().map(Row::of).collect::<Vec<_>>(), count, infos)
}

/// `nvmlDeviceGetComputeRunningProcesses_v2`, `_v3`
pub fn compute(device: nvmlDevice_t, count: Out<u32>, infos: Out<nvmlProcessInfo_v2_t>) -> Answer {
    put_rows(&list(device)?.iter().map(Row::of).collect::<Vec<_>>(), count, infos)
}

/// `nvmlDeviceGetGraphicsRunningProcesses`, `nvmlDeviceGetMPSComputeRunningProcesses`: none.
pub fn none<T: Copy>(device: nvmlDevice_t, count: Out<u32>, infos: Out<T>) -> Answer {
    find(device)?;
    put_rows(&[], count, infos)
}

/// `nvmlDeviceGetRunningProcessDetailList`: those that compute, or none of another mode.
pub fn details(device: nvmlDevice_t, out: Out<nvmlProcessDetailList_t>) -> Answer {
    let processes = list(device)?;
    let request = out.read()?;
    if request.version != version_of::<nvmlProcessDetailList_t>(1) {
        return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    // 0: compute, 1: graphics, 2: MPS.
    if request.mode > 2 {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let processes = if request.mode == 0 { processes } else { Vec::new() };
    let row = |process: &ProcessUse| nvmlProcessDetail_v1_t {
        pid: process.pid,
        usedGpuMemory: process.bytes,
        gpuInstanceId: instances_of(process).0,
        computeInstanceId: instances_of(process).1,
        usedGpuCcProtectedMemory: 0,
    };
    let rows: Vec<_> = processes.iter().map(row).collect();
    let mut count = request.numProcArrayEntries;
    let put = put_rows(&rows, Out::of(&raw mut count), Out::of(request.procArray));
    out.put(nvmlProcessDetailList_t { numProcArrayEntries: count, ..request })?;
    put
}

/// `nvmlDeviceGetUtilizationRates`
pub fn utilization(device: nvmlDevice_t, utilization: Out<nvmlUtilization_t>) -> Answer {
    let (watch, card) = find(device)?;
    mig::check_whole(device)?;
    let usage = watch.usage(card, RealClock.now()).ok_or(NVML_ERROR_GPU_IS_LOST)?;
    let gpu = usage.percent;
    utilization.put(nvmlUtilization_t { gpu, memory: gpu / 2 })
}

/// `nvmlDeviceGetProcessUtilization`
pub fn process_utilization(
    device: nvmlDevice_t,
    samples: Out<nvmlProcessUtilizationSample_t>,
    count: Out<u32>,
    _since: u64,
) -> Answer {
    mig::check_whole(device)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let row = |process: &ProcessUse| {
        let sm = process.percent;
        nvmlProcessUtilizationSample_t {
            pid: process.pid,
            timeStamp: now.as_micros() as u64,
            smUtil: sm,
            memUtil: sm / 2,
            encUtil: 0,
            decUtil: 0,
        }
    };
    let rows: Vec<_> = list(device)?.iter().map(row).collect();
    if rows.is_empty() {
        count.put(0)?;
        return Err(NVML_ERROR_NOT_FOUND);
    }
    put_rows(&rows, count, samples)
}

/// `nvmlDeviceGetProcessesUtilizationInfo`
pub fn utilization_info(device: nvmlDevice_t, out: Out<nvmlProcessesUtilizationInfo_t>) -> Answer {
    mig::check_whole(device)?;
    let request = out.read()?;
    if request.version != version_of::<nvmlProcessesUtilizationInfo_t>(1) {
        return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let row = |process: &ProcessUse| {
        let sm = process.percent;
        nvmlProcessUtilizationInfo_v1_t {
            timeStamp: now.as_micros() as u64,
            pid: process.pid,
            smUtil: sm,
            memUtil: sm / 2,
            encUtil: 0,
            decUtil: 0,
            jpgUtil: 0,
            ofaUtil: 0,
        }
    };
    let rows: Vec<_> = list(device)?.iter().map(row).collect();
    let mut count = request.processSamplesCount;
    let put = put_rows(&rows, Out::of(&raw mut count), Out::of(request.procUtilArray));
    out.put(nvmlProcessesUtilizationInfo_t { processSamplesCount: count, ..request })?;
    if rows.is_empty() { Err(NVML_ERROR_NOT_FOUND) } else { put }
}

/// `nvmlDeviceGetEncoderUtilization`, `nvmlDeviceGetDecoderUtilization`: there is neither.
pub fn codec(device: nvmlDevice_t, percent: Out<u32>, sampling_us: Out<u32>) -> Answer {
    find(device)?;
    if sampling_us.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    percent.put(0)?;
    sampling_us.put((PERIOD_NS / 1000) as u32)
}
