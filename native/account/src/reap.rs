//! Reaping: clearing the slots of dead processes.
//!
//! Before a request is refused, the process checks whether dead processes still hold memory of the
//! card. Their tentative bytes are dropped at once, because the driver is only called after the
//! commit. Their committed bytes may have been allocated, and the driver may still be freeing them
//! although the process is gone. If they were used again too early, the slice would exceed its
//! limit on the card. So they count until the oracle (the function of [`Account::attach_with`])
//! answers that the driver has freed them. If it does not know, they count for
//! [`Account::GRACE`].
//!
//! # Without a lock
//!
//! A process may be stopped while it reaps, so a member holds no lock meanwhile. Several members
//! may reap a slot at the same time. If two of them do the same step, that does no harm: words are
//! lowered by compare-and-swap, counters are moved by swaps, and both store the same values.
//!
//! But a reaper that is late must not clear the slot of a new process. So a member first writes the
//! number of the slot into its own record ([`Reaping`]), and then checks once more that the slot's
//! process is dead. A process that joins takes the slot's locks first, and then checks all records.
//! If a living member has written the slot's number there, the process does not join in that slot.
//! So at least one of the two sees the other.
//!
//! A process that is not a member has no record. It takes over the locks of the dead process
//! instead, so that no process can join in the slot meanwhile.

use crate::account::{Account, Dead, Departed};
use crate::identity::ProcessIdentity;
use crate::layout::{CARDS, FREE, KEPT_NEWLY, Record, SHARED, SLOTS, Slot, TAKEN, UNIT, Word};
use crate::member::Member;
use crate::slot_lock::{Probe, SlotLock};
use crate::steps::{Step, at};
use hami_limits::clock::monotonic_ns;
use hami_limits::futex::pause;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often, at most, all locks of an account are probed if no request is about to be refused. All
/// processes together count. To probe 256 locks costs 0.15 ms.
const PROBE_INTERVAL_MS: u64 = 10;

/// For how long after the notice of a death the memory of the process counts as free in readings:
/// as long as a request waits for it.
const AWAITED_MS: u64 = Member::DEPARTURE.as_millis() as u64;

/// How many descriptors are looked up then, at most. To look one up costs 20 us if there are thousands.
const LOOK_UPS: usize = 64;

/// How long a thread waits if another thread of its process reaps. The other thread may be calling
/// NVML.
const REAP_WAIT: Duration = Duration::from_millis(50);

impl Account {
    /// How long the bytes of a dead process count if the oracle has no answer, from the time when
    /// its death was first noticed.
    pub const GRACE: Duration = Duration::from_millis(750);

    /// Looks for dead processes and reaps their slots as far as possible. It returns the bytes that
    /// came back. It is for processes that are not members; members call [`Member::reap_dead`]. It
    /// opens a file whose path the members have written.
    ///
    /// It may be called often: within 10 ms of the last call by any process it does nothing, except
    /// for the first call of this process.
    pub fn reap_dead(&self) -> u64 {
        if !self.probe_is_due() {
            return 0;
        }
        let dead = self.find_dead(|_| true);
        let dead = Slot::all().filter(|slot| dead[slot.index()]);
        let reaped = dead.map(|slot| self.reap_locked(slot)).sum();
        // Only a member changes entries of living processes: others see when it dies.
        if self.any_kept() != 0
            && let Ok(Some(member)) = self.claim_free_slot()
        {
            member.release_closed(SHARED);
            let slot = member.slot_number();
            drop(member);
            self.reap_locked(slot);
        }
        reaped
    }

    /// Reaps one slot if its process is dead. It returns the bytes that came back.
    pub(crate) fn reap_locked(&self, slot: Slot) -> u64 {
        match SlotLock::try_take(&self.file, slot.index()) {
            Ok(Some(_lock)) => self.clear(slot, slot),
            _ => 0,
        }
    }

    /// The wanted slots that belong to dead processes. It costs one to three system calls for each
    /// wanted slot that is taken. If the locks cannot be probed, because the program has closed the
    /// descriptor and the file cannot be opened again, a process counts as alive while its PID exists,
    /// and all processes in other PID namespaces do.
    pub fn find_dead(&self, wanted: impl Fn(usize) -> bool) -> [bool; SLOTS] {
        let mut dead = [false; SLOTS];
        let probe = Probe::open(&self.file);
        let is_dead = |slot: usize, record: &Record| match &probe {
            Ok(probe) => !probe.is_held(slot),
            Err(_) => ProcessIdentity::of(record).has_no_pid(),
        };
        for (slot, record) in self.layout().records[..self.high_water()].iter().enumerate() {
            dead[slot] = record.state.load(Ordering::Acquire) != FREE
                && wanted(slot)
                && is_dead(slot, record);
        }
        dead
    }

    fn probe_is_due(&self) -> bool {
        let probed_at = &self.layout().header.deaths.0.probed_at;
        let (last, now) = (probed_at.load(Ordering::Relaxed), boot_ms());
        if !self.has_probed.load(Ordering::Relaxed) {
            // A process that has just started may have been started because another one has died.
            self.has_probed.store(true, Ordering::Relaxed);
            probed_at.store(now, Ordering::Relaxed);
            return true;
        }
        // A time in the future was written before a reboot.
        let due = last > now || now - last >= PROBE_INTERVAL_MS;
        due && probed_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Clears the slot of a dead process as far as the driver has freed its memory. It returns the
    /// bytes that came back through this call. No process may join in the slot meanwhile. `reaper` is
    /// the slot of the caller, or the same slot if the caller is no member.
    pub(crate) fn clear(&self, number: Slot, reaper: Slot) -> u64 {
        at(Step::Reaping);
        let slot = number.index();
        let record = &self.layout().records[slot];
        if record.state.load(Ordering::Acquire) == FREE {
            return 0;
        }
        self.notice(record);
        let dropped = self.lower_words(slot, Word::without_tentative);
        at(Step::TentativeDropped);
        let holds_nothing = self.words_of(slot).all(|word| word.load(Ordering::SeqCst) == 0)
            && !self.is_holder(number);
        if !holds_nothing && !self.driver_has_freed(slot, record) {
            return dropped;
        }
        let shared = self.end_shares(number, reaper) * UNIT;
        // From here on, the words of this slot prove no refusal (`Member::committed_at_once`).
        record.releases_begun.fetch_add(1, Ordering::SeqCst);
        let cleared = self.lower_words(slot, Word::without_committed);
        self.retire_counters(record);
        self.retire_compute(slot);
        at(Step::BeforeFree);
        record.state.store(FREE, Ordering::Release);
        dropped + cleared + shared
    }

    /// Stores when the death of a process was first noticed. If the process died during an uncharge,
    /// this also marks that release as done, so that the remaining bytes count in
    /// `Member::committed_at_once` again.
    fn notice(&self, record: &Record) {
        let begun = record.releases_begun.load(Ordering::SeqCst);
        let (now, noticed) = (boot_ms(), record.dead_since.load(Ordering::SeqCst));
        // A time in the future was written before a reboot.
        if noticed != 0 && noticed <= now {
            return;
        }
        let done = record.releases_done.load(Ordering::SeqCst);
        let awaited_until = &self.layout().header.deaths.0.awaited_until;
        awaited_until.fetch_max(now + AWAITED_MS, Ordering::SeqCst);
        // Only one process succeeds here, and no process clears committed bytes before that.
        let first =
            record.dead_since.compare_exchange(noticed, now, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_ok() {
            let _ = record.releases_done.compare_exchange(
                done,
                begun,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
        }
    }

    /// The bytes of a card for which requests wait: the dead processes had them, and the driver may
    /// not have freed them yet.
    #[cold]
    pub(crate) fn awaited(&self, card: usize, until: u64) -> u64 {
        let now = boot_ms();
        // A time far in the future was written before a reboot.
        if until <= now || until > now + AWAITED_MS {
            let awaited_until = &self.layout().header.deaths.0.awaited_until;
            let _ = awaited_until.compare_exchange(until, 0, Ordering::SeqCst, Ordering::SeqCst);
            return 0;
        }
        let words = self.words(card);
        let mut dead = [false; SLOTS];
        for ((dead, record), _) in dead.iter_mut().zip(&self.layout().records).zip(words) {
            *dead = record.state.load(Ordering::Acquire) == TAKEN
                && is_awaited(record.dead_since.load(Ordering::SeqCst), now);
        }
        let of_the_dead = words.iter().zip(dead).filter(|(_, dead)| *dead);
        let charged = of_the_dead.map(|(word, _)| Word(word.load(Ordering::Relaxed)).committed());
        (charged.sum::<u64>() + self.shared_by_the_dead(card, &dead)) * UNIT
    }

    /// Lowers the slot's word of every card. It returns by how many bytes.
    fn lower_words(&self, slot: usize, lower: impl Fn(Word) -> Word) -> u64 {
        let mut units = 0;
        for word in self.words_of(slot) {
            let lowered = |old| Some(lower(Word(old)).0).filter(|new| *new != old);
            if let Ok(old) = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lowered) {
                units += held(Word(old)) - held(lower(Word(old)));
                at(Step::CardCleared);
            }
        }
        units * UNIT
    }

    fn words_of(&self, slot: usize) -> impl Iterator<Item = &AtomicU64> {
        self.layout().words.iter().map(move |words| &words[slot])
    }

    fn driver_has_freed(&self, slot: usize, record: &Record) -> bool {
        let identity = ProcessIdentity::of(record);
        let dead = Dead { slot, joined_at: record.joined_at.load(Ordering::Relaxed), identity };
        match (self.departed)(&dead) {
            Departed::Yes => true,
            Departed::No => false,
            Departed::Unknown => {
                let (now, noticed) = (boot_ms(), record.dead_since.load(Ordering::SeqCst));
                noticed != 0 && now.saturating_sub(noticed) >= Self::GRACE.as_millis() as u64
            }
        }
    }

    /// Adds the engine times of the slot to the sums in the header.
    fn retire_compute(&self, slot: usize) {
        let departed = &self.layout().header.departed_compute;
        for card in 0..CARDS {
            departed.retire(card, self.compute(slot, card));
        }
    }

    /// Adds the counters of the slot to those in the header, so that refusals add up to what
    /// programs saw, including programs that have exited.
    fn retire_counters(&self, record: &Record) {
        let departed = &self.layout().header.departed;
        for card in 0..CARDS {
            let refusals = record.counters.refusals[card].swap(0, Ordering::Relaxed);
            departed.refusals[card].fetch_add(refusals, Ordering::Relaxed);
        }
        let anomalies = record.counters.anomalies.swap(0, Ordering::Relaxed);
        departed.anomalies.fetch_add(anomalies, Ordering::Relaxed);
    }

    /// Whether a living member may be reaping this slot.
    pub(crate) fn is_being_reaped(&self, slot: usize) -> bool {
        let name = slot as u32 + 1;
        let names = |record: &Record| record.reaping.load(Ordering::SeqCst) == name;
        let records = &self.layout().records[..self.high_water()];
        if !records.iter().any(names) {
            return false;
        }
        // If the locks cannot be probed, the reaper counts as alive.
        let Ok(probe) = Probe::open(&self.file) else { return true };
        records.iter().enumerate().any(|(reaper, record)| names(record) && probe.is_held(reaper))
    }
}

impl Member<'_> {
    /// Looks for dead processes and reaps their slots as far as possible. It returns the bytes that
    /// came back.
    ///
    /// It may be called often: within 10 ms of the last call by any process it does nothing, except
    /// for the first call of this process.
    pub fn reap_dead(&self) -> u64 {
        let account = self.account();
        let is_due = account.probe_is_due();
        if is_due || account.any_kept() == KEPT_NEWLY { self.look(is_due) } else { 0 }
    }

    /// Looks for closed descriptors, and first for dead processes if that `is_due`.
    #[cold]
    fn look(&self, is_due: bool) -> u64 {
        let dead = self.account().find_dead(|_| is_due);
        let dead = Slot::all().filter(|slot| dead[slot.index()]);
        let reaped = dead.map(|slot| self.reap(slot)).sum();
        self.release_closed(LOOK_UPS);
        reaped
    }

    /// Reaps the dead processes that hold memory of a card. It returns the units of that card that
    /// the driver may not have freed yet.
    ///
    /// It probes the locks at each call: a process may have died since the last call, and a program
    /// that starts right after another one has ended must get the memory of that one.
    pub(crate) fn reap_dead_holders(&self, card: usize) -> u64 {
        let words = self.account().words(card);
        let holds = |slot: usize| words.get(slot).map_or(0, |word| word.load(Ordering::SeqCst));
        let account = self.account();
        let is_holder = |slot| Slot::new(slot).is_some_and(|slot| account.is_holder(slot));
        let dead = account.find_dead(|slot| holds(slot) != 0 || is_holder(slot));
        for slot in Slot::all().filter(|slot| dead[slot.index()]) {
            self.reap(slot);
        }
        let charged =
            (0..SLOTS).filter(|slot| dead[*slot]).map(|slot| Word(holds(slot)).committed());
        charged.sum::<u64>() + account.shared_by_the_dead(card, &dead)
    }

    /// Reaps one slot, if its process is dead. Does nothing if another thread of this process reaps
    /// for longer than [`REAP_WAIT`].
    fn reap(&self, slot: Slot) -> u64 {
        let Some(_reaping) = Reaping::begin(self.record(), slot.index()) else { return 0 };
        let dead = self.account().find_dead(|wanted| wanted == slot.index());
        if dead[slot.index()] { self.account().clear(slot, self.slot_number()) } else { 0 }
    }
}

/// While this exists, no process joins in the slot whose number is in the record.
struct Reaping<'a>(&'a Record);

impl<'a> Reaping<'a> {
    fn begin(record: &'a Record, slot: usize) -> Option<Self> {
        let deadline = Instant::now() + REAP_WAIT;
        let name = slot as u32 + 1;
        while record.reaping.compare_exchange(0, name, Ordering::SeqCst, Ordering::SeqCst).is_err()
        {
            if Instant::now() >= deadline {
                return None;
            }
            pause(Duration::from_micros(50));
        }
        Some(Self(record))
    }
}

impl Drop for Reaping<'_> {
    fn drop(&mut self) {
        self.0.reaping.store(0, Ordering::SeqCst);
    }
}

impl Record {
    /// Prepares the record for a new process: no release is in progress, and no death was noticed.
    /// Only the process that joins calls it, while no process reaps the slot.
    pub(crate) fn reset(&self) {
        let begun = self.releases_begun.load(Ordering::SeqCst);
        self.releases_done.store(begun, Ordering::SeqCst);
        self.dead_since.store(0, Ordering::SeqCst);
        self.reaping.store(0, Ordering::SeqCst);
    }
}

/// The committed and the requested units of a word.
fn held(word: Word) -> u64 {
    word.committed() + word.tentative()
}

/// Whether requests wait for the memory of a process whose death was noticed at this time; 0 = never.
pub(crate) fn is_awaited(noticed: u64, now: u64) -> bool {
    // A time in the future was written before a reboot.
    noticed != 0 && (noticed > now || now - noticed < AWAITED_MS)
}

/// Milliseconds since boot.
pub(crate) fn boot_ms() -> u64 {
    monotonic_ns() / 1_000_000
}
