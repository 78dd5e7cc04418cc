//! Which addresses of a card are allocated, and to which owner.
//!
//! Programs allocate, free and look up addresses in hot loops, so every operation here takes
//! constant time. The address space consists of 2 MiB chunks. An allocation of more than 1 MiB gets
//! a run of chunks ([`runs`]); smaller ones share a chunk that is cut into equal slots ([`slots`]).
//! The real driver divides its memory the same way.
//!
//! An arena handles offsets only and never touches the memory, so a card of 140 GiB costs only what
//! is written. It records writes, so that a free returns pages to the system only where there are
//! any.

mod runs;
mod slots;

use runs::Runs;
use slots::Slots;

/// The unit in which address space is divided.
pub const CHUNK: u64 = 2 << 20;
/// Alignment of every allocation.
pub const ALIGNMENT: u64 = 512;
/// The largest allocation that shares a chunk.
const SMALL: u64 = 1 << 20;

/// A live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its first offset.
    pub base: u64,
    /// The requested bytes.
    pub bytes: u64,
    /// The owner that [`Arena::allocate`] was called with.
    pub owner: u32,
}

/// The result of a free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The allocation that was freed.
    pub allocation: Allocation,
    /// The range of written pages that no allocation uses any more.
    pub discard: Option<std::ops::Range<u64>>,
}

/// The addresses of one card.
#[derive(Debug)]
pub struct Arena {
    runs: Runs,
    slots: Slots,
}

impl Arena {
    /// An arena over `size` bytes of address space.
    pub fn new(size: u64) -> Self {
        Self { runs: Runs::new((size / CHUNK) as u32), slots: Slots::new() }
    }

    /// Finds room for `bytes`; `None` when the address space is used up.
    pub fn allocate(&mut self, bytes: u64, owner: u32) -> Option<u64> {
        if bytes <= SMALL {
            self.slots.allocate(&mut self.runs, bytes as u32, owner)
        } else {
            let head = self.runs.allocate(bytes.div_ceil(CHUNK).try_into().ok()?)?;
            self.runs.set_large(head, bytes, owner);
            Some(u64::from(head) * CHUNK)
        }
    }

    /// Frees the allocation that starts at `offset`; `None` when there is none.
    pub fn free(&mut self, offset: u64) -> Option<Freed> {
        let allocation = self.find(offset).filter(|found| found.base == offset)?;
        let chunk = (offset / CHUNK) as u32;
        let discard = if self.runs.slab(chunk).is_some() {
            self.slots.free(&mut self.runs, offset)
        } else {
            Some(self.runs.free(chunk))
        };
        Some(Freed { allocation, discard: discard.and_then(runs::Released::written) })
    }

    /// The allocation that contains `offset`.
    pub fn find(&self, offset: u64) -> Option<Allocation> {
        let chunk = u32::try_from(offset / CHUNK).ok()?;
        let found = match self.runs.slab(chunk) {
            Some(slab) => self.slots.find(slab, offset)?,
            None => self.runs.find_large(chunk)?,
        };
        (offset - found.base < found.bytes).then_some(found)
    }

    /// The whole chunks that the allocation at `offset` lies in; small ones share theirs.
    pub fn run_of(&self, offset: u64) -> Option<std::ops::Range<u64>> {
        let found = self.find(offset)?;
        Some(self.runs.range((found.base / CHUNK) as u32))
    }

    /// Whether anything in these chunks was written to.
    pub fn is_written(&self, offset: u64) -> bool {
        self.run_of(offset).is_some_and(|run| self.runs.is_written((run.start / CHUNK) as u32))
    }

    /// Records that the allocation at `offset` was written to.
    pub fn mark_written(&mut self, offset: u64) {
        self.runs.mark_written((offset / CHUNK) as u32);
    }

    /// The first offsets of all allocations of `owner`.
    pub fn owned_by(&self, owner: u32) -> Vec<u64> {
        let mut all = self.runs.owned_by(owner);
        all.extend(self.slots.owned_by(owner));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_inner_offset_finds_its_allocation_and_a_gap_finds_none() {
        let mut arena = Arena::new(64 * CHUNK);
        let small = arena.allocate(700, 1).expect("small");
        let large = arena.allocate(3 * CHUNK + 5, 2).expect("large");
        assert_eq!(
            arena.find(small + 699).map(|found| (found.base, found.bytes)),
            Some((small, 700))
        );
        assert_eq!(arena.find(small + 700), None);
        assert_eq!(arena.find(large + 3 * CHUNK + 4).map(|found| found.owner), Some(2));
        assert_eq!(arena.find(large + 3 * CHUNK + 5), None);
        assert_eq!(arena.find(u64::MAX), None);
        assert_eq!(arena.free(small + 512), None, "inner addresses cannot be freed");
        assert_eq!(arena.free(large + CHUNK), None);
        assert!(arena.free(large).is_some());
        assert_eq!(arena.free(large), None, "nor can what is free already");
        assert_eq!(arena.find(large), None);
    }

    #[test]
    fn only_written_memory_is_given_back() {
        let mut arena = Arena::new(64 * CHUNK);
        let quiet = arena.allocate(4 * CHUNK, 0).expect("quiet");
        assert_eq!(arena.free(quiet).expect("free").discard, None);
        let written = arena.allocate(4 * CHUNK, 0).expect("written");
        arena.mark_written(written + 3 * CHUNK);
        let discard = arena.free(written).expect("free").discard;
        assert_eq!(discard, Some(written..written + 4 * CHUNK));
        let again = arena.allocate(4 * CHUNK, 0).expect("again");
        assert_eq!(arena.free(again).expect("free").discard, None);
    }

    #[test]
    fn what_an_owner_holds_is_listed_whatever_its_size() {
        let mut arena = Arena::new(64 * CHUNK);
        let mine: Vec<_> =
            [1, 4096, CHUNK].iter().map(|&bytes| arena.allocate(bytes, 7).expect("fits")).collect();
        arena.allocate(CHUNK, 8).expect("fits");
        let mut owned = arena.owned_by(7);
        owned.sort_unstable();
        let mut expected = mine.clone();
        expected.sort_unstable();
        assert_eq!(owned, expected);
    }

    /// Against a plain map, with a fixed sequence of sizes from bytes to gigabytes.
    #[test]
    fn a_long_mixed_life_never_overlaps_and_loses_nothing() {
        let mut arena = Arena::new(4096 * CHUNK);
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        let mut random: u64 = 1;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for step in 0..60_000 {
            if live.len() < 400 && next(5) < 3 {
                let power = 1 + next(26);
                let bytes = 1 + next(1 << power);
                let base = arena.allocate(bytes, step).expect("room");
                assert_eq!(base % ALIGNMENT, 0);
                let before = live.range(..=base).next_back();
                assert!(before.is_none_or(|(start, length)| start + length <= base));
                let after = live.range(base..).next();
                assert!(after.is_none_or(|(start, _)| base + bytes <= *start));
                live.insert(base, bytes);
            } else if let Some((&base, &bytes)) =
                live.iter().nth(next(live.len().max(1) as u64) as usize)
            {
                let freed = arena.free(base).expect("live").allocation;
                assert_eq!((freed.base, freed.bytes), (base, bytes));
                live.remove(&base);
            }
        }
        for base in live.keys() {
            assert!(arena.free(*base).is_some());
            assert!(arena.find(*base).is_none());
        }
    }
}
