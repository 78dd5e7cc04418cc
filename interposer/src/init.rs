//! cuInit: where a slice that cannot be enforced is refused, and a process joins its slice.

use std::sync::atomic::{AtomicU32, Ordering};

use driver_sys::cuda::{CUDA_ERROR_NO_DEVICE, CUDA_SUCCESS, CUresult};

use crate::say::Once;
use crate::slice::{self, Slice};
use crate::table::real;

/// The fork generation (plus 1) in which this process's driver was initialised; 0: not yet.
static INITIALISED: AtomicU32 = AtomicU32::new(0);
static REFUSAL: Once = Once::new();

/// A program that is refused sees a machine without a GPU, and one line says why.
pub(crate) unsafe fn init(flags: u32) -> CUresult {
    if let Slice::Refused(reason) = slice::current() {
        say_refusal(reason);
        return CUDA_ERROR_NO_DEVICE;
    }
    crate::cards::note_visible();
    // SAFETY: the program's own argument.
    let result = unsafe { real::cuInit(flags) };
    if result == CUDA_SUCCESS {
        if INITIALISED.load(Ordering::Relaxed) == 0 {
            INITIALISED.store(hami_account::fork::generation().wrapping_add(1), Ordering::Relaxed);
        }
        if let Slice::Limited(limited) = slice::current() {
            limited.join();
        }
    }
    result
}

/// Says why there is no GPU here, whichever library was asked first.
pub(crate) fn say_refusal(reason: &str) {
    REFUSAL.line(reason);
}

/// Whether the driver's state in this process is a copy that fork made. Nothing works on it but to
/// ask the driver, which refuses; our locks may have been held by a thread that is not here.
pub(crate) fn inherited() -> bool {
    let home = INITIALISED.load(Ordering::Relaxed);
    home != 0 && home != hami_account::fork::generation().wrapping_add(1)
}
