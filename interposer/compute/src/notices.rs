//! Reports of the hooks besides launches: other work on streams, and contexts, streams and
//! captures that begin or end.

use std::cell::LazyCell;

use vgpu_driver::guard::guard;
use vgpu_driver::{context, process};

use crate::batch::open_batch::Ended;
use crate::batch::thread;
use crate::clock::{METER, now};
use crate::contexts::{self, Ending};
use crate::launch::{Launch, is_created};
use crate::{budget, capture, fast_path, meter};

/// The last launch of a batch goes to the driver. Returns the time.
pub fn launching() -> u64 {
    now()
}

/// The driver, called at `called_at`, has taken the last launch of a batch.
pub fn launched(called_at: u64) {
    let in_call = now().saturating_sub(called_at);
    thread::with_own(|own| capture::relaxed(|| own.launched(in_call)));
}

/// The calling thread is about to put other work than a launch into a stream: its batch ends there.
pub fn stream_op(handle: usize, per_thread: bool) {
    if !fast_path::needs_admission() || process::is_forked_copy() || !meter::has_started() {
        return;
    }
    let stream = Launch::stream(handle, per_thread);
    thread::with_own(|own| capture::relaxed(|| own.close_all(|open| open.handle == stream)));
}

/// The work that the calling thread has waited for.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum Waited {
    /// All work in a stream.
    Stream {
        /// The handle, as the program has passed it.
        handle: usize,
        /// Whether NULL means the thread's own stream.
        per_thread: bool,
    },
    /// All work in a context; 0 is the current one.
    Context(usize),
}

/// The calling thread is about to wait for work. Returns the time, or 0 if nobody needs to know. No
/// panic leaves it: its caller must have no code for unwinding.
pub extern "C" fn waiting() -> u64 {
    let is_needed = || fast_path::needs_admission() && meter::has_started();
    if guard(is_needed).unwrap_or(false) { now() } else { 0 }
}

/// The calling thread called the driver at `called_at`, and has waited until now.
pub fn waited(called_at: u64, what: Waited) {
    let ended = Ended { called_at, at: now() };
    let current = LazyCell::new(|| context::current().map_or(0, |(_, context)| context as usize));
    thread::note_end(ended, |open| match what {
        Waited::Stream { handle, per_thread } => {
            let is_same = open.handle == Launch::stream(handle, per_thread);
            is_same && (is_created(open.handle) || open.context == *current)
        }
        Waited::Context(0) => open.context == *current,
        Waited::Context(context) => open.context == context,
    });
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
    if !meter::has_started() || process::is_forked_copy() || !is_created(handle) {
        return;
    }
    budget::revoke_all();
    for thread in thread::threads() {
        capture::relaxed(|| thread.close_from_outside(|open| open.handle == handle));
    }
}

/// The calling thread is about to begin the capture of a stream: its batch there ends, and launches
/// that are captured must not use a budget. From now on the meter does not query streams, and
/// batches have one launch, because a stream may become part of the capture at any time.
pub fn capture_begins(handle: usize, per_thread: bool) {
    stream_op(handle, per_thread);
    capture::begin();
    budget::revoke_all();
    if !process::is_forked_copy() && meter::has_started() {
        // The meter queries streams under each thread's lock, so it queries none after this.
        guard(|| thread::threads().iter().for_each(|thread| thread.seal()));
    }
}

/// The capture has ended, or the driver has refused to begin it.
pub fn capture_ended() {
    capture::end();
}
