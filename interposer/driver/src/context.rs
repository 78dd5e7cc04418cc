//! The current context of the calling thread.

use std::ptr::null_mut;

use driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUdevice};

use crate::{process, real};

/// The device and the context that are current; `None` if there is no context, or if this process
/// only has a copy of the driver's state.
#[inline]
pub fn current() -> Option<(CUdevice, CUcontext)> {
    if process::is_forked_copy() {
        return None;
    }
    let mut device: CUdevice = -1;
    let mut context: CUcontext = null_mut();
    // SAFETY: both are written to local variables.
    let results =
        unsafe { (real::cuCtxGetDevice(&raw mut device), real::cuCtxGetCurrent(&raw mut context)) };
    (results == (CUDA_SUCCESS, CUDA_SUCCESS)).then_some((device, context))
}

/// Runs `body` while the context with this handle is current; `None` if the driver refuses to make
/// it current.
pub fn with_current<T>(context: usize, body: impl FnOnce() -> T) -> Option<T> {
    let mut current: CUcontext = null_mut();
    // SAFETY: a local variable.
    let known = unsafe { real::cuCtxGetCurrent(&raw mut current) } == CUDA_SUCCESS;
    if known && current as usize == context {
        return Some(body());
    }
    // SAFETY: a handle that the driver checks; what is pushed is popped.
    unsafe {
        if real::cuCtxPushCurrent_v2(context as CUcontext) != CUDA_SUCCESS {
            return None;
        }
        let done = body();
        let mut popped: CUcontext = null_mut();
        real::cuCtxPopCurrent_v2(&raw mut popped);
        Some(done)
    }
}
