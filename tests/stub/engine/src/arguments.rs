//! Wrappers of C arguments, so that no function behind the boundary handles a raw pointer.
//!
//! One rule holds for all functions: a pointer that is not NULL is valid for what the function does
//! with it; NULL is an error, or means that the caller does not need this output. The boundary
//! wraps each argument once.
//!
//! The parameter `NULL` is the library's error code for a NULL that is not allowed.

use core::ffi::{CStr, c_char};

/// How a function behind the boundary takes a C argument.
pub trait FromC<C> {
    /// # Safety
    /// A pointer must be NULL, or valid for as long as the call runs.
    unsafe fn from_c(raw: C) -> Self;
}

impl<T> FromC<T> for T {
    unsafe fn from_c(raw: T) -> T {
        raw
    }
}

macro_rules! widen {
    ($($from:ty => $to:ty),*) => {
        $(impl FromC<$from> for $to {
            unsafe fn from_c(raw: $from) -> $to {
                raw as $to
            }
        })*
    };
}

// Sizes and device pointers were 32 bits wide in the first version of the API.
widen!(u32 => u64, usize => u64, u32 => usize);

/// A pointer to an output.
pub struct Out<T, const NULL: u32>(*mut T);

impl<T, const NULL: u32> Clone for Out<T, NULL> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const NULL: u32> Copy for Out<T, NULL> {}

impl<T, const NULL: u32> FromC<*mut T> for Out<T, NULL> {
    unsafe fn from_c(raw: *mut T) -> Self {
        Self(raw)
    }
}

impl<T, const NULL: u32> Out<T, NULL> {
    /// The output at this address, which comes from an array of the caller's.
    pub fn of(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// The same output as another type, which another argument of the caller selects.
    pub fn cast<U>(self) -> Out<U, NULL> {
        Out(self.0.cast())
    }

    /// Whether the pointer is NULL.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes the output; NULL is an error.
    pub fn put(self, value: T) -> Result<(), u32> {
        if self.0.is_null() {
            return Err(NULL);
        }
        self.put_optional(value);
        Ok(())
    }

    /// Writes the output unless the pointer is NULL.
    pub fn put_optional(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: by `FromC::from_c` the pointer is valid; unaligned places are tolerated.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Reads what the caller has stored, where the argument is input and output; NULL is an error.
    pub fn read(self) -> Result<T, u32>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(NULL);
        }
        // SAFETY: as in `put_optional`, and the function's documentation says it is set.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Writes into an array.
    pub fn put_at(self, index: usize, value: T) {
        // SAFETY: by the function's documentation the array is as long as the caller says.
        Self(unsafe { self.0.add(index) }).put_optional(value);
    }
}

impl<const NULL: u32> Out<c_char, NULL> {
    /// Writes text and its NUL into a buffer, cutting what does not fit.
    pub fn put_text(self, text: &str, size: usize) -> Result<(), u32> {
        if self.0.is_null() || size == 0 {
            return Err(NULL);
        }
        let length = text.len().min(size - 1);
        for (index, byte) in text.as_bytes()[..length].iter().enumerate() {
            self.put_at(index, *byte as c_char);
        }
        self.put_at(length, 0);
        Ok(())
    }
}

/// An output for a size or a device pointer: 64 bits wide, 32 bits in the first API.
#[derive(Clone, Copy)]
pub enum OutWide<const NULL: u32> {
    /// 64 bits.
    Wide(Out<u64, NULL>),
    /// 32 bits.
    Narrow(Out<u32, NULL>),
}

impl<const NULL: u32> FromC<*mut u64> for OutWide<NULL> {
    unsafe fn from_c(raw: *mut u64) -> Self {
        Self::Wide(Out(raw))
    }
}

impl<const NULL: u32> FromC<*mut usize> for OutWide<NULL> {
    unsafe fn from_c(raw: *mut usize) -> Self {
        Self::Wide(Out(raw.cast()))
    }
}

impl<const NULL: u32> FromC<*mut u32> for OutWide<NULL> {
    unsafe fn from_c(raw: *mut u32) -> Self {
        Self::Narrow(Out(raw))
    }
}

impl<const NULL: u32> OutWide<NULL> {
    /// An output that the caller does not need.
    pub fn none() -> Self {
        Self::Wide(Out(core::ptr::null_mut()))
    }

    /// Whether the pointer is NULL.
    pub fn is_null(self) -> bool {
        match self {
            Self::Wide(out) => out.is_null(),
            Self::Narrow(out) => out.is_null(),
        }
    }

    /// Whether the caller uses the first API.
    pub fn is_narrow(self) -> bool {
        matches!(self, Self::Narrow(_))
    }

    /// Writes the output; NULL is an error.
    pub fn put(self, value: u64) -> Result<(), u32> {
        if self.is_null() {
            return Err(NULL);
        }
        self.put_optional(value);
        Ok(())
    }

    /// Writes the output unless the pointer is NULL. A value that does not fit becomes the largest
    /// that does.
    pub fn put_optional(self, value: u64) {
        match self {
            Self::Wide(out) => out.put_optional(value),
            Self::Narrow(out) => out.put_optional(u32::try_from(value).unwrap_or(u32::MAX)),
        }
    }
}

/// A pointer to a structure or array to read.
#[derive(Clone, Copy)]
pub struct In<T, const NULL: u32>(*const T);

impl<T, const NULL: u32> FromC<*const T> for In<T, NULL> {
    unsafe fn from_c(raw: *const T) -> Self {
        Self(raw)
    }
}

impl<T, const NULL: u32> FromC<*mut T> for In<T, NULL> {
    unsafe fn from_c(raw: *mut T) -> Self {
        Self(raw)
    }
}

impl<T: Copy, const NULL: u32> In<T, NULL> {
    /// The input at this address, which comes from an array of the caller's; NULL means none.
    pub fn of(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// A copy of the value; NULL is an error.
    pub fn get(self) -> Result<T, u32> {
        self.get_at(0)
    }

    /// A copy of one element; NULL is an error.
    pub fn get_at(self, index: usize) -> Result<T, u32> {
        if self.0.is_null() {
            return Err(NULL);
        }
        // SAFETY: by `FromC::from_c` the pointer is valid, and the array as long as the caller
        // says.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

/// A C string.
#[derive(Clone, Copy)]
pub struct Text<const NULL: u32>(*const c_char);

impl<const NULL: u32> FromC<*const c_char> for Text<NULL> {
    unsafe fn from_c(raw: *const c_char) -> Self {
        Self(raw)
    }
}

impl<const NULL: u32> Text<NULL> {
    /// A copy of the text; NULL and invalid UTF-8 are errors.
    pub fn get(self) -> Result<String, u32> {
        if self.0.is_null() {
            return Err(NULL);
        }
        // SAFETY: by `FromC::from_c` it is a string that ends with NUL.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| NULL)
    }
}

/// An address in host memory, of any type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Host(pub u64);

impl<T> FromC<*mut T> for Host {
    unsafe fn from_c(raw: *mut T) -> Self {
        Self(raw as u64)
    }
}

impl<T> FromC<*const T> for Host {
    unsafe fn from_c(raw: *const T) -> Self {
        Self(raw as u64)
    }
}
