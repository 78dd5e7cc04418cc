//! Primary contexts: one per device, shared within the process, with a count of its users.

use crate::Answer;
use crate::boundary::Out;
use crate::context;
use crate::memory::{graph_pool, pool};
use crate::process::{Driver, driver, handle, lock};
use driver_sys::cuda::*;
use std::sync::MutexGuard;

/// One device's primary context.
#[derive(Default)]
pub struct Primary {
    /// The handle: 0 before the first use, then always the same.
    handle: usize,
    retained: u32,
    flags: u32,
}

fn of(device: CUdevice) -> Answer<(&'static Driver, MutexGuard<'static, Primary>)> {
    let driver = driver()?;
    driver.card(device)?;
    Ok((driver, lock(&driver.primaries[device as usize])))
}

/// `cuDevicePrimaryCtxRetain`
pub fn retain(context: Out<CUcontext>, device: CUdevice) -> Answer {
    let driver = driver()?;
    driver.card(device)?;
    if context.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    context.put(handle(acquire(driver, device)?))
}

/// Adds a user; returns the context's handle.
pub fn acquire(driver: &Driver, device: CUdevice) -> Answer<usize> {
    let mut primary = lock(&driver.primaries[device as usize]);
    if primary.handle == 0 {
        primary.handle = context::insert(driver, device, true)?;
    }
    if primary.retained == 0 {
        let found = driver.contexts.get(primary.handle).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        found.activate(driver)?;
    }
    primary.retained += 1;
    Ok(primary.handle)
}

/// `cuDevicePrimaryCtxRelease`
pub fn release(device: CUdevice) -> Answer {
    let (driver, mut primary) = of(device)?;
    primary.retained = primary.retained.checked_sub(1).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    if primary.retained == 0 {
        end(driver, &primary);
    }
    Ok(())
}

/// `cuDevicePrimaryCtxReset`
pub fn reset(device: CUdevice) -> Answer {
    let (driver, mut primary) = of(device)?;
    primary.retained = 0;
    end(driver, &primary);
    pool::empty_default(driver, device);
    graph_pool::empty(driver, device);
    Ok(())
}

fn end(driver: &Driver, primary: &Primary) {
    if let Some(context) = driver.contexts.get(primary.handle) {
        context.deactivate(driver, primary.handle);
    }
}

/// `cuDevicePrimaryCtxGetState`
pub fn get_state(device: CUdevice, flags: Out<u32>, active: Out<i32>) -> Answer {
    let (_, primary) = of(device)?;
    if active.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    flags.put(primary.flags)?;
    active.put(i32::from(primary.retained > 0))
}

/// `cuDevicePrimaryCtxSetFlags`
pub fn set_flags(device: CUdevice, flags: u32) -> Answer {
    let (_, mut primary) = of(device)?;
    context::check_flags(flags)?;
    primary.flags = flags;
    Ok(())
}
