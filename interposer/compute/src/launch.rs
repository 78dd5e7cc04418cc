//! A launch, as far as the limiter needs its arguments, and its stream.

use std::cell::Cell;

/// `CU_STREAM_PER_THREAD`: the calling thread's own default stream.
const PER_THREAD: usize = 2;

/// A launch of a kernel or of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The function or executable graph.
    pub function: usize,
    /// The grid; all 0 for a graph.
    pub grid: [u32; 3],
    /// The stream, as the program wrote it.
    pub stream: usize,
    /// Whether the stream is the calling thread's own default stream.
    pub is_threads_own: bool,
}

impl Launch {
    /// Whether a stream is the calling thread's own default stream. `per_thread` is true for
    /// functions in which NULL means that stream.
    pub fn is_threads_own(stream: usize, per_thread: bool) -> bool {
        stream == PER_THREAD || per_thread && stream == 0
    }

    /// The key under which its cost is remembered.
    pub fn key(&self) -> u64 {
        Self::key_of(self.function, self.grid)
    }

    /// The key of a function or executable graph with a grid.
    pub fn key_of(function: usize, grid: [u32; 3]) -> u64 {
        let blocks = grid.iter().fold(1_u64, |all, size| all.wrapping_mul(u64::from(*size)));
        // Multiplied by an odd constant (2^64 over the golden ratio) the two do not cancel out.
        (function as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ blocks
    }
}

/// A stream's number, for comparison only.
pub(crate) type Queue = u64;

/// A stream in a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    pub(crate) context: usize,
    /// The program's handle.
    pub(crate) handle: usize,
    /// Whether it is the calling thread's own default stream.
    pub(crate) is_threads_own: bool,
}

impl Stream {
    /// A number that no other stream has, as the calling thread names streams.
    pub(crate) fn queue(self) -> Queue {
        let thread = if self.is_threads_own { thread_number() } else { 0 };
        let context = (self.context as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        context ^ (self.handle as u64).wrapping_mul(0xff51_afd7_ed55_8ccd) ^ thread
    }
}

/// A number that no other living thread has.
fn thread_number() -> u64 {
    thread_local! {
        static HERE: Cell<u8> = const { Cell::new(0) };
    }
    HERE.with(|here| std::ptr::from_ref(here) as u64)
}
