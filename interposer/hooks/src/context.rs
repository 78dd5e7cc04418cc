//! The life of a context. At its start, the memory that the driver takes for it is charged. At its
//! end, this memory is uncharged, and all memory that was allocated in it and not freed.

use driver_sys::cuda::{
    CUDA_SUCCESS, CUcontext, CUctxCreateParams, CUdevResourceDesc, CUdevice, CUexecAffinityParam,
    CUgreenCtx, CUlimit, CUresult,
};
use vgpu_compute::{Ending, notices};
use vgpu_driver::guard::guard;
use vgpu_driver::real::{Outcome, check};
use vgpu_driver::{process, real};
use vgpu_slice::allocations::{self, Epoch, Owner};
use vgpu_slice::green::Green;
use vgpu_slice::mapped::EXTERNAL;
use vgpu_slice::{Slice, charging, context_limits, contexts, current, green, ipc, pools};

around! {
    create_v1(context: *mut CUcontext, flags: u32, device: CUdevice) -> Outcome
        = cuCtxCreate, |call| creating(context, device, call);
    create_v2(context: *mut CUcontext, flags: u32, device: CUdevice) -> Outcome
        = cuCtxCreate_v2, |call| creating(context, device, call);
    create_v3(
        context: *mut CUcontext, affinities: *mut CUexecAffinityParam, count: i32, flags: u32,
        device: CUdevice
    ) -> Outcome = cuCtxCreate_v3, |call| creating(context, device, call);
    create_v4(
        context: *mut CUcontext, parameters: *mut CUctxCreateParams, flags: u32, device: CUdevice
    ) -> Outcome = cuCtxCreate_v4, |call| creating(context, device, call);
    set_limit(limit: CUlimit, value: usize) -> Outcome
        = cuCtxSetLimit, |call| context_limits::set_limit(limit, value as u64, call);
    /// Creates a green context. It keeps the primary context of its device.
    create_green(
        context: *mut CUgreenCtx, resources: CUdevResourceDesc, device: CUdevice, flags: u32
    ) -> Outcome = cuGreenCtxCreate, |call| {
        if context.is_null() || process::is_forked_copy() {
            return check(call());
        }
        contexts::retain_primary(device, call)?;
        let mut own: CUcontext = std::ptr::null_mut();
        // SAFETY: the handle that the driver has just written, and a local variable.
        let result = unsafe { real::cuCtxFromGreenCtx(&raw mut own, *context) };
        if let (CUDA_SUCCESS, Some(primary)) = (result, primary_context(device)) {
            // SAFETY: as above.
            green::created(Green { handle: unsafe { *context } as usize, own, primary, device });
        }
        Ok(())
    };
    /// Destroys a green context, and with it the primary context if nothing else keeps it.
    destroy_green(context: CUgreenCtx) -> CUresult = cuGreenCtxDestroy, |call| {
        let Some(device) = green::device_of(context) else { return call() };
        primary(device, || {
            let result = call();
            if result == CUDA_SUCCESS {
                green::destroyed(context);
            }
            result
        })
    };
    primary_retain(context: *mut CUcontext, device: CUdevice) -> Outcome
        = cuDevicePrimaryCtxRetain,
        |call| if context.is_null() { check(call()) } else { contexts::retain_primary(device, call) };
    destroy(context: CUcontext) -> CUresult = cuCtxDestroy_v2, |call| ending(context, call, |_| true);
    destroy_v1(context: CUcontext) -> CUresult = cuCtxDestroy, |call| ending(context, call, |_| true);
    /// Drops one reference that cuCtxAttach has counted. Only the driver knows whether this has
    /// ended the context: it reports the API version of a context only while the context exists.
    detach(context: CUcontext) -> CUresult = cuCtxDetach, |call| ending(context, call, |context| {
        let mut version = 0;
        // SAFETY: a handle that the driver checks, and a local variable.
        unsafe { real::cuCtxGetApiVersion(context, &raw mut version) != CUDA_SUCCESS }
    });
    primary_release(device: CUdevice) -> CUresult
        = cuDevicePrimaryCtxRelease_v2, |call| primary(device, call);
    primary_release_v1(device: CUdevice) -> CUresult
        = cuDevicePrimaryCtxRelease, |call| primary(device, call);
    primary_reset(device: CUdevice) -> CUresult
        = cuDevicePrimaryCtxReset_v2, |call| primary(device, call);
    primary_reset_v1(device: CUdevice) -> CUresult
        = cuDevicePrimaryCtxReset, |call| primary(device, call);
}

/// Creates a context, which becomes current for its thread.
fn creating(context: *mut CUcontext, device: CUdevice, call: impl FnOnce() -> CUresult) -> Outcome {
    let outcome = if context.is_null() {
        check(call())
    } else {
        // SAFETY: read only after the driver has written it.
        contexts::create(device, call, || unsafe { *context })
    };
    if outcome.is_ok() {
        notices::context_changed();
    }
    outcome
}

/// Destroys a context, or drops a reference to it; `has_ended` returns whether it exists no more.
fn ending(
    context: CUcontext,
    call: impl FnOnce() -> CUresult,
    has_ended: impl FnOnce(CUcontext) -> bool,
) -> CUresult {
    if process::is_forked_copy() {
        return call();
    }
    let ending = notices::context_ending(context as usize);
    let before = Epoch::now();
    let result = call();
    if result == CUDA_SUCCESS && !context.is_null() && has_ended(context) {
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
            for kind in allocations::OF_CONTEXTS {
                let freed = kind.remove_owned(Owner::context(context), before);
                charging::uncharge_freed(limited, &freed);
            }
            EXTERNAL.context_ended(limited, Owner::context(context), before);
            ipc::context_ended(limited, Owner::context(context), before);
            context_limits::context_ended(limited, context);
            contexts::ended(limited, context);
        }
    });
}

/// Releases or resets a primary context. A release ends the context only with the last reference;
/// afterwards the driver reports whether it is still active. A reset always leaves it inactive.
fn primary(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    let Slice::Limited(limited) = current() else { return call() };
    if process::is_forked_copy() {
        return call();
    }
    let mut charge = contexts::lock_primary(device);
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
        if pools::graph_memory::any_charged() {
            guard(|| pools::graph_memory::device_reset(limited, device));
        }
        guard(|| charge.ended(limited));
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
