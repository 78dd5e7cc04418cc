//! Our own events: two for each batch of launches, kept for the next one.
//!
//! They belong to a context, and end with it.

use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use driver_sys::cuda::{CU_EVENT_DEFAULT, CUDA_SUCCESS, CUcontext, CUevent, CUstream};

use crate::table::real;

/// An event of ours, as a number that may cross threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event(usize);

/// By context; a process has one or two.
static SPARE: Mutex<Vec<(usize, Vec<Event>)>> = Mutex::new(Vec::new());

fn spare() -> MutexGuard<'static, Vec<(usize, Vec<Event>)>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An event of the current context, which is `context`.
pub(super) fn take(context: usize) -> Option<Event> {
    let kept = spare().iter_mut().find(|(of, _)| *of == context).and_then(|(_, kept)| kept.pop());
    if kept.is_some() {
        return kept;
    }
    let mut event: CUevent = null_mut();
    // SAFETY: a local variable.
    let made = unsafe { real::cuEventCreate(&raw mut event, CU_EVENT_DEFAULT) };
    (made == CUDA_SUCCESS).then_some(Event(event as usize))
}

/// Keeps an event that is no longer needed.
pub(super) fn give_back(context: usize, event: Event) {
    let mut spare = spare();
    match spare.iter_mut().find(|(of, _)| *of == context) {
        Some((_, kept)) => kept.push(event),
        None => spare.push((context, vec![event])),
    }
}

/// A context has ended, and its events with it.
pub(super) fn forget(context: usize) {
    spare().retain(|(of, _)| *of != context);
}

/// What an event has to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reached {
    Yes,
    NotYet,
    /// The driver does not know it, or its context has failed.
    Lost,
}

impl Event {
    fn handle(self) -> CUevent {
        self.0 as CUevent
    }

    /// Puts it behind what is in a stream.
    pub(super) fn record(self, stream: usize, is_threads_own: bool) -> bool {
        let stream = stream as CUstream;
        // SAFETY: an event of ours, and a stream that the program has just used itself.
        let recorded = unsafe {
            if is_threads_own {
                real::cuEventRecord_ptsz(self.handle(), stream)
            } else {
                real::cuEventRecord(self.handle(), stream)
            }
        };
        recorded == CUDA_SUCCESS
    }

    pub(super) fn reached(self) -> Reached {
        // SAFETY: an event of ours, whose context has not ended.
        match unsafe { real::cuEventQuery(self.handle()) } {
            CUDA_SUCCESS => Reached::Yes,
            driver_sys::cuda::CUDA_ERROR_NOT_READY => Reached::NotYet,
            _ => Reached::Lost,
        }
    }

    /// Nanoseconds from another event to this one, both reached; exact to about half a microsecond.
    pub(super) fn since(self, earlier: Event) -> Option<i64> {
        let mut milliseconds = 0_f32;
        let place = &raw mut milliseconds;
        // SAFETY: events of ours, and a local variable. Newer drivers have only the second form.
        let measured = unsafe {
            match real::cuEventElapsedTime(place, earlier.handle(), self.handle()) {
                CUDA_SUCCESS => CUDA_SUCCESS,
                _ => real::cuEventElapsedTime_v2(place, earlier.handle(), self.handle()),
            }
        };
        (measured == CUDA_SUCCESS).then_some((f64::from(milliseconds) * 1e6) as i64)
    }
}

/// Does something with a context current; `None` where it cannot be made so.
pub(super) fn in_context<T>(context: usize, body: impl FnOnce() -> T) -> Option<T> {
    let mut current: CUcontext = null_mut();
    // SAFETY: a local variable.
    let known = unsafe { real::cuCtxGetCurrent(&raw mut current) } == CUDA_SUCCESS;
    if known && current as usize == context {
        return Some(body());
    }
    // SAFETY: a context that has not ended; what is pushed is popped.
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
