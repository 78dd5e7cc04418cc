//! Launches of graphs on a clock that moves only when the program waits, and in the ledger.

use super::graphs::{add_empty, add_kernel, graph, instantiate};
use super::{alone, fails, kernel, launch, ok, start};
use crate::process::driver;
use crate::table::*;
use driver_sys::cuda::*;
use serde_json::json;
use std::ptr::null_mut;

const ENVIRONMENT: &[(&str, &str)] = &[
    ("STUB_GPU_CLOCK", "virtual"),
    ("STUB_GPU_KERNELS", "slow=5000,*=1000"),
    ("STUB_GPU_COUNT", "1"),
];

/// Milliseconds of the virtual clock, from its start.
fn now() -> u64 {
    driver().expect("initialised").clock.now() / 1_000_000
}

fn stream() -> CUstream {
    let mut stream = null_mut();
    ok!(cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING));
    stream
}

/// The ledger's row of the process on its first card.
fn card() -> serde_json::Value {
    let report = super::report().expect("in process");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    report["processes"][0]["cards"][0].clone()
}

/// Kernels launched so far, and milliseconds of engine time.
fn work() -> (u64, u64) {
    let card = card();
    let number = |name: &str| card[name].as_u64().expect("a number");
    (number("kernels"), number("busy_ns") / 1_000_000)
}

#[test]
fn a_captured_graph_takes_its_kernels_time_and_is_counted() {
    alone(ENVIRONMENT, || {
        start();
        let (slow, quick, stream) = (kernel(c"slow"), kernel(c"quick"), stream());
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        launch(slow, stream);
        launch(quick, stream);
        launch(quick, stream);
        let mut graph = null_mut();
        ok!(cuStreamEndCapture(stream, &raw mut graph));
        assert_eq!((work(), now()), ((0, 0), 0), "a capture launches nothing");
        let exec = instantiate(graph);
        for _ in 0..3 {
            ok!(cuGraphLaunch(exec, stream));
        }
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!((work(), now()), ((9, 21), 21));
        let by_kernel = &card()["by_kernel"];
        assert_eq!(by_kernel["slow"], json!({"launched": 3, "busy_ns": 15_000_000}));
        assert_eq!(by_kernel["quick"], json!({"launched": 6, "busy_ns": 6_000_000}));
    });
}

#[test]
fn a_launch_is_in_order_in_its_stream() {
    alone(ENVIRONMENT, || {
        start();
        let (slow, stream) = (kernel(c"slow"), stream());
        let graph = graph();
        add_kernel(graph, &[], slow);
        let exec = instantiate(graph);
        launch(slow, stream);
        ok!(cuGraphLaunch(exec, stream));
        launch(slow, stream);
        ok!(cuStreamSynchronize(stream));
        assert_eq!(now(), 15);
    });
}

#[test]
fn branches_overlap_and_joins_wait_for_all() {
    alone(ENVIRONMENT, || {
        start();
        let (slow, quick, stream) = (kernel(c"slow"), kernel(c"quick"), stream());
        let graph = graph();
        let first = add_kernel(graph, &[], quick);
        let left = add_kernel(graph, &[add_kernel(graph, &[first], quick)], quick);
        let right = add_kernel(graph, &[first], slow);
        let both = add_empty(graph, &[left, right]);
        add_kernel(graph, &[both], quick);
        ok!(cuGraphLaunch(instantiate(graph), stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!((now(), work()), (7, (5, 7)), "two at a time are one time");
    });
}

#[test]
fn one_executable_graph_never_overlaps_with_itself() {
    alone(ENVIRONMENT, || {
        start();
        let (one, other) = (stream(), stream());
        let graph = graph();
        add_kernel(graph, &[], kernel(c"slow"));
        let (exec, second) = (instantiate(graph), instantiate(graph));
        ok!(cuGraphLaunch(exec, one));
        ok!(cuGraphLaunch(exec, other));
        ok!(cuStreamSynchronize(other));
        assert_eq!(now(), 10);
        ok!(cuGraphLaunch(exec, one));
        ok!(cuGraphLaunch(second, other));
        ok!(cuCtxSynchronize());
        assert_eq!(now(), 15, "two of one graph do overlap");
    });
}

#[test]
fn a_graph_outlives_the_context_that_it_ran_in() {
    alone(ENVIRONMENT, || {
        start();
        let (graph, slow) = (graph(), kernel(c"slow"));
        add_kernel(graph, &[], slow);
        let mut second = null_mut();
        ok!(cuCtxCreate_v2(&raw mut second, 0, 0));
        let elsewhere = kernel(c"quick");
        let own = super::graphs::graph();
        add_kernel(own, &[], elsewhere);
        let (first, destroyed) = (instantiate(graph), instantiate(own));
        ok!(cuGraphLaunch(first, null_mut()));
        ok!(cuGraphLaunch(destroyed, null_mut()));
        ok!(cuCtxDestroy_v2(second));
        fails!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphLaunch(destroyed, null_mut()));
        ok!(cuGraphLaunch(first, null_mut()));
        ok!(cuCtxSynchronize());
        assert_eq!(now(), 11, "contexts take turns");
        ok!(cuGraphExecDestroy(destroyed));
        ok!(cuGraphExecDestroy(first));
    });
}

#[test]
fn a_launch_of_many_nodes_does_not_wait_for_them() {
    alone(ENVIRONMENT, || {
        start();
        let (graph, quick) = (graph(), kernel(c"quick"));
        let mut last = add_empty(graph, &[]);
        for _ in 0..3000 {
            last = add_kernel(graph, &[last], quick);
        }
        ok!(cuGraphLaunch(instantiate(graph), null_mut()));
        assert_eq!(now(), 0);
        ok!(cuCtxSynchronize());
        assert_eq!(work(), (3000, 3000));
    });
}
