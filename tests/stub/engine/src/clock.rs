//! When work on a stream is done.
//!
//! Nothing is computed, so time is the only thing a kernel costs: a stream is a number, the instant
//! at which all work queued so far is done, and a kernel of known duration moves it on. The clock is
//! an interface because exact tests want a virtual one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nanoseconds, and waiting for them.
pub trait Clock: Send + Sync {
    /// Now; never 0.
    fn now(&self) -> u64;
    /// Returns when `instant` is reached.
    fn sleep_until(&self, instant: u64);
}

/// The system's monotonic clock.
#[derive(Debug, Default)]
pub struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for the answer.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    fn sleep_until(&self, instant: u64) {
        loop {
            let now = self.now();
            if now >= instant {
                return;
            }
            std::thread::sleep(Duration::from_nanos(instant - now));
        }
    }
}

/// A clock that only moves when somebody waits: exact, and a test of seconds takes none.
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

/// The instant at which all work queued on a stream is done; 0 when there never was any.
#[derive(Debug, Default)]
pub struct Timeline(AtomicU64);

impl Timeline {
    /// When everything queued so far is done.
    pub fn done(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Queues work of a duration that can start at `earliest`; returns when it is done.
    pub fn queue(&self, earliest: u64, duration: u64) -> u64 {
        let mut done = self.done();
        loop {
            let next = done.max(earliest) + duration;
            match self.0.compare_exchange_weak(done, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return next,
                Err(seen) => done = seen,
            }
        }
    }

    /// Lets nothing queued later start before `instant`.
    pub fn join(&self, instant: u64) {
        self.0.fetch_max(instant, Ordering::AcqRel);
    }

    /// Starts anew, for a handle that is used again.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_queues_behind_work_and_never_starts_in_the_past() {
        let stream = Timeline::default();
        assert_eq!(stream.queue(100, 50), 150);
        assert_eq!(stream.queue(120, 50), 200, "behind the first");
        assert_eq!(stream.queue(1000, 1), 1001, "after a pause");
        stream.join(5000);
        stream.join(4000);
        assert_eq!(stream.queue(0, 1), 5001);
    }
}
