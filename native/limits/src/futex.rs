//! Waiting for a word of a file that several processes have mapped, and waking the waiters.
//!
//! All waits are bare futex calls. libc's `nanosleep`, `open` and `close` are cancellation points,
//! and a program that cancels its threads must not lose one while that thread holds a lock of ours.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `expected`: until woken, or for about `time` at most. It may return
/// early. The word may lie in memory that is mapped read-only.
pub fn wait(word: &AtomicU32, expected: u32, time: Duration) {
    let timeout = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: word and timeout are valid for the call; the caller checks the word after every
    // outcome.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
        );
    }
}

/// Sleeps for about `time`.
pub fn pause(time: Duration) {
    let never_woken = AtomicU32::new(0);
    wait(&never_woken, 0, time);
}

/// Wakes one thread that waits for `word`.
pub fn wake_one(word: &AtomicU32) {
    wake(word, 1);
}

/// Wakes all threads that wait for `word`.
pub fn wake_all(word: &AtomicU32) {
    wake(word, i32::MAX);
}

fn wake(word: &AtomicU32, threads: i32) {
    // SAFETY: the word is valid for the call; it is no failure if no thread waits.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, threads) };
}
