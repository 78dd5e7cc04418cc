//! The C library's own `dlsym` and `dlvsym`. Programs that look these names up find ours.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::guard::guard;
use crate::objects;

/// The address of `dlsym`; 0 until it is first needed. Our own `dlsym` reads it from assembly.
pub static DLSYM: AtomicUsize = AtomicUsize::new(0);
/// The address of `dlvsym`, as [`DLSYM`].
pub static DLVSYM: AtomicUsize = AtomicUsize::new(0);

/// Looks up a name with this library as the caller.
///
/// # Safety
///
/// As the C library's function.
pub unsafe fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the address is the C library's dlsym, or `nothing`, which reads no argument.
    let function: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
        unsafe { std::mem::transmute(find_dlsym()) };
    function(handle, name)
}

/// Looks up a version of a name with this library as the caller.
///
/// # Safety
///
/// As the C library's function.
pub unsafe fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    // SAFETY: as in `dlsym`.
    let function: extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void =
        unsafe { std::mem::transmute(find_dlvsym()) };
    function(handle, name, version)
}

/// Fills [`DLSYM`] and returns it.
pub extern "C" fn find_dlsym() -> usize {
    find(&DLSYM, "dlsym")
}

/// Fills [`DLVSYM`] and returns it.
pub extern "C" fn find_dlvsym() -> usize {
    find(&DLVSYM, "dlvsym")
}

#[cold]
fn find(cell: &AtomicUsize, name: &str) -> usize {
    let known = cell.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let found = guard(|| objects::find_in_libc(name)).flatten();
    let address = found.unwrap_or(nothing as *const () as usize);
    cell.store(address, Ordering::Relaxed);
    address
}

/// Called if the C library has no `dlsym`: nothing can be found by name then.
extern "C" fn nothing() -> *mut c_void {
    std::ptr::null_mut()
}
