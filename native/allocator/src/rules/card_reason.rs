//! Why a card does not do, and the reasons of a node's cards in one line.

use std::fmt;
use std::hash::{Hash, Hasher};

/// Why one card does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CardReason {
    /// It is not there any more.
    Gone,
    /// Its node agent says that it does not work.
    Unhealthy,
    /// The operator keeps it free.
    Cordoned,
    /// The pod wishes for other UUIDs.
    NotNamed,
    /// The pod wishes for another type.
    OtherType,
    /// Memory: asked for with overhead, and free.
    Memory {
        /// MiB.
        asked: u64,
        /// MiB.
        free: u64,
    },
    /// The share of memory is no more than what the driver takes.
    Overhead {
        /// MiB.
        share: u64,
        /// MiB.
        overhead: u64,
    },
    /// Percent: asked for, and free.
    Cores {
        /// Percent.
        asked: u32,
        /// Percent.
        free: u32,
    },
    /// All cores are given; who asks for none would get none.
    CoresGiven,
    /// A card for the pod alone was asked for, and others are on this one.
    InUse,
    /// The pod wishes for idle cards.
    NotIdle,
    /// All device IDs are given.
    Slots {
        /// How many there are.
        slots: u32,
    },
    /// It cannot be cut into instances.
    NoMig,
    /// No profile is large enough.
    MigTooSmall {
        /// MiB.
        asked: u64,
        /// MiB of the largest.
        largest: u64,
    },
    /// The profile has no free place.
    MigPlaces,
}

/// How many kinds of [`CardReason`] there are.
pub(crate) const KINDS: usize = 15;

impl CardReason {
    pub(crate) fn kind(self) -> usize {
        match self {
            Self::Memory { .. } => 0,
            Self::Cores { .. } => 1,
            Self::CoresGiven => 2,
            Self::InUse => 3,
            Self::NotIdle => 4,
            Self::Slots { .. } => 5,
            Self::MigPlaces => 6,
            Self::MigTooSmall { .. } => 7,
            Self::NoMig => 8,
            Self::Overhead { .. } => 9,
            Self::OtherType => 10,
            Self::NotNamed => 11,
            Self::Cordoned => 12,
            Self::Unhealthy => 13,
            Self::Gone => 14,
        }
    }

    /// A word for programs.
    pub fn code(self) -> &'static str {
        const CODES: [&str; KINDS] = [
            "memory",
            "cores",
            "cores-given",
            "in-use",
            "not-idle",
            "slots",
            "mig-places",
            "mig-too-small",
            "no-mig",
            "overhead",
            "other-type",
            "not-named",
            "cordoned",
            "unhealthy",
            "gone",
        ];
        CODES[self.kind()]
    }

    /// What is asked for and what is there, where it is a matter of how much.
    pub(crate) fn figures(self) -> (u64, u64) {
        match self {
            Self::Memory { asked, free } => (asked, free),
            Self::Cores { asked, free } => (asked.into(), free.into()),
            Self::Slots { slots } => (0, slots.into()),
            Self::MigTooSmall { asked, largest } => (asked, largest),
            Self::Overhead { share, overhead } => (share, overhead),
            _ => (0, 0),
        }
    }
}

impl fmt::Display for CardReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut one = Tally::default();
        one.count(*self);
        one.sentence(f, self.kind(), "")
    }
}

/// The reasons of a node's cards, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many cards the node has.
    pub cards: u8,
    /// How many would do.
    pub fit: u8,
    /// How many are asked for.
    pub wanted: u8,
    counts: [u8; KINDS],
    /// By kind: the most that was asked for, the most that is there.
    figures: [(u64, u64); KINDS],
}

impl Tally {
    /// So many cards, of which so many would do, and so many are asked for.
    pub fn of(cards: u8, fit: u8, wanted: u8) -> Self {
        Self { cards, fit, wanted, ..Self::default() }
    }

    /// One more card.
    pub fn count(&mut self, reason: CardReason) {
        let (kind, (asked, there)) = (reason.kind(), reason.figures());
        self.counts[kind] += 1;
        let most = &mut self.figures[kind];
        *most = (most.0.max(asked), most.1.max(there));
    }

    /// The kind of reason of the card that is nearest to doing; none where no card is refused.
    pub(crate) fn nearest(&self) -> Option<usize> {
        (0..KINDS).find(|kind| self.counts[*kind] > 0)
    }

    /// One kind of reason in words; `most` stands before what is free where several cards are meant.
    pub(crate) fn sentence(
        &self,
        f: &mut fmt::Formatter<'_>,
        kind: usize,
        most: &str,
    ) -> fmt::Result {
        let (asked, there) = self.figures[kind];
        let (has, is, does) = match self.counts[kind] {
            1 => ("has", "is", "does"),
            _ => ("have", "are", "do"),
        };
        match kind {
            0 => write!(f, "{has} too little memory ({asked} MiB asked, {most}free {there})"),
            1 => write!(f, "{has} too few cores ({asked} % asked, {most}free {there})"),
            2 => write!(f, "{has} all cores given"),
            3 => write!(f, "{is} in use and a card of one's own is asked for"),
            4 => write!(f, "{is} not idle"),
            5 => write!(f, "{has} no slot left (of {there})"),
            6 => write!(f, "{has} no free place for the MIG profile"),
            7 => write!(f, "{has} no MIG profile so large ({asked} MiB asked, largest {there})"),
            8 => write!(f, "{does} not do MIG"),
            9 => write!(f, "{has} overhead beyond the share asked for ({asked} MiB of {there})"),
            10 => write!(f, "{is} of another type"),
            11 => write!(f, "{is} excluded by UUID"),
            12 => write!(f, "{is} cordoned"),
            13 => write!(f, "{is} unhealthy"),
            _ => write!(f, "{is} gone"),
        }
    }
}

/// Why too few cards do, by the kind of reason of the one that is nearest to doing, without figures.
pub(crate) fn brief(nearest: Option<usize>) -> &'static str {
    const WORDS: [&str; KINDS] = [
        "too little memory free on its cards",
        "too few cores free on its cards",
        "all cores of its cards given",
        "its cards are in use",
        "its cards are not idle",
        "no slot left on its cards",
        "no free place for the MIG profile",
        "no MIG profile so large",
        "its cards do not do MIG",
        "overhead beyond the share asked for",
        "its cards are of another type",
        "its cards are excluded by UUID",
        "its cards are cordoned",
        "its cards are unhealthy",
        "its cards are gone",
    ];
    nearest.map_or("too few cards", |kind| WORDS[kind])
}

impl Hash for Tally {
    /// Of the kinds that there are: two or three of many.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.cards, self.fit, self.wanted).hash(state);
        for kind in (0..KINDS).filter(|kind| self.counts[*kind] > 0) {
            (kind, self.counts[kind], self.figures[kind]).hash(state);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cards == 1 { "" } else { "s" };
        write!(f, "{} card{plural}: ", self.cards)?;
        let mut comma = "";
        if self.fit > 0 {
            let s = if self.fit == 1 { "s" } else { "" };
            write!(f, "{} fit{s} ({} asked)", self.fit, self.wanted)?;
            comma = ", ";
        } else if self.counts.iter().all(|count| *count == 0) {
            write!(f, "{} asked", self.wanted)?;
        }
        for kind in (0..KINDS).filter(|kind| self.counts[*kind] > 0) {
            write!(f, "{comma}{} ", self.counts[kind])?;
            self.sentence(f, kind, if self.counts[kind] == 1 { "" } else { "most " })?;
            comma = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{CardReason, Tally, brief};

    #[test]
    fn a_node_says_it_in_one_line() {
        let mut tally = Tally::of(8, 0, 1);
        for free in [100, 1200, 0, 7, 9] {
            tally.count(CardReason::Memory { asked: 3000, free });
        }
        (0..3).for_each(|_| tally.count(CardReason::Cordoned));
        let said =
            "8 cards: 5 have too little memory (3000 MiB asked, most free 1200), 3 are cordoned";
        assert_eq!(tally.to_string(), said);
    }

    #[test]
    fn nodes_that_differ_in_figures_alone_say_the_same() {
        let of = |free: &[u64], cordoned| {
            let mut tally = Tally::of(8, 0, 1);
            for free in free {
                tally.count(CardReason::Memory { asked: 3000, free: *free });
            }
            for _ in 0..cordoned {
                tally.count(CardReason::Cordoned);
            }
            brief(tally.nearest())
        };
        assert_eq!(of(&[100, 200], 1), "too little memory free on its cards");
        assert_eq!(of(&[7], 0), of(&[100, 200], 1));
        assert_eq!(of(&[], 3), "its cards are cordoned");
        assert_eq!(of(&[], 0), "too few cards");
    }

    #[test]
    fn one_is_not_many() {
        let mut tally = Tally::of(2, 1, 2);
        tally.count(CardReason::Cores { asked: 30, free: 10 });
        let said = "2 cards: 1 fits (2 asked), 1 has too few cores (30 % asked, free 10)";
        assert_eq!(tally.to_string(), said);
        assert_eq!(CardReason::Gone.to_string(), "is gone");
    }
}
