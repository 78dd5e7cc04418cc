//! Fills. They are done at once and take no engine time.

use crate::Answer;
use crate::capture::{hooks, take};
use crate::context::current;
use crate::graph::task;
use crate::memory;
use crate::process::{Driver, handle};
use crate::stream::{self, NULL_STREAM};
use driver_sys::cuda::{CUDA_ERROR_INVALID_VALUE, CUDA_MEMSET_NODE_PARAMS_v2, CUstream};

/// An element of a fill.
trait Element: Copy {
    const BYTES: u64 = size_of::<Self>() as u64;

    /// From the low bits of the value in the parameters.
    fn of(value: u32) -> Self;
}

impl Element for u8 {
    fn of(value: u32) -> Self {
        value as Self
    }
}

impl Element for u16 {
    fn of(value: u32) -> Self {
        value as Self
    }
}

impl Element for u32 {
    fn of(value: u32) -> Self {
        value
    }
}

/// Checks every row and passes on its start and number of bytes.
fn each_row(driver: &Driver, rows: &CUDA_MEMSET_NODE_PARAMS_v2, then: impl Fn(u64, u64)) -> Answer {
    let element = u64::from(rows.elementSize);
    if !matches!(element, 1 | 2 | 4) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = (rows.width as u64).checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if rows.height > 1 && (rows.pitch as u64) < bytes {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for row in 0..rows.height as u64 {
        let start = rows.dst + row * rows.pitch as u64;
        if !start.is_multiple_of(element) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        memory::check(driver, start, bytes, true)?;
        then(start, bytes);
    }
    Ok(())
}

/// Checks that all rows can be filled.
pub fn check(driver: &Driver, rows: &CUDA_MEMSET_NODE_PARAMS_v2) -> Answer {
    each_row(driver, rows, |_, _| {})
}

fn write<T: Element>(driver: &Driver, rows: &CUDA_MEMSET_NODE_PARAMS_v2) -> Answer {
    each_row(driver, rows, |start, bytes| {
        let count = (bytes / T::BYTES) as usize;
        let _bytes_stay = driver.shared_runs.in_use.read();
        // SAFETY: the range was checked, and it is aligned.
        let elements = unsafe { core::slice::from_raw_parts_mut(start as *mut T, count) };
        elements.fill(T::of(rows.value));
    })
}

/// Fills rows.
pub fn run(driver: &Driver, rows: &CUDA_MEMSET_NODE_PARAMS_v2) -> Answer {
    match rows.elementSize {
        1 => write::<u8>(driver, rows),
        2 => write::<u16>(driver, rows),
        _ => write::<u32>(driver, rows),
    }
}

/// Whether the function is synchronous or asynchronous for captures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Now,
    Later,
}

fn request(mut rows: CUDA_MEMSET_NODE_PARAMS_v2, on: CUstream, way: Way) -> Answer {
    let (driver, ..) = current()?;
    let (_, queue) = stream::resolve(on)?;
    if way == Way::Now {
        hooks::refuse(driver, queue)?;
    }
    if rows.width == 0 || rows.height == 0 {
        return Ok(());
    }
    rows.ctx = handle(queue.context().1);
    if take::work(driver, queue, || task::fill(driver, rows))? {
        return Ok(());
    }
    run(driver, &rows)
}

fn rows<T: Element + Into<u32>>(
    start: u64,
    pitch: u64,
    value: T,
    width: u64,
    height: u64,
) -> CUDA_MEMSET_NODE_PARAMS_v2 {
    CUDA_MEMSET_NODE_PARAMS_v2 {
        dst: start,
        pitch: pitch as usize,
        value: value.into(),
        elementSize: T::BYTES as u32,
        width: width as usize,
        height: height as usize,
        ctx: core::ptr::null_mut(),
    }
}

macro_rules! fills {
    ($($one:ident $one_async:ident $rows:ident $rows_async:ident $element:ty;)*) => { $(
        /// A line of elements, on the default stream.
        pub fn $one(start: u64, value: $element, count: u64) -> Answer {
            request(rows(start, 0, value, count, 1), NULL_STREAM, Way::Now)
        }

        /// A line of elements.
        pub fn $one_async(start: u64, value: $element, count: u64, on: CUstream) -> Answer {
            request(rows(start, 0, value, count, 1), on, Way::Later)
        }

        /// Rows of elements, on the default stream.
        pub fn $rows(start: u64, pitch: u64, value: $element, width: u64, height: u64) -> Answer {
            request(rows(start, pitch, value, width, height), NULL_STREAM, Way::Now)
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
            request(rows(start, pitch, value, width, height), on, Way::Later)
        }
    )* };
}

fills! {
    d8 d8_async d2d8 d2d8_async u8;
    d16 d16_async d2d16 d2d16_async u16;
    d32 d32_async d2d32 d2d32_async u32;
}
