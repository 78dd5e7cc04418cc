//! A table of what this process holds, by the driver's address or handle.
//!
//! A free names only an address or a handle, so a table remembers the rest. There is one table for
//! each kind, because the handle of one kind can equal that of another. Every thread looks it up on
//! every free, so it is divided into shards with a lock each, and no lock is held while the driver
//! runs. Its memory comes from mmap, not malloc: the program's malloc may itself use CUDA.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use vgpu_driver::guard::lock;

/// An entry of a table.
///
/// # Safety
/// Zero bytes are a valid value. Its key is 0.
pub unsafe trait Entry: Copy {
    /// The address or handle.
    fn key(&self) -> u64;
}

/// The table itself cannot get more memory.
#[derive(Debug)]
pub struct Full;

/// What becomes of an entry after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It stays.
    Keep,
    /// It is removed.
    Remove,
}

const SHARDS: usize = 64;

/// Entries by key.
pub struct Table<E> {
    shards: [Mutex<Shard<E>>; SHARDS],
    /// The entries of all shards, so that a process without any skips the locks.
    live: AtomicUsize,
}

/// A new static table. A table without pointers costs a process no page before its first use.
macro_rules! table {
    ($entry:ty) => {{
        static TABLE: $crate::table::Table<$entry> = $crate::table::Table::new();
        &TABLE
    }};
}
pub(crate) use table;

impl<E: Entry> Default for Table<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Entry> Table<E> {
    /// An empty table.
    pub const fn new() -> Self {
        Self { shards: [const { Mutex::new(Shard::new()) }; SHARDS], live: AtomicUsize::new(0) }
    }

    /// Whether it has no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.live.load(Ordering::Relaxed) == 0
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Remembers an entry. Returns the one that had the same key, if any.
    pub fn insert(&self, entry: E) -> Result<Option<E>, Full> {
        let replaced = self.shard(entry.key()).insert(entry)?;
        if replaced.is_none() {
            self.live.fetch_add(1, Ordering::Relaxed);
        }
        Ok(replaced)
    }

    /// Forgets and returns the entry with this key.
    pub fn remove(&self, key: u64) -> Option<E> {
        if key == 0 || self.is_empty() {
            return None;
        }
        let removed = self.shard(key).remove(key)?;
        self.live.fetch_sub(1, Ordering::Relaxed);
        Some(removed)
    }

    /// The entry with this key.
    pub fn get(&self, key: u64) -> Option<E> {
        self.change(key, |_| Then::Keep).map(|(entry, _)| entry)
    }

    /// Changes the entry with this key, if there is one, and returns it as it then is. `change`
    /// must not change the key.
    pub fn change(&self, key: u64, change: impl FnOnce(&mut E) -> Then) -> Option<(E, Then)> {
        if key == 0 || self.is_empty() {
            return None;
        }
        let mut shard = self.shard(key);
        let entry = shard.find(key)?;
        let then = change(entry);
        let changed = *entry;
        if then == Then::Remove {
            shard.remove(key);
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
        Some((changed, then))
    }

    /// Forgets and returns the entries that `is_chosen`.
    pub fn remove_all(&self, is_chosen: impl Fn(&E) -> bool) -> Vec<E> {
        let mut removed = Vec::new();
        if self.is_empty() {
            return removed;
        }
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = removed.len();
            removed.extend(
                shard.entries().iter().filter(|entry| entry.key() != 0 && is_chosen(entry)),
            );
            for entry in removed.iter().skip(before) {
                shard.remove(entry.key());
            }
        }
        self.live.fetch_sub(removed.len(), Ordering::Relaxed);
        removed
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Shard<E>> {
        #[allow(clippy::indexing_slicing)] // the remainder is in bounds
        lock(&self.shards[(hash(key) >> 58) as usize % SHARDS])
    }
}

/// Fibonacci hashing. Addresses are multiples of 512 up to 2 MiB, so only the high bits of the
/// product differ; handles may be small numbers.
fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where an entry belongs in a shard, before the shard's mask.
fn home(key: u64) -> usize {
    (hash(key) >> 32) as usize
}

/// Open addressing with linear probing; at most half full; a key of 0 marks an empty entry.
struct Shard<E> {
    table: Option<NonNull<E>>,
    capacity: usize,
    used: usize,
}

// SAFETY: the mapping is reached through the shard's lock only.
unsafe impl<E: Send> Send for Shard<E> {}

impl<E> Shard<E> {
    const fn new() -> Self {
        Self { table: None, capacity: 0, used: 0 }
    }
}

impl<E: Entry> Shard<E> {
    fn entries(&mut self) -> &mut [E] {
        match self.table {
            // SAFETY: a private mapping of `capacity` entries, zeroed by the kernel, which is valid
            // by the contract of `Entry`.
            Some(table) => unsafe { std::slice::from_raw_parts_mut(table.as_ptr(), self.capacity) },
            None => &mut [],
        }
    }

    fn insert(&mut self, entry: E) -> Result<Option<E>, Full> {
        if (self.used + 1) * 2 > self.capacity {
            self.grow()?;
        }
        let replaced = self.put(entry);
        if replaced.is_none() {
            self.used += 1;
        }
        Ok(replaced)
    }

    fn put(&mut self, new: E) -> Option<E> {
        let mask = self.capacity - 1;
        let entries = self.entries();
        let mut index = home(new.key()) & mask;
        while let Some(entry) = entries.get_mut(index) {
            if entry.key() == 0 || entry.key() == new.key() {
                let before = std::mem::replace(entry, new);
                return (before.key() != 0).then_some(before);
            }
            index = (index + 1) & mask;
        }
        None
    }

    fn index_of(&mut self, key: u64) -> Option<usize> {
        let mask = self.capacity.checked_sub(1)?;
        let entries = self.entries();
        let mut index = home(key) & mask;
        loop {
            match entries.get(index)? {
                entry if entry.key() == key => return Some(index),
                entry if entry.key() == 0 => return None,
                _ => index = (index + 1) & mask,
            }
        }
    }

    fn find(&mut self, key: u64) -> Option<&mut E> {
        let index = self.index_of(key)?;
        self.entries().get_mut(index)
    }

    fn remove(&mut self, key: u64) -> Option<E> {
        let mut gap = self.index_of(key)?;
        let mask = self.capacity - 1;
        let entries = self.entries();
        let removed = *entries.get(gap)?;
        // Close the gap: move every entry that would not be found behind an empty one.
        let mut next = (gap + 1) & mask;
        while let Some(&entry) = entries.get(next).filter(|entry| entry.key() != 0) {
            let home = home(entry.key()) & mask;
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                if let Some(empty) = entries.get_mut(gap) {
                    *empty = entry;
                }
                gap = next;
            }
            next = (next + 1) & mask;
        }
        if let Some(empty) = entries.get_mut(gap) {
            // SAFETY: zero bytes are a valid, empty entry by the contract of `Entry`.
            *empty = unsafe { std::mem::zeroed() };
        }
        self.used -= 1;
        Some(removed)
    }

    #[cold]
    fn grow(&mut self) -> Result<(), Full> {
        let capacity = (self.capacity * 2).max(256);
        let table = map(capacity).ok_or(Full)?;
        let mut old =
            std::mem::replace(self, Self { table: Some(table), capacity, used: self.used });
        for &entry in old.entries().iter().filter(|entry| entry.key() != 0) {
            self.put(entry);
        }
        old.unmap();
        Ok(())
    }

    fn unmap(self) {
        if let Some(table) = self.table {
            // SAFETY: our own mapping, not used again.
            unsafe { libc::munmap(table.as_ptr().cast(), self.capacity * size_of::<E>()) };
        }
    }
}

fn map<E>(capacity: usize) -> Option<NonNull<E>> {
    // SAFETY: a new private mapping; nothing existing is touched.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            capacity * size_of::<E>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::collections::hash_map::Entry as Place;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Number {
        key: u64,
        value: u64,
    }

    // SAFETY: numbers, of which the key is one.
    unsafe impl Entry for Number {
        fn key(&self) -> u64 {
            self.key
        }
    }

    fn number(key: u64) -> Number {
        Number { key, value: key ^ 0x55 }
    }

    /// The table against a HashMap, over a long history of colliding and wrapping keys.
    #[test]
    fn a_shard_behaves_like_a_map() {
        for shift in [0, 8, 21] {
            let mut shard = Shard::new();
            let mut model = HashMap::new();
            let mut random = 88_172_645_463_325_252_u64;
            for _ in 0..100_000 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let key = (1 + random % 3000) << shift;
                if random & (1 << 40) == 0 {
                    if let Place::Vacant(vacant) = model.entry(key) {
                        let new = *vacant.insert(number(key));
                        assert!(shard.insert(new).is_ok());
                    }
                } else {
                    assert_eq!(shard.find(key).copied(), model.get(&key).copied());
                    assert_eq!(shard.remove(key), model.remove(&key));
                }
                assert_eq!(shard.used, model.len());
            }
            let mut left: Vec<_> =
                shard.entries().iter().filter(|entry| entry.key != 0).copied().collect();
            left.sort_by_key(|entry| entry.key);
            let mut expected: Vec<_> = model.into_values().collect();
            expected.sort_by_key(|entry| entry.key);
            assert_eq!(left, expected);
            shard.unmap();
        }
    }

    #[test]
    fn a_key_that_is_handed_out_again_is_remembered_once() {
        let table = Table::new();
        let (first, second) = (number(512), Number { key: 512, value: 7 });
        assert!(matches!(table.insert(first), Ok(None)));
        assert!(matches!(table.insert(second), Ok(Some(before)) if before == first));
        assert_eq!(table.remove(512), Some(second));
        assert_eq!(table.remove(512), None);
        assert!(table.is_empty());
    }

    #[test]
    fn an_entry_changes_in_place_until_it_is_removed() {
        let table = Table::new();
        assert_eq!(table.get(9), None);
        assert!(table.insert(number(9)).is_ok());
        assert_eq!(table.get(9), Some(number(9)));
        let add = |entry: &mut Number| {
            entry.value += 1;
            if entry.value < 0x5e { Then::Keep } else { Then::Remove }
        };
        assert_eq!(table.change(9, add), Some((Number { key: 9, value: 0x5d }, Then::Keep)));
        assert_eq!(table.change(9, add), Some((Number { key: 9, value: 0x5e }, Then::Remove)));
        assert_eq!(table.change(9, add), None);
        assert!(table.is_empty());
    }

    #[test]
    fn chosen_entries_are_removed_and_others_stay() {
        let table = Table::new();
        for key in 1..=1000 {
            assert!(table.insert(number(key)).is_ok());
        }
        assert_eq!(table.remove_all(|entry| entry.key % 3 == 0).len(), 333);
        assert_eq!(table.remove(3), None);
        assert_eq!(table.remove(4), Some(number(4)));
        assert_eq!(table.remove_all(|_| true).len(), 666);
        assert!(table.is_empty());
    }
}
