//! How much of a card a container takes.
//!
//! A container takes the memory of its limit, and no more: memory that the driver uses for a
//! container is part of its limit. Percentages are rounded down to MiB, so that 100 % together
//! always fit.
//!
//! A published MIG instance is the limit by itself, so a container takes all of its memory.
//!
//! One device ID can serve several containers, one at a time ([`crate::rules::shape`]). A
//! [`Demand`] is the maximum over these containers, and a [`Need`] is a demand on nodes of one
//! mode.

use crate::rules::card::Facts;
use crate::rules::shape::{Set, members};
use crate::wire::{ContainerRequest, Level, Memory, Mode};

/// The maximum over some containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "four independent facts about a set of containers"
)]
pub struct Demand {
    /// The most memory that is requested in MiB.
    pub mib: u64,
    /// The largest requested share of the card, in percent.
    pub percent: u32,
    cores: u32,
    /// Whether a container requests no cores, some cores, or all cores.
    none: bool,
    part: bool,
    all: bool,
    /// Whether a container requests less than a whole card.
    pub partial: bool,
}

impl Demand {
    /// The demand of the containers in `which`.
    pub fn of(containers: &[ContainerRequest], which: Set) -> Self {
        let mut most = Self::default();
        for container in members(which).map(|at| &containers[at]) {
            match container.memory {
                Memory::Mib(mib) => {
                    most.mib = most.mib.max(mib);
                    most.partial = true;
                }
                Memory::Percent(_) | Memory::Whole => {
                    let percent = percent(&container.memory);
                    most.percent = most.percent.max(percent);
                    most.partial |= percent < 100;
                }
            }
            most.cores = most.cores.max(container.cores);
            most.none |= container.cores == 0;
            most.part |= (1..100).contains(&container.cores);
            most.all |= container.cores == 100;
        }
        most.partial |= most.part;
        most
    }

    /// Whether there is no container.
    pub fn is_nothing(&self) -> bool {
        !(self.none || self.part || self.all)
    }

    /// The need on nodes of this mode.
    pub fn on(&self, mode: Mode) -> Need {
        let (cores, without_cores) = match mode {
            Mode::Exclusive if !self.is_nothing() => (100, false),
            Mode::Exclusive => (self.cores, false),
            Mode::Memory if !self.all => (0, self.none || self.part),
            Mode::Memory => (self.cores, self.none || self.part),
            _ => (self.cores, self.none),
        };
        Need {
            mib: self.mib,
            percent: self.percent.into(),
            cores,
            without_cores,
            alone: self.all || mode == Mode::Exclusive,
        }
    }
}

/// The requirements of a [`Demand`] for a card, on nodes of one mode.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    mib: u64,
    percent: u64,
    /// The cores that count as allocated.
    pub cores: u32,
    /// Whether there is a container that has no cores counted.
    pub without_cores: bool,
    alone: bool,
}

impl Need {
    /// The memory that counts as allocated, in MiB.
    #[inline]
    pub fn memory(&self, card: &Facts) -> u64 {
        let percent = if card.level == Level::Mig { 100 } else { self.percent };
        self.mib.max(card.memory_mib() * percent / 100)
    }

    /// Whether a container must have the card for itself. On a card with more than 100 cores, 100
    /// cores are not the whole card.
    #[inline]
    pub fn own_card(&self, card: &Facts) -> bool {
        self.alone && card.cores() <= 100
    }

    /// Whether a container must have a card of 100 cores for itself.
    pub fn requires_own_card(&self) -> bool {
        self.alone
    }
}

fn percent(memory: &Memory) -> u32 {
    match memory {
        Memory::Mib(_) => 0,
        Memory::Percent(percent) => *percent,
        Memory::Whole => 100,
    }
}

/// The memory limit of a container on this card.
pub fn limit(memory: &Memory, card: &Facts) -> u64 {
    match memory {
        _ if card.level == Level::Mig => card.memory_mib(),
        Memory::Mib(mib) => *mib,
        share => card.memory_mib() * u64::from(percent(share)) / 100,
    }
}

/// The cores that are allocated to a container: 0 if the node neither counts nor enforces them.
pub fn cores(container: &ContainerRequest, mode: Mode) -> u32 {
    match mode {
        Mode::Exclusive => 100,
        Mode::Memory if container.cores < 100 => 0,
        _ => container.cores,
    }
}

#[cfg(test)]
mod tests {
    use super::{Demand, limit};
    use crate::rules::card::Facts;
    use crate::wire::parse::parse;
    use crate::wire::{ContainerRequest, Kind, Memory, Mode};

    fn container(memory: Memory, cores: u32) -> ContainerRequest {
        ContainerRequest { name: "c".into(), kind: Kind::App, cards: 1, memory, cores }
    }

    fn card() -> Facts {
        facts("preload")
    }

    fn facts(level: &str) -> Facts {
        let json = format!(
            r#"{{"uuid": "g", "index": 0, "model": "T4", "memory_mib": 1001, "level": "{level}"}}"#
        );
        Facts::of(&parse("card", json.as_bytes()).expect("a good card"), 0)
    }

    #[test]
    fn a_container_takes_its_limit() {
        for (memory, mib) in
            [(Memory::Mib(100), 100), (Memory::Percent(50), 500), (Memory::Whole, 1001)]
        {
            let need = Demand::of(&[container(memory, 0)], 1).on(Mode::Full);
            assert_eq!((need.memory(&card()), limit(&memory, &card())), (mib, mib));
        }
    }

    #[test]
    fn a_container_takes_a_whole_mig_instance() {
        let card = facts("mig");
        for (memory, mib) in [(Memory::Mib(100), 1001), (Memory::Percent(50), 1001)] {
            let need = Demand::of(&[container(memory, 0)], 1).on(Mode::Full);
            assert_eq!((need.memory(&card), limit(&memory, &card)), (mib, mib));
        }
        let need = Demand::of(&[container(Memory::Mib(1002), 0)], 1).on(Mode::Full);
        assert_eq!(need.memory(&card), 1002, "it does not fit");
    }

    #[test]
    fn a_demand_is_the_maximum_of_its_containers() {
        let containers = [container(Memory::Mib(600), 10), container(Memory::Percent(50), 40)];
        let both = Demand::of(&containers, 0b11);
        assert_eq!(both.on(Mode::Full).memory(&card()), 600);
        assert_eq!(both.on(Mode::Full).cores, 40);
        assert_eq!(both.on(Mode::Memory).cores, 0);
        assert!(!both.on(Mode::Full).own_card(&card()));
        assert!(Demand::of(&containers, 0).is_nothing());
    }
}
