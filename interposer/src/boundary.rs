//! Turns one row of the hook table into everything that repeats per symbol.
//!
//! A row is a name and a body. From the name and the generated signature come the exported wrapper,
//! the typed caller of the driver's own function, and the entry that the roads look up. The compiler
//! rejects a body whose parameters are not the header's.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a hook's body and lets no panic out of it; `None` if it panicked.
///
/// Nor is the thread cancelled in there, though the driver may come to a place where it could be: the
/// C library unwinds a cancelled thread in a way that ends the process in a frame that catches
/// panics. The cancellation stays pending for the program's next such place.
#[inline]
pub(crate) fn guard<T>(body: impl FnOnce() -> T) -> Option<T> {
    let before = set_cancellation(CANCEL_DISABLE);
    // Bodies hold no state across a panic but locks over data that is whole between any two of
    // their statements, so asserting unwind safety is the truth.
    let done = catch_unwind(AssertUnwindSafe(body)).ok();
    set_cancellation(before);
    done
}

/// `PTHREAD_CANCEL_DISABLE`
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Whether the calling thread can be cancelled from now on; how it was before.
#[inline]
fn set_cancellation(state: c_int) -> c_int {
    let mut before = CANCEL_DISABLE;
    // SAFETY: a local variable, and a state that the C library knows.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// Expands the hook table; see [`crate::table`] for its rows and what the sections mean.
macro_rules! hooks {
    ($(
        library $library:ident, signatures $signature:ident, absent $absent:ident;
        closed $refusal:ident { $($closed:ident => $closed_body:path;)* }
        open { $($open:ident => $open_body:path;)* }
        wait { $($wait:ident => $wait_body:path;)* }
        launch { $($launch:ident => $shape:ident $jump:ident;)* }
        beside { $($beside:ident => $place:literal;)* }
        call { $($call:ident;)* }
    )*) => {
        /// Every driver function that we hook or call.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub(crate) enum Symbol {
            $($($closed,)* $($open,)* $($wait,)* $($launch,)* $($beside,)* $($call,)*)*
        }

        /// One row per symbol, in the order of [`Symbol`].
        pub(crate) const ROWS: [$crate::driver::Row; ROW_COUNT] = [$(
            $($crate::driver::Row::hooked(
                $crate::driver::Library::$library, stringify!($closed),
                || exports::$closed as *const () as usize,
            ),)*
            $($crate::driver::Row::hooked(
                $crate::driver::Library::$library, stringify!($open),
                || exports::$open as *const () as usize,
            ),)*
            $($crate::driver::Row::hooked(
                $crate::driver::Library::$library, stringify!($wait),
                || exports::$wait as *const () as usize,
            ),)*
            $($crate::driver::Row::hooked(
                $crate::driver::Library::$library, stringify!($launch),
                || exports::$launch as *const () as usize,
            ),)*
            $($crate::driver::Row::hooked(
                $crate::driver::Library::$library, stringify!($beside),
                || exports::$beside as *const () as usize,
            ),)*
            $($crate::driver::Row::called(
                $crate::driver::Library::$library, stringify!($call),
            ),)*
        )*];

        /// How many rows there are.
        pub(crate) const ROW_COUNT: usize = [
            $($(Symbol::$closed,)* $(Symbol::$open,)* $(Symbol::$wait,)* $(Symbol::$launch,)* $(Symbol::$beside,)* $(Symbol::$call,)*)*
        ]
        .len();

        /// The exported wrappers.
        pub(crate) mod exports {
            #![allow(non_snake_case, clippy::too_many_arguments, clippy::wildcard_imports)]
            #[allow(unused_imports)]
            use core::ffi::{c_char, c_void};
            #[allow(unused_imports)]
            use driver_sys::{cuda::*, cuda_fn, nvml::*, nvml_fn};
            $(
                $($signature!($closed, hook_closed $refusal $closed_body);)*
                $($signature!($open, hook_open $open_body);)*
                $($signature!($wait, hook_wait $wait_body);)*
                $($signature!($launch, hook_launch $jump);)*
                $($signature!($beside, hook_launch beside);)*
            )*
        }

        /// How a launch's arguments lie; `None` for what is no launch.
        pub(crate) fn shape_of(symbol: usize) -> Option<$crate::compute::shape::Shape> {
            $($(if symbol == Symbol::$launch as usize {
                return Some($crate::compute::shape::Shape::$shape);
            })*)*
            None
        }

        /// Where the stream is among a function's arguments, and whether NULL means the thread's own;
        /// `None` for what is not `beside`.
        pub(crate) fn stream_of(symbol: usize) -> Option<(usize, bool)> {
            $($(if symbol == Symbol::$beside as usize {
                return Some(($place, stringify!($beside).ends_with("_ptsz")));
            })*)*
            None
        }

        /// The driver's launch functions with a look back once it has answered: see
        /// [`crate::compute::gate`].
        pub(crate) mod through {
            #![allow(non_snake_case, clippy::too_many_arguments, clippy::wildcard_imports)]
            use core::ffi::c_void;
            #[allow(unused_imports)]
            use driver_sys::{cuda::*, cuda_fn, nvml::*, nvml_fn};
            $($($signature!($launch, through_function);)*)*

            /// The one of this row.
            pub(crate) fn address_of(symbol: usize) -> Option<usize> {
                $($(if symbol == super::Symbol::$launch as usize {
                    return Some($launch as *const () as usize);
                })*)*
                None
            }
        }

        /// The driver's own functions, called as the header declares them.
        pub(crate) mod real {
            #![allow(non_snake_case, clippy::too_many_arguments, clippy::wildcard_imports)]
            #[allow(unused_imports)]
            use core::ffi::{c_char, c_void};
            #[allow(unused_imports)]
            use driver_sys::{cuda::*, cuda_fn, nvml::*, nvml_fn};
            $(
                $($signature!($closed, real_function $absent);)*
                $($signature!($open, real_function $absent);)*
                $($signature!($wait, real_function $absent);)*
                $($signature!($call, real_function $absent);)*
            )*
        }
    };
}

/// A wrapper that refuses when its body panics: memory is never handed out unaccounted.
macro_rules! hook_closed {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $refusal:ident $body:path) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the body is given exactly what the program passed to this symbol.
            $crate::boundary::guard(|| unsafe { $body($($argument),*) }).unwrap_or($refusal)
        }
    };
}

/// A wrapper that hands the call to the driver when its body panics.
macro_rules! hook_open {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $body:path) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the body is given exactly what the program passed to this symbol.
            $crate::boundary::guard(|| unsafe { $body($($argument),*) })
                // SAFETY: as above.
                .unwrap_or_else(|| unsafe { $crate::table::real::$name($($argument),*) })
        }
    };
}

/// A wrapper around a call that may wait for long: see [`crate::synchronize`] for why nothing in it
/// may have to be cleaned up.
macro_rules! hook_wait {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $body:path) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            let driver = $crate::driver::callable($crate::table::Symbol::$name);
            let driver: unsafe extern "C" fn($($kind),*) -> $result =
                // SAFETY: what the driver exports by this name, with the header's signature, or
                // what reads no argument and answers that there is none.
                unsafe { core::mem::transmute(driver) };
            // SAFETY: the program's own arguments.
            let result = unsafe { driver($($argument),*) };
            $body(result);
            result
        }
    };
}

/// A jump to the driver's function: no frame, no copied arguments, and no Rust in between unless the
/// call has to come by the gate.
macro_rules! hook_launch {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $jump:ident) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($(_: $kind),*) -> $result {
            $crate::arch::launch_jump!($name, $jump)
        }
    };
}

/// A launch function that tells the meter when the driver has taken the launch.
macro_rules! through_function {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty;) => {
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            let driver = $crate::driver::callable($crate::table::Symbol::$name);
            let driver: unsafe extern "C" fn($($kind),*) -> $result =
                // SAFETY: as in `hook_wait`.
                unsafe { core::mem::transmute(driver) };
            // SAFETY: the program's own arguments.
            let result = unsafe { driver($($argument),*) };
            $crate::compute::gate::launched();
            result
        }
    };
}

/// The typed caller of the driver's function behind a row.
macro_rules! real_function {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $absent:ident) => {
        #[allow(dead_code)]
        #[inline]
        pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
            match $crate::driver::address($crate::table::Symbol::$name) {
                Some(address) => {
                    let function: unsafe extern "C" fn($($kind),*) -> $result =
                        // SAFETY: the address is what the driver exports by this name, and the
                        // signature is the header's for it.
                        unsafe { core::mem::transmute(address) };
                    // SAFETY: the caller's arguments, unchanged.
                    unsafe { function($($argument),*) }
                }
                None => $absent,
            }
        }
    };
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use driver_sys::cuda::{
        CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUcontext, CUresult,
    };

    #[allow(clippy::panic, clippy::unnecessary_wraps)]
    unsafe fn failing(_context: CUcontext) -> CUresult {
        panic!("a defect of ours, on purpose")
    }

    mod closed {
        use super::*;
        hook_closed! { cuCtxDestroy (context: CUcontext) -> CUresult; CUDA_ERROR_OUT_OF_MEMORY super::failing }
    }

    mod open {
        use super::*;
        hook_open! { cuCtxDestroy (context: CUcontext) -> CUresult; super::failing }
    }

    #[test]
    fn a_panic_refuses_what_hands_out_memory() {
        // SAFETY: the body reads nothing.
        let answer = unsafe { closed::cuCtxDestroy(std::ptr::null_mut()) };
        assert_eq!(answer, CUDA_ERROR_OUT_OF_MEMORY);
    }

    /// There is no driver in this process, and that is what the program is told.
    #[test]
    fn a_panic_anywhere_else_leaves_the_call_to_the_driver() {
        // SAFETY: as above.
        let answer = unsafe { open::cuCtxDestroy(std::ptr::null_mut()) };
        assert_eq!(answer, CUDA_ERROR_NOT_SUPPORTED);
    }
}
