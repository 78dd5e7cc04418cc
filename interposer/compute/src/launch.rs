//! A launch, with what the limiter needs to know, and its stream.

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
    /// The stream, by its name ([`stream_name`]).
    pub stream: usize,
}

/// The name of a stream: 0 is the default stream of all threads, 2 the calling thread's own, and
/// others are handles. `per_thread` is true for functions in which NULL means the thread's own.
pub fn stream_name(handle: usize, per_thread: bool) -> usize {
    match handle {
        0 if per_thread => PER_THREAD,
        LEGACY => 0,
        handle => handle,
    }
}

/// A stream's number, for comparison only.
pub(crate) type Queue = u64;

/// A stream in a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    pub(crate) context: usize,
    /// Its name, see [`stream_name`].
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
