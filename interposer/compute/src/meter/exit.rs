//! The exit of a process: its last work is billed before the process ends.
//!
//! The meter looks a little after an interval has ended. A program that waits for its work and then
//! exits has ended by then, so a loop of short programs would never be billed. So at `exit` the
//! process requests a last look from the meter, and waits for it for a short time.
//!
//! The first limited launch registers the exit handler. It runs before the handlers that the driver
//! registered when it was loaded or initialised, so the driver still works. If something else has
//! shut the driver down, it returns errors, and intervals are billed as predicted. A child of fork
//! has its parent's handlers, but no meter. `_exit`, a signal and `exec` do not run the handler;
//! the coordinator notices those deaths.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hami_share::timing;
use vgpu_driver::guard::guard;
use vgpu_driver::process;

use crate::capture;
use crate::clock::{METER, Wake, now};

/// The [`process::tag`] of the process whose meter was started last; 0 before the first start.
static METERED: AtomicU32 = AtomicU32::new(0);
static REQUESTED: AtomicBool = AtomicBool::new(false);
static DONE: Wake = Wake::new();

unsafe extern "C" {
    /// As `atexit`, for a library that is never closed.
    fn __cxa_atexit(
        handler: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
}

/// Registers the handler, when the meter has started. A child of fork has it already.
pub(super) fn register() {
    if METERED.swap(process::tag(), Ordering::Relaxed) == 0 {
        // SAFETY: a function of this library, which is never unloaded. If there is no room for it,
        // only a bill is lost.
        unsafe { __cxa_atexit(at_exit, null_mut(), null_mut()) };
    }
}

extern "C" fn at_exit(_: *mut c_void) {
    guard(|| {
        if process::is_forked_copy() || METERED.load(Ordering::Relaxed) != process::tag() {
            return;
        }
        if METER.has_no_thread() {
            capture::relaxed(super::last_look_here);
            return;
        }
        let until = now() + timing::EXIT;
        REQUESTED.store(true, Ordering::Release);
        METER.wake.wake_all();
        loop {
            let seen = DONE.count();
            if !REQUESTED.load(Ordering::Acquire) || now() >= until {
                return;
            }
            DONE.wait_until(seen, until);
        }
    });
}

/// Whether the meter must take its last look.
pub(super) fn is_requested() -> bool {
    REQUESTED.load(Ordering::Acquire)
}

/// The meter has taken its last look.
pub(super) fn done() {
    REQUESTED.store(false, Ordering::Release);
    DONE.wake_all();
}
