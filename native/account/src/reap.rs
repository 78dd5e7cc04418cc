//! What happens to the slot of a process that has died.
//!
//! Whoever would otherwise refuse a request looks first whether some of the bytes in its way belong
//! to the dead. Everything that is then done to a dead process's slot is done holding its lock, so
//! it is done by one process at a time, never to a slot that lives again, and a reaper that is
//! killed leaves the rest to the next.
//!
//! Tentative bytes go at once: the driver is only called after the commit. Committed ones were
//! perhaps really allocated, and a process can be gone for us a little before the driver has
//! cleaned up after it. Handing them out too early would put the card over its limit, so they stay
//! counted until the oracle says that the driver is done, or else for [`Account::GRACE`].

use crate::account::{Account, Departed};
use crate::identity::ProcessIdentity;
use crate::layout::{CARDS, FREE, Record, SLOTS, UNIT, Word};
use crate::slot_lock::{Probe, SlotLock};
use crate::steps::{Step, at};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// At most this often all locks of an account are probed by those who only want to know, whichever
/// process they are: 256 of them cost 0.15 ms.
const PROBE_INTERVAL_MS: u64 = 10;

impl Account {
    /// How long the bytes of a dead process stay counted where the oracle knows nothing, from the
    /// first time its death is noticed.
    pub const GRACE: Duration = Duration::from_millis(750);

    /// Looks for processes that have died and reaps what may be reaped: how many bytes came back.
    ///
    /// Cheap to call often: within 10 ms of the last look, by any process, it does nothing.
    pub fn reap_dead(&self) -> u64 {
        if self.probe_is_due() { self.reap_if(|_| true) } else { 0 }
    }

    /// The same for whoever is about to be refused on a card: only those who hold some of it, but
    /// now. A process may have died since the last look, and a program that follows another at once
    /// must find what that one had.
    pub(crate) fn reap_dead_holders(&self, card: usize) -> u64 {
        self.reap_if(|slot| {
            self.words(card).get(slot).is_some_and(|word| word.load(Ordering::SeqCst) != 0)
        })
    }

    fn reap_if(&self, wanted: impl Fn(usize) -> bool) -> u64 {
        let dead = self.find_dead(wanted);
        (0..SLOTS).filter(|slot| dead[*slot]).map(|slot| self.reap_if_dead(slot)).sum()
    }

    /// Which of the slots that are wanted are taken by a process that has died. Costs some system
    /// calls, and one more for each wanted slot that is taken. Where the locks cannot be probed (after
    /// chroot, setuid, in another mount namespace), all count as alive.
    pub fn find_dead(&self, wanted: impl Fn(usize) -> bool) -> [bool; SLOTS] {
        let mut dead = [false; SLOTS];
        let Ok(probe) = Probe::open(&self.place) else { return dead };
        for (slot, record) in self.layout().records.iter().enumerate() {
            dead[slot] = wanted(slot)
                && record.state.load(Ordering::Acquire) != FREE
                && !probe.is_held(slot);
        }
        dead
    }

    fn probe_is_due(&self) -> bool {
        let probed_at = &self.layout().header.probed_at.0;
        let (last, now) = (probed_at.load(Ordering::Relaxed), boot_ms());
        // A time in the future was written before a reboot.
        let due = last > now || now - last >= PROBE_INTERVAL_MS;
        due && probed_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Reaps one slot if its process is dead: how many bytes came back.
    pub(crate) fn reap_if_dead(&self, slot: usize) -> u64 {
        let Ok(Some(_lock)) = SlotLock::try_take(&self.place, slot) else { return 0 };
        at(Step::Reaping);
        self.release_slow_lock_of(slot);
        let record = &self.layout().records[slot];
        if record.state.load(Ordering::Acquire) == FREE {
            return 0;
        }
        // It may have died while it gave something back.
        let begun = record.releases_begun.load(Ordering::SeqCst);
        record.releases_done.store(begun, Ordering::SeqCst);
        let dropped = self.lower_words(slot, Word::without_tentative);
        at(Step::TentativeDropped);
        let holds_nothing = self.words_of(slot).all(|word| word.load(Ordering::SeqCst) == 0);
        if !holds_nothing && !self.driver_has_freed(record) {
            return dropped;
        }
        record.releases_begun.store(begun.wrapping_add(1), Ordering::SeqCst);
        let cleared = self.lower_words(slot, Word::without_committed);
        record.releases_done.store(begun.wrapping_add(1), Ordering::SeqCst);
        self.retire_counters(record);
        self.retire_compute(slot);
        record.dead_since.store(0, Ordering::Relaxed);
        at(Step::BeforeFree);
        record.state.store(FREE, Ordering::Release);
        dropped + cleared
    }

    /// Lowers the slot's word of every card: by how many bytes.
    fn lower_words(&self, slot: usize, lower: fn(Word) -> Word) -> u64 {
        let mut units = 0;
        for word in self.words_of(slot) {
            let old = Word(word.load(Ordering::SeqCst));
            let new = lower(old);
            // No exchange needed: the dead do not write.
            if new != old {
                word.store(new.0, Ordering::SeqCst);
                units += old.total() - new.total();
                at(Step::CardCleared);
            }
        }
        units * UNIT
    }

    fn words_of(&self, slot: usize) -> impl Iterator<Item = &AtomicU64> {
        self.layout().words.iter().map(move |words| &words[slot])
    }

    fn driver_has_freed(&self, record: &Record) -> bool {
        let now = boot_ms();
        let noticed = record.dead_since.load(Ordering::Relaxed);
        // A time in the future was written before a reboot.
        let since = if noticed == 0 || noticed > now { now } else { noticed };
        record.dead_since.store(since, Ordering::Relaxed);
        match (self.departed)(&ProcessIdentity::of(record)) {
            Departed::Yes => true,
            Departed::No => false,
            Departed::Unknown => now - since >= Self::GRACE.as_millis() as u64,
        }
    }

    /// Likewise for the engine time of processes that are gone.
    fn retire_compute(&self, slot: usize) {
        let departed = &self.layout().header.departed_compute;
        for card in 0..CARDS {
            departed.take(card, self.compute(slot, card));
        }
    }

    /// Refusals must add up to what programs saw, also those of programs that are gone.
    fn retire_counters(&self, record: &Record) {
        let departed = &self.layout().header.departed;
        for card in 0..CARDS {
            let refusals = record.counters.refusals[card].swap(0, Ordering::Relaxed);
            departed.refusals[card].fetch_add(refusals, Ordering::Relaxed);
        }
        let anomalies = record.counters.anomalies.swap(0, Ordering::Relaxed);
        departed.anomalies.fetch_add(anomalies, Ordering::Relaxed);
    }
}

/// Milliseconds since boot, also those spent suspended: the same for all processes and namespaces.
fn boot_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
