//! Streams as the program names them.

use std::cell::Cell;

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
