//! The end of a context, which frees all memory that was allocated in it without a call to free.
//!
//! The memory that a context itself takes is not charged yet; see `policy.toml`.

use driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUdevice, CUresult};
use vgpu_compute::{Ending, notices};
use vgpu_driver::guard::guard;
use vgpu_driver::{process, real};
use vgpu_slice::allocations::{self, Epoch, Owner};
use vgpu_slice::{Slice, charging, current, pools};

pub(crate) unsafe fn destroy(context: CUcontext) -> CUresult {
    // SAFETY: the program's own argument.
    ending(context, || unsafe { real::cuCtxDestroy_v2(context) })
}

pub(crate) unsafe fn destroy_v1(context: CUcontext) -> CUresult {
    // SAFETY: the program's own argument.
    ending(context, || unsafe { real::cuCtxDestroy(context) })
}

fn ending(context: CUcontext, call: impl FnOnce() -> CUresult) -> CUresult {
    if process::is_forked_copy() {
        return call();
    }
    let ending = notices::context_ending(context as usize);
    let before = Epoch::now();
    let result = call();
    if result == CUDA_SUCCESS && !context.is_null() {
        ended(context, before, &ending);
    }
    result
}

/// Drops one use of a context that cuCtxAttach counted. Only the driver knows whether this ended
/// the context: it reports the API version of a context as long as the context lives.
pub(crate) unsafe fn detach(context: CUcontext) -> CUresult {
    if process::is_forked_copy() {
        // SAFETY: the program's own argument.
        return unsafe { real::cuCtxDetach(context) };
    }
    let ending = notices::context_ending(context as usize);
    let before = Epoch::now();
    // SAFETY: the program's own argument.
    let result = unsafe { real::cuCtxDetach(context) };
    let mut version = 0;
    if result == CUDA_SUCCESS
        && !context.is_null()
        // SAFETY: a handle that the driver checks, and a local variable.
        && unsafe { real::cuCtxGetApiVersion(context, &raw mut version) } != CUDA_SUCCESS
    {
        ended(context, before, &ending);
    }
    result
}

/// Uncharges what was allocated in a context that the driver has ended.
fn ended(context: CUcontext, before: Epoch, ending: &Ending) {
    // The driver must not be called again, even if the accounting panics.
    guard(|| {
        notices::context_changed();
        notices::context_ended(ending);
        if let Slice::Limited(limited) = current() {
            let freed = allocations::remove_owned(Owner::context(context), before);
            charging::uncharge_freed(limited, &freed);
        }
    });
}

pub(crate) unsafe fn primary_release(device: CUdevice) -> CUresult {
    // SAFETY: the program's own argument.
    primary(device, || unsafe { real::cuDevicePrimaryCtxRelease_v2(device) })
}

pub(crate) unsafe fn primary_release_v1(device: CUdevice) -> CUresult {
    // SAFETY: the program's own argument.
    primary(device, || unsafe { real::cuDevicePrimaryCtxRelease(device) })
}

pub(crate) unsafe fn primary_reset(device: CUdevice) -> CUresult {
    // SAFETY: the program's own argument.
    primary(device, || unsafe { real::cuDevicePrimaryCtxReset_v2(device) })
}

pub(crate) unsafe fn primary_reset_v1(device: CUdevice) -> CUresult {
    // SAFETY: the program's own argument.
    primary(device, || unsafe { real::cuDevicePrimaryCtxReset(device) })
}

/// A release ends the primary context only with the last reference; the driver reports afterwards
/// whether it is still active. A reset always leaves it inactive.
fn primary(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    let Slice::Limited(limited) = current() else { return call() };
    if process::is_forked_copy() {
        return call();
    }
    let context =
        primary_context(device).map(|context| (context, notices::context_ending(context as usize)));
    let before = Epoch::now();
    let result = call();
    if result == CUDA_SUCCESS && !is_active(device) {
        if let Some((context, ending)) = context {
            ended(context, before, &ending);
        }
        if pools::any_charged() {
            guard(|| pools::device_reset(limited, device, before));
        }
    }
    result
}

fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: local variables.
    let state =
        unsafe { real::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active) };
    state == CUDA_SUCCESS && active != 0
}

/// The handle of a device's primary context, while it is active.
fn primary_context(device: CUdevice) -> Option<CUcontext> {
    if !is_active(device) {
        return None;
    }
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: a local variable; the reference taken here is dropped at once.
    unsafe {
        if real::cuDevicePrimaryCtxRetain(&raw mut context, device) != CUDA_SUCCESS {
            return None;
        }
        real::cuDevicePrimaryCtxRelease_v2(device);
    }
    Some(context)
}
