//! The processes on a card and what they hold, in every version of NVML's functions.

use super::*;
use stub_engine::clock::{Clock, RealClock};
use stub_engine::time::{FULL, Lane, Work};

fn processes_of(card: u32) -> Vec<nvmlProcessInfo_v2_t> {
    let mut count = 8;
    // SAFETY: a structure of numbers.
    let mut rows: [nvmlProcessInfo_v2_t; 8] = unsafe { zeroed() };
    let place = rows.as_mut_ptr();
    ok!(nvmlDeviceGetComputeRunningProcesses_v3(device(card), &raw mut count, place));
    rows[..count as usize].to_vec()
}

#[test]
fn a_process_has_its_contexts_requests_and_pools_but_not_its_managed_memory() {
    let path = socket("kinds");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let client = server.client();
        client.charge(0, Kind::Context, 100 * MIB).expect("context");
        client.charge(0, Kind::Requested, 10 * MIB).expect("bytes");
        client.charge(0, Kind::Managed, 50 << 30).expect("more than the card");
        let room = client.charge_pool(0, [32 * MIB, 2 * MIB], MIB).expect("room");
        assert_eq!(room, 32 * MIB);
        assert_eq!(processes_of(0)[0].usedGpuMemory, 142 * MIB);
        client.release_pool(0, MIB, 0);
        assert_eq!(processes_of(0)[0].usedGpuMemory, 142 * MIB, "the pool keeps it");
        client.release_pool(0, 0, 32 * MIB);
        assert_eq!(processes_of(0)[0].usedGpuMemory, 110 * MIB);
        let memory = client.used(0).expect("usage");
        assert_eq!(memory, 110 * MIB);
    });
}

#[test]
fn a_process_has_what_the_driver_takes_for_it() {
    let path = socket("taken");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::with_cards("h200-coarse");
        let client = server.client();
        let charges = [
            (Kind::Context, 100 * MIB),
            (Kind::Module, 4 * MIB),
            (Kind::Local, 30 * MIB),
            (Kind::Requested, 3 * MIB),
        ];
        for (kind, bytes) in charges {
            client.charge(0, kind, bytes).expect("room");
        }
        let used = (100 + 4 + 30 + 4) * MIB;
        assert_eq!(processes_of(0)[0].usedGpuMemory, used, "3 MiB take 4");
        // SAFETY: a structure of numbers.
        let mut memory: nvmlMemory_v2_t = unsafe { zeroed() };
        memory.version = version_of::<nvmlMemory_v2_t>(2);
        ok!(nvmlDeviceGetMemoryInfo_v2(device(0), &raw mut memory));
        assert_eq!(memory.used, used);
        for (kind, bytes) in charges {
            client.release(0, kind, bytes);
        }
        assert!(processes_of(0).is_empty());
    });
}

#[test]
fn the_memory_of_a_card_that_uses_the_hosts_is_not_reported_but_its_processes_are() {
    let path = socket("unified");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::with_cards("a100,gb10");
        let client = server.client();
        client.charge(1, Kind::Requested, 3 * MIB).expect("room");
        // SAFETY: structures of numbers.
        let (mut old, mut new): (nvmlMemory_t, nvmlMemory_v2_t) = unsafe { (zeroed(), zeroed()) };
        new.version = version_of::<nvmlMemory_v2_t>(2);
        ok!(nvmlDeviceGetMemoryInfo(device(0), &raw mut old));
        returns!(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetMemoryInfo(device(1), &raw mut old));
        returns!(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetMemoryInfo_v2(device(1), &raw mut new));
        assert_eq!(processes_of(1)[0].usedGpuMemory, 3 * MIB);
    });
}

#[test]
fn details_are_listed_by_mode_and_version() {
    let path = socket("details");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let client = server.client();
        client.charge(0, Kind::Context, MIB).expect("context");
        let mut rows = [nvmlProcessDetail_v1_t {
            pid: 0,
            usedGpuMemory: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
            usedGpuCcProtectedMemory: 0,
        }; 2];
        let mut list = nvmlProcessDetailList_t {
            version: version_of::<nvmlProcessDetailList_t>(1),
            mode: 0,
            numProcArrayEntries: 0,
            procArray: null_mut(),
        };
        let place = &raw mut list;
        returns!(
            NVML_ERROR_INSUFFICIENT_SIZE,
            nvmlDeviceGetRunningProcessDetailList(device(0), place)
        );
        assert_eq!(list.numProcArrayEntries, 1);
        (list.numProcArrayEntries, list.procArray) = (2, rows.as_mut_ptr());
        ok!(nvmlDeviceGetRunningProcessDetailList(device(0), &raw mut list));
        assert_eq!((rows[0].pid, rows[0].usedGpuMemory), (std::process::id(), MIB));
        list.mode = 1;
        ok!(nvmlDeviceGetRunningProcessDetailList(device(0), &raw mut list));
        assert_eq!(list.numProcArrayEntries, 0, "no process uses graphics");
        list.version = 1;
        returns!(
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            nvmlDeviceGetRunningProcessDetailList(device(0), &raw mut list)
        );
    });
}

#[test]
fn utilization_is_told_for_each_process() {
    let path = socket("utilization");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let client = server.client();
        client.charge(0, Kind::Context, MIB).expect("context");
        // SAFETY: structures of numbers.
        let (mut old, mut new): ([nvmlProcessUtilizationSample_t; 2], _) = unsafe { zeroed() };
        let rows: &mut [nvmlProcessUtilizationInfo_v1_t; 2] = &mut new;
        let mut count = 2;
        let place = old.as_mut_ptr();
        ok!(nvmlDeviceGetProcessUtilization(device(0), place, &raw mut count, 0));
        assert_eq!((count, old[0].pid), (1, std::process::id()));
        let mut info = nvmlProcessesUtilizationInfo_t {
            version: version_of::<nvmlProcessesUtilizationInfo_t>(1),
            processSamplesCount: 0,
            lastSeenTimeStamp: 0,
            procUtilArray: null_mut(),
        };
        let place = &raw mut info;
        returns!(
            NVML_ERROR_INSUFFICIENT_SIZE,
            nvmlDeviceGetProcessesUtilizationInfo(device(0), place)
        );
        assert_eq!(info.processSamplesCount, 1);
        info.procUtilArray = rows.as_mut_ptr();
        ok!(nvmlDeviceGetProcessesUtilizationInfo(device(0), &raw mut info));
        assert_eq!(rows[0].pid, std::process::id());
        returns!(
            NVML_ERROR_NOT_FOUND,
            nvmlDeviceGetProcessesUtilizationInfo(device(1), &raw mut info)
        );
        assert_eq!(info.processSamplesCount, 0);
    });
}

#[test]
fn utilization_is_the_engines_time_of_late() {
    let path = socket("busy");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let client = server.client();
        client.charge(0, Kind::Context, MIB).expect("context");
        client.charge(1, Kind::Context, MIB).expect("context");
        // A second ago, for an hour; there was no query of the engine since.
        let (name, ns) = (client.kernel("k"), 3600 * 1_000_000_000);
        let work = Work::Kernel { name, ns, demand: FULL };
        client.submit(&Lane::default(), 1, 0, work, RealClock.now() - 1_000_000_000);
        let rates = |card| {
            let mut rates = nvmlUtilization_t { gpu: 7, memory: 7 };
            ok!(nvmlDeviceGetUtilizationRates(device(card), &raw mut rates));
            rates.gpu
        };
        assert_eq!((rates(0), rates(1)), (100, 0));
        // SAFETY: structures of numbers.
        let mut samples: [nvmlProcessUtilizationSample_t; 2] = unsafe { zeroed() };
        let mut count = 2;
        let place = samples.as_mut_ptr();
        ok!(nvmlDeviceGetProcessUtilization(device(0), place, &raw mut count, 0));
        assert_eq!((count, samples[0].smUtil), (1, 100));
        let place = samples.as_mut_ptr();
        ok!(nvmlDeviceGetProcessUtilization(device(1), place, &raw mut count, 0));
        assert_eq!((count, samples[0].smUtil), (1, 0));
    });
}

#[test]
fn accounting_is_off_until_it_is_turned_on() {
    let path = socket("accounting");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let client = server.client();
        client.charge(0, Kind::Context, MIB).expect("context");
        client.charge(0, Kind::Requested, 5 * MIB).expect("bytes");
        client.release(0, Kind::Requested, 5 * MIB);
        let (mut mode, mut count, mut pids) = (9, 4, [0; 4]);
        ok!(nvmlDeviceGetAccountingMode(device(0), &raw mut mode));
        assert_eq!(mode, NVML_FEATURE_DISABLED);
        let list = pids.as_mut_ptr();
        ok!(nvmlDeviceGetAccountingPids(device(0), &raw mut count, list));
        assert_eq!(count, 0);
        ok!(nvmlDeviceSetAccountingMode(device(0), NVML_FEATURE_ENABLED));
        count = 4;
        ok!(nvmlDeviceGetAccountingPids(device(0), &raw mut count, list));
        assert_eq!((count, pids[0]), (1, std::process::id()));
        // SAFETY: a structure of numbers.
        let mut stats: nvmlAccountingStats_t = unsafe { zeroed() };
        let place = &raw mut stats;
        ok!(nvmlDeviceGetAccountingStats(device(0), pids[0], place));
        assert_eq!((stats.maxMemoryUsage, stats.isRunning), (6 * MIB, 1));
        returns!(NVML_ERROR_NOT_FOUND, nvmlDeviceGetAccountingStats(device(0), 1, &raw mut stats));
    });
}

#[test]
fn a_card_without_a_switch_says_so_in_the_size_that_was_asked_for() {
    alone(&[("STUB_GPU_PROFILE", "h100,a100")], || {
        ok!(nvmlInit_v2());
        for (version, written) in [
            (version_of::<nvmlGpuFabricInfo_v2_t>(2), size_of::<nvmlGpuFabricInfo_v2_t>()),
            (version_of::<nvmlGpuFabricInfo_v3_t>(3), size_of::<nvmlGpuFabricInfo_v3_t>() - 3),
        ] {
            let mut guarded = Guarded::new();
            guarded.room[..4].copy_from_slice(&version.to_le_bytes());
            let place = guarded.room.as_mut_ptr().cast();
            ok!(nvmlDeviceGetGpuFabricInfoV(device(0), place));
            // The last bytes of the third form are padding.
            assert!((written..written + 4).contains(&guarded.written()), "{}", guarded.written());
            returns!(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetGpuFabricInfoV(device(1), place));
        }
        let mut guarded = Guarded::new();
        let place = guarded.room.as_mut_ptr().cast();
        returns!(
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            nvmlDeviceGetGpuFabricInfoV(device(0), place)
        );
        let place = guarded.room.as_mut_ptr().cast();
        ok!(nvmlDeviceGetGpuFabricInfo(device(0), place));
        assert_eq!(guarded.written(), size_of::<nvmlGpuFabricInfo_t>());
    });
}
