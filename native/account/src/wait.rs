//! Waiting, with a deadline each time, and the clock that all processes share.
//!
//! Sleeps go through the futex call and not through libc's `nanosleep`: that one, like `open` and
//! `close`, is a point at which a thread may be cancelled, and a program that cancels its threads
//! must not lose one while it holds something of ours.

pub(crate) use hami_limits::futex::{wait, wake_all, wake_one};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps about `time`.
pub(crate) fn pause(time: Duration) {
    let nobody_wakes = AtomicU32::new(0);
    wait(&nobody_wakes, 0, time);
}

/// Milliseconds since boot, also those spent suspended: the same for all processes and namespaces.
pub(crate) fn boot_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
