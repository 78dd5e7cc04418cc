//! The clock, and waiting for a word to change: the only ways in which this library waits for time.

use std::sync::atomic::{AtomicU32, Ordering};

/// CLOCK_MONOTONIC in nanoseconds.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A number that changes when there is something to look at.
pub(super) struct Bell {
    rung: AtomicU32,
    /// Threads that may be asleep: where there is none, ringing is no system call.
    waiting: AtomicU32,
}

impl Bell {
    pub(super) const fn new() -> Self {
        Self { rung: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// What to compare with later: read before looking.
    pub(super) fn heard(&self) -> u32 {
        self.rung.load(Ordering::SeqCst)
    }

    /// Wakes all who wait.
    pub(super) fn ring(&self) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (wake, everybody) = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX);
        // SAFETY: the word is ours and lives as long as the process.
        unsafe { libc::syscall(libc::SYS_futex, self.rung.as_ptr(), wake, everybody) };
    }

    /// Returns when it has been rung since `heard`, or at `instant`, or sooner.
    pub(super) fn wait_until(&self, heard: u32, instant: u64) {
        let until = libc::timespec {
            tv_sec: (instant / 1_000_000_000) as libc::time_t,
            tv_nsec: (instant % 1_000_000_000) as libc::c_long,
        };
        let wait = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let (no_second, any) = (0_usize, u32::MAX);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the word is ours and lives as long as the process; `until` is a local variable.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.rung.as_ptr(),
                wait,
                heard,
                &raw const until,
                no_second,
                any,
            )
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
