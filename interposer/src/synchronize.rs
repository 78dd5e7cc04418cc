//! Synchronisation: where the driver gives back what pools no longer use.
//!
//! Nobody else in the slice could have that memory before we have asked again. Programs without
//! pools pay one load.
//!
//! A thread may be cancelled while it waits in the driver. What unwinds it then is not our library's
//! unwinder, so the wrapper that waits keeps nothing that would have to be cleaned up, and what
//! comes after is behind a function that lets nothing out.

use driver_sys::cuda::{CUDA_SUCCESS, CUresult};

use crate::boundary::guard;
use crate::init;
use crate::pools;
use crate::slice::{self, Slice};

/// The program has waited.
#[inline]
pub(crate) fn waited(result: CUresult) {
    if result == CUDA_SUCCESS && pools::any() {
        refresh();
    }
}

/// The program has asked whether it would have to wait.
#[inline]
pub(crate) fn queried(result: CUresult) {
    if result == CUDA_SUCCESS && pools::any() {
        refresh_idle();
    }
}

#[cold]
extern "C" fn refresh() {
    guard(|| {
        if let (Slice::Limited(limited), false) = (slice::current(), init::inherited()) {
            pools::refresh(limited);
        }
    });
}

#[cold]
extern "C" fn refresh_idle() {
    guard(|| {
        if let (Slice::Limited(limited), false) = (slice::current(), init::inherited()) {
            pools::refresh_idle(limited);
        }
    });
}
