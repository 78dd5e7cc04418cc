//! Synchronisation: when a program has waited for its work, the driver returns unused memory of pools
//! to the card.
//!
//! Other processes of the slice can use that memory only when this process has asked the driver
//! again and lowered its charge. In programs without pools and shares this costs some loads.
//!
//! A thread may be cancelled while it waits in the driver, and the C library then unwinds it
//! without our unwinder. So the wrapper that waits keeps nothing that must be cleaned up, and
//! everything afterwards runs in a function that nothing unwinds out of.

use driver_sys::cuda::{CUDA_SUCCESS, CUresult};
use vgpu_driver::guard::guard;
use vgpu_driver::process;
use vgpu_slice::pools::{self, Busy};
use vgpu_slice::{Slice, current};

/// The program has waited for work.
#[inline]
pub(crate) fn waited(result: CUresult) {
    if result == CUDA_SUCCESS && pools::any_charged() {
        refresh();
    }
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
