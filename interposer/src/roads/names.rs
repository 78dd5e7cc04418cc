//! dlsym and dlvsym.
//!
//! Both are exported, because a program that loads the driver itself finds its functions through
//! them. Names that cannot be ours never reach Rust (see [`crate::arch`]).

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::objects;
use crate::driver::{self, Library};

/// libc's own functions; 0 until first needed.
static REAL_DLSYM: AtomicUsize = AtomicUsize::new(0);
static REAL_DLVSYM: AtomicUsize = AtomicUsize::new(0);

#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(_: *mut c_void, _: *const c_char) -> *mut c_void {
    crate::arch::dlsym_entry!(REAL_DLSYM, find_dlsym, decide_dlsym)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlvsym(_: *mut c_void, _: *const c_char, _: *const c_char) -> *mut c_void {
    crate::arch::dlsym_entry!(REAL_DLVSYM, find_dlvsym, decide_dlvsym)
}

/// An answer for the assembly: `value` stands if `decided` is not 0.
#[repr(C)]
struct Answer {
    value: usize,
    decided: usize,
}

impl Answer {
    const PASS: Self = Self { value: 0, decided: 0 };

    fn of(value: usize) -> Self {
        Self { value, decided: 1 }
    }
}

extern "C" fn find_dlsym() -> usize {
    find(&REAL_DLSYM, "dlsym")
}

extern "C" fn find_dlvsym() -> usize {
    find(&REAL_DLVSYM, "dlvsym")
}

#[cold]
fn find(slot: &AtomicUsize, name: &str) -> usize {
    let known = slot.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let found = crate::boundary::guard(|| objects::find_in_libc(name)).flatten();
    let address = found.unwrap_or(nothing as *const () as usize);
    slot.store(address, Ordering::Relaxed);
    address
}

/// In a process without a libc that has dlsym there is nothing to find by name.
extern "C" fn nothing() -> *mut c_void {
    std::ptr::null_mut()
}

/// libc's dlsym, with us as the caller.
pub(crate) unsafe fn real_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the address is libc's dlsym (or `nothing`, which reads no argument).
    let function: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
        unsafe { std::mem::transmute(find_dlsym()) };
    function(handle, name)
}

extern "C" fn decide_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    _version: *const c_char,
    caller: usize,
) -> Answer {
    // SAFETY: name is the program's own argument, as it would be read by libc.
    let ask = |from| unsafe { real_dlsym(from, name) } as usize;
    crate::boundary::guard(|| decide(handle, name, caller, &ask)).unwrap_or(Answer::PASS)
}

extern "C" fn decide_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Answer {
    // SAFETY: the address is libc's dlvsym (or `nothing`, which reads no argument).
    let function: extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void =
        unsafe { std::mem::transmute(find_dlvsym()) };
    let ask = |from| function(from, name, version) as usize;
    crate::boundary::guard(|| decide(handle, name, caller, &ask)).unwrap_or(Answer::PASS)
}

/// What a lookup of `name` is answered with. `ask` is the real function, with us as its caller.
fn decide(
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
    ask: &dyn Fn(*mut c_void) -> usize,
) -> Answer {
    // SAFETY: not null (the assembly looked), and the program's own argument.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if let Some(own) = own_lookup(name) {
        // By-passing the road by asking for the road: `dlvsym(h, "dlsym", …)`.
        return if ask(handle) == 0 { Answer::PASS } else { Answer::of(own) };
    }
    let Some(index) = driver::hooked_row(name) else { return Answer::PASS };
    let Some(row) = crate::table::ROWS.get(index) else { return Answer::PASS };
    let Some(wrapper) = row.wrapper() else { return Answer::PASS };
    let library = row.library;
    // The library is linked so that its own references find itself first (build.rs); the loader
    // extends that to RTLD_DEFAULT, asked by us. The program's handle means the same without it.
    let scope = if handle == libc::RTLD_DEFAULT { objects::open_program() } else { handle };
    match ask(scope) {
        found if found == wrapper => {
            // A search of the global scope finds our export first, even where no driver is. What
            // counts is what it would have found without us.
            let behind = if belongs(library, ask(libc::RTLD_NEXT)) {
                true
            } else {
                objects::open_containing(caller).is_some_and(|own| belongs(library, ask(own)))
            };
            Answer::of(if behind { wrapper } else { 0 })
        }
        found if belongs(library, found) => Answer::of(wrapper),
        0 if handle == libc::RTLD_NEXT => {
            // That was the next after us. A caller before us in the order of search would now find
            // us, unless there is somebody in between; a plugin also has a scope of its own.
            match objects::open_containing(caller) {
                Some(own) if belongs(library, ask(own)) => Answer::of(wrapper),
                _ if objects::defined_between(caller, wrapper, row.name) => Answer::PASS,
                _ => Answer::of(0),
            }
        }
        _ => Answer::PASS,
    }
}

fn own_lookup(name: &[u8]) -> Option<usize> {
    match name {
        b"dlsym" => Some(dlsym as *const () as usize),
        b"dlvsym" => Some(dlvsym as *const () as usize),
        _ => None,
    }
}

/// Whether an address lies in the driver; the first that does makes its functions known.
fn belongs(library: Library, address: usize) -> bool {
    if address == 0 {
        return false;
    }
    if driver::wrapper_of(address).is_some() {
        return true;
    }
    let inside = objects::is_in(address, library.soname());
    if inside {
        driver::resolve(library, Some(address));
    }
    inside
}
