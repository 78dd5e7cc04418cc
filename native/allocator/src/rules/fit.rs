//! Whether one card has room for one more device ID of a pod, and why not.
//!
//! This file states each rule for a card once. The search, the fast path and `explain` all call it.
//! A card is described by what it has ([`Facts`]) and by the room that it has for new pods
//! ([`Room`]).

use crate::rules::card::{CardState, Facts, Room};
use crate::rules::card_reason::CardReason;
use crate::rules::class::Class;
use crate::rules::demand::Need;
use crate::rules::mig;
use crate::rules::view::View;
use crate::wire::{Level, Sharing};

/// The part of a card that the device IDs of one pod take at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Required {
    /// Memory in MiB.
    pub memory: u64,
    /// Cores in percent.
    pub cores: u32,
    /// The cores that must be free. A container without a cores limit has no cores counted, but
    /// must find at least one that no other container has.
    least_cores: u32,
}

impl Required {
    /// The part that one ID takes.
    #[inline]
    pub fn of(need: &Need, facts: &Facts) -> Self {
        let least_cores = need.cores.max(need.without_cores.into());
        Self { memory: need.memory(facts), cores: need.cores, least_cores }
    }

    /// The part that two IDs take together. An ID without cores needs one core that the other ID
    /// leaves.
    fn and(self, other: Self) -> Self {
        let least_cores = (self.least_cores + other.cores).max(other.least_cores + self.cores);
        let (memory, cores) = (self.memory + other.memory, self.cores + other.cores);
        Self { memory, cores, least_cores }
    }

    /// Whether the room is large enough. There is no branch, because its outcome could not be
    /// predicted.
    #[inline]
    pub fn fits(&self, room: &Room) -> bool {
        (self.memory <= room.mib()) & (self.least_cores <= room.cores())
    }

    /// The reason why the card is too small even if it is empty, if it is.
    fn check_total(&self, facts: &Facts) -> Result<(), CardReason> {
        let (memory, cores) = (facts.memory_mib(), facts.cores());
        if self.memory > memory {
            return Err(CardReason::MemoryInTotal { requested: self.memory, total: memory });
        }
        if self.cores > cores {
            return Err(CardReason::CoresInTotal { requested: self.cores, total: cores });
        }
        Ok(())
    }

    /// The reason why the room is too small, if it is.
    fn check(&self, room: &Room) -> Result<(), CardReason> {
        if self.fits(room) {
            return Ok(());
        }
        let (memory, cores) = (room.mib(), room.cores());
        Err(if self.memory > memory {
            CardReason::Memory { requested: self.memory, free: memory }
        } else if self.cores > cores {
            CardReason::Cores { requested: self.cores, free: cores }
        } else {
            CardReason::CoresAllocated
        })
    }
}

/// Whether the card takes new pods, and its model and level are allowed.
#[inline]
pub fn usable(class: &Class, facts: &Facts) -> bool {
    facts.state == CardState::Schedulable
        && class.takes_model(facts.model)
        && class.takes_level(facts.level)
}

/// The reason why the pod does not get the card because of its model or level, if there is one.
#[inline]
fn check_kind(class: &Class, facts: &Facts) -> Result<(), CardReason> {
    if facts.state == CardState::Missing {
        return Err(CardReason::Missing);
    }
    if !class.takes_model(facts.model) {
        return Err(CardReason::OtherType);
    }
    if class.takes_level(facts.level) { Ok(()) } else { Err(other_level(class, facts.level)) }
}

/// The reason why the pod does not get a card of this level.
#[cold]
fn other_level(class: &Class, offered: Level) -> CardReason {
    match (class.card_request.mode, offered) {
        (Some(Sharing::HamiCore), Level::Mig) => CardReason::Mig,
        (Some(Sharing::Mig), _) => CardReason::NoMig,
        _ => CardReason::Isolation { requested: class.card_request.isolation, offered },
    }
}

/// The reason why the pod never gets the card because of its UUID, if there is one.
fn check_uuid(class: &Class, uuid: &String) -> Result<(), CardReason> {
    let card_request = &class.card_request;
    let named = card_request.uuids.is_empty() || card_request.uuids.contains(uuid);
    if named && !card_request.avoid.contains(uuid) { Ok(()) } else { Err(CardReason::NotNamed) }
}

/// The reason why the card takes no new pod now, if there is one.
fn check_state(facts: &Facts) -> Result<(), CardReason> {
    match facts.state {
        CardState::Schedulable => Ok(()),
        CardState::Missing => Err(CardReason::Missing),
        CardState::Unhealthy => Err(CardReason::Unhealthy),
        CardState::Cordoned => Err(CardReason::Cordoned),
    }
}

/// The reason why the card can never have an ID of the pod, whatever its state and the other pods.
/// Not for MIG, and not for a pod that names UUIDs.
#[inline]
pub fn may_ever_fit(class: &Class, need: &Need, facts: &Facts) -> Result<(), CardReason> {
    check_kind(class, facts)?;
    Required::of(need, facts).check_total(facts)
}

/// The reason why the card cannot have the first ID of the pod on it. A reason that lasts comes
/// before one that may end. Not for MIG, and not for a pod that names UUIDs.
#[inline]
pub fn fits_now(class: &Class, need: &Need, facts: &Facts, room: &Room) -> Result<(), CardReason> {
    may_ever_fit(class, need, facts)?;
    check_state(facts)?;
    room_for_one(class, need, facts, room)
}

/// The same for the first ID of `group`, for every pod and mode.
pub fn fits(class: &Class, view: &View<'_>, card: usize, group: usize) -> Result<(), CardReason> {
    let (facts, room) = (&view.facts[card], &view.rooms[card]);
    check_kind(class, facts)?;
    check_uuid(class, &view.cards[card].uuid)?;
    if let Some(mig) = &view.cards[card].mig {
        mig::check_profile(class, mig, facts, group)?;
        check_state(facts)?;
        return mig::room(class, view, card, mig, group);
    }
    fits_now(class, &class.peaks[group].on(view.mode), facts, room)
}

/// The reason why the card is excluded however little memory and cores the pod requests, if it is.
/// `own` is the number of the pod's IDs on the card.
#[inline]
pub fn may_join(
    class: &Class,
    need: &Need,
    facts: &Facts,
    room: &Room,
    own: u32,
) -> Result<(), CardReason> {
    let allocated_slots = room.allocated_slots();
    if allocated_slots + own >= facts.slots() {
        return Err(CardReason::Slots { slots: facts.slots() });
    }
    if allocated_slots > 0 && class.idle_only {
        return Err(CardReason::NotIdle);
    }
    if allocated_slots > 0 && need.own_card(facts) {
        return Err(CardReason::InUse);
    }
    Ok(())
}

/// Whether [`may_join`] only depends on a free slot. Then [`Required::fits`] alone decides on a
/// usable card, because a card without a free slot has no room.
pub fn only_room_matters(class: &Class, need: &Need) -> bool {
    !need.requires_own_card() && !class.idle_only
}

/// The reason why a usable card has no room for the first ID of the pod on it, if it has none. Not
/// for MIG.
#[inline]
pub fn room_for_one(
    class: &Class,
    need: &Need,
    facts: &Facts,
    room: &Room,
) -> Result<(), CardReason> {
    may_join(class, need, facts, room, 0)?;
    Required::of(need, facts).check(room)
}

/// The reason why this card has no room for an ID of `group`, if it has none. The pod's IDs of the
/// groups `on` are on the card already. Not for MIG: see [`mig::free_placements`].
pub fn room(
    class: &Class,
    view: &View<'_>,
    card: usize,
    on: &[usize],
    group: usize,
) -> Result<(), CardReason> {
    let (facts, room) = (&view.facts[card], &view.rooms[card]);
    let need = class.peaks[group].on(view.mode);
    if on.is_empty() {
        return room_for_one(class, &need, facts, room);
    }
    may_join(class, &need, facts, room, on.len() as u32)?;
    (0..class.shape.phases).try_for_each(|phase| {
        let here =
            on.iter().chain([&group]).map(|group| class.demands[*group][phase].on(view.mode));
        let required = here.map(|need| Required::of(&need, facts)).reduce(Required::and);
        required.unwrap_or_default().check(room)
    })
}
