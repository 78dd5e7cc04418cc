//! The end of a process: what it has launched last is billed before it is gone.
//!
//! The meter looks a little after a batch has ended, and a program that waits for its work and then
//! exits is gone by then; a loop of short programs would be billed for nothing. So at `exit` the
//! meter is asked for a last look, and waited for, but not for long.
//!
//! The first limited launch registers this, so it comes before what the driver registered when it
//! was loaded or initialised: the driver is still there. Where something else has ended it before, it
//! answers with errors, and what cannot be measured is billed as it was predicted. A child of fork has
//! its parent's handlers, but no meter. Neither `_exit`, a signal nor `exec` comes by here: these are
//! deaths, and the coordinator sees them.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use super::meter;
use super::sleep::{Bell, now};
use crate::boundary::guard;
use crate::init;

/// How long the exit waits for the meter. A look takes some microseconds for each batch.
const PATIENCE_NS: u64 = 5_000_000;

static ASKED: AtomicBool = AtomicBool::new(false);
static DONE: Bell = Bell::new();

unsafe extern "C" {
    /// As `atexit` does, but for no library that may be closed: this one never is.
    fn __cxa_atexit(
        handler: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
}

/// From now on the process has something to bill when it ends.
pub(super) fn register() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: a function of this library, which stays. Where there is no room nothing is lost
        // but a bill.
        unsafe { __cxa_atexit(at_exit, null_mut(), null_mut()) };
    }
}

extern "C" fn at_exit(_: *mut c_void) {
    guard(|| {
        if init::inherited() || !meter::has_started() {
            return;
        }
        let until = now() + PATIENCE_NS;
        ASKED.store(true, Ordering::Release);
        meter::wake();
        loop {
            let heard = DONE.heard();
            if !ASKED.load(Ordering::Acquire) || now() >= until {
                return;
            }
            DONE.wait_until(heard, until);
        }
    });
}

/// For the meter: whether it is to take its last look.
pub(super) fn is_asked() -> bool {
    ASKED.load(Ordering::Acquire)
}

/// It has done so.
pub(super) fn done() {
    ASKED.store(false, Ordering::Release);
    DONE.ring();
}
