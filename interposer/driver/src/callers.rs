//! Whether a hooked function is called by the driver itself.
//!
//! Some drivers call their own exports by name, or look them up, and so reach our wrappers: WSL2's
//! `libcuda.so.1` is a thin one in front of an inner one. Such a call belongs to a call that the
//! program has made, and that one is charged. So it goes straight to the driver.
//!
//! The return address names the caller: it is in an object that is a driver by its SONAME. It is in
//! this library if the driver was called by a hook and has jumped to another export (a tail call).
//! A flag of the thread would not do: it stays set if a callback leaves the driver by `longjmp`, and
//! callbacks that the driver calls on the same thread belong to the program. A callback that itself
//! ends in a jump to a hooked function is taken for the driver; CUDA forbids its callbacks such
//! calls.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::objects;
use crate::symbols::Library;

/// The entries of [`KNOWN`]; a power of two. Two call sites of a program rarely share one. If they
/// call by turns, each call looks through the loaded objects.
const COUNT: usize = 4096;

/// Selects the bytes of [`KNOWN`] that hold the entry of a return address. The wrappers do the same
/// in assembly.
pub const MASK: usize = (COUNT - 1) * size_of::<usize>();

/// Return addresses that were looked at: as they are if they are the program's, and complemented if
/// they are the driver's.
pub static KNOWN: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

/// Whether the code that a call returns to is the driver's. Calls no function of the C library by
/// its name; see [`crate::libdl`].
pub fn is_driver(return_address: usize) -> bool {
    let Some(known) = KNOWN.get((return_address & MASK) / size_of::<usize>()) else { return false };
    let found = known.load(Ordering::Relaxed);
    if found == return_address {
        return false;
    }
    if found == !return_address {
        return true;
    }
    let is_driver = objects::is_in_any(return_address, |object| {
        [Library::Cuda, Library::Nvml].iter().any(|library| object.is_named(library.soname()))
            || object.contains(is_driver as *const () as usize)
    });
    let entry = if is_driver { !return_address } else { return_address };
    known.store(entry, Ordering::Relaxed);
    is_driver
}
