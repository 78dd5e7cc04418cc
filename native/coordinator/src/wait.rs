//! Waiting for any of many wake-up words, with a deadline; and the clock of the coordinator.

pub(crate) use hami_limits::clock::monotonic_ns as now;
use hami_limits::clock::timespec;
use std::io;
use std::sync::atomic::AtomicU32;

/// The most words that the kernel can wait for at once (`FUTEX_WAITV_MAX`).
const MAX_WORDS: usize = 128;
/// How often to poll if the kernel cannot wait for all of them.
const POLL_NS: u64 = 1_000_000;

/// `FUTEX2_SIZE_U32`, and not private, because the words are in files.
const SHARED_32_BITS: u32 = 2;

/// The kernel's `struct futex_waitv`.
#[repr(C)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// A wake-up word, and its value before its account was last read.
#[derive(Clone, Copy)]
pub(crate) struct WakeWord<'a> {
    pub word: &'a AtomicU32,
    pub seen: u32,
}

/// Nanoseconds of processor time that this thread has used.
pub(crate) fn cpu_time() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until an instant; may return early.
fn sleep_until(until: u64) {
    let until = timespec(until);
    let (clock, absolute) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
    // SAFETY: the time is valid for the call; the caller checks again after every outcome.
    unsafe { libc::clock_nanosleep(clock, absolute, &raw const until, std::ptr::null_mut()) };
}

/// Waits for wake-up words by the best means that the kernel offers.
pub(crate) struct Waiting {
    waiters: Vec<Waiter>,
    /// The kernel is older than 5.16, or a system call filter does not know the call.
    polls: bool,
}

impl Waiting {
    pub fn new() -> Self {
        Self { waiters: Vec::with_capacity(MAX_WORDS), polls: false }
    }

    /// Sleeps until one of the words has changed, or until an instant. It may return early.
    pub fn wait<'a>(&mut self, wake_words: impl Iterator<Item = WakeWord<'a>>, until: u64) {
        self.waiters.clear();
        self.waiters.extend(wake_words.map(|word| Waiter {
            value: word.seen.into(),
            address: word.word.as_ptr().addr() as u64,
            flags: SHARED_32_BITS,
            reserved: 0,
        }));
        if self.waiters.is_empty() {
            return sleep_until(until);
        }
        let some_are_left_out = self.waiters.len() > MAX_WORDS;
        self.waiters.truncate(MAX_WORDS);
        if self.polls || some_are_left_out {
            return sleep_until(until.min(now() + POLL_NS));
        }
        match self.wait_for_any(until) {
            Some(libc::ENOSYS | libc::EPERM) => self.polls = true,
            // A word is beyond the end of its truncated file: the next reading finds which one.
            Some(libc::EFAULT) => sleep_until(until.min(now() + POLL_NS)),
            _ => {}
        }
    }

    /// The kernel's error, if there is one.
    fn wait_for_any(&self, until: u64) -> Option<i32> {
        let until = timespec(until);
        // SAFETY: waiters and time are valid for the call; only the kernel reads the words, and it
        // reports addresses that are not mapped any more.
        let woken = unsafe {
            libc::syscall(
                libc::SYS_futex_waitv,
                self.waiters.as_ptr(),
                self.waiters.len(),
                0,
                &raw const until,
                libc::CLOCK_MONOTONIC,
            )
        };
        if woken < 0 { io::Error::last_os_error().raw_os_error() } else { None }
    }
}
