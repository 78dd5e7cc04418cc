//! dlsym and dlvsym.
//!
//! Both are exported, because a program that loads the driver itself finds its functions through
//! them. Names that cannot be hooked ones never reach Rust (see [`crate::jump`]).
//!
//! Both may be called before `main`, and by a sanitizer, a profiler or a program that defines a
//! function of the C library itself. So nothing here calls a function of the C library by its name;
//! see [`libdl`]. A lookup reaches no cancellation point.

use std::ffi::{c_char, c_void};

use hami_limits::elf::is;
use vgpu_driver::guard::contain;
use vgpu_driver::symbols::{self, Symbol};
use vgpu_driver::{callers, libdl, objects};

use crate::boundary::HOOKS;

#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(_: *mut c_void, _: *const c_char) -> *mut c_void {
    crate::jump::dlsym_entry!(libdl::DLSYM, libdl::find_dlsym, decide_dlsym)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlvsym(_: *mut c_void, _: *const c_char, _: *const c_char) -> *mut c_void {
    crate::jump::dlsym_entry!(libdl::DLVSYM, libdl::find_dlvsym, decide_dlvsym)
}

/// A result for the assembly: `value` is returned to the program if `decided` is not 0; otherwise
/// the real function is called.
#[repr(C)]
struct Decision {
    value: usize,
    decided: usize,
}

impl Decision {
    const PASS: Self = Self { value: 0, decided: 0 };

    fn of(value: usize) -> Self {
        Self { value, decided: 1 }
    }
}

extern "C" fn decide_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    _version: *const c_char,
    caller: usize,
) -> Decision {
    // SAFETY: name is the program's own argument, as it would be read by libc.
    let look_up = |from| unsafe { libdl::dlsym(from, name) } as usize;
    contain(|| decide(handle, name, caller, &look_up)).unwrap_or(Decision::PASS)
}

extern "C" fn decide_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Decision {
    // SAFETY: as above.
    let look_up = |from| unsafe { libdl::dlvsym(from, name, version) } as usize;
    contain(|| decide(handle, name, caller, &look_up)).unwrap_or(Decision::PASS)
}

/// The result of a lookup of `name`. `look_up` is the real function with this library as its
/// caller.
fn decide(
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
    look_up: &dyn Fn(*mut c_void) -> usize,
) -> Decision {
    // SAFETY: not null (the assembly looked), and the program's own argument.
    let named = |text: &[u8]| unsafe { is(name, text) };
    if let Some(own) = own_lookup(named) {
        // A lookup of the lookup itself: `dlvsym(h, "dlsym", …)`.
        return if look_up(handle) == 0 { Decision::PASS } else { Decision::of(own) };
    }
    let Some(hook) = HOOKS.iter().find(|hook| named(hook.symbol.name().as_bytes())) else {
        return Decision::PASS;
    };
    let (symbol, wrapper) = (hook.symbol, hook.wrapper());
    // The library is linked so that its own references find itself first (build.rs). With
    // RTLD_DEFAULT the loader does the same for lookups by this library. The program's handle is
    // the same scope without that.
    let scope = if handle == libc::RTLD_DEFAULT { objects::open_program() } else { handle };
    if callers::is_driver(caller) {
        // The driver gets its own functions. A search behind it or in a library of its own does not
        // find our export, and one of the global scope finds it first.
        return match look_up(scope) {
            found if found == wrapper => Decision::of(match look_up(libc::RTLD_NEXT) {
                0 => objects::open_containing(caller).map_or(0, look_up),
                next => next,
            }),
            _ => Decision::PASS,
        };
    }
    match look_up(scope) {
        found if found == wrapper => {
            // A search of the global scope finds our export first, even if no driver is loaded.
            // The result must be the one without this library.
            let is_there = if belongs(symbol, look_up(libc::RTLD_NEXT)) {
                true
            } else {
                objects::open_containing(caller).is_some_and(|own| belongs(symbol, look_up(own)))
            };
            Decision::of(if is_there { wrapper } else { 0 })
        }
        found if belongs(symbol, found) => Decision::of(wrapper),
        0 if handle == libc::RTLD_NEXT => {
            // This searched behind this library. A caller that is searched before this library
            // would find our export now, unless an object in between defines the name. A plugin
            // also has a scope of its own.
            match objects::open_containing(caller) {
                Some(own) if belongs(symbol, look_up(own)) => Decision::of(wrapper),
                _ if objects::defined_between(caller, wrapper, symbol.name()) => Decision::PASS,
                _ => Decision::of(0),
            }
        }
        _ => Decision::PASS,
    }
}

fn own_lookup(named: impl Fn(&[u8]) -> bool) -> Option<usize> {
    if named(b"dlsym") {
        Some(dlsym as *const () as usize)
    } else if named(b"dlvsym") {
        Some(dlvsym as *const () as usize)
    } else {
        None
    }
}

/// Whether an address, at which `symbol` was found, is in a driver. If it is, the functions of this
/// driver become known.
fn belongs(symbol: Symbol, address: usize) -> bool {
    if address == 0 {
        return false;
    }
    if symbol.known_address() == Some(address) {
        return true;
    }
    let library = symbol.library();
    let inside = objects::is_in(address, library.soname());
    if inside {
        symbols::resolve(library, Some(address));
    }
    inside
}
