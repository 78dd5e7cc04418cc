//! Capture: the nodes of calls on a capturing stream, and calls that invalidate it.

use super::graphs::{add_empty, graph, instantiate};
use super::{allocate, alone, fails, invalid, kernel, launch, ok, start};
use crate::table::*;
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicU32, Ordering};

const GLOBAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;

fn stream(flags: u32) -> CUstream {
    let mut stream = null_mut();
    ok!(cuStreamCreate(&raw mut stream, flags));
    stream
}

/// Creates a stream that captures.
fn begin(mode: CUstreamCaptureMode) -> CUstream {
    let stream = stream(CU_STREAM_NON_BLOCKING);
    ok!(cuStreamBeginCapture_v2(stream, mode));
    stream
}

fn event() -> CUevent {
    let mut event = null_mut();
    ok!(cuEventCreate(&raw mut event, CU_EVENT_DISABLE_TIMING));
    event
}

fn end(stream: CUstream) -> CUgraph {
    let mut graph = null_mut();
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    assert!(!graph.is_null());
    graph
}

fn status(stream: CUstream) -> CUstreamCaptureStatus {
    let mut status = 9;
    ok!(cuStreamIsCapturing(stream, &raw mut status));
    status
}

/// The types of a graph's nodes, and how many edges it has.
fn shape(graph: CUgraph) -> (Vec<CUgraphNodeType>, usize) {
    let (mut nodes, mut count, mut edges) = ([null_mut(); 16], 16, 0);
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    ok!(cuGraphGetEdges(graph, null_mut(), null_mut(), &raw mut edges));
    let kind = |node: &CUgraphNode| {
        let mut kind = 99;
        ok!(cuGraphNodeGetType(*node, &raw mut kind));
        kind
    };
    (nodes[..count].iter().map(kind).collect(), edges)
}

/// Checks that the end of an invalidated capture fails.
fn is_broken(stream: CUstream) {
    assert_eq!(status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    let mut graph = without_provenance_mut(1);
    fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &raw mut graph));
    assert!(graph.is_null());
    assert_eq!(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the test's counter outlives the graph.
    unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn calls_become_nodes_and_nothing_happens() {
    alone(&[("STUB_GPU_KERNELS", "*=1000000"), ("STUB_GPU_CLOCK", "virtual")], || {
        start();
        let (memory, function) = (allocate(64), kernel(c"k"));
        ok!(cuMemsetD8_v2(memory, 1, 64));
        let calls = AtomicU32::new(0);
        let mut back = [9u8; 64];
        let stream = begin(GLOBAL);
        assert_eq!(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        ok!(cuMemsetD8Async(memory, 5, 64, stream));
        launch(function, stream);
        ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), memory, 64, stream));
        ok!(cuLaunchHostFunc(stream, Some(count), (&raw const calls).cast_mut().cast()));
        let graph = end(stream);
        assert_eq!(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
        let kinds = vec![
            CU_GRAPH_NODE_TYPE_MEMSET,
            CU_GRAPH_NODE_TYPE_KERNEL,
            CU_GRAPH_NODE_TYPE_MEMCPY,
            CU_GRAPH_NODE_TYPE_HOST,
        ];
        assert_eq!(shape(graph), (kinds, 3));
        assert_eq!((back[0], calls.load(Ordering::Relaxed)), (9, 0));
        ok!(cuStreamQuery(stream));
        let exec = instantiate(graph);
        for round in 1..=3 {
            ok!(cuGraphLaunch(exec, stream));
            fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
            ok!(cuStreamSynchronize(stream));
            assert_eq!((back[63], calls.load(Ordering::Relaxed)), (5, round));
        }
    });
}

#[test]
fn streams_that_wait_for_a_captured_event_take_part() {
    alone(&[], || {
        start();
        let function = kernel(c"k");
        let origin = begin(GLOBAL);
        let side = stream(CU_STREAM_NON_BLOCKING);
        let (fork, join) = (event(), event());
        launch(function, origin);
        ok!(cuEventRecord(fork, origin));
        ok!(cuStreamWaitEvent(side, fork, 0));
        assert_eq!(status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        launch(function, side);
        launch(function, origin);
        let mut none = null_mut();
        fails!(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(side, &raw mut none));
        ok!(cuEventRecord(join, side));
        ok!(cuStreamWaitEvent(origin, join, 0));
        launch(function, origin);
        let graph = end(origin);
        assert_eq!(shape(graph), (vec![CU_GRAPH_NODE_TYPE_KERNEL; 4], 4));
        assert_eq!(status(side), CU_STREAM_CAPTURE_STATUS_NONE);
        // The event stands for nothing that happens, also when the capture is over.
        fails!(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(join));
        fails!(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(join));
        ok!(cuEventRecord(join, side));
        ok!(cuEventSynchronize(join));
        // A branch that is not joined.
        ok!(cuStreamBeginCapture_v2(origin, GLOBAL));
        ok!(cuEventRecord(fork, origin));
        ok!(cuStreamWaitEvent(side, fork, 0));
        launch(function, side);
        let mut graph = without_provenance_mut(1);
        fails!(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(origin, &raw mut graph));
        assert!(graph.is_null());
        assert_eq!(status(side), CU_STREAM_CAPTURE_STATUS_NONE);
    });
}

#[test]
fn captured_work_cannot_be_waited_for() {
    alone(&[], || {
        start();
        let captured = event();
        let stream = begin(RELAXED);
        fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
        fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamQuery(stream));
        is_broken(stream);
        ok!(cuStreamBeginCapture_v2(stream, RELAXED));
        fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(stream));
        is_broken(stream);
        ok!(cuStreamBeginCapture_v2(stream, RELAXED));
        fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
        is_broken(stream);
        ok!(cuStreamBeginCapture_v2(stream, RELAXED));
        ok!(cuEventRecord(captured, stream));
        fails!(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(captured));
        fails!(
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            cuLaunchHostFunc(stream, Some(count), null_mut())
        );
        is_broken(stream);
    });
}

#[test]
fn a_capture_has_a_beginning_and_an_end() {
    alone(&[], || {
        start();
        let mut graph = null_mut();
        let out = &raw mut graph;
        let stream = stream(0);
        fails!(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, out));
        fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(null_mut(), GLOBAL));
        invalid!(cuStreamBeginCapture_v2(stream, 3));
        fails!(
            CUDA_ERROR_INVALID_HANDLE,
            cuStreamBeginCapture_v2(without_provenance_mut(64), GLOBAL)
        );
        ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
        fails!(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(stream, GLOBAL));
        assert_eq!(shape(end(stream)), (vec![], 0));
        ok!(cuStreamBeginCapture_v2_ptsz(null_mut(), GLOBAL));
        ok!(cuStreamEndCapture_ptsz(null_mut(), out));
        // A stream that goes takes its capture with it.
        ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
        ok!(cuStreamDestroy_v2(stream));
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn the_default_stream_is_unusable_beside_a_blocking_capture() {
    alone(&[], || {
        start();
        let (blocking, free) = (stream(0), begin(RELAXED));
        let function = kernel(c"k");
        let memory = allocate(8);
        assert_eq!(status(null_mut()), CU_STREAM_CAPTURE_STATUS_NONE);
        launch(function, null_mut());
        ok!(cuStreamBeginCapture_v2(blocking, RELAXED));
        let mut unread = 9;
        fails!(
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            cuStreamIsCapturing(null_mut(), &raw mut unread)
        );
        assert_eq!(status(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE, "to ask breaks nothing");
        fails!(
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            cuMemcpyDtoH_v2([0u8; 8].as_mut_ptr().cast(), memory, 8)
        );
        is_broken(blocking);
        ok!(cuStreamBeginCapture_v2(blocking, RELAXED));
        let none = null_mut();
        fails!(
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, null_mut(), none, none)
        );
        is_broken(blocking);
        assert_eq!(shape(end(free)), (vec![], 0));
    });
}

#[test]
fn capture_modes_decide_which_threads_may_make_unsafe_calls() {
    alone(&[], || {
        let context = start() as usize;
        let here = |answer| {
            assert_eq!(
                // SAFETY: a size without a out is refused, whatever the capture says.
                unsafe { cuMemAlloc_v2(null_mut(), 64) },
                answer
            );
        };
        let (free, refused) = (CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let there = |mode: CUstreamCaptureMode, answer| {
            std::thread::spawn(move || {
                let mut mode = mode;
                ok!(cuCtxSetCurrent(without_provenance_mut(context)));
                ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
                assert_eq!(mode, GLOBAL, "what a thread begins with");
                // SAFETY: as above.
                assert_eq!(unsafe { cuMemAlloc_v2(null_mut(), 64) }, answer);
            })
            .join()
            .expect("thread");
        };
        let stream = begin(GLOBAL);
        there(RELAXED, free);
        there(THREAD_LOCAL, free);
        assert_eq!(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        there(GLOBAL, refused);
        is_broken(stream);
        ok!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
        there(GLOBAL, free);
        here(refused);
        is_broken(stream);
        ok!(cuStreamBeginCapture_v2(stream, RELAXED));
        here(free);
        there(GLOBAL, free);
        end(stream);
        // A thread that is relaxed may do it within its own capture.
        let mut mode = RELAXED;
        ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
        ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
        here(free);
        ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
        assert_eq!(mode, RELAXED);
        let other = event();
        fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(other));
        is_broken(stream);
        mode = 3;
        invalid!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
    });
}

#[test]
fn a_capture_ends_where_it_began_unless_it_is_relaxed() {
    alone(&[], || {
        let context = start() as usize;
        let elsewhere = |stream: CUstream, answer| {
            let stream = stream as usize;
            std::thread::spawn(move || {
                ok!(cuCtxSetCurrent(without_provenance_mut(context)));
                let mut graph = null_mut();
                let stream = without_provenance_mut(stream);
                // SAFETY: the out is valid.
                assert_eq!(unsafe { cuStreamEndCapture(stream, &raw mut graph) }, answer);
            })
            .join()
            .expect("thread");
        };
        let stream = begin(THREAD_LOCAL);
        elsewhere(stream, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        end(stream);
        elsewhere(begin(RELAXED), CUDA_SUCCESS);
    });
}

#[test]
fn dependencies_do_not_cross_the_boundary() {
    alone(&[], || {
        start();
        let (outside, inside) = (event(), event());
        let plain = stream(CU_STREAM_NON_BLOCKING);
        ok!(cuEventRecord(outside, plain));
        let (one, other) = (begin(GLOBAL), begin(GLOBAL));
        fails!(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(one, outside, 0));
        is_broken(one);
        ok!(cuStreamBeginCapture_v2(one, GLOBAL));
        ok!(cuEventRecord(inside, other));
        fails!(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(one, inside, 0));
        is_broken(one);
        is_broken(other);
        fails!(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(plain, inside, 0));
    });
}

#[test]
fn a_capture_into_a_graph_can_be_looked_at() {
    alone(&[], || {
        start();
        let function = kernel(c"k");
        let existing = graph();
        let root = add_empty(existing, &[]);
        let stream = stream(CU_STREAM_NON_BLOCKING);
        ok!(cuStreamBeginCaptureToGraph(stream, existing, &raw const root, null(), 1, GLOBAL));
        launch(function, stream);
        let (mut status, mut id, mut graph, mut nodes, mut count) = (9, 0, null_mut(), null(), 0);
        ok!(cuStreamGetCaptureInfo_v2(
            stream,
            &raw mut status,
            &raw mut id,
            &raw mut graph,
            &raw mut nodes,
            &raw mut count
        ));
        assert_eq!((status, graph, count), (CU_STREAM_CAPTURE_STATUS_ACTIVE, existing, 1));
        assert!(id != 0);
        invalid!(cuGraphDestroy(existing));
        let mut exec = null_mut();
        invalid!(cuGraphInstantiateWithFlags(&raw mut exec, existing, 0));
        assert_eq!(end(stream), existing);
        let kinds = vec![CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_KERNEL];
        assert_eq!(shape(existing), (kinds, 1));
        // A graph that is launched into a capture is a node of it.
        let exec = instantiate(existing);
        ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
        ok!(cuGraphLaunch(exec, stream));
        let outer = end(stream);
        assert_eq!(shape(outer), (vec![CU_GRAPH_NODE_TYPE_GRAPH], 0));
        ok!(cuGraphLaunch(instantiate(outer), stream));
    });
}
