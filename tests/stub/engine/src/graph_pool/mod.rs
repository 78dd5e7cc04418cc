//! A device's graph memory pool, as arithmetic: which executable graph has how many of its bytes.
//!
//! The driver maps memory of the card behind the fixed addresses of an executable graph when it
//! launches or uploads the graph. A *mapping* is the memory that an executable graph has now, as
//! many bytes as its footprint ([`layout`]). It is *idle* if no allocation in it is live and its
//! last use is over. The next graph takes over idle mappings before the pool grows. The memory is
//! made of units that can be mapped anywhere, so only the number of bytes matters. Memory counts as
//! used while it is mapped, also when its executable graph is destroyed.
//!
//! [`Uses`] has, for each stream that has used some memory, the mark behind its last use. The
//! driver knows which marks are done. Card and ledger belong to the driver.

pub mod layout;

use crate::ledger::Level;
use crate::time::Mark;
use std::collections::BTreeMap;

/// The last use of memory by each stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses(BTreeMap<u64, Mark>);

impl Uses {
    /// Adds a use that is over when `mark` is done.
    pub fn add(&mut self, stream: u64, mark: Mark) {
        if !mark.is_none() {
            // The later mark of a stream covers the earlier one.
            self.0.insert(stream, mark);
        }
    }

    fn add_all(&mut self, other: &Self) {
        for (stream, mark) in &other.0 {
            let last = self.0.entry(*stream).or_insert(*mark);
            *last = (*last).max(*mark);
        }
    }

    /// The streams, with their marks.
    pub fn each(&self) -> impl Iterator<Item = (u64, Mark)> {
        self.0.iter().map(|(stream, mark)| (*stream, *mark))
    }
}

/// Memory of the pool that no executable graph has.
#[derive(Debug)]
struct Free {
    bytes: u64,
    uses: Uses,
    /// Whether it is still mapped for the executable graph that last had it.
    is_mapped: bool,
}

/// The memory of an executable graph.
#[derive(Debug, Default)]
struct Mapping {
    bytes: u64,
    uses: Uses,
    /// Live allocations in it.
    live: usize,
    /// Whether a launch is in progress.
    is_pinned: bool,
    /// Whether the executable graph is destroyed, so that only live allocations need it.
    is_ended: bool,
    /// When it was used last, as a number that grows.
    turn: u64,
}

/// A live allocation: its owner, and its place in the owner's footprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Live {
    owner: u64,
    offset: u64,
    bytes: u64,
}

/// How the pool can make a new mapping.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Indices of free memory.
    free: Vec<usize>,
    /// Owners of idle mappings.
    idle: Vec<u64>,
    /// The bytes that the pool has to grow by.
    pub missing: u64,
}

/// The graph memory pool of a device.
#[derive(Debug)]
pub struct Pool {
    /// The bytes in which the pool grows, and of which mappings consist.
    pub unit: u64,
    free: Vec<Free>,
    /// By owner: a number that the driver gives each executable graph.
    mappings: BTreeMap<u64, Mapping>,
    /// By address.
    live: BTreeMap<u64, Live>,
    turn: u64,
    /// Bytes that the pool has taken from the card.
    pub reserved: Level,
    /// Bytes of all mappings, and of free memory that is still mapped.
    pub used: Level,
}

impl Pool {
    /// An empty pool.
    pub fn new(unit: u64) -> Self {
        Self {
            unit,
            free: Vec::new(),
            mappings: BTreeMap::new(),
            live: BTreeMap::new(),
            turn: 0,
            reserved: Level::default(),
            used: Level::default(),
        }
    }

    /// Whether an executable graph has memory now.
    pub fn is_mapped(&self, owner: u64) -> bool {
        self.mappings.contains_key(&owner)
    }

    /// Finds `bytes` for a new mapping, in memory whose uses are over, or before the new one.
    pub fn plan(&self, bytes: u64, mut is_over: impl FnMut(&Uses) -> bool) -> Plan {
        let mut plan = Plan { missing: bytes, ..Plan::default() };
        for (index, free) in self.free.iter().enumerate() {
            if plan.missing > 0 && is_over(&free.uses) {
                plan.missing = plan.missing.saturating_sub(free.bytes);
                plan.free.push(index);
            }
        }
        // The mapping that was used longest ago comes first.
        let mut idle: Vec<_> = self
            .mappings
            .iter()
            .filter(|(_, mapping)| mapping.live == 0 && !mapping.is_pinned)
            .collect();
        idle.sort_by_key(|(_, mapping)| mapping.turn);
        for (owner, mapping) in idle {
            if plan.missing > 0 && is_over(&mapping.uses) {
                plan.missing = plan.missing.saturating_sub(mapping.bytes);
                plan.idle.push(*owner);
            }
        }
        plan.missing = plan.missing.next_multiple_of(self.unit);
        plan
    }

    /// Maps `bytes` for an owner, by a plan that was made since the pool last changed.
    pub fn map(&mut self, owner: u64, bytes: u64, plan: &Plan) {
        self.reserved.add(plan.missing);
        let mut uses = Uses::default();
        let mut found = plan.missing;
        let (mut index, mut unmapped) = (0, 0);
        self.free.retain(|free| {
            let is_taken = plan.free.contains(&index);
            index += 1;
            if is_taken {
                found += free.bytes;
                unmapped += if free.is_mapped { free.bytes } else { 0 };
                uses.add_all(&free.uses);
            }
            !is_taken
        });
        for idle in &plan.idle {
            if let Some(mapping) = self.mappings.remove(idle) {
                found += mapping.bytes;
                unmapped += mapping.bytes;
                uses.add_all(&mapping.uses);
            }
        }
        if found > bytes {
            self.free.push(Free { bytes: found - bytes, uses: uses.clone(), is_mapped: false });
        }
        self.used.change(bytes, unmapped);
        self.turn += 1;
        let mapping = Mapping { bytes, uses, turn: self.turn, ..Mapping::default() };
        self.mappings.insert(owner, mapping);
    }

    /// Begins a launch: until its end, nobody can take over the mapping.
    pub fn pin(&mut self, owner: u64) {
        self.turn += 1;
        if let Some(mapping) = self.mappings.get_mut(&owner) {
            (mapping.is_pinned, mapping.turn) = (true, self.turn);
        }
    }

    /// Ends a launch on `stream`, whose work is done when `mark` is.
    pub fn unpin(&mut self, owner: u64, stream: u64, mark: Mark) {
        if let Some(mapping) = self.mappings.get_mut(&owner) {
            mapping.is_pinned = false;
            mapping.uses.add(stream, mark);
        }
    }

    /// Ends an executable graph. Its memory is free, except the units of its live allocations.
    pub fn end(&mut self, owner: u64) {
        if let Some(mapping) = self.mappings.get_mut(&owner) {
            (mapping.is_ended, mapping.is_pinned) = (true, false);
            self.shrink(owner);
        }
    }

    /// Frees the units of an ended executable graph that no live allocation needs.
    fn shrink(&mut self, owner: u64) {
        let Some(mapping) = self.mappings.get_mut(&owner).filter(|mapping| mapping.is_ended) else {
            return;
        };
        let live = self.live.values().filter(|live| live.owner == owner);
        let needed = layout::footprint(live.map(|live| (live.offset, live.bytes)), self.unit);
        let freed = mapping.bytes - needed.min(mapping.bytes);
        if freed > 0 {
            mapping.bytes -= freed;
            self.free.push(Free { bytes: freed, uses: mapping.uses.clone(), is_mapped: true });
        }
        if mapping.live == 0 {
            self.mappings.remove(&owner);
        }
    }

    /// Whether the allocation at an address is live.
    pub fn is_live(&self, address: u64) -> bool {
        self.live.contains_key(&address)
    }

    /// Makes an allocation live, at an offset of its owner's footprint.
    pub fn allocate(&mut self, address: u64, owner: u64, offset: u64, bytes: u64) {
        if let Some(mapping) = self.mappings.get_mut(&owner) {
            mapping.live += 1;
            self.live.insert(address, Live { owner, offset, bytes });
        }
    }

    /// Frees a live allocation; work of `stream` before `mark` may still use it. Returns its bytes;
    /// `None` if the address is not live.
    pub fn free(&mut self, address: u64, stream: u64, mark: Mark) -> Option<u64> {
        let Live { owner, bytes, .. } = self.live.remove(&address)?;
        if let Some(mapping) = self.mappings.get_mut(&owner) {
            mapping.live -= 1;
            mapping.uses.add(stream, mark);
            self.shrink(owner);
        }
        Some(bytes)
    }

    /// Releases free memory and idle mappings whose uses are over; returns the bytes.
    pub fn trim(&mut self, mut is_over: impl FnMut(&Uses) -> bool) -> u64 {
        let (mut released, mut unmapped) = (0, 0);
        self.free.retain(|free| {
            let is_released = is_over(&free.uses);
            released += if is_released { free.bytes } else { 0 };
            unmapped += if is_released && free.is_mapped { free.bytes } else { 0 };
            !is_released
        });
        self.mappings.retain(|_, mapping| {
            let is_released = mapping.live == 0 && !mapping.is_pinned && is_over(&mapping.uses);
            if is_released {
                released += mapping.bytes;
                unmapped += mapping.bytes;
            }
            !is_released
        });
        self.used.change(0, unmapped);
        self.reserved.change(0, released);
        released
    }

    /// Frees everything; returns the bytes and the number of live allocations.
    pub fn clear(&mut self) -> (u64, u64) {
        let bytes = self.live.values().map(|live| live.bytes).sum();
        let count = self.live.len() as u64;
        self.live.clear();
        self.mappings.clear();
        self.free.clear();
        self.used.now = 0;
        self.reserved.now = 0;
        (bytes, count)
    }
}

#[cfg(test)]
mod tests;
