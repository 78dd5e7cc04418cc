//! Reports of the hooks besides launches: other work on streams, and contexts, streams and
//! captures that begin or end.

use vgpu_driver::guard::guard;
use vgpu_driver::process;

use crate::batch::thread;
use crate::clock::METER;
use crate::contexts::{self, Ending};
use crate::launch::{Launch, Stream};
use crate::{budget, capture, fast_path, meter};

/// The driver has taken the last launch of a batch.
pub fn launched() {
    thread::with_own(|own| capture::relaxed(|| own.launched()));
}

/// The calling thread is about to put other work than a launch into a stream: its batch ends there.
pub fn stream_op(handle: usize, per_thread: bool) {
    if !fast_path::needs_admission() || process::is_forked_copy() || !meter::has_started() {
        return;
    }
    let is_threads_own = Launch::is_threads_own(handle, per_thread);
    let is_it = |open: Stream| (open.handle, open.is_threads_own) == (handle, is_threads_own);
    thread::with_own(|own| capture::relaxed(|| own.close_all(is_it)));
}

/// The calling thread has another current context.
#[inline]
pub fn context_changed() {
    budget::of_thread().forget_current();
}

/// A context is about to end, or may end. The meter leaves it alone until the result is dropped.
pub fn context_ending(context: usize) -> Ending {
    if METER.has_no_thread() && !process::is_forked_copy() {
        // Work that has ended can be measured only until then.
        guard(|| capture::relaxed(meter::look_here));
    }
    contexts::ending(context)
}

/// The driver has ended the context.
pub fn context_ended(ending: &Ending) {
    ending.ended();
    for thread in thread::threads() {
        thread.forget(ending.context());
    }
}

/// A stream is about to end. None of our events may be recorded in it any more, and the driver may
/// reuse its handle.
pub fn stream_ending(handle: usize) {
    if !meter::has_started() || process::is_forked_copy() {
        return;
    }
    budget::revoke_all();
    for thread in thread::threads() {
        capture::relaxed(|| thread.close_from_outside(|open| open.handle == handle));
    }
}

/// A stream is about to be captured. Open batches are closed before. From now on events are only
/// recorded right behind a launch, by its own thread: a stream that gets an event later may be part
/// of the capture by then.
pub fn capture_begins() {
    capture::begin();
    budget::revoke_all();
    if !process::is_forked_copy() && meter::has_started() {
        guard(|| capture::relaxed(meter::close_open));
    }
}

/// The capture has ended, or the driver has refused to begin it.
pub fn capture_ended() {
    capture::end();
}
