//! A card in the books: what it has, and what of it is given.

use crate::wire::Card;

/// What a card has. Filters go through tens of thousands of these, and what they wait for is memory: two
/// to a cache line.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    memory_mib: u32,
    foreign_mib: u32,
    overhead_mib: u32,
    /// Percent to give.
    pub cores: u32,
    /// Device IDs to give.
    pub slots: u16,
    /// Which of the models that the allocator has met.
    pub model: u16,
    /// Its NUMA node.
    pub numa: Option<u32>,
    /// Whether new pods may go there, and why not.
    pub standing: Standing,
}

/// Whether a card takes new pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// It is not there, or not any more; what was placed there still counts.
    #[default]
    Gone,
    /// Its agent says that it does not work.
    Unhealthy,
    /// The operator keeps it free.
    Cordoned,
    /// Yes.
    Open,
}

/// What of a card is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Limits and overheads.
    pub memory_mib: u64,
    /// Percent.
    pub cores: u32,
    /// Device IDs.
    pub slots: u32,
    /// Device IDs that are no MIG instances.
    pub plain_slots: u32,
    /// Memory slices under MIG instances, one bit each.
    pub mig: u64,
}

/// What one pod takes of one card of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The card's place in the node's list.
    pub card: u8,
    /// At the peak of the phases that are still to come.
    pub used: Use,
}

impl Facts {
    /// A card that is there.
    pub fn of(card: &Card, model: u16) -> Self {
        let standing = match card {
            Card { healthy: false, .. } => Standing::Unhealthy,
            Card { cordoned: true, .. } => Standing::Cordoned,
            _ => Standing::Open,
        };
        Self {
            memory_mib: mib(card.memory_mib),
            foreign_mib: mib(card.foreign_mib),
            overhead_mib: mib(card.overhead_mib),
            cores: card.cores,
            slots: card.slots.try_into().unwrap_or(u16::MAX),
            model,
            numa: card.numa,
            standing,
        }
    }

    /// Slots, cores and memory.
    pub fn has(&self) -> [u64; 3] {
        [self.slots.into(), self.cores.into(), self.memory_mib.into()]
    }

    /// All of its memory.
    pub fn memory_mib(&self) -> u64 {
        self.memory_mib.into()
    }

    /// In use by programs that are not ours.
    pub fn foreign_mib(&self) -> u64 {
        self.foreign_mib.into()
    }

    /// On top of each limit in MiB.
    pub fn overhead_mib(&self) -> u64 {
        self.overhead_mib.into()
    }

    /// What is left of the memory; nothing where more is given than is there.
    pub fn free_memory(&self, used: &Use) -> u64 {
        u64::from(self.memory_mib.saturating_sub(self.foreign_mib)).saturating_sub(used.memory_mib)
    }
}

impl Use {
    /// Slots, cores and memory.
    pub fn given(&self) -> [u64; 3] {
        [self.slots.into(), self.cores.into(), self.memory_mib]
    }

    /// With another pod.
    pub fn add(&mut self, other: &Self) {
        self.memory_mib += other.memory_mib;
        self.cores += other.cores;
        self.slots += other.slots;
        self.plain_slots += other.plain_slots;
        self.mig |= other.mig;
    }
}

/// Nothing larger comes through `check`.
fn mib(value: u64) -> u32 {
    value.try_into().unwrap_or(u32::MAX)
}
