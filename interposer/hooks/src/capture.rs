//! The beginning and the end of stream captures.

use std::ffi::c_void;

use driver_sys::cuda::{
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CUDA_SUCCESS,
    CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphRecaptureCallback, CUresult, CUstream,
    CUstreamCaptureMode,
};
use vgpu_compute::notices;
use vgpu_driver::real;

fn begin(stream: CUstream, per_thread: bool, call: impl FnOnce() -> CUresult) -> CUresult {
    notices::capture_begins(stream as usize, per_thread);
    let result = call();
    if result != CUDA_SUCCESS {
        notices::capture_ended();
    }
    result
}

fn end(_stream: CUstream, _per_thread: bool, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    if matches!(
        result,
        CUDA_SUCCESS | CUDA_ERROR_STREAM_CAPTURE_INVALIDATED | CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    ) {
        notices::capture_ended();
    }
    result
}

/// One body per symbol: `begin` or `end` around the driver's call.
macro_rules! captures {
    ($($body:ident ($stream:ident: CUstream $(, $argument:ident: $kind:ty)*)
       $step:ident => $driver:ident;)*) => {
        $(pub(crate) unsafe fn $body($stream: CUstream $(, $argument: $kind)*) -> CUresult {
            let per_thread = stringify!($driver).ends_with("_ptsz");
            // SAFETY: the program's own arguments.
            $step($stream, per_thread, || unsafe { real::$driver($stream $(, $argument)*) })
        })*
    };
}

captures! {
    begin_v1(stream: CUstream) begin => cuStreamBeginCapture;
    begin_v1_ptsz(stream: CUstream) begin => cuStreamBeginCapture_ptsz;
    begin_v2(stream: CUstream, mode: CUstreamCaptureMode) begin => cuStreamBeginCapture_v2;
    begin_v2_ptsz(stream: CUstream, mode: CUstreamCaptureMode) begin => cuStreamBeginCapture_v2_ptsz;
    begin_to_graph(
        stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode
    ) begin => cuStreamBeginCaptureToGraph;
    begin_to_graph_ptsz(
        stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode
    ) begin => cuStreamBeginCaptureToGraph_ptsz;
    begin_again(
        stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph,
        callback: CUgraphRecaptureCallback, data: *mut c_void
    ) begin => cuStreamBeginRecaptureToGraph;
    begin_again_ptsz(
        stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph,
        callback: CUgraphRecaptureCallback, data: *mut c_void
    ) begin => cuStreamBeginRecaptureToGraph_ptsz;
    end_capture(stream: CUstream, graph: *mut CUgraph) end => cuStreamEndCapture;
    end_capture_ptsz(stream: CUstream, graph: *mut CUgraph) end => cuStreamEndCapture_ptsz;
}
