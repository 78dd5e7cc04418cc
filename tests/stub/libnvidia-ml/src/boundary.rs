//! The code around every exported function: it counts calls, delays them if a test has ordered
//! that, and stops panics.

use crate::engine;
use core::ffi::c_char;
use driver_sys::nvml::NVML_ERROR_INVALID_ARGUMENT as NULL;
use driver_sys::nvml::{
    NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN, nvmlReturn_t,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use stub_engine::{arguments, boundary};

/// The wrappers of C arguments, with NVML's result for a NULL that is not allowed.
pub type Out<T> = arguments::Out<T, NULL>;
pub type In<T> = arguments::In<T, NULL>;
pub type Text = arguments::Text<NULL>;

/// The result of an exported function.
pub trait CResult {
    /// The result of a function that has panicked.
    fn panicked() -> Self;
    /// The result of a function without a row.
    fn unsupported() -> Self;
}

impl CResult for nvmlReturn_t {
    fn panicked() -> Self {
        NVML_ERROR_UNKNOWN
    }

    fn unsupported() -> Self {
        engine::watch().err().unwrap_or(NVML_ERROR_NOT_SUPPORTED)
    }
}

/// `nvmlErrorString` alone returns text, and it has a row.
impl CResult for *const c_char {
    fn panicked() -> Self {
        c"Unknown Error".as_ptr()
    }

    fn unsupported() -> Self {
        c"".as_ptr()
    }
}

/// The result of a function without a row.
pub fn unsupported<R: CResult>() -> R {
    R::unsupported()
}

/// All functions are treated alike.
pub struct Kind;

/// The kind of the function of this name.
pub const fn kind(_name: &str) -> Kind {
    Kind
}

/// Runs the body of symbol number `symbol`, then counts the call, so that `nvmlInit`, which creates
/// the counters, is counted too.
pub fn enter<R: CResult>(symbol: usize, _kind: Kind, body: impl FnOnce() -> R) -> R {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| R::panicked());
    if let Some(watch) = engine::peek() {
        boundary::count(watch.counters(), symbol);
    }
    result
}

/// Writes text into a buffer of `size` bytes; unlike the driver, NVML never truncates it.
pub fn put_text(buffer: Out<c_char>, text: &str, size: u32) -> crate::Answer {
    if buffer.is_null() {
        return Err(NULL);
    }
    if text.len() >= size as usize {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    buffer.put_text(text, size as usize)
}

/// Text as a C array of characters that ends with NUL.
pub fn array<const SIZE: usize>(text: &str) -> [c_char; SIZE] {
    let mut array = [0; SIZE];
    for (out, byte) in array.iter_mut().zip(text.bytes().take(SIZE - 1)) {
        *out = byte as c_char;
    }
    array
}
