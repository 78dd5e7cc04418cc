//! Memory set to a value, element by element. It happens at once and takes none of the engine's time.

use crate::Answer;
use crate::context::current;
use crate::memory::check;
use crate::process::Driver;
use crate::stream::{self, NULL_STREAM};
use driver_sys::cuda::{CUDA_ERROR_INVALID_VALUE, CUstream};

/// An element of a fill.
trait Element: Copy {
    const BYTES: u64 = size_of::<Self>() as u64;
}

impl Element for u8 {}
impl Element for u16 {}
impl Element for u32 {}

fn row<T: Element>(driver: &Driver, start: u64, value: T, count: u64) -> Answer {
    if count == 0 {
        return Ok(());
    }
    let bytes = count.checked_mul(T::BYTES).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if !start.is_multiple_of(T::BYTES) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    check(driver, start, bytes, true)?;
    // SAFETY: the range was checked, and it is aligned.
    let elements = unsafe { core::slice::from_raw_parts_mut(start as *mut T, count as usize) };
    elements.fill(value);
    Ok(())
}

fn rows<T: Element>(
    start: u64,
    pitch: u64,
    value: T,
    width: u64,
    height: u64,
    on: CUstream,
) -> Answer {
    let (driver, ..) = current()?;
    stream::check(on)?;
    if height > 1 && pitch < width * T::BYTES {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    (0..height).try_for_each(|index| row(driver, start + index * pitch, value, width))
}

macro_rules! fills {
    ($($one:ident $one_async:ident $rows:ident $rows_async:ident $element:ty;)*) => { $(
        /// A line of elements, on the default stream.
        pub fn $one(start: u64, value: $element, count: u64) -> Answer {
            $one_async(start, value, count, NULL_STREAM)
        }

        /// A line of elements.
        pub fn $one_async(start: u64, value: $element, count: u64, on: CUstream) -> Answer {
            let (driver, ..) = current()?;
            stream::check(on)?;
            row(driver, start, value, count)
        }

        /// Rows of elements, on the default stream.
        pub fn $rows(start: u64, pitch: u64, value: $element, width: u64, height: u64) -> Answer {
            rows(start, pitch, value, width, height, NULL_STREAM)
        }

        /// Rows of elements.
        pub fn $rows_async(
            start: u64,
            pitch: u64,
            value: $element,
            width: u64,
            height: u64,
            on: CUstream,
        ) -> Answer {
            rows(start, pitch, value, width, height, on)
        }
    )* };
}

fills! {
    d8 d8_async d2d8 d2d8_async u8;
    d16 d16_async d2d16 d2d16_async u16;
    d32 d32_async d2d32 d2d32_async u32;
}
