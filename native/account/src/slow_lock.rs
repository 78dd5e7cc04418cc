//! The slow lock: the lock of a charge's third step (see the crate's documentation).
//!
//! If two requests fit one at a time but not together, and both stayed published, they would wait
//! for each other for ever. This lock lets only one request at a time stay published. It is a futex
//! word that contains the number of the holder's slot.
//!
//! The lock serves progress, not safety: a charge checks the limit by itself, so two holders at
//! once do no harm. That is why a waiter may take the lock over from a holder that is stopped or
//! dead.

use crate::account::Account;
use crate::steps::{Step, at};
use hami_limits::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a waiter sleeps before it checks the lock again.
const PATIENCE: Duration = Duration::from_millis(2);
/// How long a waiter sees the same holder before it takes the lock over. A holder that runs
/// releases the lock sooner.
const TAKE_OVER: Duration = Duration::from_millis(10);

pub(crate) struct SlowLock<'a> {
    word: &'a AtomicU32,
    name: u32,
}

impl Account {
    /// Takes the slow lock for a slot; `None` after the deadline.
    pub(crate) fn slow_lock(&self, slot: usize, deadline: Instant) -> Option<SlowLock<'_>> {
        let word = &self.layout().header.slow_lock.0;
        let name = slot as u32 + 1;
        let (mut waited_for, mut since) = (0, Instant::now());
        loop {
            let holder = word.load(Ordering::Relaxed);
            let now = Instant::now();
            if holder != waited_for {
                (waited_for, since) = (holder, now);
            }
            if (holder == 0 || now >= since + TAKE_OVER)
                && word.compare_exchange(holder, name, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                at(Step::SlowLocked);
                return Some(SlowLock { word, name });
            }
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return None;
            }
            if holder != 0 {
                futex::wait(word, holder, left.min(PATIENCE));
            }
        }
    }
}

impl Drop for SlowLock<'_> {
    fn drop(&mut self) {
        at(Step::BeforeSlowUnlock);
        // Another process may have taken the lock over.
        let held = self.word.compare_exchange(self.name, 0, Ordering::Release, Ordering::Relaxed);
        if held.is_ok() {
            futex::wake_one(self.word);
        }
    }
}
