//! A card in the books: what it has, and what of it is given.

use crate::rules::fullness::{self, Scale};
use crate::wire::Card;

/// What a card has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    memory_mib: u32,
    foreign_mib: u32,
    overhead_mib: u32,
    cores: u16,
    slots: u16,
    /// Which of the models that the allocator has met.
    pub model: u16,
    /// Whether new pods may go there, and why not.
    pub standing: Standing,
}

/// What is left of a card for new pods. A filter reads tens of thousands of these: 12 bytes each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    full: u32,
    mib: u32,
    cores: u16,
    used_slots: u16,
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
            memory_mib: small(card.memory_mib),
            foreign_mib: small(card.foreign_mib),
            overhead_mib: small(card.overhead_mib),
            cores: smaller(card.cores),
            slots: smaller(card.slots),
            model,
            standing,
        }
    }

    /// Slots, cores and memory.
    #[inline]
    pub fn has(&self) -> [u64; 3] {
        [self.slots.into(), self.cores.into(), self.memory_mib.into()]
    }

    /// All of its memory.
    #[inline]
    pub fn memory_mib(&self) -> u64 {
        self.memory_mib.into()
    }

    /// In use by programs that are not ours.
    pub fn foreign_mib(&self) -> u64 {
        self.foreign_mib.into()
    }

    /// On top of each limit in MiB.
    #[inline]
    pub fn overhead_mib(&self) -> u64 {
        self.overhead_mib.into()
    }

    /// Percent to give.
    #[inline]
    pub fn cores(&self) -> u32 {
        self.cores.into()
    }

    /// Device IDs to give.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.slots.into()
    }

    /// What is left of the memory; nothing where more is given than is there.
    pub fn free_memory(&self, used: &Use) -> u64 {
        u64::from(self.memory_mib.saturating_sub(self.foreign_mib)).saturating_sub(used.memory_mib)
    }

    /// What is left of the cores.
    pub fn free_cores(&self, used: &Use) -> u32 {
        self.cores().saturating_sub(used.cores)
    }

    /// What is left of the device IDs.
    pub fn free_slots(&self, used: &Use) -> u32 {
        self.slots().saturating_sub(used.slots)
    }
}

impl Room {
    /// Of a card where so much is given; `scale` is the one of the usual weights.
    pub fn of(facts: &Facts, used: &Use, scale: &mut Scale) -> Self {
        let full = fullness::whole(scale.made_for(facts.has()).part(used.given()));
        Self { full: full.try_into().unwrap_or(u32::MAX), ..Self::without_fullness(facts, used) }
    }

    /// Of a card of which nothing is given.
    pub fn empty(facts: &Facts) -> Self {
        Self::without_fullness(facts, &Use::default())
    }

    fn without_fullness(facts: &Facts, used: &Use) -> Self {
        let closed = facts.standing != Standing::Open || facts.free_slots(used) == 0;
        Self {
            full: 0,
            mib: if closed { 0 } else { small(facts.free_memory(used)) },
            cores: smaller(facts.free_cores(used)),
            used_slots: smaller(used.slots),
        }
    }

    /// How full the card is by the usual weights, in millionths.
    #[inline]
    pub fn full(&self) -> i64 {
        self.full.into()
    }

    /// Memory that a new pod may have: what is left, and nothing on a card that takes none.
    #[inline]
    pub fn mib(&self) -> u64 {
        self.mib.into()
    }

    /// Percent that are left.
    #[inline]
    pub fn cores(&self) -> u32 {
        self.cores.into()
    }

    /// Device IDs that are given.
    #[inline]
    pub fn used_slots(&self) -> u32 {
        self.used_slots.into()
    }

    /// What is given of a card that takes new pods: slots, cores and memory.
    #[inline]
    pub fn given(&self, facts: &Facts) -> [u64; 3] {
        let usable = facts.memory_mib.saturating_sub(facts.foreign_mib);
        let cores = facts.cores - self.cores;
        [self.used_slots.into(), cores.into(), (usable - self.mib).into()]
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

/// Nothing larger comes through `check`, but for sums of what is bound, and no card has that much.
fn small(value: u64) -> u32 {
    value.try_into().unwrap_or(u32::MAX)
}

/// The same of cores and slots.
fn smaller(value: u32) -> u16 {
    value.try_into().unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::Room;

    #[test]
    fn what_is_left_takes_twelve_bytes() {
        assert_eq!(size_of::<Room>(), 12);
    }
}
