//! Handles: addresses that can be checked without a lock.
//!
//! A program may pass any bits as a stream or function, and an invalid one must return
//! `CUDA_ERROR_INVALID_HANDLE`; a launch has only a few nanoseconds for the check. So the objects
//! of a type are in one array that is never moved or freed. A handle is the address of a slot, and
//! a check is arithmetic and one load. Slots are reused, oldest first. Their values change only
//! through shared references, so a racing use of a destroyed handle is the program's bug, but never
//! undefined behaviour here.

use crate::process::lock;
use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The most objects of one type. Unused slots cost nothing.
const CAPACITY: usize = 1 << 20;

/// 64 bytes, so that no handle is a small number or an odd address.
#[repr(C, align(64))]
struct Slot<T> {
    live: AtomicU32,
    value: T,
}

#[derive(Default)]
struct Unused {
    freed: VecDeque<usize>,
    /// Slots from here on have never been used.
    fresh: usize,
}

/// The objects of one type.
pub struct Slab<T> {
    slots: *mut Slot<T>,
    unused: Mutex<Unused>,
}

// SAFETY: slots are reached only as shared references to values that are `Sync`.
unsafe impl<T: Sync + Send> Send for Slab<T> {}
// SAFETY: as above.
unsafe impl<T: Sync + Send> Sync for Slab<T> {}

impl<T: Default + Sync + Send> Slab<T> {
    pub fn new() -> Self {
        // Mapped, not allocated: an allocator would write zeros to every page.
        // SAFETY: an anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                CAPACITY * size_of::<Slot<T>>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let slots = if start == libc::MAP_FAILED { null_mut() } else { start.cast() };
        Self { slots, unused: Mutex::default() }
    }

    fn slot(&self, index: usize) -> *mut Slot<T> {
        // SAFETY: every caller's index is below the capacity.
        unsafe { self.slots.add(index) }
    }

    /// Adds a value that `set` prepares; returns its handle, or `None` when there are too many.
    pub fn insert(&self, set: impl FnOnce(&T, usize)) -> Option<usize> {
        if self.slots.is_null() {
            return None;
        }
        let mut unused = lock(&self.unused);
        let slot = if let Some(index) = unused.freed.pop_front() {
            self.slot(index)
        } else {
            let index = unused.fresh;
            if index == CAPACITY {
                return None;
            }
            unused.fresh += 1;
            let slot = self.slot(index);
            // SAFETY: the slot was never used, and no other caller gets it while we hold the lock.
            unsafe { (&raw mut (*slot).value).write(T::default()) };
            slot
        };
        drop(unused);
        // SAFETY: the value was written when the slot was first used.
        set(unsafe { &(*slot).value }, slot as usize);
        // SAFETY: `live` is an atomic in memory that is never freed.
        unsafe { &(*slot).live }.store(1, Ordering::Release);
        Some(slot as usize)
    }

    /// The index of a handle's slot; `None` for any other address.
    pub fn index(&self, handle: usize) -> Option<usize> {
        let distance = handle.checked_sub(self.slots as usize)?;
        let index = distance / size_of::<Slot<T>>();
        (index < CAPACITY && distance.is_multiple_of(size_of::<Slot<T>>())).then_some(index)
    }

    /// The object of a handle.
    #[inline]
    pub fn get(&self, handle: usize) -> Option<&T> {
        let slot = self.slot(self.index(handle)?);
        // SAFETY: zero (never used) reads as not live; a live slot's value was written before.
        unsafe { ((*slot).live.load(Ordering::Acquire) == 1).then(|| &(*slot).value) }
    }

    /// The object at an index, and its handle.
    pub fn at(&self, index: usize) -> Option<(usize, &T)> {
        let handle =
            (index < CAPACITY && !self.slots.is_null()).then(|| self.slot(index) as usize)?;
        self.get(handle).map(|value| (handle, value))
    }

    /// Removes the object of a handle; `false` when there is none.
    pub fn remove(&self, handle: usize) -> bool {
        let Some(index) = self.index(handle) else { return false };
        // SAFETY: `live` is an atomic in memory that is never freed.
        let was_live = unsafe { &(*self.slot(index)).live }.swap(0, Ordering::AcqRel) == 1;
        if was_live {
            lock(&self.unused).freed.push_back(index);
        }
        was_live
    }

    /// All objects and their handles.
    pub fn live(&self) -> impl Iterator<Item = (usize, &T)> {
        let used = lock(&self.unused).fresh;
        (0..used).filter_map(|index| {
            let handle = self.slot(index) as usize;
            self.get(handle).map(|value| (handle, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_live_handles_are_found() {
        let slab: Slab<AtomicU32> = Slab::new();
        let first = slab.insert(|value, _| value.store(7, Ordering::Relaxed)).expect("room");
        assert_eq!(slab.get(first).map(|value| value.load(Ordering::Relaxed)), Some(7));
        for wrong in [0, 1, 2, first + 1, first + 64, first - 64, usize::MAX] {
            assert!(slab.get(wrong).is_none(), "{wrong:#x}");
        }
        assert!(slab.remove(first));
        assert!(!slab.remove(first), "twice");
        assert!(slab.get(first).is_none());
        let second = slab.insert(|_, _| {}).expect("room");
        assert_eq!(slab.live().map(|(handle, _)| handle).collect::<Vec<_>>(), [second]);
    }
}
