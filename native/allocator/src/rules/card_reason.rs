//! The reasons why a card does not fit, and the summary of the reasons of all cards of a node.
//!
//! To add a reason: add a variant here with its kind, code and texts, and return it from
//! `rules/fit.rs`.

use crate::wire::Level;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The reason why a card does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CardReason {
    /// The node no longer publishes the card.
    Missing,
    /// The node agent reports that the card does not work.
    Unhealthy,
    /// The operator keeps new pods off the card.
    Cordoned,
    /// The pod's annotations exclude its UUID.
    NotNamed,
    /// The pod's annotations exclude its model.
    OtherType,
    /// The card has less memory than requested, even without pods.
    MemoryInTotal {
        /// MiB.
        requested: u64,
        /// MiB.
        total: u64,
    },
    /// The card has fewer cores than requested, even without pods.
    CoresInTotal {
        /// Percent.
        requested: u32,
        /// Percent.
        total: u32,
    },
    /// There is too little free memory.
    Memory {
        /// MiB.
        requested: u64,
        /// MiB.
        free: u64,
    },
    /// There are too few free cores.
    Cores {
        /// Percent.
        requested: u32,
        /// Percent.
        free: u32,
    },
    /// All cores are allocated, so a container without a cores limit would get no time.
    CoresAllocated,
    /// The pod requests a card for itself, and other pods use this one.
    InUse,
    /// The pod requests an idle card, and other pods use this one.
    NotIdle,
    /// All device IDs are allocated.
    Slots {
        /// The number of device IDs.
        slots: u32,
    },
    /// The card offers only a weaker level than the pod accepts.
    Isolation {
        /// The least level that the pod accepts.
        requested: Level,
        /// The strongest level of the card.
        offered: Level,
    },
    /// The pod requests MIG, and the card is not in MIG mode.
    NoMig,
    /// The pod requests a card that our library shares, and the card is in MIG mode.
    Mig,
    /// No MIG profile is large enough.
    MigTooSmall {
        /// MiB.
        requested: u64,
        /// MiB of the largest profile.
        largest: u64,
    },
    /// The MIG profile has no free placement.
    MigPlacements {
        /// The name of the profile.
        profile: ProfileName,
        /// The number of instances of pods on the card.
        instances: u16,
        /// The number of memory slices that others have.
        others: u8,
    },
}

/// The name of a MIG profile, cut off after 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProfileName([u8; 16]);

impl ProfileName {
    /// The name.
    pub fn of(name: &str) -> Self {
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte);
        Self(bytes)
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(String::from_utf8_lossy(&self.0).trim_end_matches('\0'))
    }
}

/// The number of kinds of [`CardReason`].
pub(crate) const KINDS: usize = 18;

/// The first kind that lasts: the card itself is the reason, whatever its state and the other pods.
const LASTING: usize = 9;

/// The kinds of a card that can never fit. The kinds after these last until the operator changes the
/// node's mode or the card's MIG mode, or until the card is back.
const NEVER: std::ops::Range<usize> = LASTING..14;

impl CardReason {
    /// The kind of the reason. The lower it is, the closer the card is to fitting.
    pub(crate) fn kind(self) -> usize {
        match self {
            Self::Memory { .. } => 0,
            Self::Cores { .. } => 1,
            Self::CoresAllocated => 2,
            Self::InUse => 3,
            Self::NotIdle => 4,
            Self::Slots { .. } => 5,
            Self::MigPlacements { .. } => 6,
            Self::Cordoned => 7,
            Self::Unhealthy => 8,
            Self::MemoryInTotal { .. } => 9,
            Self::CoresInTotal { .. } => 10,
            Self::MigTooSmall { .. } => 11,
            Self::OtherType => 12,
            Self::NotNamed => 13,
            Self::Isolation { .. } => 14,
            Self::NoMig => 15,
            Self::Mig => 16,
            Self::Missing => 17,
        }
    }

    /// The code of the reason, for programs.
    pub fn code(self) -> &'static str {
        const CODES: [&str; KINDS] = [
            "memory",
            "cores",
            "cores-allocated",
            "in-use",
            "not-idle",
            "slots",
            "mig-placements",
            "cordoned",
            "unhealthy",
            "never-memory",
            "never-cores",
            "never-mig",
            "never-type",
            "never-uuid",
            "isolation",
            "no-mig",
            "mig",
            "missing",
        ];
        CODES[self.kind()]
    }

    /// Whether the reason lasts: the card itself is the reason.
    pub(crate) fn lasts(self) -> bool {
        self.kind() >= LASTING
    }

    /// The requested and the available amount or level, for reasons that have them.
    pub(crate) fn figures(self) -> (u64, u64) {
        match self {
            Self::Memory { requested, free } => (requested, free),
            Self::Cores { requested, free } => (requested.into(), free.into()),
            Self::MemoryInTotal { requested, total } => (requested, total),
            Self::CoresInTotal { requested, total } => (requested.into(), total.into()),
            Self::Slots { slots } => (0, slots.into()),
            Self::MigTooSmall { requested, largest } => (requested, largest),
            Self::MigPlacements { instances, others, .. } => (others.into(), instances.into()),
            Self::Isolation { requested, offered } => (requested as u64, offered as u64),
            _ => (0, 0),
        }
    }
}

impl fmt::Display for CardReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut one = Tally::default();
        one.count(*self);
        f.write_str(never(Some(self.kind())))?;
        one.sentence(f, self.kind(), "")
    }
}

/// How many cards of a node are refused for each kind of reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of cards of the node.
    pub cards: u8,
    /// The number of cards that fit.
    pub fit: u8,
    /// The number of requested cards.
    pub requested: u8,
    /// The number of cards that must fit: with MIG, one card may have all instances.
    pub least: u8,
    counts: [u8; KINDS],
    /// The largest requested and the largest available amount, by kind.
    figures: [(u64, u64); KINDS],
    /// The profile that has no free placement; empty for several.
    profile: ProfileName,
}

impl Tally {
    /// A tally without reasons.
    pub fn of(cards: u8, fit: u8, requested: u8) -> Self {
        Self { cards, fit, requested, least: requested, ..Self::default() }
    }

    /// Counts a refused card.
    pub fn count(&mut self, reason: CardReason) {
        let (kind, (requested, available)) = (reason.kind(), reason.figures());
        if let CardReason::MigPlacements { profile, .. } = reason {
            let is_same = self.counts[kind] == 0 || self.profile == profile;
            self.profile = if is_same { profile } else { ProfileName::default() };
        }
        self.counts[kind] += 1;
        let most = &mut self.figures[kind];
        *most = (most.0.max(requested), most.1.max(available));
    }

    /// The kind of the card that is closest to fitting; `None` if no card is refused. If too few
    /// cards could ever fit, it is the kind of the closest one that cannot.
    pub(crate) fn nearest(&self) -> Option<usize> {
        let from = if self.never_fits() { LASTING } else { 0 };
        (from..KINDS).find(|kind| self.counts[*kind] > 0)
    }

    /// Whether too few cards could ever fit.
    pub(crate) fn never_fits(&self) -> bool {
        let may_fit = self.fit + self.counts[..LASTING].iter().sum::<u8>();
        may_fit < self.least
    }

    /// Writes one kind of reason. `most` is the word before the available amount if there are
    /// several cards.
    pub(crate) fn sentence(
        &self,
        f: &mut fmt::Formatter<'_>,
        kind: usize,
        most: &str,
    ) -> fmt::Result {
        let (requested, available) = self.figures[kind];
        let (has, is) = match self.counts[kind] {
            1 => ("has", "is"),
            _ => ("have", "are"),
        };
        match kind {
            0 => write!(
                f,
                "{has} too little memory ({requested} MiB requested, {most}free {available})"
            ),
            1 => write!(f, "{has} too few cores ({requested} % requested, {most}free {available})"),
            2 => write!(f, "{has} all cores allocated"),
            3 => write!(f, "{is} in use, and a card for itself is requested"),
            4 => write!(f, "{is} not idle"),
            5 => write!(f, "{has} no slot left (of {available})"),
            6 => self.placements(f, has, most),
            7 => write!(f, "{is} cordoned"),
            8 => write!(f, "{is} unhealthy"),
            9 => write!(f, "{is} too small ({requested} MiB requested, {most}total {available})"),
            10 => write!(
                f,
                "{has} too few cores in total ({requested} % requested, {most}total {available})"
            ),
            11 => write!(
                f,
                "{has} no MIG profile so large ({requested} MiB requested, largest {available})"
            ),
            12 => write!(f, "{is} of another type"),
            13 => write!(f, "{is} excluded by UUID"),
            14 => {
                let [requested, offered] = [requested, available].map(level);
                write!(
                    f,
                    "{has} too weak isolation ({requested} requested, {most}offered {offered})"
                )
            }
            15 => write!(f, "{is} not in MIG mode"),
            16 => write!(f, "{is} in MIG mode, and hami-core is requested"),
            _ => write!(f, "{is} missing"),
        }
    }

    fn placements(&self, f: &mut fmt::Formatter<'_>, has: &str, most: &str) -> fmt::Result {
        let (others, instances) = self.figures[6];
        write!(f, "{has} no free placement for ")?;
        if self.profile == ProfileName::default() {
            f.write_str("their MIG profiles")?;
        } else {
            write!(f, "{}", self.profile)?;
        }
        let up_to = if most.is_empty() { "" } else { "up to " };
        let s = if instances == 1 { "" } else { "s" };
        write!(f, " (beside {up_to}{instances} instance{s}")?;
        if others > 0 {
            let s = if others == 1 { "" } else { "s" };
            write!(f, ", and {up_to}{others} memory slice{s} of others")?;
        }
        f.write_str(")")
    }
}

/// The name of a level among the figures.
fn level(figure: u64) -> &'static str {
    ["none", "preload", "kernel", "mig"][figure as usize]
}

/// The beginning of a text for this kind: whether the request can never be met.
pub(crate) fn never(kind: Option<usize>) -> &'static str {
    if kind.is_some_and(|kind| NEVER.contains(&kind)) { "never fits: " } else { "" }
}

/// Why too few cards of a node fit, by the kind of the card that is closest to fitting; `None` for a
/// node with too few cards. It has no amounts, so that nodes have the same text.
pub(crate) fn brief(nearest: Option<usize>) -> &'static str {
    const TEXTS: [&str; KINDS] = [
        "too little memory free on its cards",
        "too few cores free on its cards",
        "all cores of its cards allocated",
        "its cards are in use",
        "its cards are not idle",
        "no slot left on its cards",
        "no free placement for the MIG profile",
        "its cards are cordoned",
        "its cards are unhealthy",
        "never fits: its cards have less memory than requested",
        "never fits: its cards have fewer cores than requested",
        "never fits: no MIG profile so large",
        "never fits: its cards are of another type",
        "never fits: its cards are excluded by UUID",
        "its cards have weaker isolation than requested",
        "its cards are not in MIG mode",
        "its cards are in MIG mode, and hami-core is requested",
        "its cards are missing",
    ];
    nearest.map_or("never fits: more cards are requested than it has", |kind| TEXTS[kind])
}

impl Hash for Tally {
    /// Only of the kinds that occur: mostly two or three.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.cards, self.fit, self.requested).hash(state);
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
            write!(f, "{} fit{s} ({} requested)", self.fit, self.requested)?;
            comma = ", ";
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
    fn a_node_has_one_line() {
        let mut tally = Tally::of(8, 0, 1);
        for free in [100, 1200, 0, 7, 9] {
            tally.count(CardReason::Memory { requested: 3000, free });
        }
        (0..3).for_each(|_| tally.count(CardReason::Cordoned));
        let text = "8 cards: 5 have too little memory (3000 MiB requested, most free 1200), 3 are cordoned";
        assert_eq!(tally.to_string(), text);
    }

    #[test]
    fn nodes_that_differ_only_in_amounts_have_the_same_brief_text() {
        let of = |free: &[u64], cordoned| {
            let mut tally = Tally::of(8, 0, 1);
            for free in free {
                tally.count(CardReason::Memory { requested: 3000, free: *free });
            }
            for _ in 0..cordoned {
                tally.count(CardReason::Cordoned);
            }
            brief(tally.nearest())
        };
        assert_eq!(of(&[100, 200], 1), "too little memory free on its cards");
        assert_eq!(of(&[7], 0), of(&[100, 200], 1));
        assert_eq!(of(&[], 3), "its cards are cordoned");
        assert_eq!(brief(None), "never fits: more cards are requested than it has");
    }

    #[test]
    fn one_card_is_singular() {
        let mut tally = Tally::of(2, 1, 2);
        tally.count(CardReason::Cores { requested: 30, free: 10 });
        let text = "2 cards: 1 fits (2 requested), 1 has too few cores (30 % requested, free 10)";
        assert_eq!(tally.to_string(), text);
        assert_eq!(CardReason::Missing.to_string(), "is missing");
    }
}
