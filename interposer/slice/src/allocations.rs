//! The kinds of memory that a program allocates and frees, and what this process holds of each.

use std::sync::atomic::{AtomicU32, Ordering};

use driver_sys::cuda::{CUarray, CUcontext, CUdevice, CUmipmappedArray, CUresult};
use vgpu_driver::real;

use crate::table::{Entry, Table, table};

/// A kind of memory that a program frees by naming its address or handle.
pub struct Kind {
    pub(crate) table: &'static Table<Allocation>,
    /// Frees memory that the driver has just allocated, and that the program never gets.
    pub(crate) undo: unsafe fn(u64) -> CUresult,
}

impl Kind {
    /// Forgets and returns the allocations of an owner from before `until`.
    pub fn remove_owned(&self, owner: Owner, until: Epoch) -> Vec<Allocation> {
        self.table.remove_all(|entry| entry.owner == owner && until.covers(entry.created))
    }
}

/// Linear, pitched, managed and stream-ordered memory, by address.
pub static LINEAR: Kind = Kind { table: table!(Allocation), undo: free_linear };
/// Arrays.
pub static ARRAYS: Kind = Kind { table: table!(Allocation), undo: free_array };
/// Mipmapped arrays, with all of their levels.
pub static MIPMAPPED_ARRAYS: Kind = Kind { table: table!(Allocation), undo: free_mipmapped_array };

unsafe fn free_linear(pointer: u64) -> CUresult {
    // SAFETY: by the contract of `Kind::undo`.
    unsafe { real::cuMemFree_v2(pointer) }
}

unsafe fn free_array(array: u64) -> CUresult {
    // SAFETY: as above.
    unsafe { real::cuArrayDestroy(array as CUarray) }
}

unsafe fn free_mipmapped_array(array: u64) -> CUresult {
    // SAFETY: as above.
    unsafe { real::cuMipmappedArrayDestroy(array as CUmipmappedArray) }
}

/// The kinds whose memory ends with its context.
pub static OF_CONTEXTS: [&Kind; 3] = [&LINEAR, &ARRAYS, &MIPMAPPED_ARRAYS];

/// One live allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Its address on the card, or its handle.
    pub key: u64,
    /// The bytes that the program has. What the driver takes beyond them is charged as well.
    pub bytes: u64,
    /// The object whose end frees it.
    pub owner: Owner,
    /// The driver's number of the card.
    pub device: CUdevice,
    created: Epoch,
    rounding: u32,
    /// Whether other processes may have it; see [`crate::ipc`].
    pub(crate) is_exported: bool,
}

// SAFETY: numbers, and zero is the key of an empty entry.
unsafe impl Entry for Allocation {
    fn key(&self) -> u64 {
        self.key
    }
}

impl Allocation {
    /// An allocation of this moment.
    pub fn new(key: u64, bytes: u64, owner: Owner, device: CUdevice) -> Self {
        Self {
            key,
            bytes,
            owner,
            device,
            created: Epoch::current(),
            rounding: 0,
            is_exported: false,
        }
    }

    /// The same, of which the driver has taken more.
    pub(crate) fn rounded_by(self, rounding: u64) -> Self {
        Self { rounding: u32::try_from(rounding).unwrap_or(u32::MAX), ..self }
    }

    /// The bytes that the driver has taken beyond the requested ones.
    pub(crate) fn rounding(&self) -> u64 {
        self.rounding.into()
    }
}

/// The context or pool with which an allocation ends, if the program does not free it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(usize);

impl Owner {
    /// Nothing: it lasts until the program frees it.
    pub const NONE: Self = Self(0);

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

/// A moment before a call that may end a context. The driver reuses handles, so it separates the
/// allocations that end with the context from later ones in a new context with the same handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch(u32);

static EPOCH: AtomicU32 = AtomicU32::new(0);

impl Epoch {
    /// Now: allocations so far are older, later ones are newer.
    pub fn now() -> Self {
        Self(EPOCH.fetch_add(1, Ordering::Relaxed))
    }

    /// Now, for something that begins now.
    pub(crate) fn current() -> Self {
        Self(EPOCH.load(Ordering::Relaxed))
    }

    /// Whether something that began at another moment is older.
    pub(crate) fn covers(self, began: Self) -> bool {
        self.0.wrapping_sub(began.0) < u32::MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(pointer: u64, context: usize) -> Allocation {
        Allocation::new(pointer, pointer ^ 0x55, owner(context), 0)
    }

    fn owner(context: usize) -> Owner {
        Owner::context(context as CUcontext)
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
        let kind = Kind { table: table!(Allocation), undo: |_| 0 };
        for pointer in 1..=1000_u64 {
            let context = if pointer % 3 == 0 { 16 } else { 32 };
            assert!(kind.table.insert(allocation(pointer << 40, context)).is_ok());
        }
        let before = Epoch::now();
        assert!(kind.table.insert(allocation(5000 << 40, 16)).is_ok());
        let removed = kind.remove_owned(owner(16), before);
        assert_eq!(removed.len(), 333);
        assert!(removed.iter().all(|entry| entry.owner == owner(16)));
        assert_eq!(kind.table.remove(3 << 40), None);
        assert_eq!(kind.table.remove(4 << 40).map(|entry| entry.bytes), Some(4 << 40 ^ 0x55));
        assert_eq!(kind.remove_owned(owner(32), Epoch::now()).len(), 666);
        assert_eq!(kind.remove_owned(owner(16), Epoch::now()).len(), 1);
    }
}
