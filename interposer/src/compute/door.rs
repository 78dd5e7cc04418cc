//! Whether launches have to pass the gate: two words that every launch looks at.
//!
//! Both stand in the slice's own files, so that whoever sets a share, or finds that a neighbour has
//! one, does it with one store and wakes nobody. Two words cannot speak for slices inside one another, nor
//! for a share that a variable sets: there the door is shut for good. It is open for good where there is
//! no page in which anybody could set a share.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::init;
use crate::slice::{self, Slice};

/// A word that lets launches pass.
static OPEN: AtomicU32 = AtomicU32::new(0);
/// One that does not; nothing was looked at yet.
static SHUT: AtomicU32 = AtomicU32::new(1);

/// The limits page's word. The launch wrappers read it from assembly, and the next.
pub(crate) static LIMITS: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const SHUT).cast_mut());
/// The grants page's word.
pub(crate) static GRANTS: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const OPEN).cast_mut());

/// Sets the door, at the first launch.
#[cold]
pub(super) fn set() {
    let words = match slice::current() {
        // A copy that fork made asks the driver, which refuses.
        _ if init::inherited() => (&raw const OPEN, &raw const OPEN),
        Slice::Open | Slice::Refused(_) => (&raw const OPEN, &raw const OPEN),
        Slice::Limited(limited) => match limited.regulated_words() {
            Some(words) => {
                let [limits, grants] =
                    words.map(|word| word.map_or(&raw const OPEN, std::ptr::from_ref));
                (limits, grants)
            }
            None => (&raw const SHUT_FOR_GOOD, &raw const OPEN),
        },
    };
    GRANTS.store(words.1.cast_mut(), Ordering::Release);
    LIMITS.store(words.0.cast_mut(), Ordering::Release);
}

/// As [`SHUT`], but decided.
static SHUT_FOR_GOOD: AtomicU32 = AtomicU32::new(1);

/// Whether nobody has looked yet.
pub(super) fn is_unset() -> bool {
    std::ptr::eq(LIMITS.load(Ordering::Acquire), &raw const SHUT)
}

/// Whether launches pass.
pub(super) fn is_open() -> bool {
    [&LIMITS, &GRANTS].iter().all(|word| {
        // SAFETY: they point to statics, or into pages that are mapped as long as the process lives.
        unsafe { (*word.load(Ordering::Acquire)).load(Ordering::Relaxed) == 0 }
    })
}
