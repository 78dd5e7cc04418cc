//! A memory pool's arithmetic: which ranges of its reserved memory are free, for which streams, and
//! from when.
//!
//! A pool reserves memory of its card in large *chunks* and allocates from them in stream order. A
//! stream can reuse at once what it has freed, because its work runs in order. Other streams can
//! reuse it only when the freeing stream has reached the free. So a free range has a stream and a
//! mark of its work, and the driver knows which marks are done. Addresses are offsets; time, card
//! and ledger belong to the driver.

use crate::arena::ALIGNMENT;
use crate::ledger::Level;
use crate::time::Mark;
use std::collections::BTreeMap;

/// Bytes that a pool grows by, unless the request is larger.
pub const CHUNK: u64 = 32 << 20;
/// Larger requests are rounded up to a multiple of this.
pub const GRAIN: u64 = 2 << 20;
/// The stream of a range that all streams may use.
const ANY_STREAM: u64 = u64::MAX;

/// The sizes that a pool may grow by for a request, the preferred one first; `None` for a request
/// that is larger than any card.
pub fn rooms(bytes: u64) -> Option<[u64; 2]> {
    let least = bytes.checked_next_multiple_of(GRAIN)?;
    Some([least.max(CHUNK), least])
}

/// A live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its first offset.
    pub base: u64,
    /// The requested bytes.
    pub bytes: u64,
}

/// A position for an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    chunk: u64,
    offset: u64,
}

/// A free range of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Free {
    size: u64,
    /// The stream that may use it at once.
    stream: u64,
    /// The mark that must be done before other streams may use it.
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
    /// Requested bytes, by offset.
    live: BTreeMap<u64, u64>,
    /// How many free ranges only one stream may use yet.
    pending: usize,
    /// Bytes of its chunks.
    pub reserved: Level,
    /// Requested bytes of its live allocations.
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

    /// The first `size` contiguous bytes that a stream may use whose new work is behind some marks.
    fn fit(&self, size: u64, stream: u64, is_behind: &mut dyn FnMut(Mark) -> bool) -> Option<u64> {
        let (mut start, mut end) = (0, 0);
        for (&offset, free) in &self.free {
            if free.stream != stream && free.stream != ANY_STREAM && !is_behind(free.ready) {
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

    /// Removes `size` bytes from the free ranges.
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
            .is_some_and(|(_, free)| (free.size, free.stream) == (self.size, ANY_STREAM))
    }
}

impl Pool {
    /// Finds room for an allocation of `bytes` on a stream whose new work `is_behind` some marks;
    /// `None` when the pool has to grow.
    pub fn find_room(
        &self,
        bytes: u64,
        stream: u64,
        mut is_behind: impl FnMut(Mark) -> bool,
    ) -> Option<Spot> {
        let size = bytes.checked_next_multiple_of(ALIGNMENT)?;
        self.chunks.iter().find_map(|(&chunk, found)| {
            found.fit(size, stream, &mut is_behind).map(|offset| Spot { chunk, offset })
        })
    }

    /// Adds a free chunk; returns the position at its start.
    pub fn grow(&mut self, chunk: u64, size: u64) -> Spot {
        let free = Free { size, stream: ANY_STREAM, ready: Mark::NONE };
        self.chunks.insert(chunk, Chunk { size, free: BTreeMap::from([(chunk, free)]) });
        self.reserved.add(size);
        Spot { chunk, offset: chunk }
    }

    /// Allocates `bytes` at a position from [`Pool::find_room`]; returns the offset.
    pub fn take(&mut self, spot: Spot, bytes: u64) -> u64 {
        if let Some(chunk) = self.chunks.get_mut(&spot.chunk) {
            chunk.take(spot.offset, bytes.next_multiple_of(ALIGNMENT));
        }
        self.live.insert(spot.offset, bytes);
        self.used.add(bytes);
        spot.offset
    }

    /// Frees the allocation at `offset`, for `stream` at once and for others when `ready` is done.
    /// Returns its bytes; `None` when there is no such allocation.
    pub fn free(&mut self, offset: u64, stream: u64, ready: Mark) -> Option<u64> {
        let bytes = self.live.remove(&offset)?;
        self.used.change(0, bytes);
        let (_, chunk) = self.chunks.range_mut(..=offset).next_back()?;
        let stream = if ready.is_none() { ANY_STREAM } else { stream };
        let size = bytes.next_multiple_of(ALIGNMENT);
        chunk.insert(offset, Free { size, stream, ready });
        self.pending += usize::from(!ready.is_none());
        Some(bytes)
    }

    /// The allocation that contains `offset`.
    pub fn find(&self, offset: u64) -> Option<Live> {
        let (&base, &bytes) = self.live.range(..=offset).next_back()?;
        (offset - base < bytes).then_some(Live { base, bytes })
    }

    /// The first offsets of all allocations.
    pub fn live(&self) -> Vec<u64> {
        self.live.keys().copied().collect()
    }

    /// Makes what was freed behind finished marks available to all streams.
    pub fn share_done(&mut self, mut is_done: impl FnMut(Mark) -> bool) {
        if self.pending == 0 {
            return;
        }
        self.pending = 0;
        for chunk in self.chunks.values_mut() {
            for (offset, free) in std::mem::take(&mut chunk.free) {
                let is_shared = free.ready.is_none() || is_done(free.ready);
                let shared = Free { size: free.size, stream: ANY_STREAM, ready: Mark::NONE };
                chunk.insert(offset, if is_shared { shared } else { free });
                self.pending += usize::from(!is_shared);
            }
        }
    }

    /// Removes unused chunks, as long as at least `keep` bytes stay reserved. Returns their offsets
    /// and their bytes in total.
    pub fn shrink(&mut self, keep: u64) -> (Vec<u64>, u64) {
        let (mut freed, mut bytes) = (Vec::new(), 0);
        for (offset, chunk) in self.chunks.iter().rev().filter(|(_, chunk)| chunk.is_free()) {
            if self.reserved.now - bytes - chunk.size >= keep {
                freed.push(*offset);
                bytes += chunk.size;
            }
        }
        for offset in &freed {
            self.chunks.remove(offset);
        }
        self.reserved.change(0, bytes);
        (freed, bytes)
    }

    /// Whether a free range is not available to all streams yet.
    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Whether the pool has reserved no memory.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

#[cfg(test)]
mod tests;
