//! Engine time through the driver: contexts that share a card, copies, full queues.

use super::time::{elapsed, now, record, stream};
use super::{allocate, alone, fails, invalid, kernel, launch, launch_blocks, ok, start};
use crate::process::driver;
use crate::table::*;
use driver_sys::cuda::*;
use std::ptr::null_mut;

const VIRTUAL: (&str, &str) = ("STUB_GPU_CLOCK", "virtual");
const MS: u64 = 1_000_000;

/// Nanoseconds of the virtual clock.
fn nanoseconds() -> u64 {
    driver().expect("initialised").clock.now()
}

/// The in-process ledger's row of this process on card 0.
fn own_row() -> serde_json::Value {
    let report = super::report().expect("in process");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    report["processes"][0]["cards"][0].clone()
}

#[test]
fn a_name_says_how_long_it_takes_and_a_table_says_it_first() {
    let kernels = ("STUB_GPU_KERNELS", "told_5us=2000,grown=1000/block");
    alone(&[VIRTUAL, kernels], || {
        start();
        let lasts = |name, blocks| {
            let begin = nanoseconds();
            launch_blocks(kernel(name), blocks, null_mut());
            ok!(cuCtxSynchronize());
            nanoseconds() - begin
        };
        assert_eq!(lasts(c"spin_5000us", 7), 5 * MS);
        assert_eq!(lasts(c"told_5us", 7), 2 * MS);
        assert_eq!(lasts(c"grown", 7), 7000);
        assert_eq!(lasts(c"silent", 7), 0);
        let row = own_row();
        assert_eq!(row["busy_ns"], 7 * MS + 7000);
        let named = &row["by_kernel"]["spin_5000us"];
        assert_eq!((&named["launched"], &named["busy_ns"]), (&1.into(), &(5 * MS).into()));
        assert!(row["by_kernel"]["silent"].is_null());
    });
}

#[test]
fn copies_take_time_beside_kernels_and_small_ones_none() {
    alone(&[VIRTUAL], || {
        start();
        let (work, copies) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
        let bytes = 25_000_000;
        let (device, host) = (allocate(bytes), vec![1u8; bytes]);
        launch(kernel(c"spin_3000us"), work);
        ok!(cuMemcpyHtoDAsync_v2(device, host.as_ptr().cast(), bytes, copies));
        let begin = record(copies);
        ok!(cuStreamSynchronize(copies));
        assert_eq!(now(), 1, "25 MB at 25 GB/s");
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(work));
        ok!(cuMemcpyDtoH_v2(host.as_ptr().cast_mut().cast(), device, bytes));
        assert_eq!(now(), 2);
        ok!(cuMemcpyDtoD_v2(device, device, bytes));
        ok!(cuMemsetD8_v2(device, 0, bytes));
        ok!(cuMemcpyHtoD_v2(device, host.as_ptr().cast(), 20_000));
        assert_eq!(now(), 2);
        ok!(cuCtxSynchronize());
        assert_eq!((now(), elapsed(begin, record(copies))), (3, 2.0));
    });
}

#[test]
fn a_launch_into_a_full_queue_waits_for_room() {
    alone(&[VIRTUAL], || {
        start();
        let spin = kernel(c"spin_1000us");
        let (full, other) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
        for launched in 1..=1030u64 {
            launch(spin, full);
            assert_eq!(now(), launched.saturating_sub(1024));
        }
        launch_blocks(kernel(c"none"), 1, other);
        ok!(cuStreamQuery(other));
        ok!(cuStreamSynchronize(full));
        assert_eq!(now(), 1030);
    });
}

#[test]
fn a_destroyed_stream_and_a_destroyed_context_leave_no_work_behind() {
    alone(&[VIRTUAL], || {
        let context = start();
        let spin = kernel(c"spin_1000us");
        for round in 1..400u64 {
            let short = stream(0);
            launch(spin, short);
            let done = record(short);
            ok!(cuStreamDestroy_v2(short));
            if round % 2 == 0 {
                launch(spin, null_mut());
            }
            fails!(CUDA_ERROR_NOT_READY, cuEventQuery(done));
        }
        ok!(cuStreamSynchronize(null_mut()));
        assert_eq!(now(), 399, "two streams side by side, then the default stream, and so on");
        launch(spin, stream(0));
        ok!(cuCtxDestroy_v2(context));
        assert_eq!(now(), 400, "a context ends when its work has");
        start();
        launch(kernel(c"spin_1000us"), null_mut());
        ok!(cuCtxSynchronize());
        assert_eq!(now(), 401);
    });
}

#[test]
fn launches_of_the_old_kind_are_launches() {
    alone(&[VIRTUAL, ("STUB_GPU_KERNELS", "grown=1000000/block")], || {
        start();
        let grown = kernel(c"grown");
        invalid!(cuLaunch(grown));
        invalid!(cuFuncSetBlockShape(grown, 32, 0, 1));
        ok!(cuFuncSetBlockShape(grown, 32, 1, 1));
        ok!(cuLaunch(grown));
        ok!(cuLaunchGrid(grown, 2, 3));
        ok!(cuLaunchGridAsync(grown, 4, 1, stream(0)));
        invalid!(cuLaunchGrid(grown, 2, -3));
        ok!(cuCtxSynchronize());
        assert_eq!(own_row()["busy_ns"], 11 * MS);
    });
}

#[test]
fn a_cooperative_launch_on_several_devices_is_one_on_each() {
    alone(&[VIRTUAL, ("STUB_GPU_PROFILE", "a100,a100")], || {
        ok!(cuInit(0));
        let launch_on = |device| {
            let mut context = null_mut();
            ok!(cuCtxCreate_v2(&raw mut context, 0, device));
            CUDA_LAUNCH_PARAMS {
                function: kernel(c"spin_1000us"),
                gridDimX: 108,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: 32,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: stream(CU_STREAM_NON_BLOCKING),
                kernelParams: null_mut(),
            }
        };
        let mut launches = [0, 1].map(launch_on);
        let list = launches.as_mut_ptr();
        ok!(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
        for launch in launches {
            fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(launch.hStream));
        }
        for launch in launches {
            ok!(cuStreamSynchronize(launch.hStream));
        }
        assert_eq!(now(), 1, "side by side");
        let list = launches.as_mut_ptr();
        invalid!(cuLaunchCooperativeKernelMultiDevice(list, 3, 0));
        launches[1] = launches[0];
        let list = launches.as_mut_ptr();
        invalid!(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
        ok!(cuStreamQuery(launches[0].hStream));
    });
}
