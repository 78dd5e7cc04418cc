//! The fast path of a launch: two words that every launch reads. If both are 0, the launch goes
//! straight to the driver; otherwise it needs admission.
//!
//! The words are in the slice's own files. So setting a share, or finding that a neighbour has one,
//! is a single store, and no process must be woken. Two words are not enough for slices inside one
//! another and for a share that a variable sets: there every launch needs admission. Without a
//! limits page no share can be set, and no launch needs admission.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use vgpu_driver::process;
use vgpu_slice::{Slice, current};

/// A word that lets launches pass.
static PASS: AtomicU32 = AtomicU32::new(0);
/// The initial word, before the slice is known. It lets no launch pass.
static UNDECIDED: AtomicU32 = AtomicU32::new(1);

/// A word that never lets launches pass.
static ADMIT_ALL: AtomicU32 = AtomicU32::new(1);

/// Points to the limits page's word. The launch wrappers read it, and the next, from assembly.
pub static LIMITS: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const UNDECIDED).cast_mut());
/// Points to the grants page's word.
pub static GRANTS: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const PASS).cast_mut());

/// Selects the two words, at the first launch.
#[cold]
fn decide() {
    let words = match current() {
        // The driver refuses all calls.
        _ if process::is_forked_copy() => (&raw const PASS, &raw const PASS),
        Slice::Unlimited | Slice::Refused(_) => (&raw const PASS, &raw const PASS),
        Slice::Limited(limited) => match limited.regulated_words() {
            Some(words) => {
                let [limits, grants] =
                    words.map(|word| word.map_or(&raw const PASS, std::ptr::from_ref));
                (limits, grants)
            }
            None => (&raw const ADMIT_ALL, &raw const PASS),
        },
    };
    GRANTS.store(words.1.cast_mut(), Ordering::Release);
    LIMITS.store(words.0.cast_mut(), Ordering::Release);
}

/// Whether launches need admission now.
#[inline]
pub fn needs_admission() -> bool {
    if std::ptr::eq(LIMITS.load(Ordering::Acquire), &raw const UNDECIDED) {
        decide();
    }
    [&LIMITS, &GRANTS].iter().any(|word| {
        // SAFETY: they point to statics, or into pages that are mapped as long as the process
        // lives.
        unsafe { (*word.load(Ordering::Acquire)).load(Ordering::Relaxed) != 0 }
    })
}
