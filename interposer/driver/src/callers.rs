//! Whether a hooked function is called by the driver itself.
//!
//! Some drivers call their own exports by name, or look them up, and so reach our wrappers. WSL2's
//! `libcuda.so.1`, for example, is a thin library that loads the real driver. Such a call is part
//! of a call by the program, and that call is charged. So it must go straight to the driver.
//!
//! The return address shows the caller. If it is in an object with the SONAME of a driver, the
//! caller is the driver. If it is in this library, a hook has called the driver, and the driver has
//! jumped to another of its exports (a tail call); so the caller is the driver as well.
//!
//! A flag of the thread would not be enough: it stays set if a callback leaves the driver by
//! `longjmp`, and callbacks that the driver calls on the same thread belong to the program.
//!
//! One case is wrong: if a callback of the program ends in a jump to a hooked function, the
//! callback is taken for the driver. CUDA forbids callbacks to make such calls.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use hami_account::fork;

use crate::symbols::Library;
use crate::{libdl, objects};

/// The entries of [`KNOWN`]; a power of two. Two call sites of a program rarely share one. If they
/// call by turns, each call looks through the loaded objects.
const COUNT: usize = 4096;

/// A return address and this mask give the offset, in bytes, of its entry in [`KNOWN`]. The
/// wrappers compute it in assembly.
pub const MASK: usize = (COUNT - 1) * size_of::<usize>();

/// A cache of return addresses: an address in the program is stored as it is, an address in the
/// driver as its bitwise complement.
pub static KNOWN: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

/// Whether a return address is in the driver. Calls no function of the C library by
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
    let Some(is_driver) = look_up(return_address) else { return false };
    let entry = if is_driver { !return_address } else { return_address };
    known.store(entry, Ordering::Relaxed);
    is_driver
}

/// Finds the object of a return address. `None` if it cannot be found now.
fn look_up(return_address: usize) -> Option<bool> {
    const DRIVERS: [Library; 2] = [Library::Cuda, Library::Nvml];
    let ours = is_driver as *const () as usize;
    if let Some(object) = libdl::find_object(return_address) {
        let Some(object) = object else { return Some(false) };
        let is_ours = libdl::find_object(ours).flatten().is_some_and(|own| ptr::eq(own, object));
        let dynamic = object.dynamic();
        let is_named = |library: &Library| dynamic.is_named(library.soname().to_bytes());
        return Some(is_ours || DRIVERS.iter().any(is_named));
    }
    // Another thread may have held the loader's lock at the fork, and nobody releases it here.
    if fork::generation() != 0 {
        return None;
    }
    Some(objects::is_in_any(return_address, |object| {
        object.contains(ours) || DRIVERS.iter().any(|library| object.is_named(library.soname()))
    }))
}
