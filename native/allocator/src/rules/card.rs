//! A card in the allocator: what it has, what of it is allocated, and what room is left.

use crate::rules::fullness::{self, Scale};
use crate::wire::{Card, Level};

/// The properties of a card that pods do not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    memory_mib: u32,
    foreign_mib: u32,
    cores: u16,
    slots: u16,
    /// The number of its model in the allocator's list of models.
    pub model: u16,
    /// Whether it takes new pods.
    pub state: CardState,
    /// The strongest level that it offers.
    pub level: Level,
}

/// Whether a card takes new pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum CardState {
    /// The node no longer publishes it. Pods that have it still count.
    #[default]
    Missing,
    /// The node agent reports that it does not work.
    Unhealthy,
    /// The operator keeps new pods off it.
    Cordoned,
    /// It takes new pods.
    Schedulable,
}

/// The allocated part of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// MiB.
    pub memory_mib: u64,
    /// Percent.
    pub cores: u32,
    /// Device IDs.
    pub slots: u32,
    /// Device IDs that are not MIG instances.
    pub plain_slots: u32,
    /// The memory slices of MIG instances, one bit each.
    pub mig: u64,
}

/// The room of a card for new pods. A filter reads tens of thousands of these, so each takes only
/// 12 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    full: u32,
    mib: u32,
    cores: u16,
    allocated_slots: u16,
}

/// The part of a card that one pod takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The index of the card on the node.
    pub card: u8,
    /// The peak over the phases of the pod that are still to come.
    pub allocated: Allocated,
}

impl Facts {
    /// The facts of a published card.
    pub fn of(card: &Card, model: u16) -> Self {
        let state = match card {
            Card { healthy: false, .. } => CardState::Unhealthy,
            Card { cordoned: true, .. } => CardState::Cordoned,
            _ => CardState::Schedulable,
        };
        Self {
            memory_mib: as_u32(card.memory_mib),
            foreign_mib: as_u32(card.foreign_mib),
            cores: as_u16(card.cores),
            slots: as_u16(card.slots),
            model,
            state,
            level: if card.mig.is_some() { Level::Mig } else { card.level },
        }
    }

    /// The same card if it takes new pods, and no program outside of our slices uses it.
    pub fn in_order(&self) -> Self {
        match self.state {
            CardState::Missing => *self,
            _ => Self { state: CardState::Schedulable, foreign_mib: 0, ..*self },
        }
    }

    /// Slots, cores and memory.
    #[inline]
    pub fn capacity(&self) -> [u64; 3] {
        [self.slots.into(), self.cores.into(), self.memory_mib.into()]
    }

    /// The total memory.
    #[inline]
    pub fn memory_mib(&self) -> u64 {
        self.memory_mib.into()
    }

    /// Memory that programs outside of our slices use.
    pub fn foreign_mib(&self) -> u64 {
        self.foreign_mib.into()
    }

    /// Percent that can be allocated.
    #[inline]
    pub fn cores(&self) -> u32 {
        self.cores.into()
    }

    /// Device IDs that can be allocated.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.slots.into()
    }

    /// The free memory; 0 if more is allocated than the card has.
    pub fn free_memory(&self, allocated: &Allocated) -> u64 {
        let usable = u64::from(self.memory_mib.saturating_sub(self.foreign_mib));
        usable.saturating_sub(allocated.memory_mib)
    }

    /// The free cores; 0 if more are allocated than the card has.
    pub fn free_cores(&self, allocated: &Allocated) -> u32 {
        self.cores().saturating_sub(allocated.cores)
    }

    /// The free device IDs; 0 if more are allocated than the card has.
    pub fn free_slots(&self, allocated: &Allocated) -> u32 {
        self.slots().saturating_sub(allocated.slots)
    }
}

impl Allocated {
    /// Slots, cores and memory.
    pub fn amounts(&self) -> [u64; 3] {
        [self.slots.into(), self.cores.into(), self.memory_mib]
    }

    /// Adds what another pod takes.
    pub fn add(&mut self, other: &Self) {
        self.memory_mib += other.memory_mib;
        self.cores += other.cores;
        self.slots += other.slots;
        self.plain_slots += other.plain_slots;
        self.mig |= other.mig;
    }
}

impl Room {
    /// The room of a card. `scale` is the scale of the default weights.
    pub fn of(facts: &Facts, allocated: &Allocated, scale: &mut Scale) -> Self {
        let part = scale.for_capacity(facts.capacity()).part(allocated.amounts());
        let full = fullness::whole(part).try_into().unwrap_or(u32::MAX);
        Self { full, ..Self::without_fullness(facts, allocated) }
    }

    /// The room of a card of which nothing is allocated.
    pub fn empty(facts: &Facts) -> Self {
        Self::without_fullness(facts, &Allocated::default())
    }

    fn without_fullness(facts: &Facts, allocated: &Allocated) -> Self {
        let is_closed = facts.state != CardState::Schedulable || facts.free_slots(allocated) == 0;
        Self {
            full: 0,
            mib: if is_closed { 0 } else { as_u32(facts.free_memory(allocated)) },
            cores: as_u16(facts.free_cores(allocated)),
            allocated_slots: as_u16(allocated.slots),
        }
    }

    /// How full the card is by the default weights, in millionths.
    #[inline]
    pub fn full(&self) -> i64 {
        self.full.into()
    }

    /// Memory for new pods: the free memory, or 0 if the card takes no new pod or has no free slot.
    #[inline]
    pub fn mib(&self) -> u64 {
        self.mib.into()
    }

    /// The free cores.
    #[inline]
    pub fn cores(&self) -> u32 {
        self.cores.into()
    }

    /// The allocated device IDs.
    #[inline]
    pub fn allocated_slots(&self) -> u32 {
        self.allocated_slots.into()
    }

    /// The allocated slots, cores and memory of a card that takes new pods.
    #[inline]
    pub fn allocated(&self, facts: &Facts) -> [u64; 3] {
        let usable = facts.memory_mib.saturating_sub(facts.foreign_mib);
        let cores = facts.cores - self.cores;
        [self.allocated_slots.into(), cores.into(), (usable - self.mib).into()]
    }
}

/// The number of cards that their node publishes.
pub fn published(facts: &[Facts]) -> usize {
    facts.iter().filter(|facts| facts.state != CardState::Missing).count()
}

/// Published values fit (`wire::check`). Sums over bound pods may not; then they are far more than
/// a card has.
fn as_u32(value: u64) -> u32 {
    value.try_into().unwrap_or(u32::MAX)
}

/// The same for cores and slots.
fn as_u16(value: u32) -> u16 {
    value.try_into().unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::Room;

    #[test]
    fn the_room_of_a_card_takes_twelve_bytes() {
        assert_eq!(size_of::<Room>(), 12);
    }
}
