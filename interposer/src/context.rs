//! The end of a context frees all that was allocated in it, without a call to free.
//!
//! What a context itself takes from the card is not charged yet; see `policy.toml`.

use driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUdevice, CUresult};

use crate::allocations::{self, Epoch, Owner};
use crate::boundary::guard;
use crate::compute::contexts::{self, Ending};
use crate::compute::gate;
use crate::init;
use crate::memory::settle;
use crate::pools;
use crate::slice::{self, Slice};
use crate::table::real;

pub(crate) unsafe fn destroy(context: CUcontext) -> CUresult {
    // SAFETY: the program's own argument.
    ending(context, || unsafe { real::cuCtxDestroy_v2(context) })
}

pub(crate) unsafe fn destroy_v1(context: CUcontext) -> CUresult {
    // SAFETY: the program's own argument.
    ending(context, || unsafe { real::cuCtxDestroy(context) })
}

fn ending(context: CUcontext, driver: impl FnOnce() -> CUresult) -> CUresult {
    if init::inherited() {
        return driver();
    }
    let ending = contexts::ending(context as usize);
    let before = Epoch::now();
    let result = driver();
    if result == CUDA_SUCCESS && !context.is_null() {
        ended(context, before, &ending);
    }
    result
}

/// Drops one use of a context that cuCtxAttach counted. Whether that ended it, only the driver
/// knows: it answers for a context's API version as long as the context lives.
pub(crate) unsafe fn detach(context: CUcontext) -> CUresult {
    if init::inherited() {
        // SAFETY: the program's own argument.
        return unsafe { real::cuCtxDetach(context) };
    }
    let ending = contexts::ending(context as usize);
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

/// Gives back what a context held that the driver has ended.
fn ended(context: CUcontext, before: Epoch, ending: &Ending) {
    // The driver has answered: whatever goes wrong now, it must not be asked again.
    guard(|| {
        gate::context_changed(CUDA_SUCCESS);
        ending.ended();
        if let Slice::Limited(limited) = slice::current() {
            settle(limited, &allocations::remove_owned(Owner::context(context), before));
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

/// A release ends the primary context only with the last reference; the driver says afterwards
/// whether it is still active. A reset leaves it inactive in any case.
fn primary(device: CUdevice, driver: impl FnOnce() -> CUresult) -> CUresult {
    let Slice::Limited(limited) = slice::current() else { return driver() };
    if init::inherited() {
        return driver();
    }
    let context =
        primary_context(device).map(|context| (context, contexts::ending(context as usize)));
    let before = Epoch::now();
    let result = driver();
    if result == CUDA_SUCCESS && !is_active(device) {
        if let Some((context, ending)) = context {
            ended(context, before, &ending);
        }
        if pools::any() {
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
