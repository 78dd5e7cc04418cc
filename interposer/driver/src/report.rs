//! Error messages of the library: one line on standard error, and only where CUDA is refused or no
//! memory can be allocated at all.
//!
//! Standard error belongs to the program, so the library writes nothing in normal operation. A line
//! is written by one `write`, so that lines of several processes do not mix.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

/// A message that a process prints at most once.
pub struct Once(AtomicBool);

impl Once {
    /// Not printed yet.
    #[allow(clippy::new_without_default)] // only statics are made of it
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Prints the message, unless one was printed before.
    pub fn line(&self, message: impl Display) {
        if !self.0.swap(true, Ordering::Relaxed) {
            line(message);
        }
    }
}

/// Prints one line. Errors are ignored: a program may have closed its standard error.
fn line(message: impl Display) {
    let text = format!("hami: {message}\n");
    let mut ready = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one descriptor, no waiting; the buffer is valid for its length.
    unsafe {
        // A full or broken pipe must neither block nor kill the program.
        if libc::poll(&raw mut ready, 1, 0) == 1 && ready.revents == libc::POLLOUT {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        }
    }
}
