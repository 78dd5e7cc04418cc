//! Keeps a panic of ours inside the library: a program must never see it.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs a hook's body and lets no panic out of it; `None` if it panicked.
///
/// The thread is not cancelled in the body either. The driver may reach a cancellation point, and
/// the C library unwinds a cancelled thread in a way that ends the process at a frame that catches
/// panics. The cancellation stays pending until the program's next cancellation point.
#[inline]
pub fn guard<T>(body: impl FnOnce() -> T) -> Option<T> {
    let before = set_cancellation(CANCEL_DISABLE);
    let done = contain(body);
    set_cancellation(before);
    done
}

/// As [`guard`], for a body that reaches no cancellation point. Calls nothing but the body.
#[inline]
pub fn contain<T>(body: impl FnOnce() -> T) -> Option<T> {
    // Bodies hold no state across a panic except locks, and the data behind a lock is consistent
    // between any two statements. So asserting unwind safety is right.
    catch_unwind(AssertUnwindSafe(body)).ok()
}

/// `PTHREAD_CANCEL_DISABLE`
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Sets whether the calling thread can be cancelled, and returns how it was before.
#[inline]
fn set_cancellation(state: c_int) -> c_int {
    let mut before = CANCEL_DISABLE;
    // SAFETY: a local variable, and a state that the C library knows.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// Locks a mutex, also after a panic of a thread that held it: the data of our locks is consistent
/// between any two statements that can panic, so poison means nothing.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
