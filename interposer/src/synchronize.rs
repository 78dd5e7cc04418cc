//! Synchronisation: where the driver gives back what pools no longer use.
//!
//! Nobody else in the slice could have that memory before we have asked again. Programs without
//! pools pay one load.

use driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUevent, CUresult, CUstream};

use crate::init;
use crate::pools;
use crate::slice::{self, Slice};
use crate::table::real;

pub(crate) unsafe fn stream(stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    after(unsafe { real::cuStreamSynchronize(stream) })
}

pub(crate) unsafe fn stream_ptsz(stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    after(unsafe { real::cuStreamSynchronize_ptsz(stream) })
}

pub(crate) unsafe fn stream_query(stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    after(unsafe { real::cuStreamQuery(stream) })
}

pub(crate) unsafe fn stream_query_ptsz(stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    after(unsafe { real::cuStreamQuery_ptsz(stream) })
}

pub(crate) unsafe fn event(event: CUevent) -> CUresult {
    // SAFETY: the program's own argument.
    after(unsafe { real::cuEventSynchronize(event) })
}

pub(crate) unsafe fn event_query(event: CUevent) -> CUresult {
    // SAFETY: the program's own argument.
    after(unsafe { real::cuEventQuery(event) })
}

pub(crate) unsafe fn context() -> CUresult {
    // SAFETY: takes nothing.
    after(unsafe { real::cuCtxSynchronize() })
}

pub(crate) unsafe fn context_of(context: CUcontext) -> CUresult {
    // SAFETY: the program's own argument.
    after(unsafe { real::cuCtxSynchronize_v2(context) })
}

#[inline]
fn after(result: CUresult) -> CUresult {
    if result == CUDA_SUCCESS
        && pools::any()
        && !init::inherited()
        && let Slice::Limited(limited) = slice::current()
    {
        pools::refresh(limited);
    }
    result
}
