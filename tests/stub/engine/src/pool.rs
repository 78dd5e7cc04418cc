//! A memory pool's arithmetic: which of the room it has reserved is free, for whom and from when.
//!
//! A pool takes memory from its card in large *chunks* and hands it out in stream order: what a stream
//! has freed can be used again by that stream at once, because its work runs in order, but by others
//! only when the stream has got there. So a free range carries a stream and a mark of its work, of which
//! the driver says whether it is done. Addresses are offsets in whatever space the driver has; time,
//! card and ledger are the driver's business.

use crate::arena::ALIGNMENT;
use crate::ledger::Level;
use crate::time::Mark;
use std::collections::BTreeMap;

/// How much a pool grows by, unless the request is larger.
pub const CHUNK: u64 = 32 << 20;
/// What larger requests are rounded up to.
pub const GRAIN: u64 = 2 << 20;
/// The stream of a range that anyone may use.
const ANYONE: u64 = u64::MAX;

/// How much a pool may grow by for a request, most wanted first; `None` for what no card has.
pub fn rooms(bytes: u64) -> Option<[u64; 2]> {
    let least = bytes.checked_next_multiple_of(GRAIN)?;
    Some([least.max(CHUNK), least])
}

/// A live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its first offset.
    pub base: u64,
    /// As many bytes as were asked for.
    pub bytes: u64,
}

/// Where an allocation can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    chunk: u64,
    offset: u64,
}

/// A free range of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Free {
    size: u64,
    /// Who may use it at once.
    stream: u64,
    /// What must be done before the others may.
    ready: Mark,
}

#[derive(Debug)]
struct Chunk {
    size: u64,
    /// By offset.
    free: BTreeMap<u64, Free>,
}

/// A pool.
#[derive(Debug, Default)]
pub struct Pool {
    /// By offset.
    chunks: BTreeMap<u64, Chunk>,
    /// Bytes as asked for, by offset.
    live: BTreeMap<u64, u64>,
    /// Free ranges that not everyone may use yet.
    pending: usize,
    /// Bytes of its chunks.
    pub reserved: Level,
    /// Bytes of its live allocations, as asked for.
    pub used: Level,
}

impl Chunk {
    fn insert(&mut self, offset: u64, mut added: Free) {
        let is_same = |other: &Free| (other.stream, other.ready) == (added.stream, added.ready);
        let mut start = offset;
        if let Some((&before, free)) = self.free.range(..offset).next_back()
            && before + free.size == offset
            && is_same(free)
        {
            start = before;
            added.size += free.size;
        }
        let end = start + added.size;
        if let Some(free) = self.free.get(&end).filter(|free| is_same(free)) {
            added.size += free.size;
            self.free.remove(&end);
        }
        self.free.insert(start, added);
    }

    /// The first `size` bytes in a row that a stream may use, which comes behind some marks.
    fn fit(&self, size: u64, stream: u64, is_behind: &mut dyn FnMut(Mark) -> bool) -> Option<u64> {
        let (mut start, mut end) = (0, 0);
        for (&offset, free) in &self.free {
            if free.stream != stream && free.stream != ANYONE && !is_behind(free.ready) {
                continue;
            }
            if offset != end {
                start = offset;
            }
            end = offset + free.size;
            if end - start >= size {
                return Some(start);
            }
        }
        None
    }

    /// Takes `size` bytes out of the free ranges.
    fn take(&mut self, offset: u64, size: u64) {
        let end = offset + size;
        let covered: Vec<_> =
            self.free.range(offset..end).map(|(start, free)| (*start, *free)).collect();
        for (start, free) in covered {
            self.free.remove(&start);
            if start + free.size > end {
                self.free.insert(end, Free { size: start + free.size - end, ..free });
            }
        }
    }

    fn is_free(&self) -> bool {
        self.free
            .first_key_value()
            .is_some_and(|(_, free)| (free.size, free.stream) == (self.size, ANYONE))
    }
}

impl Pool {
    /// Where an allocation of `bytes` fits, on a stream whose new work `is_behind` of some marks; `None`
    /// when the pool has to grow.
    pub fn place(
        &self,
        bytes: u64,
        stream: u64,
        mut is_behind: impl FnMut(Mark) -> bool,
    ) -> Option<Place> {
        let size = bytes.checked_next_multiple_of(ALIGNMENT)?;
        self.chunks.iter().find_map(|(&chunk, found)| {
            found.fit(size, stream, &mut is_behind).map(|offset| Place { chunk, offset })
        })
    }

    /// Adds a chunk of free room; returns the place at its start.
    pub fn grow(&mut self, chunk: u64, size: u64) -> Place {
        let free = Free { size, stream: ANYONE, ready: Mark::NONE };
        self.chunks.insert(chunk, Chunk { size, free: BTreeMap::from([(chunk, free)]) });
        self.reserved.add(size);
        Place { chunk, offset: chunk }
    }

    /// Lets an allocation of `bytes` live at a place that was found for it; returns its offset.
    pub fn take(&mut self, place: Place, bytes: u64) -> u64 {
        if let Some(chunk) = self.chunks.get_mut(&place.chunk) {
            chunk.take(place.offset, bytes.next_multiple_of(ALIGNMENT));
        }
        self.live.insert(place.offset, bytes);
        self.used.add(bytes);
        place.offset
    }

    /// Ends the allocation at `offset`: room for `stream` at once, for others when `ready` is done. Returns
    /// its bytes; `None` when there is none.
    pub fn free(&mut self, offset: u64, stream: u64, ready: Mark) -> Option<u64> {
        let bytes = self.live.remove(&offset)?;
        self.used.change(0, bytes);
        let (_, chunk) = self.chunks.range_mut(..=offset).next_back()?;
        let stream = if ready.is_none() { ANYONE } else { stream };
        let size = bytes.next_multiple_of(ALIGNMENT);
        chunk.insert(offset, Free { size, stream, ready });
        self.pending += usize::from(!ready.is_none());
        Some(bytes)
    }

    /// The allocation that `offset` lies in.
    pub fn find(&self, offset: u64) -> Option<Live> {
        let (&base, &bytes) = self.live.range(..=offset).next_back()?;
        (offset - base < bytes).then_some(Live { base, bytes })
    }

    /// The first offsets of all allocations.
    pub fn live(&self) -> Vec<u64> {
        self.live.keys().copied().collect()
    }

    /// Lets everyone use what was freed behind marks that are done.
    pub fn settle(&mut self, mut is_done: impl FnMut(Mark) -> bool) {
        if self.pending == 0 {
            return;
        }
        self.pending = 0;
        for chunk in self.chunks.values_mut() {
            for (offset, free) in std::mem::take(&mut chunk.free) {
                let is_settled = free.ready.is_none() || is_done(free.ready);
                let settled = Free { size: free.size, stream: ANYONE, ready: Mark::NONE };
                chunk.insert(offset, if is_settled { settled } else { free });
                self.pending += usize::from(!is_settled);
            }
        }
    }

    /// Takes out the chunks that nothing lives in, as long as at least `keep` bytes stay reserved.
    /// Returns their offsets, and how many bytes they are.
    pub fn shrink(&mut self, keep: u64) -> (Vec<u64>, u64) {
        let (mut gone, mut bytes) = (Vec::new(), 0);
        for (offset, chunk) in self.chunks.iter().rev().filter(|(_, chunk)| chunk.is_free()) {
            if self.reserved.now - bytes - chunk.size >= keep {
                gone.push(*offset);
                bytes += chunk.size;
            }
        }
        for offset in &gone {
            self.chunks.remove(offset);
        }
        self.reserved.change(0, bytes);
        (gone, bytes)
    }

    /// Whether something was freed that not everyone may use yet.
    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Whether the pool has no memory at all.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

#[cfg(test)]
mod tests;
