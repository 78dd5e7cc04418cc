//! Reports of the hooks besides launches: other work on streams, and contexts, streams and captures
//! that begin or end.

use vgpu_driver::guard::guard;
use vgpu_driver::{context, process};
use vgpu_slice::{Slice, current};

use crate::clock::{METER, now};
use crate::contexts::{self, Ending};
use crate::launch::{Stream, is_created, stream_name};
use crate::{admission, capture, card, fast_path, here, meter};

/// Whether any launch may have been admitted in this process.
fn is_metered() -> bool {
    fast_path::needs_admission() && meter::has_started() && !process::is_forked_copy()
}

/// The calling thread is about to put other work than a launch into a stream: the launches before
/// it are measured by themselves.
pub fn stream_op(handle: usize, per_thread: bool) {
    if !is_metered() {
        return;
    }
    let Slice::Limited(limited) = current() else { return };
    let handle = stream_name(handle, per_thread);
    if let Some((context, limiter)) = admission::place(limited, handle) {
        let stream = Stream { context, handle };
        capture::relaxed(|| limiter.interrupt(|one| one == stream));
    }
}

/// The calling thread is about to wait for work: the end of the launches before is measured
/// exactly. No panic leaves it: its caller must have no code for unwinding.
pub extern "C" fn waiting() {
    guard(record_open);
}

/// Records an event behind all open launches in the current context.
fn record_open() {
    if is_metered()
        && let Some((_, context)) = context::current()
    {
        capture::relaxed(|| card::all().for_each(|one| one.record_open(context as usize)));
    }
}

/// The calling thread has another current context.
#[inline]
pub fn context_changed() {
    here::forget();
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
    card::all().for_each(|limiter| limiter.forget(ending.context()));
}

/// A stream is about to end. None of our events may be recorded in it any more, and the driver may
/// reuse its handle.
pub fn stream_ending(handle: usize) {
    if !meter::has_started() || process::is_forked_copy() || !is_created(handle) {
        return;
    }
    contexts::changed();
    capture::relaxed(|| {
        for limiter in card::all() {
            limiter.interrupt(|stream| stream.handle == handle);
        }
    });
}

/// The calling thread is about to begin the capture of a stream: its launches so far are measured
/// by themselves. From now on the meter does not query streams, because a stream may become part of
/// the capture at any time. So events are needed behind the open launches of the other streams.
pub fn capture_begins(handle: usize, per_thread: bool) {
    stream_op(handle, per_thread);
    capture::begin();
    record_open();
    if !process::is_forked_copy() && meter::has_started() {
        // The meter queries streams while it holds this, so it queries none afterwards.
        drop(contexts::hold());
    }
}

/// The capture has ended, or the driver has refused to begin it.
pub fn capture_ended() {
    capture::end();
    METER.wake_by(now());
}
