//! Reaping: clearing the slots of dead processes.
//!
//! Before a process is refused, it checks whether some of the bytes in its way belong to dead processes.
//! All work on a dead process's slot is done while holding the slot's lock. So only one process does it
//! at a time, never on a slot that has a new process, and the next reaper finishes the work of a killed
//! one.
//!
//! Tentative bytes are dropped at once, because the driver is only called after the commit. Committed
//! bytes may have been allocated, and the driver may still be freeing them after the process has
//! disappeared for us. If they were reused too early, the card would be over its limit. So they count
//! until the oracle reports that the driver has freed them, or without an oracle's answer for
//! [`Account::GRACE`].

use crate::account::{Account, Departed};
use crate::identity::ProcessIdentity;
use crate::layout::{CARDS, FREE, Record, SLOTS, UNIT, Word};
use crate::slot_lock::{Probe, SlotLock};
use crate::steps::{Step, at};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often all locks of an account are probed when no request is about to be refused, over all
/// processes together. To probe 256 locks costs 0.15 ms.
const PROBE_INTERVAL_MS: u64 = 10;

impl Account {
    /// How long the bytes of a dead process count if the oracle has no answer, from the time when its
    /// death was first noticed.
    pub const GRACE: Duration = Duration::from_millis(750);

    /// Looks for dead processes and reaps their slots as far as possible. It returns the bytes that came
    /// back.
    ///
    /// It may be called often: within 10 ms of the last call by any process it does nothing.
    pub fn reap_dead(&self) -> u64 {
        if self.probe_is_due() { self.reap_if(|_| true) } else { 0 }
    }

    /// The same before a refusal on a card: only for processes that hold memory of that card, but
    /// always. A process may have died since the last call, and a program that starts right after
    /// another one must get the memory of that one.
    pub(crate) fn reap_dead_holders(&self, card: usize) -> u64 {
        self.reap_if(|slot| {
            self.words(card).get(slot).is_some_and(|word| word.load(Ordering::SeqCst) != 0)
        })
    }

    fn reap_if(&self, wanted: impl Fn(usize) -> bool) -> u64 {
        let dead = self.find_dead(wanted);
        (0..SLOTS).filter(|slot| dead[*slot]).map(|slot| self.reap_if_dead(slot)).sum()
    }

    /// The wanted slots that belong to dead processes. It costs some system calls, and one more for
    /// each wanted slot that is taken. If the locks cannot be probed (after chroot or setuid, or in
    /// another mount namespace), all processes count as alive.
    pub fn find_dead(&self, wanted: impl Fn(usize) -> bool) -> [bool; SLOTS] {
        let mut dead = [false; SLOTS];
        let Ok(probe) = Probe::open(&self.file) else { return dead };
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

    /// Reaps one slot if its process is dead. It returns the bytes that came back.
    pub(crate) fn reap_if_dead(&self, slot: usize) -> u64 {
        let Ok(Some(_lock)) = SlotLock::try_take(&self.file, slot) else { return 0 };
        at(Step::Reaping);
        self.release_slow_lock_of(slot);
        let record = &self.layout().records[slot];
        if record.state.load(Ordering::Acquire) == FREE {
            return 0;
        }
        // The process may have died during an uncharge.
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

    /// Lowers the slot's word of every card. It returns by how many bytes.
    fn lower_words(&self, slot: usize, lower: fn(Word) -> Word) -> u64 {
        let mut units = 0;
        for word in self.words_of(slot) {
            let old = Word(word.load(Ordering::SeqCst));
            let new = lower(old);
            // No exchange is needed: a dead process does not write.
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

    /// Adds the engine times of the slot to the sums in the header.
    fn retire_compute(&self, slot: usize) {
        let departed = &self.layout().header.departed_compute;
        for card in 0..CARDS {
            departed.retire(card, self.compute(slot, card));
        }
    }

    /// Adds the counters of the slot to those in the header, so that refusals add up to what programs
    /// saw, including programs that have exited.
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
