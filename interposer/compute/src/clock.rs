//! The clock, and the two ways to wait for something: the library waits in no other way.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use hami_limits::clock;
pub(crate) use hami_limits::clock::monotonic_ns as now;

/// A counter to wait for: a futex word that is incremented when there is something to look at.
pub(crate) struct Wake {
    count: AtomicU32,
    /// Threads that may be asleep. If there is none, a wake-up is no system call.
    waiting: AtomicU32,
}

impl Wake {
    pub(crate) const fn new() -> Self {
        Self { count: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// The counter. Read it before looking, and pass it to [`Self::wait_until`].
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Wakes all threads that wait.
    pub(crate) fn wake_all(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (wake, all) = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX);
        // SAFETY: the word is ours and lives as long as the process.
        unsafe { libc::syscall(libc::SYS_futex, self.count.as_ptr(), wake, all) };
    }

    /// Returns when the counter is no longer `seen`, or at `instant`, or sooner.
    pub(crate) fn wait_until(&self, seen: u32, instant: u64) {
        let until = clock::timespec(instant);
        let wait = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let (no_second, any) = (0_usize, u32::MAX);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the word is ours and lives as long as the process; `until` is a local variable.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.count.as_ptr(),
                wait,
                seen,
                &raw const until,
                no_second,
                any,
            )
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A wake-up for one thread that sleeps until a time of its own choice.
pub(crate) struct Alarm {
    pub(crate) wake: Wake,
    set_for: AtomicU64,
    has_no_thread: AtomicBool,
}

impl Alarm {
    pub(crate) const fn new() -> Self {
        Self {
            wake: Wake::new(),
            set_for: AtomicU64::new(0),
            has_no_thread: AtomicBool::new(false),
        }
    }

    /// Whether the thread could not be created. Then other threads must do its work.
    pub(crate) fn has_no_thread(&self) -> bool {
        self.has_no_thread.load(Ordering::Relaxed)
    }

    pub(crate) fn set_has_no_thread(&self, has_none: bool) {
        self.has_no_thread.store(has_none, Ordering::Relaxed);
    }

    /// The thread is about to sleep until `instant`.
    pub(crate) fn set(&self, instant: u64) {
        self.set_for.store(instant, Ordering::Release);
    }

    /// Wakes the thread now if it would sleep longer than until `instant`.
    pub(crate) fn wake_by(&self, instant: u64) {
        if self.set_for.load(Ordering::Acquire) > instant {
            self.wake.wake_all();
        }
    }
}

/// The alarm of the meter. It is in this module because the limiter, which the meter uses, also
/// wakes the meter.
pub(crate) static METER: Alarm = Alarm::new();
