//! The boundary: one exported wrapper for each row of the hook table that is hooked.
//!
//! An exported wrapper is a [`crate::jump`] in assembly. It jumps to the driver's function if the
//! driver itself is the caller (see [`callers`]), otherwise to a function of the module `guarded`.
//! This function has the signature of NVIDIA's header, and the panic policy of its section in the
//! table. It passes the program's arguments to the body: an `unsafe` function with the same
//! parameters that returns the driver's result code, or a `Result` with it. The compiler rejects a
//! body with other parameters. The wrappers of launches differ; see [`crate::launch`].

use vgpu_driver::callers;
use vgpu_driver::guard::contain;
use vgpu_driver::real::Outcome;
use vgpu_driver::symbols::Symbol;

/// The return type of a body.
pub(crate) trait Returned {
    /// The result code for the program.
    fn code(self) -> u32;
}

impl Returned for u32 {
    #[inline]
    fn code(self) -> u32 {
        self
    }
}

impl Returned for Outcome {
    #[inline]
    fn code(self) -> u32 {
        match self {
            Ok(()) => driver_sys::cuda::CUDA_SUCCESS,
            Err(error) => error,
        }
    }
}

/// Bodies that do something around one call of the driver: `$call` makes it with the program's own
/// arguments.
macro_rules! around {
    ($($(#[$meta:meta])* $body:ident($($argument:ident: $kind:ty),*) -> $result:ty
       = $driver:ident, |$call:ident| $around:expr;)*) => {$(
        $(#[$meta])*
        pub(crate) unsafe fn $body($($argument: $kind),*) -> $result {
            // SAFETY: the program's own arguments.
            let $call = || unsafe { vgpu_driver::real::$driver($($argument),*) };
            $around
        }
    )*};
}

/// A hooked symbol and its wrapper.
pub(crate) struct Hook {
    pub(crate) symbol: Symbol,
    wrapper: Wrapper,
}

/// The address of a wrapper, whatever its parameters are.
type Wrapper = unsafe extern "C" fn();

impl Hook {
    /// The address of the exported wrapper.
    pub(crate) fn wrapper(&self) -> usize {
        self.wrapper as usize
    }
}

/// Called by the exported wrappers if the caller is the driver, or is not known yet. Returns the
/// address to jump to: the driver's function, or `then`, the function for calls by the program.
pub(crate) extern "C" fn destination(return_address: usize, symbol: Symbol, then: usize) -> usize {
    match contain(|| callers::is_driver(return_address)) {
        Some(true) => symbol.callable(),
        _ => then,
    }
}

/// Expands the hook table to wrappers, and to the rows that the wrappers of launches pass to
/// [`crate::launch`].
macro_rules! wrappers {
    ($(library $library:ident ($signature:ident, $absent:ident) {
        fail_closed $refusal:ident { $($closed:ident => $($closed_body:ident)::+;)* }
        fail_open { $($open:ident => $($open_body:ident)::+;)* }
        observe { $($observed:ident => $($observe_body:ident)::+;)* }
        wait { $($waited:ident => $($wait_body:ident)::+;)* }
        launch { $($launch:ident => $arguments:ident $form:ident;)* }
        stream_op { $($stream_op:ident => $position:literal;)* }
        call { $($call:ident;)* }
    })*) => {
        /// The exported wrappers.
        pub(crate) mod exports {
            #![allow(non_snake_case, clippy::too_many_arguments, clippy::wildcard_imports)]
            use core::ffi::{c_char, c_void};
            use driver_sys::{cuda::*, cuda_fn, nvml::*, nvml_fn};
            $(
                $($signature!($closed, entry);)*
                $($signature!($open, entry);)*
                $($signature!($observed, entry);)*
                $($signature!($waited, entry);)*
                $($signature!($launch, launch $form);)*
                $($signature!($stream_op, launch stream_op);)*
            )*
        }

        /// The functions for calls by the program.
        mod guarded {
            #![allow(non_snake_case, clippy::too_many_arguments, clippy::wildcard_imports)]
            use core::ffi::{c_char, c_void};
            use driver_sys::{cuda::*, cuda_fn, nvml::*, nvml_fn};
            $(
                $($signature!($closed, fail_closed $refusal $($closed_body)::+);)*
                $($signature!($open, fail_open $($open_body)::+);)*
                $($signature!($observed, observe $($observe_body)::+);)*
                $($signature!($waited, wait $($wait_body)::+);)*
            )*
        }

        /// Every hooked symbol.
        pub(crate) static HOOKS: &[Hook] = &[$(
            $(hook!($closed),)*
            $(hook!($open),)*
            $(hook!($observed),)*
            $(hook!($waited),)*
            $(hook!($launch),)*
            $(hook!($stream_op),)*
        )*];

        /// The rows of launches and of other work on streams, which their wrappers name.
        pub(crate) mod rows {
            #![allow(non_upper_case_globals)]
            use crate::launch::{Arguments, LaunchRow, StreamOpRow};
            use vgpu_driver::symbols::Symbol;
            $($(pub(crate) static $launch: LaunchRow = LaunchRow {
                symbol: Symbol::$launch,
                arguments: Arguments::$arguments,
                then_record: || super::then_record::$launch as *const () as usize,
            };)*)*
            $($(pub(crate) static $stream_op: StreamOpRow =
                StreamOpRow { symbol: Symbol::$stream_op, stream: $position };)*)*
        }

        /// Functions that call the driver's launch function and then end the interval.
        mod then_record {
            #![allow(non_snake_case, clippy::too_many_arguments, clippy::wildcard_imports)]
            use core::ffi::c_void;
            #[allow(unused_imports)]
            use driver_sys::{cuda::*, cuda_fn, nvml::*, nvml_fn};
            $($($signature!($launch, then_record);)*)*
        }
    };
}

macro_rules! hook {
    ($name:ident) => {
        Hook {
            symbol: Symbol::$name,
            // SAFETY: only the address is used. A closure returning it would be another pointer.
            wrapper: unsafe {
                core::mem::transmute::<*const (), Wrapper>(exports::$name as *const ())
            },
        }
    };
}

/// An exported wrapper, except of a launch.
macro_rules! entry {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty;) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($(_: $kind),*) -> $result {
            $crate::jump::entry_jump!($name, $crate::boundary::guarded::$name)
        }
    };
}

/// A wrapper that refuses if its body panics: memory is never allocated without being charged.
macro_rules! fail_closed {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $refusal:ident $($body:ident)::+) => {
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            vgpu_driver::guard::guard(||
                // SAFETY: the body gets exactly what the program passed to this symbol.
                $crate::boundary::Returned::code(unsafe { crate::$($body)::+($($argument),*) })
            )
            .unwrap_or($refusal)
        }
    };
}

/// A wrapper that passes the call to the driver if its body panics.
macro_rules! fail_open {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $($body:ident)::+) => {
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            vgpu_driver::guard::guard(||
                // SAFETY: the body gets exactly what the program passed to this symbol.
                $crate::boundary::Returned::code(unsafe { crate::$($body)::+($($argument),*) })
            )
            // SAFETY: as above.
            .unwrap_or_else(|| unsafe { vgpu_driver::real::$name($($argument),*) })
        }
    };
}

/// A wrapper of a call whose result is of interest.
macro_rules! observe {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $($body:ident)::+) => {
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            let driver = vgpu_driver::symbols::Symbol::$name.callable();
            let driver: unsafe extern "C" fn($($kind),*) -> $result =
                // SAFETY: the driver exports this address by this name, with the header's
                // signature. Or it is a function that reads no argument.
                unsafe { core::mem::transmute(driver) };
            // SAFETY: the program's own arguments.
            let result = unsafe { driver($($argument),*) };
            crate::$($body)::+(result);
            result
        }
    };
}

/// A wrapper of a call that may wait for long. It keeps nothing that must be cleaned up; see
/// [`crate::synchronize`].
macro_rules! wait {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $($body:ident)::+) => {
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            let driver = vgpu_driver::symbols::Symbol::$name.callable();
            let driver: unsafe extern "C" fn($($kind),*) -> $result =
                // SAFETY: as in `observe`.
                unsafe { core::mem::transmute(driver) };
            vgpu_compute::notices::waiting();
            // SAFETY: the program's own arguments.
            let result = unsafe { driver($($argument),*) };
            crate::$($body)::+(result);
            result
        }
    };
}

/// The exported wrapper of a launch: a jump to the driver's function, without a stack frame and
/// without copied arguments. Rust code runs only if the call needs admission.
macro_rules! launch {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $form:ident) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($(_: $kind),*) -> $result {
            $crate::jump::launch_jump!($name, $form)
        }
    };
}

/// A function that calls the driver's launch function, and records an event behind the launch.
macro_rules! then_record {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty;) => {
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            let driver = vgpu_driver::symbols::Symbol::$name.callable();
            let driver: unsafe extern "C" fn($($kind),*) -> $result =
                // SAFETY: as in `observe`.
                unsafe { core::mem::transmute(driver) };
            // SAFETY: the program's own arguments.
            let result = unsafe { driver($($argument),*) };
            vgpu_driver::guard::guard(vgpu_compute::admission::launched);
            result
        }
    };
}

vgpu_table::hook_table!(wrappers);

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use driver_sys::cuda::{
        CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUcontext, CUresult,
    };

    #[allow(clippy::panic, clippy::unnecessary_wraps)]
    pub(crate) unsafe fn failing(_context: CUcontext) -> CUresult {
        panic!("a defect of ours, on purpose")
    }

    mod closed {
        use super::*;
        fail_closed! { cuCtxDestroy (context: CUcontext) -> CUresult; CUDA_ERROR_OUT_OF_MEMORY boundary::tests::failing }
    }

    mod open {
        use super::*;
        fail_open! { cuCtxDestroy (context: CUcontext) -> CUresult; boundary::tests::failing }
    }

    #[test]
    fn a_panic_refuses_what_hands_out_memory() {
        // SAFETY: the body reads nothing.
        let result = unsafe { closed::cuCtxDestroy(std::ptr::null_mut()) };
        assert_eq!(result, CUDA_ERROR_OUT_OF_MEMORY);
    }

    /// There is no driver in this process, and the program gets that error.
    #[test]
    fn a_panic_in_any_other_hook_leaves_the_call_to_the_driver() {
        // SAFETY: as above.
        let result = unsafe { open::cuCtxDestroy(std::ptr::null_mut()) };
        assert_eq!(result, CUDA_ERROR_NOT_SUPPORTED);
    }
}
