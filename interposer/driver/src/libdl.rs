//! The C library's own `dlsym` and its neighbours, for use while the program looks up a symbol.
//!
//! A program or a sanitizer may define its own `malloc`, `strlen` or `dl_iterate_phdr`, which looks
//! up the C library's function with `dlsym` and does not work before that. If our `dlsym` called
//! that function by its name, it would not return. So during a lookup we call no function by its
//! name, also none that the compiler adds, such as `memcpy`. We find the functions that we need in
//! the C library's own symbol table.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::elf::Dynamic;

/// The address of `dlsym`; 0 until it is first needed. Our own `dlsym` reads it from assembly.
pub static DLSYM: AtomicUsize = AtomicUsize::new(0);
/// The address of `dlvsym`, like [`DLSYM`].
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

/// Called in place of a function that the C library lacks. It finds, opens and visits nothing.
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
/// This reads the list without the loader's lock. That is safe because the list begins with the
/// objects that were loaded at the start of the program. These two libraries are among them, and
/// the loader never removes them.
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
