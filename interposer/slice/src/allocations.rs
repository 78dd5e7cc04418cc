//! The allocations of this process: pointer → size, card and owner.
//!
//! A free names only a pointer, so this table remembers the rest. Every thread looks it up on every
//! free, so it is divided into shards with a lock each, and no lock is held while the driver runs.
//! Its memory comes from mmap, not malloc: the program's malloc may itself use CUDA.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use driver_sys::cuda::{CUcontext, CUdevice};
use vgpu_driver::guard::lock;

/// One live allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Where it starts on the card.
    pub pointer: u64,
    /// The charged bytes.
    pub bytes: u64,
    /// The object whose end frees it.
    pub owner: Owner,
    /// The driver's number of the card.
    pub device: CUdevice,
    /// When it was created; see [`Epoch`].
    epoch: u32,
}

impl Allocation {
    /// An allocation of this moment.
    pub fn new(pointer: u64, bytes: u64, owner: Owner, device: CUdevice) -> Self {
        Self { pointer, bytes, owner, device, epoch: EPOCH.load(Ordering::Relaxed) }
    }
}

/// The context or pool with which an allocation ends, if the program does not free it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(usize);

impl Owner {
    /// A context, by its handle: compared, never used as a pointer.
    pub fn context(context: CUcontext) -> Self {
        Self(context as usize)
    }

    /// A memory pool, by its index in [`crate::pools`]. The number is odd, and no context's address
    /// is.
    pub fn pool(index: usize) -> Self {
        Self(index << 1 | 1)
    }

    /// The index of the pool, if it is one.
    pub fn as_pool(self) -> Option<usize> {
        (self.0 & 1 == 1).then_some(self.0 >> 1)
    }
}

const EMPTY: Allocation = Allocation { pointer: 0, bytes: 0, owner: Owner(0), device: 0, epoch: 0 };

/// A moment before a call that may end a context. The driver reuses handles, so it separates the
/// allocations that end with the context from later ones in a new context with the same handle.
#[derive(Clone, Copy)]
pub struct Epoch(u32);

static EPOCH: AtomicU32 = AtomicU32::new(0);

impl Epoch {
    /// Now: allocations so far are older, later ones are newer.
    pub fn now() -> Self {
        Self(EPOCH.fetch_add(1, Ordering::Relaxed))
    }

    fn covers(self, allocation: &Allocation) -> bool {
        self.0.wrapping_sub(allocation.epoch) < u32::MAX / 2
    }
}

/// The table itself cannot get more memory.
#[derive(Debug)]
pub struct Full;

const SHARDS: usize = 64;
static TABLE: [Mutex<Shard>; SHARDS] = [const { Mutex::new(Shard::new()) }; SHARDS];
/// The entries of all shards, so that a process without any skips the locks.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Remembers an allocation. Returns the one that was remembered at the same pointer, if any.
pub fn insert(allocation: Allocation) -> Result<Option<Allocation>, Full> {
    let replaced = shard(allocation.pointer).insert(allocation)?;
    if replaced.is_none() {
        LIVE.fetch_add(1, Ordering::Relaxed);
    }
    Ok(replaced)
}

/// Forgets and returns the allocation that starts at `pointer`, if it is ours.
pub fn remove(pointer: u64) -> Option<Allocation> {
    if pointer == 0 || LIVE.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let removed = shard(pointer).remove(pointer)?;
    LIVE.fetch_sub(1, Ordering::Relaxed);
    Some(removed)
}

/// Forgets and returns the allocations of an owner from before `until`.
pub fn remove_owned(owner: Owner, until: Epoch) -> Vec<Allocation> {
    let mut removed = Vec::new();
    if LIVE.load(Ordering::Relaxed) == 0 {
        return removed;
    }
    for shard in &TABLE {
        let mut shard = lock(shard);
        let before = removed.len();
        removed.extend(
            shard
                .entries()
                .iter()
                .filter(|entry| entry.pointer != 0 && entry.owner == owner && until.covers(entry)),
        );
        for entry in removed.iter().skip(before) {
            shard.remove(entry.pointer);
        }
    }
    LIVE.fetch_sub(removed.len(), Ordering::Relaxed);
    removed
}

fn shard(pointer: u64) -> MutexGuard<'static, Shard> {
    #[allow(clippy::indexing_slicing)] // the remainder is in bounds
    lock(&TABLE[(hash(pointer) >> 32) as usize % SHARDS])
}

/// Fibonacci hashing; device pointers are multiples of 256, the multiplication spreads them.
fn hash(pointer: u64) -> u64 {
    (pointer >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Open addressing with linear probing; at most half full; a pointer of 0 marks an empty entry.
struct Shard {
    table: Option<NonNull<Allocation>>,
    capacity: usize,
    used: usize,
}

// SAFETY: the mapping is reached through the shard's lock only.
unsafe impl Send for Shard {}

impl Shard {
    const fn new() -> Self {
        Self { table: None, capacity: 0, used: 0 }
    }

    fn entries(&mut self) -> &mut [Allocation] {
        match self.table {
            // SAFETY: a private mapping of `capacity` entries, zeroed by the kernel (= EMPTY).
            Some(table) => unsafe { std::slice::from_raw_parts_mut(table.as_ptr(), self.capacity) },
            None => &mut [],
        }
    }

    fn insert(&mut self, allocation: Allocation) -> Result<Option<Allocation>, Full> {
        if (self.used + 1) * 2 > self.capacity {
            self.grow()?;
        }
        let replaced = self.put(allocation);
        if replaced.is_none() {
            self.used += 1;
        }
        Ok(replaced)
    }

    fn put(&mut self, allocation: Allocation) -> Option<Allocation> {
        let mask = self.capacity - 1;
        let entries = self.entries();
        let mut index = hash(allocation.pointer) as usize & mask;
        while let Some(entry) = entries.get_mut(index) {
            if entry.pointer == 0 || entry.pointer == allocation.pointer {
                let before = std::mem::replace(entry, allocation);
                return (before.pointer != 0).then_some(before);
            }
            index = (index + 1) & mask;
        }
        None
    }

    fn remove(&mut self, pointer: u64) -> Option<Allocation> {
        let mask = self.capacity.checked_sub(1)?;
        let entries = self.entries();
        let mut index = hash(pointer) as usize & mask;
        let removed = loop {
            match entries.get(index)? {
                entry if entry.pointer == pointer => break *entry,
                entry if entry.pointer == 0 => return None,
                _ => index = (index + 1) & mask,
            }
        };
        // Close the gap: move every entry that would not be found behind an empty one.
        let mut gap = index;
        let mut next = (gap + 1) & mask;
        while let Some(&entry) = entries.get(next).filter(|entry| entry.pointer != 0) {
            let home = hash(entry.pointer) as usize & mask;
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                if let Some(empty) = entries.get_mut(gap) {
                    *empty = entry;
                }
                gap = next;
            }
            next = (next + 1) & mask;
        }
        if let Some(empty) = entries.get_mut(gap) {
            *empty = EMPTY;
        }
        self.used -= 1;
        Some(removed)
    }

    #[cold]
    fn grow(&mut self) -> Result<(), Full> {
        let capacity = (self.capacity * 2).max(256);
        let table = map(capacity).ok_or(Full)?;
        let old = std::mem::replace(self, Self { table: Some(table), capacity, used: self.used });
        let mut old = old;
        for &entry in old.entries().iter().filter(|entry| entry.pointer != 0) {
            self.put(entry);
        }
        old.unmap();
        Ok(())
    }

    fn unmap(self) {
        if let Some(table) = self.table {
            // SAFETY: our own mapping, not used again.
            unsafe { libc::munmap(table.as_ptr().cast(), self.capacity * size_of::<Allocation>()) };
        }
    }
}

fn map(capacity: usize) -> Option<NonNull<Allocation>> {
    // SAFETY: a new private mapping; nothing existing is touched.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            capacity * size_of::<Allocation>(),
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

    fn allocation(pointer: u64, context: usize) -> Allocation {
        Allocation::new(pointer, pointer ^ 0x55, owner(context), 0)
    }

    fn owner(context: usize) -> Owner {
        Owner::context(context as CUcontext)
    }

    /// The table against a HashMap, over a long history of colliding and wrapping pointers.
    #[test]
    fn a_shard_behaves_like_a_map() {
        let mut shard = Shard::new();
        let mut model = HashMap::new();
        let mut random = 88_172_645_463_325_252_u64;
        for _ in 0..200_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let pointer = (1 + random % 3000) << 8;
            if random & (1 << 40) == 0 {
                if let std::collections::hash_map::Entry::Vacant(vacant) = model.entry(pointer) {
                    let new = *vacant.insert(allocation(pointer, 1));
                    assert!(shard.insert(new).is_ok());
                }
            } else {
                assert_eq!(shard.remove(pointer), model.remove(&pointer));
            }
            assert_eq!(shard.used, model.len());
        }
        let mut left: Vec<_> = shard.entries().iter().filter(|e| e.pointer != 0).copied().collect();
        left.sort_by_key(|entry| entry.pointer);
        let mut expected: Vec<_> = model.into_values().collect();
        expected.sort_by_key(|entry| entry.pointer);
        assert_eq!(left, expected);
        shard.unmap();
    }

    #[test]
    fn a_pointer_that_is_handed_out_again_is_remembered_once() {
        let mut shard = Shard::new();
        let (first, second) = (allocation(512, 1), allocation(512, 2));
        assert!(matches!(shard.insert(first), Ok(None)));
        assert!(matches!(shard.insert(second), Ok(Some(before)) if before == first));
        assert_eq!(shard.remove(512), Some(second));
        assert_eq!(shard.remove(512), None);
        assert_eq!(shard.used, 0);
        shard.unmap();
    }

    #[test]
    fn a_pool_is_never_mistaken_for_a_context() {
        for index in 0..256 {
            assert_eq!(Owner::pool(index).as_pool(), Some(index));
        }
        assert_eq!(owner(0x7f00_0000_1000).as_pool(), None);
    }

    #[test]
    fn a_context_s_allocations_end_with_it() {
        for pointer in 1..=1000_u64 {
            let context = if pointer % 3 == 0 { 16 } else { 32 };
            assert!(insert(allocation(pointer << 40, context)).is_ok());
        }
        let before = Epoch::now();
        assert!(insert(allocation(5000 << 40, 16)).is_ok());
        let removed = remove_owned(owner(16), before);
        assert_eq!(removed.len(), 333);
        assert!(removed.iter().all(|entry| entry.owner == owner(16)));
        assert_eq!(remove(3 << 40), None);
        assert_eq!(remove(4 << 40).map(|entry| entry.bytes), Some(4 << 40 ^ 0x55));
        assert_eq!(remove_owned(owner(32), Epoch::now()).len(), 666);
        assert_eq!(remove_owned(owner(16), Epoch::now()).len(), 1);
        assert_eq!(LIVE.load(Ordering::Relaxed), 0);
    }
}
