//! The table: which function of the header is done by which function here.
//!
//! A row ([`rows`]) is a name and a path. The signature comes from the header, so a row that does not
//! fit does not compile; a name without a row answers `CUDA_ERROR_NOT_SUPPORTED`.

mod rows;

use crate::arguments::FromC;
use crate::boundary;
use crate::capture::calls as capture;
use crate::{
    context, copy, device, errors, event, fill, function, graph, host, launch, link, lookup,
    managed, memory, module, occupancy, old_launch, pointer, pool, primary, process, stream,
    texture,
};
use core::ffi::{c_char, c_void};
use driver_sys::cuda::*;
use driver_sys::{cuda_fn, each_cuda_fn};

macro_rules! driver_and_exports {
    ($($name:ident ($($parameter:ident : $type:ty),*) -> $result:ty;)*) => {
        /// A symbol's number: its place in the header, and in the counters.
        #[allow(non_camel_case_types)]
        enum Symbol {
            $($name,)*
        }

        /// The driver API. What is not overridden is not supported.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        trait Driver {
            $(
                /// # Safety
                /// As NVIDIA's documentation of the function says.
                unsafe fn $name($($parameter: $type),*) -> $result {
                    $(let _ = $parameter;)*
                    process::driver().err().unwrap_or(CUDA_ERROR_NOT_SUPPORTED)
                }
            )*
        }

        $(
            #[doc = concat!("`", stringify!($name), "`")]
            ///
            /// # Safety
            /// As NVIDIA's documentation of the function says.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($parameter: $type),*) -> $result {
                const PER_THREAD: bool = is_per_thread(stringify!($name));
                const UNSAFE: bool = is_unsafe_in_capture(stringify!($name));
                boundary::enter(Symbol::$name as usize, PER_THREAD, UNSAFE, || {
                    // SAFETY: the caller's promise is handed on.
                    unsafe { <Stub as Driver>::$name($($parameter),*) }
                })
            }
        )*

        /// Every exported function's name and address.
        pub fn exports() -> Vec<(&'static str, usize)> {
            vec![$((stringify!($name), $name as *const () as usize)),*]
        }
    };
}

/// Whether the NULL stream of the function of this name is the thread's own.
const fn is_per_thread(name: &str) -> bool {
    let name = name.as_bytes();
    matches!(name, [.., b'_', b'p', b't', b's' | b'd', b'z' | b's'])
}

/// What is refused while something is captured, as the modes of captures say, because it may have to
/// wait for the device and no graph would have it. Waits and looks ask for themselves, once they know
/// that what they wait for is not captured.
const UNSAFE_IN_CAPTURE: &[&str] = &[
    "cuMemAlloc",
    "cuMemAlloc_v2",
    "cuMemAllocPitch",
    "cuMemAllocPitch_v2",
    "cuMemAllocManaged",
    "cuMemAllocHost",
    "cuMemAllocHost_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemFree",
    "cuMemFree_v2",
    "cuMemFreeHost",
];

/// Whether the function of this name is one of those.
const fn is_unsafe_in_capture(name: &str) -> bool {
    let mut index = 0;
    while index < UNSAFE_IN_CAPTURE.len() {
        if is_same(name.as_bytes(), UNSAFE_IN_CAPTURE[index].as_bytes()) {
            return true;
        }
        index += 1;
    }
    false
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// The one driver there is.
struct Stub;

macro_rules! implemented_row {
    ($name:ident ($($parameter:ident : $type:ty),*) -> $result:ty; $($body:ident)::+) => {
        #[allow(non_snake_case)]
        unsafe fn $name($($parameter: $type),*) -> $result {
            // SAFETY: the caller's pointers are what the header says, for as long as the call runs.
            match $($body)::+($(unsafe { FromC::from_c($parameter) }),*) {
                Ok(()) => CUDA_SUCCESS,
                Err(error) => error,
            }
        }
    };
}

macro_rules! implemented {
    ($($name:ident => $($body:ident)::+;)*) => {
        impl Driver for Stub {
            $(cuda_fn! { $name, implemented_row $($body)::+ })*
        }
    };
}

each_cuda_fn!(driver_and_exports);

rows::each_row!(implemented);
