//! From device IDs on cards to what each container is told.

use crate::rules::card::Use;
use crate::rules::class::Class;
use crate::rules::demand;
use crate::rules::mig::{self, Place};
use crate::rules::view::View;
use crate::wire::{Ask, Grant, Instance};

/// One device ID: of which group, on which card, and as which instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index into the shape's groups.
    pub group: u8,
    /// Index into the node's cards.
    pub card: u8,
    /// Where the card is cut.
    pub place: Option<Place>,
}

/// What each card would have to give for the entries: the most in any phase of the pod's life.
pub fn loads(class: &Class, view: &View<'_>, entries: &[Entry], loads: &mut Vec<(u8, Use)>) {
    loads.clear();
    for entry in entries {
        if loads.iter().any(|(card, _)| *card == entry.card) {
            continue;
        }
        let here = || entries.iter().filter(|other| other.card == entry.card);
        let facts = &view.facts[usize::from(entry.card)];
        let mut load = Use { slots: here().count() as u32, ..Use::default() };
        if let Some(mig) =
            view.cards[usize::from(entry.card)].mig.as_ref().filter(|_| entry.place.is_some())
        {
            for place in here().filter_map(|entry| entry.place) {
                let profile = &mig.profiles[place.profile];
                load.memory_mib += profile.memory_mib;
                load.cores += mig::cores(mig, profile);
                load.mig |= mig::mask(place.start, profile.size);
            }
        } else {
            for phase in 0..class.shape.phases {
                let needs = || {
                    here().map(|entry| class.demands[usize::from(entry.group)][phase].on(view.mode))
                };
                let memory_mib = needs().map(|need| need.memory(facts)).sum();
                load.memory_mib = load.memory_mib.max(memory_mib);
                load.cores = load.cores.max(needs().map(|need| need.cores).sum());
            }
            load.plain_slots = load.slots;
        }
        loads.push((entry.card, load));
    }
}

/// What each ask is given, by the entries.
pub fn grants(class: &Class, view: &View<'_>, entries: &[Entry]) -> Vec<Vec<Grant>> {
    let of = |group: usize| entries.iter().filter(move |entry| usize::from(entry.group) == group);
    let groups: Vec<Vec<Entry>> =
        (0..class.shape.groups.len()).map(|group| of(group).copied().collect()).collect();
    let dealt = class.shape.deal(&class.asks, &groups);
    let hand = |(ask, hand): (&Ask, Vec<Entry>)| {
        hand.into_iter().map(|entry| grant(view, ask, entry)).collect()
    };
    class.asks.iter().zip(dealt).map(hand).collect()
}

fn grant(view: &View<'_>, ask: &Ask, entry: Entry) -> Grant {
    let (card, facts) =
        (&view.cards[usize::from(entry.card)], &view.facts[usize::from(entry.card)]);
    let cut = card.mig.as_ref().zip(entry.place);
    let Some((mig, place)) = cut else {
        let memory_mib = demand::limit(&ask.memory, facts);
        return Grant {
            card: card.uuid.clone(),
            memory_mib,
            cores: demand::cores(ask, view.mode),
            mig: None,
        };
    };
    let profile = &mig.profiles[place.profile];
    let instance =
        Instance { profile: profile.name.clone(), start: place.start, size: profile.size };
    Grant {
        card: card.uuid.clone(),
        memory_mib: profile.memory_mib,
        cores: mig::cores(mig, profile),
        mig: Some(instance),
    }
}
