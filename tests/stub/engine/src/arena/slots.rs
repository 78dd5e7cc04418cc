//! Chunks cut into equal slots, for allocations of up to 1 MiB.

use super::runs::{Released, Runs};
use super::{Allocation, CHUNK};

const NONE: u32 = u32::MAX;
/// Slot sizes: 512 bytes, then two per power of two (1024, 1536, 2048, 3072, …) up to 1 MiB.
const CLASSES: usize = 22;

fn class_of(bytes: u32) -> usize {
    let units = bytes.div_ceil(512).max(1);
    if units <= 2 {
        return units as usize - 1;
    }
    let power = (units - 1).ilog2();
    let is_lower_half = units <= 3 << (power - 1);
    (2 * power + 1 - u32::from(is_lower_half)) as usize
}

fn slot_size(class: usize) -> u32 {
    let power = class as u32 / 2;
    match class {
        0 | 1 => 512 * (class as u32 + 1),
        _ if class.is_multiple_of(2) => 512 * (3 << (power - 1)),
        _ => 512 * (2 << power),
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Requested bytes; 0 when free.
    bytes: u32,
    /// The owner; in a free slot, the next free one.
    owner: u32,
}

#[derive(Debug)]
struct Slab {
    chunk: u32,
    class: usize,
    live: u32,
    /// The freed slots, newest first. Slots past `slots.len()` have never been used.
    free: u32,
    slots: Vec<Slot>,
    /// Neighbours in the class's list of slabs with room.
    previous: u32,
    next: u32,
}

impl Slab {
    fn size(&self) -> u32 {
        slot_size(self.class)
    }

    fn is_full(&self) -> bool {
        self.live == CHUNK as u32 / self.size()
    }
}

#[derive(Debug)]
pub struct Slots {
    slabs: Vec<Slab>,
    /// The numbers of unused slabs.
    spare: Vec<u32>,
    /// The first slab with room, by class.
    open: [u32; CLASSES],
}

impl Slots {
    pub fn new() -> Self {
        Self { slabs: Vec::new(), spare: Vec::new(), open: [NONE; CLASSES] }
    }

    pub fn allocate(&mut self, runs: &mut Runs, bytes: u32, owner: u32) -> Option<u64> {
        let class = class_of(bytes);
        if self.open[class] == NONE {
            let number = self.add(runs, class)?;
            self.list(number);
        }
        let number = self.open[class];
        let slab = &mut self.slabs[number as usize];
        let index = if slab.free == NONE {
            slab.slots.push(Slot { bytes, owner });
            slab.slots.len() as u32 - 1
        } else {
            let index = slab.free;
            let slot = &mut slab.slots[index as usize];
            slab.free = slot.owner;
            *slot = Slot { bytes, owner };
            index
        };
        slab.live += 1;
        let offset = u64::from(slab.chunk) * CHUNK + u64::from(index) * u64::from(slab.size());
        if slab.is_full() {
            self.unlist(number);
        }
        Some(offset)
    }

    fn add(&mut self, runs: &mut Runs, class: usize) -> Option<u32> {
        let chunk = runs.allocate(1)?;
        let number = self.spare.pop().unwrap_or(self.slabs.len() as u32);
        let slab = Slab {
            chunk,
            class,
            live: 0,
            free: NONE,
            slots: Vec::new(),
            previous: NONE,
            next: NONE,
        };
        match self.slabs.get_mut(number as usize) {
            Some(spare) => *spare = slab,
            None => self.slabs.push(slab),
        }
        runs.set_slab(chunk, number);
        Some(number)
    }

    pub fn find(&self, slab: u32, offset: u64) -> Option<Allocation> {
        let slab = &self.slabs[slab as usize];
        let size = slab.size();
        let index = (offset % CHUNK) as u32 / size;
        let slot = slab.slots.get(index as usize).filter(|slot| slot.bytes > 0)?;
        Some(Allocation {
            base: u64::from(slab.chunk) * CHUNK + u64::from(index * size),
            bytes: u64::from(slot.bytes),
            owner: slot.owner,
        })
    }

    /// Frees the slot at `offset`, and the chunk when it was the chunk's last slot in use.
    pub fn free(&mut self, runs: &mut Runs, offset: u64) -> Option<Released> {
        let number = runs.slab((offset / CHUNK) as u32)?;
        let slab = &mut self.slabs[number as usize];
        let was_full = slab.is_full();
        let index = (offset % CHUNK) as u32 / slab.size();
        slab.slots[index as usize] = Slot { bytes: 0, owner: slab.free };
        slab.free = index;
        slab.live -= 1;
        let (chunk, is_empty) = (slab.chunk, slab.live == 0);
        if was_full {
            self.list(number);
        }
        // Keep the class's only slab with room: a loop of one allocation must not cut a chunk each
        // time.
        let is_only = self.slabs[number as usize].next == NONE
            && self.slabs[number as usize].previous == NONE;
        if !is_empty || is_only {
            return None;
        }
        self.unlist(number);
        self.spare.push(number);
        Some(runs.free(chunk))
    }

    fn list(&mut self, number: u32) {
        let class = self.slabs[number as usize].class;
        let next = self.open[class];
        if next != NONE {
            self.slabs[next as usize].previous = number;
        }
        let slab = &mut self.slabs[number as usize];
        (slab.previous, slab.next) = (NONE, next);
        self.open[class] = number;
    }

    fn unlist(&mut self, number: u32) {
        let Slab { class, previous, next, .. } = self.slabs[number as usize];
        if next != NONE {
            self.slabs[next as usize].previous = previous;
        }
        if previous == NONE {
            self.open[class] = next;
        } else {
            self.slabs[previous as usize].next = next;
        }
        let slab = &mut self.slabs[number as usize];
        (slab.previous, slab.next) = (NONE, NONE);
    }

    pub fn owned_by(&self, owner: u32) -> impl Iterator<Item = u64> + '_ {
        self.slabs.iter().filter(|slab| slab.live > 0).flat_map(move |slab| {
            let base = u64::from(slab.chunk) * CHUNK;
            let size = u64::from(slab.size());
            (0u64..)
                .zip(&slab.slots)
                .filter(move |(_, slot)| slot.bytes > 0 && slot.owner == owner)
                .map(move |(index, _)| base + index * size)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_a_slot_that_fits_and_wastes_less_than_half() {
        for bytes in (1..=1 << 20).step_by(61).chain([1 << 20]) {
            let size = slot_size(class_of(bytes));
            assert!(size >= bytes && size.is_multiple_of(512), "{bytes} in {size}");
            assert!(bytes <= 512 || size < 2 * bytes, "{bytes} in {size}");
        }
        assert_eq!(slot_size(CLASSES - 1), 1 << 20);
    }
}
