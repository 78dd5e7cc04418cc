//! The library's voice: one line on standard error, where CUDA is refused or no memory can be had at
//! all.
//!
//! The program owns its standard error, so nothing is said in normal operation. The line goes out in
//! one `write`, so that it stays whole among the lines of other processes.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that is said once in a process, however often there is reason to.
pub(crate) struct Once(AtomicBool);

impl Once {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(crate) fn line(&self, message: impl Display) {
        if !self.0.swap(true, Ordering::Relaxed) {
            line(message);
        }
    }
}

/// Says one line. Errors are nobody's business: a program may have closed its standard error.
fn line(message: impl Display) {
    let text = format!("hami: {message}\n");
    let mut ready = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one descriptor, no waiting; the buffer is valid for its length.
    unsafe {
        // A full or broken pipe must neither stop nor kill the program.
        if libc::poll(&raw mut ready, 1, 0) == 1 && ready.revents == libc::POLLOUT {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        }
    }
}
