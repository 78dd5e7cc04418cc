//! The C library's own `dlsym` and its neighbours, for use during a lookup by the program.
//!
//! A lookup may come from a program's or a sanitizer's own `malloc`, `strlen` or `dl_iterate_phdr`
//! that looks up the C library's one, and that does not work before it has it. So a lookup calls no
//! function by its name, also none that the compiler adds, such as `memcpy`. The functions that it
//! needs are found in the C library's own symbol table.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::elf::Dynamic;

/// The address of `dlsym`; 0 until it is first needed. Our own `dlsym` reads it from assembly.
pub static DLSYM: AtomicUsize = AtomicUsize::new(0);
/// The address of `dlvsym`, as [`DLSYM`].
pub static DLVSYM: AtomicUsize = AtomicUsize::new(0);

static DLOPEN: AtomicUsize = AtomicUsize::new(0);
static DL_ITERATE_PHDR: AtomicUsize = AtomicUsize::new(0);

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

/// # Safety
///
/// As the C library's function.
pub unsafe fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: as in `dlsym`.
    let function: extern "C" fn(*const c_char, c_int) -> *mut c_void =
        unsafe { std::mem::transmute(find(&DLOPEN, b"dlopen")) };
    function(path, flags)
}

/// A visitor of `dl_iterate_phdr`.
pub type Visitor = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// # Safety
///
/// As the C library's function.
pub unsafe fn dl_iterate_phdr(visit: Visitor, data: *mut c_void) {
    // SAFETY: as in `dlsym`.
    let function: extern "C" fn(Visitor, *mut c_void) -> c_int =
        unsafe { std::mem::transmute(find(&DL_ITERATE_PHDR, b"dl_iterate_phdr")) };
    function(visit, data);
}

/// Fills [`DLSYM`] and returns it.
pub extern "C" fn find_dlsym() -> usize {
    find(&DLSYM, b"dlsym")
}

/// Fills [`DLVSYM`] and returns it.
pub extern "C" fn find_dlvsym() -> usize {
    find(&DLVSYM, b"dlvsym")
}

fn find(cell: &AtomicUsize, name: &[u8]) -> usize {
    match cell.load(Ordering::Relaxed) {
        0 => find_slowly(cell, name),
        known => known,
    }
}

#[cold]
fn find_slowly(cell: &AtomicUsize, name: &[u8]) -> usize {
    let address = in_c_library(name).unwrap_or(nothing as *const () as usize);
    cell.store(address, Ordering::Relaxed);
    address
}

/// Called if the C library lacks a function: nothing is found, and nothing is opened or visited.
extern "C" fn nothing() -> *mut c_void {
    std::ptr::null_mut()
}

/// A loaded object, as the loader describes it to debuggers (`link.h`).
#[repr(C)]
struct LinkMap {
    base: usize,
    path: *const c_char,
    dynamic: *const [u64; 2],
    next: *const LinkMap,
}

/// The beginning of `struct r_debug`.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const LinkMap,
}

unsafe extern "C" {
    /// The loader's list of objects.
    static _r_debug: Debug;
}

/// Finds a function in libc or, before glibc 2.34, libdl.
///
/// This reads the list without the loader's lock. The list begins with the objects that were loaded
/// at the start, these two among them, and the loader never removes those.
fn in_c_library(name: &[u8]) -> Option<usize> {
    // SAFETY: the loader fills the list before it runs any code, and see above.
    unsafe {
        let mut next = (&raw const _r_debug.first).read_volatile();
        while let Some(object) = next.as_ref() {
            let dynamic = Dynamic::new(object.base, object.dynamic);
            if (dynamic.is_named(b"libc.so.6") || dynamic.is_named(b"libdl.so.2"))
                && let Some(address) = dynamic.function(name)
            {
                return Some(address);
            }
            next = object.next;
        }
    }
    None
}
