//! Streams, events and kernel durations, on a clock that moves only when the program waits.

use super::{alone, fails, kernel, launch, ok, start};
use crate::process::driver;
use crate::table::*;
use driver_sys::cuda::*;
use std::ptr::{null_mut, without_provenance_mut};

const ENVIRONMENT: &[(&str, &str)] =
    &[("STUB_GPU_CLOCK", "virtual"), ("STUB_GPU_KERNELS", "slow=5000,*=1000")];

/// Milliseconds of the virtual clock, from its start.
pub fn now() -> u64 {
    driver().expect("initialised").clock.now() / 1_000_000
}

pub fn stream(flags: u32) -> CUstream {
    let mut stream = null_mut();
    ok!(cuStreamCreate(&raw mut stream, flags));
    stream
}

pub fn event() -> CUevent {
    let mut event = null_mut();
    ok!(cuEventCreate(&raw mut event, 0));
    event
}

pub fn record(on: CUstream) -> CUevent {
    let event = event();
    ok!(cuEventRecord(event, on));
    event
}

pub fn elapsed(start: CUevent, end: CUevent) -> f32 {
    let mut milliseconds = 0.0;
    ok!(cuEventElapsedTime(&raw mut milliseconds, start, end));
    milliseconds
}

#[test]
fn kernels_of_a_stream_queue_and_streams_overlap() {
    alone(ENVIRONMENT, || {
        start();
        let (first, second) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
        let (slow, other) = (kernel(c"slow"), kernel(c"anything"));
        let begin = record(first);
        for _ in 0..10 {
            launch(slow, first);
            launch(other, second);
        }
        let (end, aside) = (record(first), record(second));
        assert_eq!(now(), 0, "launches wait for nothing");
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
        fails!(CUDA_ERROR_NOT_READY, cuEventQuery(end));
        fails!(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&mut 0.0, begin, end));
        ok!(cuStreamSynchronize(second));
        assert_eq!(now(), 10);
        ok!(cuStreamQuery(second));
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
        ok!(cuCtxSynchronize());
        assert_eq!(now(), 50);
        assert_eq!((elapsed(begin, end), elapsed(begin, aside)), (50.0, 10.0));
    });
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    alone(ENVIRONMENT, || {
        start();
        let (first, second) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
        launch(kernel(c"slow"), first);
        ok!(cuStreamWaitEvent(second, record(first), 0));
        ok!(cuStreamWaitEvent(second, event(), 0));
        launch(kernel(c"anything"), second);
        ok!(cuStreamSynchronize(second));
        assert_eq!(now(), 6);
    });
}

#[test]
fn the_default_stream_comes_behind_blocking_streams_and_before_them() {
    alone(ENVIRONMENT, || {
        start();
        let (blocking, free) = (stream(0), stream(CU_STREAM_NON_BLOCKING));
        launch(kernel(c"slow"), blocking);
        launch(kernel(c"anything"), null_mut());
        launch(kernel(c"anything"), blocking);
        launch(kernel(c"anything"), free);
        ok!(cuStreamSynchronize(free));
        assert_eq!(now(), 1, "a separate stream waits for no other");
        ok!(cuStreamSynchronize(null_mut()));
        assert_eq!(now(), 7, "and the default stream for what came after it, too");
        ok!(cuMemcpyHtoD_v2(super::allocate(1), [1u8].as_ptr().cast(), 1));
        assert_eq!(now(), 7);
    });
}

#[test]
fn a_kernel_spins_until_the_host_arrives() {
    alone(ENVIRONMENT, || {
        start();
        let (first, second) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
        let gate = kernel(c"gate_1000us_meets2_streams");
        for round in 1..=2 {
            launch(gate, first);
            launch(kernel(c"anything"), first);
            launch(kernel(c"slow"), second);
            ok!(cuStreamSynchronize(second));
            fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
            assert_eq!(crate::extra_exports::stub_arrive(gate), CUDA_SUCCESS);
            assert_eq!(now(), 7 * round - 2, "arriving waits for nothing");
            ok!(cuStreamSynchronize(first));
            assert_eq!(now(), 7 * round);
        }
        ok!(cuCtxSynchronize());
        assert_eq!(now(), 14);
    });
}

#[test]
fn launches_wait_for_their_kernels_where_the_environment_says_so() {
    let environment = [ENVIRONMENT, &[("CUDA_LAUNCH_BLOCKING", "1")]].concat();
    alone(&environment, || {
        start();
        let (first, second) = (stream(CU_STREAM_NON_BLOCKING), stream(0));
        launch(kernel(c"slow"), first);
        assert_eq!(now(), 5);
        launch(kernel(c"slow"), second);
        launch(kernel(c"anything"), null_mut());
        assert_eq!(now(), 11);
    });
}

#[test]
fn null_is_the_threads_own_stream_where_the_name_says_so() {
    alone(ENVIRONMENT, || {
        start();
        let slow = kernel(c"slow");
        let none = null_mut();
        ok!(cuLaunchKernel_ptsz(slow, 1, 1, 1, 1, 1, 1, 0, null_mut(), none, none));
        let per_thread: CUstream = without_provenance_mut(2);
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(per_thread));
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery_ptsz(null_mut()));
        ok!(cuStreamSynchronize_ptsz(null_mut()));
        assert_eq!(now(), 5);
        let (mut plain, mut own) = (0, 0);
        ok!(cuStreamGetId(null_mut(), &raw mut plain));
        ok!(cuStreamGetId_ptsz(null_mut(), &raw mut own));
        assert_ne!(plain, own);
    });
}

#[test]
fn events_without_a_time_have_none() {
    alone(ENVIRONMENT, || {
        start();
        let mut untimed = null_mut();
        ok!(cuEventCreate(&raw mut untimed, CU_EVENT_DISABLE_TIMING));
        ok!(cuEventRecord(untimed, null_mut()));
        let (timed, never) = (record(null_mut()), event());
        let mut unread = 0.0;
        let out = &raw mut unread;
        fails!(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(out, untimed, timed));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(out, timed, never));
        ok!(cuEventQuery(never));
        ok!(cuEventDestroy_v2(timed));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(timed));
    });
}

#[test]
fn kernels_and_their_time_are_counted() {
    alone(
        &[
            ("STUB_GPU_CLOCK", "virtual"),
            ("STUB_GPU_KERNELS", "slow=5000"),
            ("STUB_GPU_COUNT", "1"),
        ],
        || {
            start();
            launch(kernel(c"slow"), null_mut());
            launch(kernel(c"free"), null_mut());
            ok!(cuCtxSynchronize());
            let report = super::report().expect("in process");
            assert!(report.contains(r#""kernels":2"#), "{report}");
            assert!(report.contains(r#""busy_ns":5000000"#), "{report}");
            assert!(report.contains(r#""cuLaunchKernel":2"#), "{report}");
            let needed =
            // SAFETY: no buffer is a valid buffer of no bytes.
            unsafe { crate::extra_exports::stub_ledger_json(null_mut(), 0) };
            assert!(needed > report.len() - 40, "{needed}");
        },
    );
}
