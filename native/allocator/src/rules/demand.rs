//! What an ask weighs on a card of a given size.
//!
//! * MiB: the container's limit is what was asked for, and the card's overhead comes on top.
//! * A percentage, or the whole card, is a share *of the card*: the overhead is within it, or two halves
//!   would never fit. The limit is the share less the overhead. Shares are rounded down to MiB, so that
//!   shares of 100 % together always fit.
//!
//! Several asks may be alternatives on one device ID ([`crate::rules::shape`]): a [`Demand`] is the most of them.

use crate::rules::card::Facts;
use crate::rules::shape::{Set, members};
use crate::wire::{Ask, Memory, Mode};

/// The most that any of some asks takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is true or not of any of the asks")]
pub struct Demand {
    /// The most MiB.
    pub mib: u64,
    /// The greatest share of the card.
    pub percent: u32,
    /// The smallest share of the card, 0 = none.
    pub least_percent: u32,
    cores: u32,
    /// Whether one of them asks for no cores, for some, for all.
    none: bool,
    part: bool,
    all: bool,
    /// Whether one of them asks for less than a whole card.
    pub partial: bool,
}

impl Demand {
    /// The most of these.
    pub fn of(asks: &[Ask], which: Set) -> Self {
        let mut most = Self::default();
        for ask in members(which).map(|at| &asks[at]) {
            match ask.memory {
                Memory::Mib(mib) => {
                    most.mib = most.mib.max(mib);
                    most.partial = true;
                }
                Memory::Percent(_) | Memory::Whole => {
                    let percent = percent(&ask.memory);
                    most.percent = most.percent.max(percent);
                    let least = if most.least_percent == 0 { 100 } else { most.least_percent };
                    most.least_percent = least.min(percent);
                    most.partial |= percent < 100;
                }
            }
            most.cores = most.cores.max(ask.cores);
            most.none |= ask.cores == 0;
            most.part |= (1..100).contains(&ask.cores);
            most.all |= ask.cores == 100;
        }
        most.partial |= most.part;
        most
    }

    /// Nobody of them.
    pub fn is_nothing(&self) -> bool {
        !(self.none || self.part || self.all)
    }

    /// What it comes to on nodes of this mode.
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
            least_percent: self.least_percent.into(),
            cores,
            without_cores,
            alone: self.all || mode == Mode::Exclusive,
        }
    }
}

/// What a [`Demand`] comes to on nodes of one mode.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    mib: u64,
    percent: u64,
    least_percent: u64,
    /// Cores that count against the card.
    pub cores: u32,
    /// Whether one of the containers counts no cores at all.
    pub without_cores: bool,
    alone: bool,
}

impl Need {
    /// MiB that count against the card.
    #[inline]
    pub fn memory(&self, card: &Facts) -> u64 {
        let plain = if self.mib == 0 { 0 } else { self.mib + card.overhead_mib() };
        if self.percent == 0 {
            return plain;
        }
        plain.max(card.memory_mib() * self.percent / 100)
    }

    /// Whether one of the containers needs the card for itself. Where the operator scaled cores, 100 of
    /// them are no whole card.
    #[inline]
    pub fn own_card(&self, card: &Facts) -> bool {
        self.alone && card.cores() <= 100
    }

    /// The same, of cards whose cores nobody scaled.
    pub fn wants_alone(&self) -> bool {
        self.alone
    }

    /// Whether all memory is asked for in MiB.
    pub fn asks_no_share(&self) -> bool {
        self.least_percent == 0
    }

    /// The smallest share asked for, if the driver's overhead takes all of it: nothing would be left to the container.
    #[inline]
    pub fn eaten_share(&self, card: &Facts) -> Option<u64> {
        if self.least_percent == 0 {
            return None;
        }
        let share = card.memory_mib() * self.least_percent / 100;
        (share <= card.overhead_mib()).then_some(share)
    }
}

fn percent(memory: &Memory) -> u32 {
    match memory {
        Memory::Mib(_) => 0,
        Memory::Percent(percent) => *percent,
        Memory::Whole => 100,
    }
}

/// The limit of a container that asks so, on this card.
pub fn limit(memory: &Memory, card: &Facts) -> u64 {
    match memory {
        Memory::Mib(mib) => *mib,
        share => {
            let share = card.memory_mib() * u64::from(percent(share)) / 100;
            share.saturating_sub(card.overhead_mib())
        }
    }
}

/// The cores of a container's grant: what is neither counted nor enforced is not written.
pub fn cores(ask: &Ask, mode: Mode) -> u32 {
    match mode {
        Mode::Exclusive => 100,
        Mode::Memory if ask.cores < 100 => 0,
        _ => ask.cores,
    }
}

#[cfg(test)]
mod tests {
    use super::{Demand, limit};
    use crate::rules::card::Facts;
    use crate::wire::parse::parse;
    use crate::wire::{Ask, Kind, Memory, Mode};

    fn ask(memory: Memory, cores: u32) -> Ask {
        Ask { container: "c".into(), kind: Kind::App, cards: 1, memory, cores }
    }

    fn card() -> Facts {
        let json =
            r#"{"uuid": "g", "index": 0, "model": "T4", "memory_mib": 1001, "overhead_mib": 10}"#;
        Facts::of(&parse("card", json.as_bytes()).expect("a good card"), 0)
    }

    #[test]
    fn mib_come_with_the_overhead_and_shares_hold_it() {
        let weight = |memory| Demand::of(&[ask(memory, 0)], 1).on(Mode::Full).memory(&card());
        assert_eq!(weight(Memory::Mib(100)), 110);
        assert_eq!(weight(Memory::Percent(50)), 500);
        assert_eq!(weight(Memory::Whole), 1001);
        assert_eq!(limit(&Memory::Mib(100), &card()), 100);
        assert_eq!(limit(&Memory::Percent(50), &card()), 490);
        assert_eq!(limit(&Memory::Whole, &card()), 991);
        assert_eq!(
            Demand::of(&[ask(Memory::Percent(1), 0)], 1).on(Mode::Full).eaten_share(&card()),
            Some(10)
        );
    }

    #[test]
    fn alternatives_weigh_as_the_heaviest() {
        let asks = [ask(Memory::Mib(600), 10), ask(Memory::Percent(50), 40)];
        let both = Demand::of(&asks, 0b11);
        assert_eq!(both.on(Mode::Full).memory(&card()), 610);
        assert_eq!(both.on(Mode::Full).cores, 40);
        assert_eq!(both.on(Mode::Memory).cores, 0);
        assert!(!both.on(Mode::Full).own_card(&card()));
        assert!(Demand::of(&asks, 0).is_nothing());
    }
}
