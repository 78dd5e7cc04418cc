//! Whether one card has room for one more device ID of a pod, and why not.
//!
//! Each rule is stated here, once: the search and the fast path both call it. A card is described by what it has
//! ([`Facts`]) and what is left of it ([`Room`]).

use crate::rules::card::{Facts, Room, Standing};
use crate::rules::card_reason::CardReason;
use crate::rules::class::Class;
use crate::rules::demand::Need;
use crate::rules::mig;
use crate::rules::view::View;
use crate::wire::Mode;

/// What the IDs of a pod that are on one card at a time take of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// MiB.
    pub memory: u64,
    /// Percent.
    pub cores: u32,
    /// So many have to be left: a container that counts none needs some that nobody else has, too.
    least_cores: u32,
}

impl Asked {
    /// For one ID.
    #[inline]
    pub fn of(need: &Need, facts: &Facts) -> Self {
        let least_cores = need.cores.max(need.without_cores.into());
        Self { memory: need.memory(facts), cores: need.cores, least_cores }
    }

    /// With another ID: each that counts no cores needs some that the others leave.
    fn and(self, other: Self) -> Self {
        let least_cores = (self.least_cores + other.cores).max(other.least_cores + self.cores);
        let (memory, cores) = (self.memory + other.memory, self.cores + other.cores);
        Self { memory, cores, least_cores }
    }

    /// Whether so much is left; without a branch, because none could be foretold.
    #[inline]
    pub fn is_left(&self, room: &Room) -> bool {
        (self.memory <= room.mib()) & (self.least_cores <= room.cores())
    }

    /// What is not left, if so.
    fn check(&self, room: &Room) -> Result<(), CardReason> {
        if self.is_left(room) {
            return Ok(());
        }
        let (memory, cores) = (room.mib(), room.cores());
        Err(if self.memory > memory {
            CardReason::Memory { asked: self.memory, free: memory }
        } else if self.cores > cores {
            CardReason::Cores { asked: self.cores, free: cores }
        } else {
            CardReason::CoresGiven
        })
    }
}

/// Why the card would not do however empty, if so, to a pod that names no UUIDs.
#[inline]
pub fn usable(class: &Class, facts: &Facts) -> Result<(), CardReason> {
    match facts.standing {
        Standing::Open if class.takes_model(facts.model) => Ok(()),
        Standing::Open => Err(CardReason::OtherType),
        Standing::Gone => Err(CardReason::Gone),
        Standing::Unhealthy => Err(CardReason::Unhealthy),
        Standing::Cordoned => Err(CardReason::Cordoned),
    }
}

/// The same to any pod.
pub fn named(class: &Class, view: &View<'_>, card: usize) -> Result<(), CardReason> {
    usable(class, &view.facts[card])?;
    let wish = &class.wish;
    let uuid = &view.cards[card].uuid;
    let named = wish.uuids.is_empty() || wish.uuids.contains(uuid);
    if named && !wish.avoid.contains(uuid) { Ok(()) } else { Err(CardReason::NotNamed) }
}

/// Why the pod cannot join the others on the card, if so, however little it asks for. `own` of its IDs are there.
#[inline]
pub fn may_join(
    class: &Class,
    need: &Need,
    facts: &Facts,
    room: &Room,
    own: u32,
) -> Result<(), CardReason> {
    if let Some(share) = need.eaten_share(facts) {
        return Err(CardReason::Overhead { share, overhead: facts.overhead_mib() });
    }
    let used_slots = room.used_slots();
    if used_slots + own >= facts.slots() {
        return Err(CardReason::Slots { slots: facts.slots() });
    }
    if used_slots > 0 && class.idle_only {
        return Err(CardReason::NotIdle);
    }
    if used_slots > 0 && need.own_card(facts) {
        return Err(CardReason::InUse);
    }
    Ok(())
}

/// Whether [`may_join`] depends on nothing but a free slot, and with that on [`Room`] alone.
pub fn only_room_matters(class: &Class, need: &Need) -> bool {
    need.asks_no_share() && !need.wants_alone() && !class.idle_only
}

/// Why a card that is [`usable`] and not cut has no room for an ID of the pod, if so, before the pod's other IDs.
#[inline]
pub fn room_for_one(
    class: &Class,
    need: &Need,
    facts: &Facts,
    room: &Room,
) -> Result<(), CardReason> {
    may_join(class, need, facts, room, 0)?;
    Asked::of(need, facts).check(room)
}

/// Why this card has no room for an ID of `group` beside IDs of the groups `on` it, if so.
///
/// MIG instances are looked for by [`mig::places`] instead.
pub fn room(
    class: &Class,
    view: &View<'_>,
    card: usize,
    on: &[usize],
    group: usize,
) -> Result<(), CardReason> {
    if view.mode == Mode::Mig {
        return mig::room(class, view, card, group);
    }
    let (facts, room) = (&view.facts[card], &view.rooms[card]);
    let need = class.peaks[group].on(view.mode);
    if on.is_empty() {
        return room_for_one(class, &need, facts, room);
    }
    may_join(class, &need, facts, room, on.len() as u32)?;
    (0..class.shape.phases).try_for_each(|phase| {
        let here =
            on.iter().chain([&group]).map(|group| class.demands[*group][phase].on(view.mode));
        let asked = here.map(|need| Asked::of(&need, facts)).reduce(Asked::and);
        asked.unwrap_or_default().check(room)
    })
}
