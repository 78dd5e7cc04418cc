//! The library's voice: one line on standard error, and only when CUDA is refused.
//!
//! The program owns its standard error, so nothing is said in normal operation. The line goes out in
//! one `write`, so that it stays whole among the lines of other processes.

use std::fmt::Display;

/// Says one line. Errors are nobody's business: a program may have closed its standard error.
pub(crate) fn line(message: impl Display) {
    let text = format!("hami: {message}\n");
    // SAFETY: the buffer is valid for its length.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}
