//! The driver's own functions, with the signatures of NVIDIA's headers.
//!
//! A call goes to the function that the program would have reached without this library. If the
//! driver lacks it, the caller returns the error that the hook table names for its library.

#![allow(non_snake_case, missing_docs, clippy::too_many_arguments, clippy::wildcard_imports)]
#![allow(clippy::missing_safety_doc)] // the contract of each function is the driver's

use core::ffi::{c_char, c_void};

use driver_sys::cuda::*;
use driver_sys::nvml::*;
use driver_sys::{cuda_fn, nvml_fn};

use crate::symbols::Symbol;

/// Success, or the driver's error.
pub type Outcome<T = ()> = Result<T, CUresult>;

/// Converts the driver's result code to a `Result`.
#[inline]
pub fn check(result: CUresult) -> Outcome {
    if result == CUDA_SUCCESS { Ok(()) } else { Err(result) }
}

/// Expands the hook table to one caller per symbol.
macro_rules! callers {
    ($(library $library:ident ($signature:ident, $absent:ident) {$(
        $section:ident $($refusal:ident)? {$(
            $name:ident $(=> $first:tt $(:: $rest:ident)* $($second:ident)*)?;
        )*}
    )*})*) => {
        $($($($signature!($name, caller $absent);)*)*)*
    };
}

macro_rules! caller {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty; $absent:ident) => {
        #[inline]
        pub unsafe fn $name($($argument: $kind),*) -> $result {
            match Symbol::$name.address() {
                Some(address) => {
                    let function: unsafe extern "C" fn($($kind),*) -> $result =
                        // SAFETY: the driver exports this address by this name, and the signature
                        // is the header's.
                        unsafe { core::mem::transmute(address) };
                    // SAFETY: the caller's arguments, unchanged.
                    unsafe { function($($argument),*) }
                }
                None => $absent,
            }
        }
    };
}

vgpu_table::hook_table!(callers);
