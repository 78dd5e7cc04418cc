//! The C library's own `dlsym` and its neighbours, for use while the program looks up a symbol.
//!
//! A program or a sanitizer may define its own `malloc`, `strlen` or `dl_iterate_phdr`, which looks
//! up the C library's function with `dlsym` and does not work before that. If our `dlsym` called
//! that function by its name, it would not return. So during a lookup we call no function by its
//! name, also none that the compiler adds, such as `memcpy`. We find the functions that we need in
//! the C library's own symbol table.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use hami_limits::elf::Dynamic;

/// The address of `dlsym`; 0 until it is first needed. Our own `dlsym` reads it from assembly.
pub static DLSYM: AtomicUsize = AtomicUsize::new(0);
/// The address of `dlvsym`, like [`DLSYM`].
pub static DLVSYM: AtomicUsize = AtomicUsize::new(0);

static DLOPEN: AtomicUsize = AtomicUsize::new(0);
static DLCLOSE: AtomicUsize = AtomicUsize::new(0);
static DL_ITERATE_PHDR: AtomicUsize = AtomicUsize::new(0);
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

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

/// # Safety
///
/// As the C library's function.
pub unsafe fn dlclose(handle: *mut c_void) {
    // SAFETY: as in `dlsym`.
    let function: extern "C" fn(*mut c_void) -> c_int =
        unsafe { std::mem::transmute(find(&DLCLOSE, b"dlclose")) };
    function(handle);
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

/// The object that contains an address, without a lock. The outer `None` means that the loader
/// cannot tell: it has `_dl_find_object` since glibc 2.35.
pub fn find_object(address: usize) -> Option<Option<&'static LinkMap>> {
    let function = find(&FIND_OBJECT, b"_dl_find_object");
    if function == nothing as *const () as usize {
        return None;
    }
    // SAFETY: the loader's function.
    let function: unsafe extern "C" fn(usize, *mut Found) -> c_int =
        unsafe { std::mem::transmute(function) };
    let mut found = MaybeUninit::<Found>::uninit();
    // SAFETY: there is room for the structure. If the function returns 0, it has filled the field,
    // and code that runs, or is about to return there, keeps the object loaded.
    unsafe {
        Some(match function(address, found.as_mut_ptr()) {
            0 => (&raw const (*found.as_ptr()).object).read().as_ref(),
            _ => None,
        })
    }
}

/// `struct dl_find_object` (`dlfcn.h`).
#[repr(C)]
struct Found {
    flags: u64,
    start: usize,
    end: usize,
    object: *const LinkMap,
    _rest: [usize; 12],
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
pub struct LinkMap {
    base: usize,
    path: *const c_char,
    dynamic: *const [u64; 2],
    next: *const LinkMap,
}

impl LinkMap {
    /// The dynamic section of the object.
    pub fn dynamic(&self) -> Dynamic {
        // SAFETY: the loader describes an object that is loaded.
        unsafe { Dynamic::new(self.base, self.dynamic) }
    }
}

/// The SONAMEs of the libraries in which functions are found.
const C_LIBRARY: [&[u8]; 3] = [
    b"libc.so.6",
    b"libdl.so.2",
    #[cfg(target_arch = "x86_64")]
    b"ld-linux-x86-64.so.2",
    #[cfg(target_arch = "aarch64")]
    b"ld-linux-aarch64.so.1",
];

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

/// Finds a function in libc, in the loader or, before glibc 2.34, in libdl.
///
/// This reads the list without the loader's lock. That is safe because the list begins with the
/// objects that were loaded at the start of the program. These libraries are among them, and the
/// loader never removes them.
fn in_c_library(name: &[u8]) -> Option<usize> {
    // SAFETY: the loader fills the list before it runs any code, and see above.
    unsafe {
        let mut next = (&raw const _r_debug.first).read_volatile();
        while let Some(object) = next.as_ref() {
            let dynamic = object.dynamic();
            if C_LIBRARY.iter().any(|soname| dynamic.is_named(soname))
                && let Some(address) = dynamic.function(name)
            {
                return Some(address);
            }
            next = object.next;
        }
    }
    None
}
