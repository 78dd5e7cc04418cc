//! The engine's argument wrappers, with this library's word for a NULL that must not be.

use core::ffi::c_char;
use driver_sys::nvml::{NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT as NULL};
use stub_engine::arguments;
pub use stub_engine::arguments::FromC;

pub type Out<T> = arguments::Out<T, NULL>;
pub type In<T> = arguments::In<T, NULL>;
pub type Text = arguments::Text<NULL>;

/// Writes text into a buffer of `size` bytes; unlike the driver, NVML never cuts it.
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
    for (place, byte) in array.iter_mut().zip(text.bytes().take(SIZE - 1)) {
        *place = byte as c_char;
    }
    array
}
