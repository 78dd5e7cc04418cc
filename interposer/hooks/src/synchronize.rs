//! Synchronisation: when a program has waited for its work, the driver returns unused memory of
//! pools to the card.
//!
//! Other processes of the slice can use that memory only when this process has asked the driver
//! again and lowered its charge. In programs without pools and shares this costs some loads.
//!
//! A thread may be cancelled while it waits in the driver, and the C library then unwinds it
//! without our unwinder. So the wrapper that waits keeps nothing that must be cleaned up, and
//! everything afterwards runs in a function that nothing unwinds out of.

use driver_sys::cuda::{CUDA_SUCCESS, CUresult};
use vgpu_driver::guard::guard;
use vgpu_slice::limited;
use vgpu_slice::pools::{self, Busy};

/// The program has waited for work.
#[inline]
pub(crate) fn waited(result: CUresult) {
    if result == CUDA_SUCCESS && pools::any_charged() {
        refresh(true);
    }
}

/// The program has polled whether work has ended.
#[inline]
pub(crate) fn queried(result: CUresult) {
    if result == CUDA_SUCCESS && pools::any_charged() {
        refresh(false);
    }
}

#[cold]
extern "C" fn refresh(waits: bool) {
    let busy = if waits { Busy::Wait } else { Busy::Skip };
    guard(|| limited().map(|limited| pools::refresh(limited, busy)));
}
