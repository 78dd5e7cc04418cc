//! The beginning and the end of stream captures.

use std::ffi::c_void;

use driver_sys::cuda::{
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CUDA_SUCCESS,
    CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphRecaptureCallback, CUresult, CUstream,
    CUstreamCaptureMode,
};
use vgpu_compute::notices;

fn begin(stream: CUstream, per_thread: bool, call: impl FnOnce() -> CUresult) -> CUresult {
    notices::capture_begins(stream as usize, per_thread);
    let result = call();
    if result != CUDA_SUCCESS {
        notices::capture_ended();
    }
    result
}

fn end(call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    if matches!(
        result,
        CUDA_SUCCESS | CUDA_ERROR_STREAM_CAPTURE_INVALIDATED | CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    ) {
        notices::capture_ended();
    }
    result
}

around! {
    begin_v1(stream: CUstream) -> CUresult
        = cuStreamBeginCapture, |call| begin(stream, false, call);
    begin_v1_ptsz(stream: CUstream) -> CUresult
        = cuStreamBeginCapture_ptsz, |call| begin(stream, true, call);
    begin_v2(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult
        = cuStreamBeginCapture_v2, |call| begin(stream, false, call);
    begin_v2_ptsz(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult
        = cuStreamBeginCapture_v2_ptsz, |call| begin(stream, true, call);
    begin_to_graph(
        stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode
    ) -> CUresult = cuStreamBeginCaptureToGraph, |call| begin(stream, false, call);
    begin_to_graph_ptsz(
        stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode
    ) -> CUresult = cuStreamBeginCaptureToGraph_ptsz, |call| begin(stream, true, call);
    begin_again(
        stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph,
        callback: CUgraphRecaptureCallback, data: *mut c_void
    ) -> CUresult = cuStreamBeginRecaptureToGraph, |call| begin(stream, false, call);
    begin_again_ptsz(
        stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph,
        callback: CUgraphRecaptureCallback, data: *mut c_void
    ) -> CUresult = cuStreamBeginRecaptureToGraph_ptsz, |call| begin(stream, true, call);
    end_capture(stream: CUstream, graph: *mut CUgraph) -> CUresult
        = cuStreamEndCapture, |call| end(call);
    end_capture_ptsz(stream: CUstream, graph: *mut CUgraph) -> CUresult
        = cuStreamEndCapture_ptsz, |call| end(call);
}
