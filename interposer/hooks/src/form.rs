//! The two forms of the calls that name a stream. They differ in the meaning of the null stream.

use std::time::{Duration, Instant};

use driver_sys::cuda::{
    CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUstream,
};
use vgpu_driver::real;

/// How long a call waits for earlier work that has the memory it needs.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks at that work.
const PAUSE: Duration = Duration::from_micros(100);

/// The form of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The null stream is the default stream of the context.
    Plain,
    /// The null stream is the default stream of the thread.
    PerThread,
}

impl Form {
    /// Whether a stream is being captured: then nothing is allocated, freed or launched.
    pub(crate) fn is_capturing(self, stream: CUstream) -> bool {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a handle that the driver checks, and a local variable.
        let result = unsafe {
            match self {
                Self::Plain => real::cuStreamIsCapturing(stream, &raw mut status),
                Self::PerThread => real::cuStreamIsCapturing_ptsz(stream, &raw mut status),
            }
        };
        result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE
    }

    /// Waits until a stream has done its work, or until that takes too long.
    pub(crate) fn wait(self, stream: CUstream) {
        let end = Instant::now() + PATIENCE;
        // SAFETY: a handle that the driver checks.
        let query = || unsafe {
            match self {
                Self::Plain => real::cuStreamQuery(stream),
                Self::PerThread => real::cuStreamQuery_ptsz(stream),
            }
        };
        while query() == CUDA_ERROR_NOT_READY && Instant::now() < end {
            std::thread::sleep(PAUSE);
        }
    }
}
