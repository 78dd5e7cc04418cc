//! Allocations that one process has exported and others have imported. The owner is charged for them.
//!
//! An importer can keep the memory when its owner has freed it or has died. The units then stay
//! charged in the owner's word, until the last importer has closed the allocation or has died: an
//! importer that is alive keeps the slot of a dead owner taken.
//!
//! Each exported allocation has an entry with a bit for each importer. There is no lock. The owner
//! first marks the entry as freed and then looks for importers; an importer first sets its bit and
//! then looks whether the entry is freed. So one of the two sees the other. The process that
//! clears the last bit of a freed entry releases the owner's units. If a process is killed in
//! between, the units stay charged until the owner's slot is cleared.
//!
//! Memory that was exported by a descriptor is also kept by every open copy of the descriptor. Only
//! the caller can see these. So its entries stay until [`Account::release_closed`].

use crate::account::Account;
use crate::layout::{CARDS, FREED, HELD, NEW, SLOTS, Shared, TAKEN, UNIT, Word};
use crate::member::Member;
use hami_limits::Format;
use std::sync::atomic::Ordering::SeqCst;

/// What the account knows of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Import {
    /// Another process is charged for the memory, as long as this process has it.
    Charged,
    /// The process that was charged has died. The memory takes this many bytes.
    Uncharged(u64),
    /// The account does not list the memory.
    Unknown,
}

/// Whether a key stands for memory that is exported by a descriptor, not by a handle.
pub fn is_of_descriptor(key: u64) -> bool {
    key >> 63 == 0
}

/// A set of slots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Importers([u64; SLOTS / 64]);

impl Importers {
    pub fn contains(&self, slot: usize) -> bool {
        self.0.get(slot / 64).is_some_and(|bits| bits & 1 << (slot % 64) != 0)
    }
}

impl Shared {
    fn owner_slot(&self) -> usize {
        (self.owner.load(SeqCst) & 0xffff) as usize
    }

    fn card(&self) -> usize {
        (self.owner.load(SeqCst) >> 16) as usize
    }

    fn has_importers(&self) -> bool {
        self.importers.iter().any(|bits| bits.load(SeqCst) != 0)
    }

    fn has_importer(&self, slot: usize) -> bool {
        let bits = self.importers.get(slot / 64);
        bits.is_some_and(|bits| bits.load(SeqCst) & 1 << (slot % 64) != 0)
    }

    /// Clears the bit of an importer. Returns whether it was set.
    fn clear_importer(&self, slot: usize) -> bool {
        let Some(bits) = self.importers.get(slot / 64) else { return false };
        let bit = 1 << (slot % 64);
        bits.fetch_and(!bit, SeqCst) & bit != 0
    }

    /// Takes a freed entry without importers, so that only one process releases its units.
    fn take_freed(&self) -> bool {
        self.state.compare_exchange(FREED, NEW, SeqCst, SeqCst).is_ok()
    }
}

impl Account {
    fn shared_entries(&self) -> &[Shared] {
        match self.format() {
            Format::Current => {
                let high = self.layout().header.shared_high.load(SeqCst) as usize;
                self.layout().shared.get(..high).unwrap_or(&self.layout().shared)
            }
            Format::Previous => &[],
        }
    }

    /// Takes a free entry, the first one: the others' pages are never touched.
    fn take_shared_entry(&self, key: u64) -> Option<&Shared> {
        if self.format() != Format::Current {
            return None;
        }
        let is_free = |entry: &Shared| entry.key.compare_exchange(0, key, SeqCst, SeqCst).is_ok();
        let index = self.layout().shared.iter().position(is_free)?;
        self.layout().header.shared_high.fetch_max(index as u32 + 1, SeqCst);
        self.layout().shared.get(index)
    }

    fn shared_entry(&self, key: u64) -> Option<&Shared> {
        let mut entries = self.shared_entries().iter();
        entries.find(|entry| entry.key.load(SeqCst) == key && entry.state.load(SeqCst) != NEW)
    }

    /// The process in `slot` no longer has an import. Releases the memory if it was the last one and
    /// the owner has freed it.
    fn end_import(&self, entry: &Shared, slot: usize) {
        let is_last = entry.clear_importer(slot) && !entry.has_importers();
        if !is_last {
            return;
        }
        if is_of_descriptor(entry.key.load(SeqCst)) {
            self.note_kept();
        } else {
            self.release_freed(entry);
        }
    }

    /// Whether the owner of an entry is alive, or keeps its slot.
    fn has_owner(&self, entry: &Shared) -> bool {
        self.layout().records.get(entry.owner_slot()).is_some_and(|record| {
            record.state.load(SeqCst) == TAKEN
                && record.joined_at.load(SeqCst) == entry.joined_at.load(SeqCst)
        })
    }

    /// Releases the units of an entry that its owner has freed, and the entry.
    fn release_freed(&self, entry: &Shared) {
        if !entry.take_freed() {
            return;
        }
        let (owner, card) = (entry.owner_slot(), entry.card());
        if owner < SLOTS && card < CARDS {
            let record = &self.layout().records[owner];
            if self.has_owner(entry) {
                record.releases_begun.fetch_add(1, SeqCst);
                let units = entry.units.load(SeqCst);
                let lower = |word| Some(Word(word).release(units)?.0);
                let _ = self.layout().words[card][owner].fetch_update(SeqCst, SeqCst, lower);
                record.releases_done.fetch_add(1, SeqCst);
            }
        }
        entry.key.store(0, SeqCst);
    }

    /// Releases memory that only descriptors kept, and of which no descriptor is open. `open` returns
    /// the keys of those that are. Returns whether it has released any.
    pub fn release_closed(&self, open: impl FnOnce() -> Option<Vec<u64>>) -> bool {
        if !self.may_be_kept_by_descriptors() {
            return false;
        }
        let any_kept = &self.layout().header.any_kept;
        any_kept.store(0, SeqCst);
        let is_kept = |entry: &&Shared| {
            let key = entry.key.load(SeqCst);
            let is_freed = entry.state.load(SeqCst) == FREED;
            key != 0 && is_of_descriptor(key) && is_freed && !entry.has_importers()
        };
        let mut kept = self.shared_entries().iter().filter(is_kept).peekable();
        if kept.peek().is_none() {
            return false;
        }
        let open = open();
        let mut any_is_released = false;
        for entry in kept {
            // A process has imported the memory before it closes its descriptor: so the importers
            // are looked up after the descriptors.
            let is_closed =
                open.as_ref().is_some_and(|open| !open.contains(&entry.key.load(SeqCst)));
            if is_closed && !entry.has_importers() {
                self.release_freed(entry);
                any_is_released = true;
            } else {
                any_kept.store(1, SeqCst);
            }
        }
        any_is_released
    }

    /// Whether [`Self::release_closed`] may release anything.
    #[inline]
    pub fn may_be_kept_by_descriptors(&self) -> bool {
        self.format() == Format::Current && self.layout().header.any_kept.load(SeqCst) != 0
    }

    /// An entry of a descriptor was freed, or has lost its last importer.
    fn note_kept(&self) {
        self.layout().header.any_kept.store(1, SeqCst);
    }

    /// The process in a slot has died: its imports end, and what it owns is freed.
    pub(crate) fn end_shares(&self, slot: usize) {
        let joined_at = self.layout().records[slot].joined_at.load(SeqCst);
        for entry in self.shared_entries().iter().filter(|entry| entry.key.load(SeqCst) != 0) {
            self.end_import(entry, slot);
            let is_owner = entry.owner_slot() == slot && entry.joined_at.load(SeqCst) == joined_at;
            if is_owner {
                let _ = entry.state.compare_exchange(HELD, FREED, SeqCst, SeqCst);
                if is_of_descriptor(entry.key.load(SeqCst)) {
                    self.note_kept();
                }
                // A descriptor may still be open. Its size is known as long as the entry stays.
                let is_needed = entry.has_importers() || is_of_descriptor(entry.key.load(SeqCst));
                if !is_needed && entry.take_freed() {
                    entry.key.store(0, SeqCst);
                }
            }
        }
    }

    fn imports_of(&self, slot: usize) -> impl Iterator<Item = &Shared> {
        let is_importer =
            move |entry: &&Shared| entry.key.load(SeqCst) != 0 && entry.has_importer(slot);
        self.shared_entries().iter().filter(is_importer)
    }

    /// The slots whose processes have imported anything.
    pub(crate) fn importers(&self) -> Importers {
        let mut all = Importers::default();
        for entry in self.shared_entries().iter().filter(|entry| entry.key.load(SeqCst) != 0) {
            for (all, bits) in all.0.iter_mut().zip(&entry.importers) {
                *all |= bits.load(SeqCst);
            }
        }
        all
    }

    /// The units of a card that a process has imported and their owners have freed.
    pub(crate) fn units_kept_by(&self, slot: usize, card: usize) -> u64 {
        let is_kept = |entry: &&Shared| entry.card() == card && entry.state.load(SeqCst) == FREED;
        self.imports_of(slot).filter(is_kept).map(|entry| entry.units.load(SeqCst)).sum()
    }

    /// The units of a dead process on a card that others have imported from it, and that are not
    /// among the `dead` themselves.
    pub(crate) fn imported_units(&self, slot: usize, card: usize, dead: &[bool; SLOTS]) -> u64 {
        let joined_at = self.layout().records[slot].joined_at.load(SeqCst);
        let is_imported = |entry: &&Shared| {
            entry.key.load(SeqCst) != 0
                && (entry.owner_slot(), entry.card()) == (slot, card)
                && entry.joined_at.load(SeqCst) == joined_at
                && (0..SLOTS).any(|slot| entry.has_importer(slot) && !dead[slot])
        };
        self.shared_entries().iter().filter(is_imported).map(|entry| entry.units.load(SeqCst)).sum()
    }
}

impl Member<'_> {
    /// Notes that this process has exported an allocation of `bytes` charged bytes. Returns whether
    /// it is noted; if not, importers do not find it.
    pub fn share(&self, key: u64, card: usize, bytes: u64) -> bool {
        let account = self.account();
        if account.shared_entry(key).is_some() {
            return true;
        }
        let Some(entry) = account.take_shared_entry(key) else { return false };
        entry.state.store(NEW, SeqCst);
        entry.importers.iter().for_each(|bits| bits.store(0, SeqCst));
        entry.owner.store(u32::from(self.slot()) | (card as u32) << 16, SeqCst);
        entry.joined_at.store(self.record().joined_at.load(SeqCst), SeqCst);
        entry.units.store(bytes.div_ceil(UNIT), SeqCst);
        entry.state.store(HELD, SeqCst);
        true
    }

    /// Notes that this process has imported an allocation, if another one is charged for it.
    pub fn import(&self, key: u64) -> Import {
        let account = self.account();
        let Some(entry) = account.shared_entry(key) else { return Import::Unknown };
        let slot = usize::from(self.slot());
        let Some(bits) = entry.importers.get(slot / 64) else { return Import::Unknown };
        bits.fetch_or(1 << (slot % 64), SeqCst);
        let is_same = entry.key.load(SeqCst) == key;
        let is_kept = match entry.state.load(SeqCst) {
            HELD => true,
            // This process has the descriptor.
            FREED => is_of_descriptor(key) && account.has_owner(entry),
            _ => false,
        };
        if is_same && is_kept {
            return Import::Charged;
        }
        let bytes = entry.units.load(SeqCst) * UNIT;
        account.end_import(entry, slot);
        if is_same && is_of_descriptor(key) { Import::Uncharged(bytes) } else { Import::Unknown }
    }

    /// This process has closed what it had imported.
    pub fn close_import(&self, key: u64) {
        if let Some(entry) = self.account().shared_entry(key) {
            self.account().end_import(entry, self.slot().into());
        }
    }

    /// The driver has freed an allocation that this process had exported. Returns whether importers
    /// or descriptors may keep the memory: then it stays charged, and is released later.
    pub fn free_shared(&self, key: u64) -> bool {
        let account = self.account();
        let Some(entry) = account.shared_entry(key) else { return false };
        if entry.owner_slot() != usize::from(self.slot()) {
            return false;
        }
        entry.state.store(FREED, SeqCst);
        if is_of_descriptor(key) {
            account.note_kept();
            return true;
        }
        if entry.has_importers() || !entry.take_freed() {
            return true;
        }
        entry.key.store(0, SeqCst);
        false
    }
}
