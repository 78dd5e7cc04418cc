//! Where the allocations of a graph are in its addresses, so that they can share bytes.
//!
//! The driver assigns an allocation's address when its node is added. Two allocations may have the
//! same bytes only if one of them is freed before the other one is made, in every order in which the
//! graph can run: its free node is an ancestor of the other's allocation node. An allocation gets
//! the first hole that fits, or the addresses behind all others. A hole at the end is not extended.
//!
//! The *footprint* of a graph is the memory behind these addresses, in units of the pool.

use crate::arena::ALIGNMENT;
use std::collections::BTreeMap;

/// The ancestors of nodes, which are numbered in an order in which they can run.
#[derive(Debug, Default)]
pub struct Ancestors {
    /// The branch of each node. The nodes of a branch depend on each other, one by one.
    branches: Vec<usize>,
    /// The last node of each branch.
    last: Vec<usize>,
    /// For each node, the last node of each branch that is the node itself or an ancestor.
    reached: Vec<BTreeMap<usize, usize>>,
}

impl Ancestors {
    /// The ancestors of nodes, from the earlier nodes that each one directly depends on.
    pub fn new<'a>(nodes: impl IntoIterator<Item = &'a [usize]>) -> Self {
        let mut made = Self::default();
        for after in nodes {
            made.push(after);
        }
        made
    }

    /// Adds a node that directly depends on earlier ones.
    pub fn push(&mut self, after: &[usize]) {
        let index = self.branches.len();
        let mut own: BTreeMap<usize, usize> = BTreeMap::new();
        for before in after {
            for (branch, node) in &self.reached[*before] {
                let last = own.entry(*branch).or_insert(*node);
                *last = (*last).max(*node);
            }
        }
        let continued = after.iter().find(|before| self.last[self.branches[**before]] == **before);
        let branch = if let Some(before) = continued {
            self.branches[*before]
        } else {
            self.last.push(index);
            self.last.len() - 1
        };
        self.last[branch] = index;
        own.insert(branch, index);
        self.branches.push(branch);
        self.reached.push(own);
    }

    /// Whether a node is an ancestor of another one.
    pub fn precedes(&self, before: usize, node: usize) -> bool {
        let last = self.reached[node].get(&self.branches[before]);
        before != node && last.is_some_and(|last| *last >= before)
    }
}

/// An allocation in a block.
#[derive(Debug)]
struct Placed {
    start: u64,
    end: u64,
    /// The node that frees it.
    free: Option<usize>,
}

/// The allocations of a graph in one block of addresses.
#[derive(Debug)]
pub struct Layout {
    capacity: u64,
    /// Behind all allocations.
    end: u64,
    placed: Vec<Placed>,
}

impl Layout {
    /// A block of so many addresses.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, end: 0, placed: Vec::new() }
    }

    /// The offset of a new allocation of `node`; `None` if it does not fit.
    pub fn place(&mut self, bytes: u64, node: usize, ancestors: &Ancestors) -> Option<u64> {
        let size = bytes.checked_next_multiple_of(ALIGNMENT)?;
        let is_taken =
            |placed: &&Placed| placed.free.is_none_or(|free| !ancestors.precedes(free, node));
        let mut taken: Vec<_> =
            self.placed.iter().filter(is_taken).map(|placed| (placed.start, placed.end)).collect();
        taken.sort_unstable();
        taken.push((self.end, self.end));
        let mut hole = 0;
        let found = taken.into_iter().find_map(|(start, end)| {
            let offset = hole;
            hole = hole.max(end);
            (size <= start.saturating_sub(offset)).then_some(offset)
        });
        let start = found.unwrap_or(self.end);
        let end = start.checked_add(size).filter(|end| *end <= self.capacity)?;
        // What has these bytes after this allocation also has them after those inside.
        self.placed.retain(|placed| placed.start < start || placed.end > end);
        self.placed.push(Placed { start, end, free: None });
        self.end = self.end.max(end);
        Some(start)
    }

    /// Records the node that frees the allocation at an offset.
    pub fn free(&mut self, offset: u64, node: usize) {
        let is_live = |placed: &&mut Placed| placed.start == offset && placed.free.is_none();
        if let Some(placed) = self.placed.iter_mut().find(is_live) {
            placed.free = Some(node);
        }
    }
}

/// The bytes of all units that some ranges, as offset and length, are in.
pub fn footprint(ranges: impl IntoIterator<Item = (u64, u64)>, unit: u64) -> u64 {
    let mut units: Vec<_> = ranges
        .into_iter()
        .map(|(offset, bytes)| (offset / unit, (offset + bytes).div_ceil(unit)))
        .collect();
    units.sort_unstable();
    let (mut count, mut behind) = (0, 0);
    for (first, end) in units {
        count += end.saturating_sub(behind.max(first));
        behind = behind.max(end);
    }
    count * unit
}
