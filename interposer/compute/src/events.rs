//! The driver's events that the library records: two for each interval of launches, kept for later
//! intervals.
//!
//! An event belongs to a context and ends with it.

use std::ptr::null_mut;
use std::sync::Mutex;

use driver_sys::cuda::{
    CU_EVENT_DEFAULT, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUevent, CUresult, CUstream,
};
use vgpu_driver::guard::lock;
use vgpu_driver::real;

/// An event of ours, as a number that may cross threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event(usize);

/// The events that are not in use, by context. A process has one or two contexts.
static SPARE: Mutex<Vec<(usize, Vec<Event>)>> = Mutex::new(Vec::new());

/// An event of the current context, which is `context`.
pub(crate) fn take(context: usize) -> Option<Event> {
    let kept =
        lock(&SPARE).iter_mut().find(|(of, _)| *of == context).and_then(|(_, kept)| kept.pop());
    if kept.is_some() {
        return kept;
    }
    let mut event: CUevent = null_mut();
    // SAFETY: a local variable.
    let made = unsafe { real::cuEventCreate(&raw mut event, CU_EVENT_DEFAULT) };
    (made == CUDA_SUCCESS).then_some(Event(event as usize))
}

/// Keeps an event that is no longer in use.
pub(crate) fn release(context: usize, event: Event) {
    let mut spare = lock(&SPARE);
    match spare.iter_mut().find(|(of, _)| *of == context) {
        Some((_, kept)) => kept.push(event),
        None => spare.push((context, vec![event])),
    }
}

/// The context has ended, and its events with it.
pub(crate) fn forget(context: usize) {
    lock(&SPARE).retain(|(of, _)| *of != context);
}

/// Whether the card has finished the work in a stream. The handle must mean the same stream in
/// every thread. The query puts nothing into the stream. It must not be made while anything is
/// being captured.
pub(crate) fn is_done(stream: usize) -> Reached {
    // SAFETY: a stream that has not ended.
    Reached::of(unsafe { real::cuStreamQuery(stream as CUstream) })
}

/// Whether the card has reached a position in a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reached {
    Yes,
    NotYet,
    /// The driver cannot tell: it does not know the event or stream, or the context has failed.
    Lost,
}

impl Reached {
    fn of(result: CUresult) -> Self {
        match result {
            CUDA_SUCCESS => Self::Yes,
            CUDA_ERROR_NOT_READY => Self::NotYet,
            _ => Self::Lost,
        }
    }
}

impl Event {
    /// Any number, for tests that call no driver.
    #[cfg(test)]
    pub(crate) fn numbered(number: usize) -> Self {
        Self(number)
    }

    fn handle(self) -> CUevent {
        self.0 as CUevent
    }

    /// Records the event behind the work that is in a stream. Call it only beside the program's own
    /// work there: in the default stream an event waits for all blocking streams, and they wait for
    /// it.
    pub(crate) fn record(self, stream: usize) -> bool {
        // SAFETY: an event of ours, and a stream that the program uses itself.
        unsafe { real::cuEventRecord(self.handle(), stream as CUstream) == CUDA_SUCCESS }
    }

    pub(crate) fn reached(self) -> Reached {
        // SAFETY: an event of ours, whose context has not ended.
        Reached::of(unsafe { real::cuEventQuery(self.handle()) })
    }

    /// Nanoseconds from another event to this one, exact to about half a microsecond. Both must
    /// have been reached.
    pub(crate) fn since(self, earlier: Event) -> Option<i64> {
        let mut milliseconds = 0_f32;
        let elapsed = &raw mut milliseconds;
        // SAFETY: events of ours, and a local variable. Newer drivers have only the second form.
        let measured = unsafe {
            match real::cuEventElapsedTime(elapsed, earlier.handle(), self.handle()) {
                CUDA_SUCCESS => CUDA_SUCCESS,
                _ => real::cuEventElapsedTime_v2(elapsed, earlier.handle(), self.handle()),
            }
        };
        (measured == CUDA_SUCCESS).then_some((f64::from(milliseconds) * 1e6) as i64)
    }
}
