//! Stream capture: launches that are written down instead of made.
//!
//! They take no time, so they are neither gated nor metered, and nothing of ours may get into the
//! graph. A stream also begins to capture by waiting for an event of one that does, which no call tells; so
//! while the process captures anything, the driver is asked about each stream. What we ask and record
//! meanwhile is done in the thread's relaxed mode, or it would spoil a capture that is none of its
//! business.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use driver_sys::cuda::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CUDA_SUCCESS,
    CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphRecaptureCallback, CUresult, CUstream,
    CUstreamCaptureMode, CUstreamCaptureStatus,
};

use super::batch::Stream;
use super::ticket;
use crate::boundary::guard;
use crate::init;
use crate::table::real;

/// Captures that begin, or have begun, and have not ended, as far as can be told; never too few.
static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// Whether a stream captures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Capturing {
    No,
    Yes,
    /// The driver refuses to say: work on it would spoil another's capture.
    CannotTell,
}

/// Whether anything may be captured now.
pub(super) fn any() -> bool {
    CAPTURES.load(Ordering::Acquire) > 0
}

/// Whether work on a stream would be captured now.
pub(super) fn state_of(stream: Stream) -> Capturing {
    if !any() {
        return Capturing::No;
    }
    let mut status: CUstreamCaptureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    let handle = stream.handle as CUstream;
    // SAFETY: the program's own stream, a local variable. Asking spoils nothing.
    let asked = unsafe {
        if stream.is_threads_own {
            real::cuStreamIsCapturing_ptsz(handle, &raw mut status)
        } else {
            real::cuStreamIsCapturing(handle, &raw mut status)
        }
    };
    match (asked, status) {
        (CUDA_SUCCESS, CU_STREAM_CAPTURE_STATUS_NONE) => Capturing::No,
        (CUDA_SUCCESS, _) => Capturing::Yes,
        _ => Capturing::CannotTell,
    }
}

/// Does something in the calling thread's relaxed mode, where anything may be captured.
pub(super) fn relaxed<T>(body: impl FnOnce() -> T) -> T {
    if !any() {
        return body();
    }
    let mut mode: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: a local variable; the mode found is put back.
    unsafe { real::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    let done = body();
    // SAFETY: as above.
    unsafe { real::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    done
}

/// A stream is about to be captured. From here on nothing of ours gets into a stream but right behind
/// a launch, by the thread that makes it: a stream that is only recorded into later may be part of the
/// capture by then. So batches that are open are closed before.
fn begin(driver: impl FnOnce() -> CUresult) -> CUresult {
    CAPTURES.fetch_add(1, Ordering::AcqRel);
    ticket::revoke_all();
    if !init::inherited() && super::meter::has_started() {
        guard(|| relaxed(super::meter::close_open));
    }
    let result = driver();
    if result != CUDA_SUCCESS {
        ended();
    }
    result
}

fn ended() {
    let less = |captures: u32| captures.checked_sub(1);
    let _ = CAPTURES.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
}

fn end(driver: impl FnOnce() -> CUresult) -> CUresult {
    let result = driver();
    if matches!(
        result,
        CUDA_SUCCESS | CUDA_ERROR_STREAM_CAPTURE_INVALIDATED | CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    ) {
        ended();
    }
    result
}

/// The hooks of one pair of symbols each: the driver's call between what we have to do.
macro_rules! captures {
    ($($body:ident ($($argument:ident: $kind:ty),*) $step:ident => $driver:ident;)*) => {
        $(pub(crate) unsafe fn $body($($argument: $kind),*) -> CUresult {
            // SAFETY: the program's own arguments.
            $step(|| unsafe { real::$driver($($argument),*) })
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
