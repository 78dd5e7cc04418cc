//! The slow lock: the lock of a charge's third step.
//!
//! Two requests that fit one at a time but not together would wait for each other for ever if both
//! stayed published; under this lock they are decided one at a time. It is a futex word that outlives
//! any holder. The word names the slot that holds it, so a waiter can detect that the holder is dead,
//! and reaping the holder releases the lock.

use crate::account::Account;
use crate::layout::SLOTS;
use crate::steps::{Step, at};
use hami_limits::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a waiter waits before it checks whether the holder is alive.
const PATIENCE: Duration = Duration::from_millis(2);

pub(crate) struct SlowLock<'a> {
    word: &'a AtomicU32,
    name: u32,
}

impl Account {
    /// Takes the slow lock for a slot; `None` after the deadline.
    pub(crate) fn slow_lock(&self, slot: usize, deadline: Instant) -> Option<SlowLock<'_>> {
        let word = self.slow_word();
        let name = name_of(slot);
        loop {
            let Err(holder) = word.compare_exchange(0, name, Ordering::Acquire, Ordering::Relaxed)
            else {
                at(Step::SlowLocked);
                return Some(SlowLock { word, name });
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            futex::wait(word, holder, left.min(PATIENCE));
            if word.load(Ordering::Relaxed) == holder {
                self.release_dead_holder(holder);
            }
        }
    }

    /// Releases the slow lock of a dead process. The caller holds the process's slot lock.
    pub(crate) fn release_slow_lock_of(&self, slot: usize) {
        release(self.slow_word(), name_of(slot));
    }

    fn release_dead_holder(&self, holder: u32) {
        match (holder as usize).checked_sub(1) {
            Some(slot) if slot < SLOTS => _ = self.reap_if_dead(slot),
            // No process writes such a word.
            _ => release(self.slow_word(), holder),
        }
    }

    fn slow_word(&self) -> &AtomicU32 {
        &self.layout().header.slow_lock.0
    }
}

impl Drop for SlowLock<'_> {
    fn drop(&mut self) {
        at(Step::BeforeSlowUnlock);
        release(self.word, self.name);
    }
}

fn name_of(slot: usize) -> u32 {
    slot as u32 + 1
}

fn release(word: &AtomicU32, name: u32) {
    if word.compare_exchange(name, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
        futex::wake_one(word);
    }
}
