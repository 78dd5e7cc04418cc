//! Runs of whole chunks: good fit by size class; adjacent free runs are joined.
//!
//! The records are outside the memory, one per chunk, because device memory must not be touched.
//! Chunks past `end` have never been used and have no record yet.

use super::{Allocation, CHUNK};
use std::ops::Range;

const NONE: u32 = u32::MAX;
/// Four classes per power of two; 2^32 chunks at most.
const CLASSES: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Inside a run, neither its first nor its last chunk.
    Inner,
    /// First or last chunk of a free run.
    Free,
    /// First chunk of a large allocation.
    Large,
    /// A chunk cut into slots.
    Slab,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    role: Role,
    written: bool,
    /// Chunks in the run; valid on its first chunk, and on the last one of a free run.
    length: u32,
    /// Neighbours in the list of free runs of one class.
    previous: u32,
    next: u32,
    /// The owner of a large allocation, or the number of a slab.
    owner: u32,
    bytes: u64,
}

const INNER: Chunk = Chunk {
    role: Role::Inner,
    written: false,
    length: 0,
    previous: NONE,
    next: NONE,
    owner: 0,
    bytes: 0,
};

/// A run that has just been freed.
#[derive(Debug)]
pub struct Released {
    range: Range<u64>,
    written: bool,
}

impl Released {
    /// The bytes of the run, if any of them was ever written.
    pub fn written(self) -> Option<Range<u64>> {
        self.written.then_some(self.range)
    }
}

#[derive(Debug)]
pub struct Runs {
    limit: u32,
    chunks: Vec<Chunk>,
    /// One bit per chunk: a large allocation starts here.
    heads: Vec<u64>,
    free: [u32; CLASSES],
    /// One bit per class that has a free run.
    filled: u128,
}

/// The class in which a free run of `length` chunks is listed.
fn class_of(length: u32) -> usize {
    let power = length.ilog2();
    let quarter =
        if power >= 2 { (length >> (power - 2)) & 3 } else { (length << (2 - power)) & 3 };
    (power * 4 + quarter) as usize
}

/// The first class in which every run has at least `length` chunks.
fn class_for(length: u32) -> usize {
    let power = length.ilog2();
    let class = class_of(length);
    let is_exact = power < 2 || length & ((1 << (power - 2)) - 1) == 0;
    if is_exact { class } else { class + 1 }
}

impl Runs {
    pub fn new(limit: u32) -> Self {
        Self { limit, chunks: Vec::new(), heads: Vec::new(), free: [NONE; CLASSES], filled: 0 }
    }

    /// The first chunk of `length` free ones.
    pub fn allocate(&mut self, length: u32) -> Option<u32> {
        let head = match self.fitting(length) {
            Some(head) => {
                let found = self.chunks[head as usize].length;
                self.unlist(head);
                if found > length {
                    self.list(head + length, found - length);
                }
                head
            }
            None => self.grow(length)?,
        };
        self.chunks[head as usize] = Chunk { length, ..INNER };
        Some(head)
    }

    /// A free run of at least `length` chunks.
    fn fitting(&self, length: u32) -> Option<u32> {
        let class = class_for(length);
        let filled = self.filled.checked_shr(class as u32).unwrap_or(0);
        if filled != 0 {
            return Some(self.free[class + filled.trailing_zeros() as usize]);
        }
        // The class below has shorter runs too. Its newest run is often the one that was just
        // freed.
        let newest = self.free[class_of(length)];
        (newest != NONE && self.chunks[newest as usize].length >= length).then_some(newest)
    }

    fn grow(&mut self, length: u32) -> Option<u32> {
        let end = self.chunks.len() as u32;
        let grown = end.checked_add(length).filter(|grown| *grown <= self.limit)?;
        self.chunks.resize(grown as usize, INNER);
        self.heads.resize(grown.div_ceil(64) as usize, 0);
        Some(end)
    }

    pub fn set_large(&mut self, head: u32, bytes: u64, owner: u32) {
        let chunk = &mut self.chunks[head as usize];
        (chunk.role, chunk.bytes, chunk.owner) = (Role::Large, bytes, owner);
        self.heads[head as usize / 64] |= 1 << (head % 64);
    }

    pub fn set_slab(&mut self, head: u32, slab: u32) {
        let chunk = &mut self.chunks[head as usize];
        (chunk.role, chunk.owner) = (Role::Slab, slab);
    }

    /// The number of the slab in this chunk.
    pub fn slab(&self, chunk: u32) -> Option<u32> {
        let found = self.chunks.get(chunk as usize)?;
        (found.role == Role::Slab).then_some(found.owner)
    }

    /// The large allocation that starts in this chunk or in the nearest chunk before it.
    pub fn find_large(&self, chunk: u32) -> Option<Allocation> {
        let head = self.head_before(chunk)?;
        let found = &self.chunks[head as usize];
        Some(Allocation { base: u64::from(head) * CHUNK, bytes: found.bytes, owner: found.owner })
    }

    fn head_before(&self, chunk: u32) -> Option<u32> {
        if chunk as usize >= self.chunks.len() {
            return None;
        }
        let mut word = chunk as usize / 64;
        let mut bits = self.heads[word] & (u64::MAX >> (63 - chunk % 64));
        while bits == 0 {
            word = word.checked_sub(1)?;
            bits = self.heads[word];
        }
        Some(word as u32 * 64 + bits.ilog2())
    }

    /// Records a write into the run of `chunk`.
    pub fn mark_written(&mut self, chunk: u32) {
        let head = if self.slab(chunk).is_some() { Some(chunk) } else { self.head_before(chunk) };
        if let Some(head) = head {
            self.chunks[head as usize].written = true;
        }
    }

    /// The bytes of the run that starts with this chunk.
    pub fn range(&self, head: u32) -> Range<u64> {
        let length = self.chunks[head as usize].length;
        u64::from(head) * CHUNK..u64::from(head + length) * CHUNK
    }

    /// Whether the run that starts with this chunk was written to.
    pub fn is_written(&self, head: u32) -> bool {
        self.chunks[head as usize].written
    }

    pub fn free(&mut self, head: u32) -> Released {
        let Chunk { length, written, .. } = self.chunks[head as usize];
        let range = self.range(head);
        self.heads[head as usize / 64] &= !(1 << (head % 64));
        self.chunks[head as usize] = INNER;
        let (mut start, mut end) = (head, head + length);
        if let Some(after) = self.chunks.get(end as usize)
            && after.role == Role::Free
        {
            let length = after.length;
            self.unlist(end);
            end += length;
        }
        if let Some(before) = start.checked_sub(1)
            && self.chunks[before as usize].role == Role::Free
        {
            start -= self.chunks[before as usize].length;
            self.unlist(start);
        }
        self.list(start, end - start);
        Released { range, written }
    }

    fn list(&mut self, head: u32, length: u32) {
        let class = class_of(length);
        let next = self.free[class];
        self.chunks[(head + length - 1) as usize] = Chunk { role: Role::Free, length, ..INNER };
        self.chunks[head as usize] = Chunk { role: Role::Free, length, next, ..INNER };
        if next != NONE {
            self.chunks[next as usize].previous = head;
        }
        self.free[class] = head;
        self.filled |= 1 << class;
    }

    fn unlist(&mut self, head: u32) {
        let Chunk { length, previous, next, .. } = self.chunks[head as usize];
        if next != NONE {
            self.chunks[next as usize].previous = previous;
        }
        if previous == NONE {
            let class = class_of(length);
            self.free[class] = next;
            if next == NONE {
                self.filled &= !(1 << class);
            }
        } else {
            self.chunks[previous as usize].next = next;
        }
        self.chunks[(head + length - 1) as usize].role = Role::Inner;
        self.chunks[head as usize].role = Role::Inner;
    }

    pub fn owned_by(&self, owner: u32) -> Vec<u64> {
        let is_owned = |chunk: &Chunk| chunk.role == Role::Large && chunk.owner == owner;
        (0u64..)
            .zip(&self.chunks)
            .filter(|(_, chunk)| is_owned(chunk))
            .map(|(head, _)| head * CHUNK)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_neighbours_grow_together_in_any_order() {
        let mut runs = Runs::new(1 << 20);
        let lengths: Vec<u32> = (1..200).map(|index| index * 7 % 61 + 1).collect();
        let heads: Vec<u32> =
            lengths.iter().map(|length| runs.allocate(*length).expect("room")).collect();
        let total = lengths.iter().sum();
        // 73 and 199 have no common factor, so every run is freed once.
        for turn in 0..heads.len() {
            runs.free(heads[turn * 73 % heads.len()]);
        }
        assert_eq!(runs.allocate(total), Some(0), "everything is one run again");
    }

    #[test]
    fn a_class_for_a_length_holds_only_runs_that_fit() {
        for length in 1..5000 {
            for listed in 1..5000 {
                if class_of(listed) >= class_for(length) {
                    assert!(listed >= length, "{listed} is listed where {length} is looked for");
                }
            }
        }
    }
}
