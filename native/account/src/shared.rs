//! Memory that processes share: one has exported it, and others have imported it.
//!
//! It is charged to the slice, not to a process. An entry of the table has the charge and a bit for each
//! process that has the memory, its *holders*. When a process exports memory, its units move from its
//! word into an entry. They stay there, whichever process frees the memory or dies, until no process
//! holds it. A holder that dies keeps its bits until the driver has freed what it had (`reap`).
//!
//! A descriptor keeps memory that no process holds. So its entry stays until every copy of the
//! descriptor is closed (`descriptor`), which members find out before a request is refused, and now and
//! then when a program asks how much is free. If a descriptor cannot be looked up, its holders keep
//! their bits until they die.
//!
//! # Without a lock
//!
//! A process that fills or clears an entry first writes its slot into `state`. If it dies meanwhile, the
//! process that reaps it completes the change: without a key, the entry has no importers, and is
//! cleared; with a key, it is as it was before.
//!
//! An importer first sets its bit and then reads the state; a process that clears an entry first changes
//! the state and then reads the bits. So one of the two sees the other.
//!
//! An exporter first writes the charge into the entry and then lowers its word. A sum reads the words
//! first, so it has the units once or twice, and never lacks them. While they may be there twice, the
//! exporter's word proves no refusal (`contend`).

use crate::account::Account;
use crate::descriptor::{self, Mark};
use crate::layout::{
    CARDS, HIGH, KEPT, KEPT_NEWLY, NOBODY, READY, SHARED, SLOTS, Shared, SharedCharge, Slot, UNIT,
    VACANT,
};
use crate::member::Member;
use hami_limits::futex::pause;
use std::cell::LazyCell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// A number that no handle's memory has. The highest bit says that the memory has handles, which the
/// driver closes with their processes. Other memory has descriptors.
pub(crate) const fn is_of_descriptor(key: u64) -> bool {
    key >> 63 == 0
}

/// The sum of the charges of all entries. Two equal sums in a row are the sum at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SharedSum {
    pub units: u64,
    times: u64,
    /// The word that says how many entries were summed.
    word: u32,
}

impl Shared {
    /// The state while the process in this slot changes the entry.
    fn changed_by(slot: Slot) -> u32 {
        READY + 1 + slot.index() as u32
    }

    /// The slot of the process that has exported it; `None` if that process has died.
    fn exporter(&self) -> Option<Slot> {
        Slot::new(self.exporter.load(SeqCst))
    }

    /// The word with the bit of a slot, and this bit.
    fn holder(&self, slot: Slot) -> (&AtomicU64, u64) {
        (&self.holders[slot.index() / 64], 1 << (slot.index() % 64))
    }

    fn change_state(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    fn has_holders(&self) -> bool {
        self.holders.iter().any(|bits| bits.load(SeqCst) != 0)
    }

    fn is_held_by(&self, slot: Slot) -> bool {
        let (word, bit) = self.holder(slot);
        word.load(SeqCst) & bit != 0
    }

    /// Returns whether the bit was set before.
    fn set_holder(&self, slot: Slot) -> bool {
        let (word, bit) = self.holder(slot);
        word.fetch_or(bit, SeqCst) & bit != 0
    }

    fn clear_holder(&self, slot: Slot) {
        let (word, bit) = self.holder(slot);
        word.fetch_and(!bit, SeqCst);
    }
}

impl Account {
    /// The word that says how many entries may be in use, and this number. Its upper half counts the
    /// entries that were taken, so that nobody lowers the number below an entry that is just taken.
    fn shared_high(&self) -> (u32, usize) {
        let word = self.layout().header.shared_high.load(SeqCst);
        (word, (word & HIGH) as usize)
    }

    /// An entry was taken, before it has a charge.
    fn raise_shared_high(&self, index: usize) {
        let raise = |word: u32| {
            Some((word.wrapping_add(HIGH + 1) & !HIGH) | (word & HIGH).max(index as u32 + 1))
        };
        let _ = self.layout().header.shared_high.fetch_update(SeqCst, SeqCst, raise);
    }

    /// An entry was emptied: the sums need not read the empty entries behind the last one in use.
    fn lower_shared_high(&self) {
        let (header, entries) = (&self.layout().header, &self.layout().shared.entries);
        loop {
            let (word, high) = self.shared_high();
            let last = high.checked_sub(1).and_then(|last| entries.get(last));
            if last.is_none_or(|last| last.state.load(SeqCst) != VACANT) {
                return;
            }
            let _ = header.shared_high.compare_exchange(word, word - 1, SeqCst, SeqCst);
        }
    }

    /// The entries that may be in use.
    fn shared_entries(&self) -> impl Iterator<Item = (usize, &Shared)> {
        let (_, high) = self.shared_high();
        self.layout().shared.entries.iter().enumerate().take(high)
    }

    fn shared_entry(&self, key: u64) -> Option<(usize, &Shared)> {
        let (_, high) = self.shared_high();
        let mut keys = self.layout().shared.keys.iter().take(high);
        let index = keys.position(|it| it.load(SeqCst) == key)?;
        Some((index, &self.layout().shared.entries[index]))
    }

    fn shared_charge(&self, index: usize) -> SharedCharge {
        SharedCharge::of(self.layout().shared.charges[index].load(SeqCst))
    }

    /// The units of a card that processes share. A caller that reads the words too reads them first.
    #[inline]
    pub(crate) fn shared_units(&self, card: usize) -> u64 {
        if self.shared_high().1 == 0 { 0 } else { self.shared_sum(card).units }
    }

    #[inline(never)]
    pub(crate) fn shared_sum(&self, card: usize) -> SharedSum {
        let (word, high) = self.shared_high();
        let mut sum = SharedSum { units: 0, times: 0, word };
        for charge in self.layout().shared.charges.iter().take(high) {
            let charge = SharedCharge::of(charge.load(SeqCst));
            sum.times += charge.times;
            if charge.card == card {
                sum.units += charge.units;
            }
        }
        sum
    }

    /// Clears an entry that nobody holds. `slot` is of the caller. Returns the released units.
    fn clear_shared(
        &self,
        (index, entry): (usize, &Shared),
        slot: Slot,
        is_closed: impl Fn() -> bool,
    ) -> u64 {
        while !entry.has_holders() && entry.change_state(READY, Shared::changed_by(slot)) {
            let is_held = entry.has_holders();
            if !is_held && is_closed() {
                let units = self.shared_charge(index).units;
                self.empty_shared((index, entry));
                return units;
            }
            entry.state.store(READY, SeqCst);
            if !is_held {
                break;
            }
            // The holder may leave, and could not clear the entry meanwhile.
        }
        0
    }

    /// Makes an entry free. Its state names the caller.
    fn empty_shared(&self, (index, entry): (usize, &Shared)) {
        let table = &self.layout().shared;
        table.charges[index]
            .store(SharedCharge { units: 0, ..self.shared_charge(index) }.word(), SeqCst);
        table.keys[index].store(0, SeqCst);
        entry.state.store(VACANT, SeqCst);
        self.lower_shared_high();
    }

    /// A process no longer holds an entry. `slot` is of the caller. Returns the released units.
    fn settle_shared(&self, at: (usize, &Shared), slot: Slot) -> u64 {
        let (index, entry) = at;
        let is_of_descriptor = is_of_descriptor(self.layout().shared.keys[index].load(SeqCst));
        if is_of_descriptor && entry.file.load(SeqCst) != 0 {
            self.layout().header.any_kept.store(KEPT_NEWLY, SeqCst);
            return 0;
        }
        self.clear_shared(at, slot, || true)
    }

    /// The process in a slot has died, and the driver has freed what it had: it holds nothing any more.
    /// `reaper` is the slot of the caller. Returns the released units.
    pub(crate) fn end_shares(&self, slot: Slot, reaper: Slot) -> u64 {
        let (died, takes_over) = (Shared::changed_by(slot), Shared::changed_by(reaper));
        let mut released = 0;
        for (index, entry) in self.shared_entries() {
            if entry.state.load(SeqCst) == died {
                if self.layout().shared.keys[index].load(SeqCst) != 0 {
                    entry.change_state(died, READY);
                } else if entry.change_state(died, takes_over) {
                    self.empty_shared((index, entry));
                }
            }
            let _ = entry.exporter.compare_exchange(slot.index() as u32, NOBODY, SeqCst, SeqCst);
            entry.clear_holder(slot);
            // Also what a process has left behind that died before it could clear it.
            if entry.state.load(SeqCst) == READY && !entry.has_holders() {
                released += self.settle_shared((index, entry), reaper);
            }
        }
        released
    }

    /// Whether the process in a slot holds shared memory.
    pub(crate) fn is_holder(&self, slot: Slot) -> bool {
        self.shared_entries().any(|(_, entry)| entry.is_held_by(slot))
    }

    /// The units of a card that only dead processes hold.
    pub(crate) fn shared_by_the_dead(&self, card: usize, dead: &[bool; SLOTS]) -> u64 {
        let is_of_the_dead = |(index, entry): &(usize, &Shared)| {
            self.shared_charge(*index).card == card
                && entry.has_holders()
                && Slot::all().all(|slot| dead[slot.index()] || !entry.is_held_by(slot))
        };
        let entries = self.shared_entries().filter(is_of_the_dead);
        entries.map(|(index, _)| self.shared_charge(index).units).sum()
    }

    /// The units of a card that NVML counts for the process in a slot: for the exporter, while it has
    /// the memory; then for importers.
    pub(crate) fn shared_in(&self, slot: Slot, card: usize) -> u64 {
        // Also of a death that no process has noticed yet.
        let dead = LazyCell::new(|| self.find_dead(|_| true));
        let is_of = |(index, entry): &(usize, &Shared)| {
            let exporter = entry.exporter().filter(|exporter| entry.is_held_by(*exporter));
            entry.is_held_by(slot)
                && self.shared_charge(*index).card == card
                && exporter.is_none_or(|exporter| exporter == slot || dead[exporter.index()])
        };
        self.shared_entries().filter(is_of).map(|(index, _)| self.shared_charge(index).units).sum()
    }

    /// Whether descriptors may be all that keeps some memory: 0, [`KEPT_NEWLY`] or [`KEPT`].
    #[inline]
    pub(crate) fn any_kept(&self) -> u32 {
        self.layout().header.any_kept.load(SeqCst)
    }
}

impl Member<'_> {
    /// Moves `bytes` of this process's charge on a card to the slice, for memory that it has exported
    /// under a new key: [`descriptor::new_key`] with the descriptor's mark, or a number with the highest
    /// bit set. Returns false if there is no room; then nothing has changed.
    pub fn share(&self, key: u64, card: usize, bytes: u64, mark: Option<&Mark>) -> bool {
        let (account, slot) = (self.account(), self.slot_number());
        if card >= CARDS {
            return false;
        }
        let table = &account.layout().shared;
        let take = |entry: &Shared| entry.change_state(VACANT, Shared::changed_by(slot));
        let mut index = table.entries.iter().position(take);
        if index.is_none() && self.release_closed(SHARED) {
            index = table.entries.iter().position(take);
        }
        let Some(index) = index else { return false };
        let entry = &table.entries[index];
        account.raise_shared_high(index);
        if let Some(mark) = mark {
            let path = account.layout().header.descriptor_path.iter().zip(&mark.path);
            path.for_each(|(word, now)| word.store(*now, SeqCst));
        }
        entry.file.store(mark.map_or(0, |mark| mark.file), SeqCst);
        entry.exporter.store(slot.index() as u32, SeqCst);
        entry.set_holder(slot);
        let (times, units) = (account.shared_charge(index).times + 1, bytes.div_ceil(UNIT));
        let charge = SharedCharge { times, card, units }.word();
        self.release(card, units, || table.charges[index].store(charge, SeqCst));
        table.keys[index].store(key, SeqCst);
        entry.state.store(READY, SeqCst);
        true
    }

    /// Notes that this process is about to import memory. Returns false if it is not in the table; then
    /// this process has to charge it.
    pub fn import(&self, key: u64) -> bool {
        let (account, slot) = (self.account(), self.slot_number());
        // Another process may be about to clear the entry, and then sees that it must not.
        for _ in 0..1000 {
            let Some((index, entry)) = account.shared_entry(key) else { return false };
            let was_set = entry.set_holder(slot);
            let is_ready = entry.state.load(SeqCst) == READY;
            if is_ready && account.layout().shared.keys[index].load(SeqCst) == key {
                return true;
            }
            if !was_set {
                entry.clear_holder(slot);
                account.settle_shared((index, entry), slot);
            }
            pause(Duration::from_micros(50));
        }
        false
    }

    /// This process no longer has memory that it had exported or imported. Returns false if it is not in
    /// the table; then this process is charged for it.
    pub fn close_shared(&self, key: u64) -> bool {
        let (account, slot) = (self.account(), self.slot_number());
        let Some((index, entry)) = account.shared_entry(key) else { return false };
        if !is_of_descriptor(key) || entry.file.load(SeqCst) != 0 {
            entry.clear_holder(slot);
            account.settle_shared((index, entry), slot);
        }
        true
    }

    /// Releases memory that only descriptors kept and whose descriptors are closed. Returns whether
    /// there was any. To look up all descriptors takes time, so it looks up `most`.
    pub(crate) fn release_closed(&self, most: usize) -> bool {
        let (account, slot) = (self.account(), self.slot_number());
        let header = &account.layout().header;
        if account.any_kept() == 0 {
            return false;
        }
        header.any_kept.store(0, SeqCst);
        let path = header.descriptor_path.each_ref().map(|word| word.load(SeqCst));
        let open = descriptor::Open::find(&path);
        let is_kept = |(index, entry): &(usize, &Shared)| {
            let key = account.layout().shared.keys[*index].load(SeqCst);
            let is_wanted = key != 0 && is_of_descriptor(key);
            is_wanted && entry.state.load(SeqCst) == READY && !entry.has_holders()
        };
        let mut released = 0;
        for (index, entry) in account.shared_entries().filter(is_kept).take(most) {
            let is_closed = || {
                let key = account.layout().shared.keys[index].load(SeqCst);
                open.as_ref().is_some_and(|open| !open.has(key, entry.file.load(SeqCst)))
            };
            released += account.clear_shared((index, entry), slot, is_closed);
        }
        if account.shared_entries().any(|entry| is_kept(&entry)) {
            let _ = header.any_kept.compare_exchange(0, KEPT, SeqCst, SeqCst);
        }
        released != 0
    }
}
