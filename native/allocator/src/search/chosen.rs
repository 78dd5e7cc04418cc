//! Chosen cards, what they must provide, and how they are written in an assignment.

use crate::rules::card::Allocated;
use crate::rules::class::Class;
use crate::rules::demand;
use crate::rules::mig::{self, InstancePlacement};
use crate::rules::view::View;
use crate::wire::{CardAllocation, ContainerRequest, Instance};

/// One device ID of the pod, and the card that is chosen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenCard {
    /// The index of its group.
    pub group: u8,
    /// The index of the card on the node.
    pub card: u8,
    /// The MIG instance, on a card in MIG mode.
    pub instance: Option<InstancePlacement>,
}

/// The load of the pod on each chosen card: the peak over the phases of the pod.
pub fn loads(
    class: &Class,
    view: &View<'_>,
    chosen: &[ChosenCard],
    loads: &mut Vec<(u8, Allocated)>,
) {
    loads.clear();
    for entry in chosen {
        if loads.iter().any(|(card, _)| *card == entry.card) {
            continue;
        }
        let here = || chosen.iter().filter(|other| other.card == entry.card);
        let facts = &view.facts[usize::from(entry.card)];
        let mut load = Allocated { slots: here().count() as u32, ..Allocated::default() };
        if let Some(mig) =
            view.cards[usize::from(entry.card)].mig.as_ref().filter(|_| entry.instance.is_some())
        {
            for placement in here().filter_map(|entry| entry.instance) {
                let profile = &mig.profiles[placement.profile];
                load.memory_mib += profile.memory_mib;
                load.cores += mig::cores(mig, profile);
                load.mig |= mig::mask(placement.start, profile.size);
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

/// The allocated cards of each container.
pub fn container_cards(
    class: &Class,
    view: &View<'_>,
    chosen: &[ChosenCard],
) -> Vec<Vec<CardAllocation>> {
    let of = |group: usize| chosen.iter().filter(move |entry| usize::from(entry.group) == group);
    let groups: Vec<Vec<ChosenCard>> =
        (0..class.shape.groups.len()).map(|group| of(group).copied().collect()).collect();
    let dealt = class.shape.deal(&class.containers, &groups);
    let hand = |(container, hand): (&ContainerRequest, Vec<ChosenCard>)| {
        hand.into_iter().map(|entry| card_allocation(view, container, entry)).collect()
    };
    class.containers.iter().zip(dealt).map(hand).collect()
}

fn card_allocation(
    view: &View<'_>,
    container: &ContainerRequest,
    entry: ChosenCard,
) -> CardAllocation {
    let (card, facts) =
        (&view.cards[usize::from(entry.card)], &view.facts[usize::from(entry.card)]);
    let cut = card.mig.as_ref().zip(entry.instance);
    let Some((mig, placement)) = cut else {
        let memory_mib = demand::limit(&container.memory, facts);
        return CardAllocation {
            card: card.uuid.clone(),
            memory_mib,
            cores: demand::cores(container, view.mode),
            mig: None,
        };
    };
    let profile = &mig.profiles[placement.profile];
    let instance =
        Instance { profile: profile.name.clone(), start: placement.start, size: profile.size };
    CardAllocation {
        card: card.uuid.clone(),
        memory_mib: profile.memory_mib,
        cores: mig::cores(mig, profile),
        mig: Some(instance),
    }
}
