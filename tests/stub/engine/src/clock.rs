//! A process's clock: the time, and waiting for an instant.
//!
//! It is an interface because exact tests need a virtual clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds, and waiting for them.
pub trait Clock: Send + Sync {
    /// Now; never 0.
    fn now(&self) -> u64;
    /// Returns when `instant` is reached.
    fn sleep_until(&self, instant: u64);
}

/// The machine's monotonic clock: the server and its clients may be in different time namespaces.
#[derive(Debug, Default)]
pub struct RealClock;

/// How far the clock of this process's time namespace is ahead, in nanoseconds.
fn ahead() -> i64 {
    static AHEAD: OnceLock<i64> = OnceLock::new();
    *AHEAD.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        let mut words = text.split_whitespace().skip(1).map_while(|word| word.parse::<i64>().ok());
        words.next().unwrap_or(0) * 1_000_000_000 + words.next().unwrap_or(0)
    })
}

impl Clock for RealClock {
    fn now(&self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for the answer.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).wrapping_add_signed(-ahead())
    }

    fn sleep_until(&self, instant: u64) {
        let own = instant.wrapping_add_signed(ahead());
        let until = libc::timespec {
            tv_sec: (own / 1_000_000_000) as libc::time_t,
            tv_nsec: (own % 1_000_000_000) as libc::c_long,
        };
        while self.now() < instant {
            // SAFETY: `until` is a valid instant; a signal may end the sleep early.
            unsafe {
                let clock = libc::CLOCK_MONOTONIC;
                let none = std::ptr::null_mut();
                libc::clock_nanosleep(clock, libc::TIMER_ABSTIME, &raw const until, none);
            }
        }
    }
}

/// A clock that moves only when the process waits: it is exact, and a wait of seconds takes no
/// time.
#[derive(Debug)]
pub struct VirtualClock(AtomicU64);

impl Default for VirtualClock {
    fn default() -> Self {
        Self(AtomicU64::new(1))
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn sleep_until(&self, instant: u64) {
        self.0.fetch_max(instant, Ordering::AcqRel);
    }
}
