//! C arguments in clothes that safe code can handle.
//!
//! The driver's promise is the same everywhere: a pointer that is not NULL is valid for what the
//! function does with it, and NULL is an error or an answer that nobody wants. Wrapping happens at
//! the boundary, once per argument, so that no function behind it needs a raw pointer.
//!
//! `NULL` is the code that the library answers for a pointer that must not be NULL.

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

/// A place for an answer.
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
    /// A place that an array of the caller's names.
    pub fn of(place: *mut T) -> Self {
        Self(place)
    }

    /// The same place for another type, which the caller has named in another argument.
    pub fn cast<U>(self) -> Out<U, NULL> {
        Out(self.0.cast())
    }

    /// Whether there is no place.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Answers; NULL is the caller's mistake.
    pub fn put(self, value: T) -> Result<(), u32> {
        if self.0.is_null() {
            return Err(NULL);
        }
        self.put_if_wanted(value);
        Ok(())
    }

    /// Answers; NULL says that nobody wants to know.
    pub fn put_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: by `FromC::from_c` the pointer is valid; unaligned places are tolerated.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// What is there before the answer, where a place is both; NULL is the caller's mistake.
    pub fn read(self) -> Result<T, u32>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(NULL);
        }
        // SAFETY: as in `put_if_wanted`, and the function's documentation says it is set.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Writes into an array.
    pub fn put_at(self, index: usize, value: T) {
        // SAFETY: by the function's documentation the array is as long as the caller says.
        Self(unsafe { self.0.add(index) }).put_if_wanted(value);
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

/// A place for a size or a device pointer, 64 or, in the first API, 32 bits wide.
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
    /// A place that nobody reads.
    pub fn none() -> Self {
        Self::Wide(Out(core::ptr::null_mut()))
    }

    /// Whether there is no place.
    pub fn is_null(self) -> bool {
        match self {
            Self::Wide(out) => out.is_null(),
            Self::Narrow(out) => out.is_null(),
        }
    }

    /// Whether the caller speaks the first API.
    pub fn is_narrow(self) -> bool {
        matches!(self, Self::Narrow(_))
    }

    /// Answers; NULL is the caller's mistake.
    pub fn put(self, value: u64) -> Result<(), u32> {
        if self.is_null() {
            return Err(NULL);
        }
        self.put_if_wanted(value);
        Ok(())
    }

    /// Answers; what is larger than the place gives the largest value.
    pub fn put_if_wanted(self, value: u64) {
        match self {
            Self::Wide(out) => out.put_if_wanted(value),
            Self::Narrow(out) => out.put_if_wanted(u32::try_from(value).unwrap_or(u32::MAX)),
        }
    }
}

/// A structure or array to read.
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
    /// A place that an array of the caller's names; NULL for none.
    pub fn of(place: *const T) -> Self {
        Self(place)
    }

    /// A copy; NULL is the caller's mistake.
    pub fn get(self) -> Result<T, u32> {
        self.get_at(0)
    }

    /// A copy of one element; NULL is the caller's mistake.
    pub fn get_at(self, index: usize) -> Result<T, u32> {
        if self.0.is_null() {
            return Err(NULL);
        }
        // SAFETY: by `FromC::from_c` the pointer is valid, and the array as long as the caller says.
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
    /// A copy; NULL and what is not UTF-8 are the caller's mistake.
    pub fn get(self) -> Result<String, u32> {
        if self.0.is_null() {
            return Err(NULL);
        }
        // SAFETY: by `FromC::from_c` it is a string that ends with NUL.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| NULL)
    }
}

/// An address in host memory, of whatever is there.
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
