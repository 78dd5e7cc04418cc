//! Events: the instant a stream had reached when they were recorded.

use crate::arguments::Out;
use crate::context::current;
use crate::process::{Driver, driver, handle};
use crate::stream::{self, wait_until};
use crate::{Answer, pool};
use driver_sys::cuda::*;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// An event.
#[derive(Default)]
pub struct Event {
    context: AtomicUsize,
    flags: AtomicU32,
    /// When the work before it is done; 0: never recorded.
    instant: AtomicU64,
}

fn find(driver: &'static Driver, event: CUevent) -> Answer<&'static Event> {
    driver.events.get(event as usize).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// The instant of an event, 0 when it was never recorded.
pub fn recorded_at(driver: &'static Driver, event: CUevent) -> Answer<u64> {
    Ok(find(driver, event)?.instant.load(Ordering::Acquire))
}

/// `cuEventCreate`
pub fn create(event: Out<CUevent>, flags: u32) -> Answer {
    let (driver, _, context) = current()?;
    let known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    let needs_no_timing = flags & CU_EVENT_INTERPROCESS != 0;
    let has_timing = flags & CU_EVENT_DISABLE_TIMING == 0;
    if event.is_null() || flags & !known != 0 || needs_no_timing && has_timing {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let created = driver.events.insert(|event, _| {
        event.context.store(context, Ordering::Relaxed);
        event.flags.store(flags, Ordering::Relaxed);
        event.instant.store(0, Ordering::Relaxed);
    });
    event.put(handle(created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?))
}

/// `cuEventDestroy`
pub fn destroy(event: CUevent) -> Answer {
    let removed = driver()?.events.remove(event as usize);
    if removed { Ok(()) } else { Err(CUDA_ERROR_INVALID_HANDLE) }
}

/// Destroys the events of a context.
pub fn destroy_all(driver: &Driver, context: usize) {
    for (own_handle, event) in driver.events.live() {
        if event.context.load(Ordering::Relaxed) == context {
            driver.events.remove(own_handle);
        }
    }
}

/// `cuEventRecord`
pub fn record(event: CUevent, on: CUstream) -> Answer {
    let driver = driver()?;
    let event = find(driver, event)?;
    let (_, queue) = stream::resolve(on)?;
    if event.context.load(Ordering::Relaxed) != queue.context().1 {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    event.instant.store(driver.clock.now().max(queue.done()), Ordering::Release);
    Ok(())
}

/// `cuEventRecordWithFlags`
pub fn record_with_flags(event: CUevent, on: CUstream, flags: u32) -> Answer {
    driver()?;
    if flags & !CU_EVENT_RECORD_EXTERNAL != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    record(event, on)
}

/// `cuEventQuery`
pub fn query(event: CUevent) -> Answer {
    let driver = driver()?;
    let instant = recorded_at(driver, event)?;
    if instant != 0 && instant > driver.clock.now() {
        return Err(CUDA_ERROR_NOT_READY);
    }
    pool::settle(driver);
    Ok(())
}

/// `cuEventSynchronize`
pub fn synchronize(event: CUevent) -> Answer {
    let driver = driver()?;
    wait_until(driver, recorded_at(driver, event)?);
    pool::settle(driver);
    Ok(())
}

/// `cuEventElapsedTime`
pub fn elapsed_time(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Answer {
    let driver = driver()?;
    if milliseconds.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut instants = [0; 2];
    for (instant, event) in instants.iter_mut().zip([start, end]) {
        let event = find(driver, event)?;
        *instant = event.instant.load(Ordering::Acquire);
        let is_untimed = event.flags.load(Ordering::Relaxed) & CU_EVENT_DISABLE_TIMING != 0;
        if is_untimed || *instant == 0 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
    }
    if instants[0].max(instants[1]) > driver.clock.now() {
        return Err(CUDA_ERROR_NOT_READY);
    }
    let nanoseconds = instants[1].cast_signed() - instants[0].cast_signed();
    milliseconds.put((nanoseconds as f64 / 1e6) as f32)
}
