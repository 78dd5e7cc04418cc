//! Whether this process initialised the driver, or is a fork of a process that did.
//!
//! `fork` copies the driver's state, but nothing works on the copy: the driver refuses every call.
//! Our own locks and tables are copies as well, and a thread that held a lock does not exist in the
//! child.

use std::sync::atomic::{AtomicU32, Ordering};

/// The [`tag`] of the process that initialised the driver; 0: none has.
static INITIALISED: AtomicU32 = AtomicU32::new(0);

/// A number that differs between a process and its forks. Never 0, but after 2^32 forks.
#[inline]
pub fn tag() -> u32 {
    hami_account::fork::generation().wrapping_add(1)
}

/// Records that the driver has been initialised in this process. Later calls change nothing.
pub fn note_initialised() {
    if INITIALISED.load(Ordering::Relaxed) == 0 {
        INITIALISED.store(tag(), Ordering::Relaxed);
    }
}

/// Whether the driver's state in this process is a copy that `fork` made. All that may be done then
/// is to call the driver, which refuses.
#[inline]
pub fn is_forked_copy() -> bool {
    let initialised = INITIALISED.load(Ordering::Relaxed);
    initialised != 0 && initialised != tag()
}
