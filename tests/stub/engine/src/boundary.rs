//! The boundary between C and Rust, for both libraries: one macro exports every function of a
//! header, another one makes the table of those that do something.
//!
//! A library calls both macros in its `table` module. Its `boundary` module has what differs
//! between the libraries: `enter` runs around every call, and `unsupported` is the result of a
//! function without a row.

use crate::counters::Counters;
use core::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often a delayed call looks whether the order has changed.
const STEP: Duration = Duration::from_millis(50);

/// Counts a call of symbol number `symbol`, and makes it as slow as a test has ordered.
pub fn count(counters: &Counters, symbol: usize) {
    counters.calls[symbol].fetch_add(1, Relaxed);
    delay(counters, symbol);
}

/// Waits if a test has ordered that for symbol number `symbol`.
pub fn delay(counters: &Counters, symbol: usize) {
    let delay_us = &counters.delays_us[symbol];
    if delay_us.load(Relaxed) > 0 {
        wait(delay_us);
    }
}

/// Waits. A test can end a long wait, so that a call hangs until the test has seen enough.
#[cold]
fn wait(delay_us: &AtomicU32) {
    let started = Instant::now();
    loop {
        let delay = Duration::from_micros(u64::from(delay_us.load(Relaxed)));
        let left = delay.saturating_sub(started.elapsed());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(STEP));
    }
}

/// The conversion of the result of a row's function to the C result `R`.
pub trait IntoC<R> {
    /// The C result.
    fn into_c(self) -> R;
}

/// `CUDA_SUCCESS` and `NVML_SUCCESS` are 0.
impl IntoC<u32> for Result<(), u32> {
    fn into_c(self) -> u32 {
        self.err().unwrap_or(0)
    }
}

impl IntoC<*const c_char> for &'static CStr {
    fn into_c(self) -> *const c_char {
        self.as_ptr()
    }
}

/// Exports all functions of a header: `driver_sys::each_cuda_fn!(exports)`. Each calls the function
/// of the same name of `<Stub as Api>`, which is not supported unless a row of `table!` overrides
/// it.
// `crate::boundary` is the library's.
#[allow(clippy::crate_in_macro_def)]
#[macro_export]
macro_rules! exports {
    ($($name:ident ($($parameter:ident : $type:ty),*) -> $result:ty;)*) => {
        /// A symbol's number is its position in the header, and in the counters.
        #[allow(non_camel_case_types)]
        enum Symbol {
            $($name,)*
        }

        /// The functions of the header.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        trait Api {
            $(
                /// # Safety
                /// As NVIDIA's documentation of the function says.
                unsafe fn $name($($parameter: $type),*) -> $result {
                    $(let _ = $parameter;)*
                    crate::boundary::unsupported()
                }
            )*
        }

        /// The one implementation.
        struct Stub;

        $(
            #[doc = concat!("`", stringify!($name), "`")]
            ///
            /// # Safety
            /// As NVIDIA's documentation of the function says.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($parameter: $type),*) -> $result {
                const KIND: crate::boundary::Kind = crate::boundary::kind(stringify!($name));
                crate::boundary::enter(Symbol::$name as usize, KIND, || {
                    // SAFETY: the caller has promised what the function requires.
                    unsafe { <Stub as Api>::$name($($parameter),*) }
                })
            }
        )*

        /// The name and the address of every exported function.
        pub fn exports() -> Vec<(&'static str, usize)> {
            vec![$((stringify!($name), $name as *const () as usize)),*]
        }
    };
}

/// The table of a library: `table! { signature_macro; rows }`. A row is the names of one or more
/// symbols, and the function that does what they do:
///
/// `cuMemAlloc | cuMemAlloc_v2 => memory::alloc;`
///
/// The signature comes from the header, so a row that does not fit does not compile. With `if`, a
/// function is called first that may refuse: `cuMemFree => memory::free, if capture::check_safe;`.
#[macro_export]
macro_rules! table {
    ($signature:ident; $($($name:ident)|+ => $body:path $(, if $guard:path)?;)*) => {
        impl Api for Stub {
            $($crate::row! { $signature [$($name)+] $body $(, $guard)? })*
        }
    };
}

/// The functions of one row.
#[doc(hidden)]
#[macro_export]
macro_rules! row {
    ($signature:ident [$($name:ident)+] $body:path) => {
        $($signature! { $name, row $body })+
    };
    ($signature:ident [$($name:ident)+] $body:path, $guard:path) => {
        $($signature! { $name, row $body, $guard })+
    };
    ($name:ident ($($parameter:ident : $type:ty),*) -> $result:ty; $body:path $(, $guard:path)?) => {
        #[allow(non_snake_case)]
        unsafe fn $name($($parameter: $type),*) -> $result {
            $(if let Err(error) = $guard() {
                return error;
            })?
            // SAFETY: the caller's pointers are what the header says, for as long as the call runs.
            let result = $body($(unsafe { $crate::arguments::FromC::from_c($parameter) }),*);
            $crate::boundary::IntoC::into_c(result)
        }
    };
}
