//! From device IDs on cards to what each container is told.

use crate::class::Class;
use crate::demand;
use crate::fit::View;
use crate::mig;
use crate::search::Entry;
use crate::wire::{Ask, Grant, Instance};

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
