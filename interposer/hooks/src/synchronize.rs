//! Synchronisation: when a program has waited for its work, its batches of launches have ended, and
//! the driver returns unused memory of pools to the card.
//!
//! Other processes of the slice can use that memory only when this process has asked the driver
//! again and lowered its charge. In programs without pools and shares this costs some loads.
//!
//! A thread may be cancelled while it waits in the driver, and the C library then unwinds it
//! without our unwinder. So the wrapper that waits keeps nothing that must be cleaned up, and
//! everything afterwards runs in a function that nothing unwinds out of.

use driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUevent, CUresult, CUstream};
use vgpu_compute::notices::{self, Waited};
use vgpu_driver::guard::guard;
use vgpu_driver::process;
use vgpu_slice::pools::{self, Busy};
use vgpu_slice::{Slice, current};

/// When the program called the driver, and the result.
type Call = (u64, CUresult);

/// The program has waited for a stream.
#[inline]
pub(crate) fn stream(call: Call, stream: CUstream) {
    waited(call, Waited::Stream { handle: stream as usize, per_thread: false });
}

/// The program has waited for a stream; NULL is the thread's own.
#[inline]
pub(crate) fn stream_of_thread(call: Call, stream: CUstream) {
    waited(call, Waited::Stream { handle: stream as usize, per_thread: true });
}

/// The program has waited for the current context.
#[inline]
pub(crate) fn context(call: Call) {
    waited(call, Waited::Context(0));
}

/// The program has waited for a context.
#[inline]
pub(crate) fn context_v2(call: Call, context: CUcontext) {
    waited(call, Waited::Context(context as usize));
}

/// The program has waited for an event of its own, which may be anywhere in a stream.
#[inline]
pub(crate) fn event((_, result): Call, _: CUevent) {
    waited((0, result), Waited::Context(0));
}

#[inline]
fn waited((called_at, result): Call, what: Waited) {
    if result != CUDA_SUCCESS {
        return;
    }
    if called_at > 0 {
        note_end(called_at, what);
    }
    if pools::any_charged() {
        refresh();
    }
}

#[cold]
extern "C" fn note_end(called_at: u64, what: Waited) {
    guard(|| notices::waited(called_at, what));
}

/// The program has polled whether work has ended.
#[inline]
pub(crate) fn queried(result: CUresult) {
    if result == CUDA_SUCCESS && pools::any_charged() {
        refresh_idle();
    }
}

#[cold]
extern "C" fn refresh() {
    guard(|| {
        if let (Slice::Limited(limited), false) = (current(), process::is_forked_copy()) {
            pools::refresh(limited, Busy::Wait);
        }
    });
}

#[cold]
extern "C" fn refresh_idle() {
    guard(|| {
        if let (Slice::Limited(limited), false) = (current(), process::is_forked_copy()) {
            pools::refresh(limited, Busy::Skip);
        }
    });
}
