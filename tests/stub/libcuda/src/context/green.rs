//! Green contexts: some multiprocessors of a device, with streams of their own.
//!
//! A green context has no memory, modules or events. What a program creates while one is current
//! belongs to the device's primary context, which the green context retains. So it has a second
//! handle, for functions that take a context: an entry among the contexts that is never active, and
//! that stands for the primary context.

use super::resources::{self, Sms};
use super::{CURRENT, Context, primary};
use crate::Answer;
use crate::boundary::Out;
use crate::process::{Driver, driver, handle, lock};
use crate::stream::{self, Queue};
use driver_sys::cuda::*;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// A green context.
#[derive(Default)]
pub struct Green(Mutex<State>);

#[derive(Clone, Copy, Default)]
pub struct State {
    pub sms: Sms,
    /// The handle of the device's primary context.
    primary: usize,
    /// The handle that stands for the primary context.
    pub context: usize,
    /// The default stream.
    default: usize,
}

fn find(driver: &Driver, green: CUgreenCtx) -> Answer<State> {
    of_handle(driver, green as usize).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// The green context of a handle that is no context's.
pub fn of_handle(driver: &Driver, green: usize) -> Option<State> {
    driver.greens.get(green).map(|found| *lock(&found.0))
}

/// The handle of the green context that a context's handle stands for, or 0; NULL is the current
/// context.
fn handle_of(driver: &Driver, context: usize) -> usize {
    let context = if context == 0 { CURRENT.get() } else { context };
    driver.contexts.get(context).map_or(0, |found| found.green.load(Ordering::Relaxed))
}

/// The green context of a context's handle.
pub fn of_context(driver: &Driver, context: CUcontext) -> Option<State> {
    of_handle(driver, handle_of(driver, context as usize))
}

/// The handle of the current green context; 0 if there is none.
pub fn current_handle(driver: &Driver) -> usize {
    handle_of(driver, 0)
}

/// The primary context that the handle of a green context stands for.
#[cold]
pub fn stand_in(
    driver: &'static Driver,
    context: usize,
) -> Answer<(&'static Driver, &'static Context, usize)> {
    let green = of_context(driver, handle(context)).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    let found = driver.contexts.get(green.primary).filter(|primary| primary.is_active());
    let found = found.ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    driver.check_lost(found.card())?;
    Ok((driver, found, green.primary))
}

/// The queue of the current green context's default stream.
#[cold]
pub fn default_queue() -> Answer<(&'static Driver, Queue)> {
    let driver = driver()?;
    let green = of_context(driver, handle(0)).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    stream::resolve(handle(green.default)).map_err(|_| CUDA_ERROR_CONTEXT_IS_DESTROYED)
}

/// `cuGreenCtxCreate`
pub fn create(
    green: Out<CUgreenCtx>,
    descriptor: CUdevResourceDesc,
    device: CUdevice,
    flags: u32,
) -> Answer {
    let driver = driver()?;
    driver.card(device)?;
    let sms = resources::find(driver, descriptor)?;
    if green.is_null() || flags & !CU_GREEN_CTX_DEFAULT_STREAM != 0 || sms.device != device {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let primary = primary::acquire(driver, device)?;
    let Some(created) = insert(driver, primary, sms) else {
        primary::release(device)?;
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    };
    green.put(handle(created))
}

/// A new green context with its handle for a context and its default stream.
fn insert(driver: &Driver, primary: usize, sms: Sms) -> Option<usize> {
    let green = driver.greens.insert(|_, _| {})?;
    let state = parts(driver, green, primary, sms);
    if let (Some(state), Some(made)) = (state, driver.greens.get(green)) {
        *lock(&made.0) = state;
        return Some(green);
    }
    for (own_handle, _) in stream::of_green(driver, green) {
        driver.streams.remove(own_handle);
    }
    driver.greens.remove(green);
    None
}

/// The parts of a green context.
fn parts(driver: &Driver, green: usize, primary: usize, sms: Sms) -> Option<State> {
    let owner = (green, sms.count);
    let default = stream::insert(driver, primary, owner, CU_STREAM_NON_BLOCKING, 0)?;
    let context = super::insert(driver, sms.device, false).ok()?;
    driver.contexts.get(context)?.green.store(green, Ordering::Relaxed);
    Some(State { sms, primary, context, default })
}

/// `cuGreenCtxDestroy`: the program's streams stay, but are of no use any more.
pub fn destroy(green: CUgreenCtx) -> Answer {
    let driver = driver()?;
    let state = find(driver, green)?;
    if !driver.greens.remove(green as usize) {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    for (own_handle, _) in stream::of_green(driver, green as usize) {
        if own_handle == state.default {
            stream::destroy(handle(own_handle))?;
        } else {
            stream::detach(driver, own_handle);
        }
    }
    driver.contexts.remove(state.context);
    // After a reset of the primary context there is nothing to release.
    let _ = primary::release(state.sms.device);
    Ok(())
}

/// `cuCtxFromGreenCtx`
pub fn as_context(context: Out<CUcontext>, green: CUgreenCtx) -> Answer {
    let driver = driver()?;
    context.put(handle(find(driver, green)?.context))
}

/// `cuGreenCtxGetDevResource`
pub fn get_resource(
    green: CUgreenCtx,
    resource: Out<CUdevResource>,
    kind: CUdevResourceType,
) -> Answer {
    let driver = driver()?;
    resources::put(driver, resource, kind, find(driver, green)?.sms)
}

/// `cuGreenCtxStreamCreate`
pub fn create_stream(
    created: Out<CUstream>,
    green: CUgreenCtx,
    flags: u32,
    priority: i32,
) -> Answer {
    let driver = driver()?;
    let state = find(driver, green)?;
    if created.is_null() || flags != CU_STREAM_NON_BLOCKING {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let owner = (green as usize, state.sms.count);
    let made = stream::insert(driver, state.primary, owner, flags, priority);
    let made = made.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    created.put(handle(made))
}
