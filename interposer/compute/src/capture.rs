//! Stream capture: launches that are recorded in a graph instead of made.
//!
//! Such launches take no engine time, so they are neither limited nor metered, and none of our
//! events may get into the graph. A stream also joins a capture by waiting for an event of a stream
//! that captures, and no call reports that. So while the process captures anything, the driver is
//! asked about each stream. The library calls the driver in the thread's relaxed mode meanwhile,
//! because otherwise its calls would invalidate captures.

use std::sync::atomic::{AtomicU32, Ordering};

use driver_sys::cuda::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS, CUstream,
    CUstreamCaptureMode, CUstreamCaptureStatus,
};
use vgpu_driver::real;

/// The number of captures in progress, as far as the program's calls show. It may be too high,
/// never too low.
static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// Whether a stream is being captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capturing {
    No,
    Yes,
    /// The driver refuses to tell, because work on the stream would invalidate a capture.
    CannotTell,
}

/// Whether any stream may be being captured.
pub(crate) fn any() -> bool {
    CAPTURES.load(Ordering::Acquire) > 0
}

/// Whether a stream of the calling thread is being captured now.
pub(crate) fn state_of(stream: usize) -> Capturing {
    if !any() {
        return Capturing::No;
    }
    let mut status: CUstreamCaptureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the program's own stream, a local variable. This call invalidates nothing.
    let result = unsafe { real::cuStreamIsCapturing(stream as CUstream, &raw mut status) };
    match (result, status) {
        (CUDA_SUCCESS, CU_STREAM_CAPTURE_STATUS_NONE) => Capturing::No,
        (CUDA_SUCCESS, _) => Capturing::Yes,
        _ => Capturing::CannotTell,
    }
}

/// Runs `body` in the thread's relaxed mode, if any stream may be being captured.
pub(crate) fn relaxed<T>(body: impl FnOnce() -> T) -> T {
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

/// A capture is about to begin.
pub(crate) fn begin() {
    CAPTURES.fetch_add(1, Ordering::AcqRel);
}

/// A capture has ended, or the driver has refused to begin it.
pub(crate) fn end() {
    let less = |captures: u32| captures.checked_sub(1);
    let _ = CAPTURES.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
}
