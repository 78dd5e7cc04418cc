//! Whether one card has room: for an ID of a group, beside other pods and beside the pod's own other IDs.

use crate::rules::card::{Facts, Standing, Use};
use crate::rules::card_reason::CardReason;
use crate::rules::class::Class;
use crate::rules::mig;
use crate::rules::view::View;
use crate::wire::Mode;

/// Why this card would not do however empty, if so.
pub fn bar(class: &Class, view: &View<'_>, card: usize) -> Option<CardReason> {
    let facts = &view.facts[card];
    match facts.standing {
        Standing::Open => {}
        Standing::Gone => return Some(CardReason::Gone),
        Standing::Unhealthy => return Some(CardReason::Unhealthy),
        Standing::Cordoned => return Some(CardReason::Cordoned),
    }
    if !class.takes_model(facts.model) {
        return Some(CardReason::OtherType);
    }
    let wish = &class.wish;
    let uuid = &view.cards[card].uuid;
    let named = wish.uuids.is_empty() || wish.uuids.contains(uuid);
    if !named || wish.avoid.contains(uuid) {
        return Some(CardReason::NotNamed);
    }
    None
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
    room_beside(class, view, card, &view.used[card], on, group)
}

/// [`room`] on a card that is not cut, with this use of it by others.
pub fn room_beside(
    class: &Class,
    view: &View<'_>,
    card: usize,
    used: &Use,
    on: &[usize],
    group: usize,
) -> Result<(), CardReason> {
    let (facts, mode) = (&view.facts[card], view.mode);
    let peak = &class.peaks[group];
    if let Some(share) = peak.eaten_share(facts) {
        return Err(CardReason::Overhead { share, overhead: facts.overhead_mib() });
    }
    if used.slots + on.len() as u32 >= facts.slots.into() {
        return Err(CardReason::Slots { slots: facts.slots.into() });
    }
    if class.idle_only && used.slots > 0 {
        return Err(CardReason::NotIdle);
    }
    if used.slots > 0 && peak.own_card(mode, facts) {
        return Err(CardReason::InUse);
    }
    if on.is_empty() {
        let asked = Sum { memory: peak.memory(facts), cores: peak.cores(mode) };
        asked.within(facts, used)?;
        let full = peak.without_cores(mode) && used.cores >= facts.cores;
        return if full { Err(CardReason::CoresGiven) } else { Ok(()) };
    }
    (0..class.shape.phases).try_for_each(|phase| beside(class, view, card, used, on, group, phase))
}

#[derive(Default)]
struct Sum {
    memory: u64,
    cores: u32,
}

impl Sum {
    fn within(&self, facts: &Facts, used: &Use) -> Result<(), CardReason> {
        let free = facts.free_memory(used);
        if self.memory > free {
            return Err(CardReason::Memory { asked: self.memory, free });
        }
        let free = facts.cores.saturating_sub(used.cores);
        if self.cores > free {
            return Err(CardReason::Cores { asked: self.cores, free });
        }
        Ok(())
    }
}

/// [`room`] in one phase, with several IDs of the pod on one card.
fn beside(
    class: &Class,
    view: &View<'_>,
    card: usize,
    used: &Use,
    on: &[usize],
    group: usize,
    phase: usize,
) -> Result<(), CardReason> {
    let (facts, mode) = (&view.facts[card], view.mode);
    let here = || on.iter().chain([&group]).map(|group| &class.demands[*group][phase]);
    let mut sum = Sum::default();
    for demand in here() {
        sum.memory += demand.memory(facts);
        sum.cores += demand.cores(mode);
    }
    sum.within(facts, used)?;
    // A container without a cores limit still needs cores that are not given away.
    let starved = here().any(|demand| {
        let others = used.cores + sum.cores - demand.cores(mode);
        demand.without_cores(mode) && others >= facts.cores
    });
    if starved { Err(CardReason::CoresGiven) } else { Ok(()) }
}
