//! A launch, with the arguments that the limiter needs, and its stream.

use std::cell::Cell;

/// `CU_STREAM_LEGACY`: the default stream of all threads.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`: the calling thread's own default stream.
const PER_THREAD: usize = 2;

/// A launch of a kernel or of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The function or executable graph.
    pub function: usize,
    /// The grid; all 0 for a graph.
    pub grid: [u32; 3],
    /// The stream, as [`Launch::stream`] names it.
    pub stream: usize,
}

impl Launch {
    /// The name of a stream: 0 is the default stream of all threads, 2 the calling thread's own,
    /// and others are handles. `per_thread` is true for functions in which NULL means the thread's
    /// own.
    pub fn stream(handle: usize, per_thread: bool) -> usize {
        match handle {
            0 if per_thread => PER_THREAD,
            LEGACY => 0,
            handle => handle,
        }
    }

    /// The handle that a program passes for a stream to functions in which NULL means the thread's
    /// own stream.
    pub(crate) fn per_thread_handle(stream: usize) -> usize {
        match stream {
            0 => LEGACY,
            PER_THREAD => 0,
            handle => handle,
        }
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
    /// Its name, as [`Launch::stream`] has it.
    pub(crate) handle: usize,
}

impl Stream {
    /// A number that no other stream has, as the calling thread names streams.
    pub(crate) fn queue(self) -> Queue {
        let thread = if self.is_threads_own() { thread_number() } else { 0 };
        let context = (self.context as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        context ^ (self.handle as u64).wrapping_mul(0xff51_afd7_ed55_8ccd) ^ thread
    }

    /// Whether it is the calling thread's own default stream.
    pub(crate) fn is_threads_own(self) -> bool {
        self.handle == PER_THREAD
    }

    /// Whether it is the default stream of all threads.
    pub(crate) fn is_legacy(self) -> bool {
        self.handle == 0
    }
}

/// Whether the program has created a stream.
pub(crate) fn is_created(stream: usize) -> bool {
    stream > PER_THREAD
}

/// A number that no other living thread has.
fn thread_number() -> u64 {
    thread_local! {
        static HERE: Cell<u8> = const { Cell::new(0) };
    }
    HERE.with(|here| std::ptr::from_ref(here) as u64)
}
