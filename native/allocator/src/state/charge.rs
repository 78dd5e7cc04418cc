//! The charge of a pod on each card: now, and at the peak of its remaining phases.
//!
//! Before its ordinary init containers are done (`started`), a pod counts as much as in its largest
//! phase. If the kubelet can still choose between cards, it counts as much as in the worst choice
//! ([`crate::rules::shape`]). Afterwards its sidecars and apps count as allocated. Slots are
//! different: the kubelet keeps the device IDs of an init container until the pod is deleted.

use crate::rules::card::{Allocated, Charge, Facts};
use crate::rules::demand::Demand;
use crate::rules::mig;
use crate::rules::shape::{Shape, members};
use crate::wire::{CardAllocation, ContainerRequest, Kind, Mode};

/// The count of one card while containers are added.
#[derive(Default)]
struct Count {
    card: u8,
    /// The sidecars and apps so far.
    steady: Allocated,
    peak: Allocated,
    /// The IDs that the next container can reuse.
    waiting: u32,
}

/// The charges of a pod, ordered by card. `index_of` returns the index of a UUID.
pub fn charges(
    containers: &[ContainerRequest],
    container_cards: &[Box<[CardAllocation]>],
    started: bool,
    index_of: impl Fn(&str) -> Option<u8>,
    facts: &[Facts],
    mode: Mode,
) -> Box<[Charge]> {
    let mut counts: Vec<Count> = Vec::new();
    for (container, container_cards) in containers.iter().zip(container_cards) {
        count_container(&mut counts, container.kind, container_cards, &index_of);
    }
    let init = containers.iter().any(|container| container.kind == Kind::Init);
    if init && !started {
        worst_choice(&mut counts, containers, container_cards, &index_of, facts, mode);
    }
    let mut charges: Vec<Charge> = counts.iter().map(|count| count.charge(started)).collect();
    charges.sort_unstable_by_key(|charge| charge.card);
    charges.into()
}

impl Count {
    fn charge(&self, started: bool) -> Charge {
        let Allocated { slots, plain_slots, .. } = self.peak;
        let now = if started { self.steady } else { self.peak };
        Charge { card: self.card, allocated: Allocated { slots, plain_slots, ..now } }
    }
}

fn count_of(counts: &mut Vec<Count>, card: u8) -> &mut Count {
    let at = counts.iter().position(|count| count.card == card).unwrap_or_else(|| {
        counts.push(Count { card, ..Count::default() });
        counts.len() - 1
    });
    &mut counts[at]
}

fn count_container(
    counts: &mut Vec<Count>,
    kind: Kind,
    container_cards: &[CardAllocation],
    index_of: &impl Fn(&str) -> Option<u8>,
) {
    for (at, first) in container_cards.iter().enumerate() {
        let Some(card) = index_of(&first.card) else { continue };
        // All cards of this container that are the same card are counted with the first of them.
        if container_cards[..at].iter().any(|earlier| earlier.card == first.card) {
            continue;
        }
        let count = count_of(counts, card);
        let mut more = Allocated::default();
        for same in container_cards.iter().filter(|other| other.card == first.card) {
            more.add(&allocated(same));
        }
        let reused = more.slots.min(count.waiting);
        if kind == Kind::Init {
            count.waiting += more.slots - reused;
        } else {
            count.waiting -= reused;
        }
        // A device ID is held until the pod is deleted.
        let plain = more.plain_slots > 0;
        let new = more.slots - reused;
        (more.slots, more.plain_slots) = (0, 0);
        count.peak.slots += new;
        count.peak.plain_slots += if plain { new } else { 0 };
        let mut with = count.steady;
        with.add(&more);
        if kind != Kind::Init {
            count.steady = with;
        }
        count.peak.memory_mib = count.peak.memory_mib.max(with.memory_mib);
        count.peak.cores = count.peak.cores.max(with.cores);
        count.peak.mig |= with.mig;
    }
}

fn allocated(card: &CardAllocation) -> Allocated {
    let plain = Allocated {
        memory_mib: card.memory_mib,
        cores: card.cores,
        slots: 1,
        ..Allocated::default()
    };
    match &card.mig {
        Some(instance) => Allocated { mig: mig::mask(instance.start, instance.size), ..plain },
        None => Allocated { plain_slots: 1, ..plain },
    }
}

/// Raises the peaks to the worst choice of the kubelet, if it has a choice and the allocated cards
/// are a distribution that the shape allows. Otherwise the allocated cards are all that is known. A
/// MIG instance counts the same for each container.
fn worst_choice(
    counts: &mut Vec<Count>,
    containers: &[ContainerRequest],
    container_cards: &[Box<[CardAllocation]>],
    index_of: &impl Fn(&str) -> Option<u8>,
    facts: &[Facts],
    mode: Mode,
) {
    let shape = Shape::of(containers);
    let Some(groups) = Some(&shape)
        .filter(|shape| shape.has_choice)
        .and_then(|_| groups(&shape, containers, container_cards, index_of))
    else {
        return;
    };
    for count in counts {
        let facts = &facts[usize::from(count.card)];
        let here = || {
            members(
                (0..groups.len())
                    .filter(|at| groups[*at].contains(&(count.card, None)))
                    .fold(0, |all, at| all | 1 << at),
            )
        };
        for phase in 0..shape.phases {
            let needs = || {
                here().map(|group| {
                    Demand::of(containers, shape.groups[group].holders[phase]).on(mode)
                })
            };
            let memory: u64 = needs().map(|need| need.memory(facts)).sum();
            let cores: u32 = needs().map(|need| need.cores).sum();
            count.peak.memory_mib = count.peak.memory_mib.max(memory);
            count.peak.cores = count.peak.cores.max(cores);
        }
    }
}

/// A card, and where its memory slices begin if it is a MIG instance.
type Part = (u8, Option<u32>);

/// The cards of each group, if the shape allows the allocated cards.
fn groups(
    shape: &Shape,
    containers: &[ContainerRequest],
    container_cards: &[Box<[CardAllocation]>],
    index_of: &impl Fn(&str) -> Option<u8>,
) -> Option<Vec<Vec<Part>>> {
    let mut groups = vec![Vec::new(); shape.groups.len()];
    let mut waiting: Vec<Part> = Vec::new();
    let part = |card: &CardAllocation| {
        Some((index_of(&card.card)?, card.mig.as_ref().map(|instance| instance.start)))
    };
    for ((container, source), container_cards) in
        containers.iter().zip(&shape.sources).zip(container_cards)
    {
        let hand: Vec<Part> = container_cards.iter().filter_map(part).collect();
        let (reused, new): (Vec<Part>, Vec<Part>) =
            hand.iter().partition(|card| waiting.contains(card));
        if hand.len() != container.cards as usize || reused.len() != source.reused {
            return None;
        }
        if container.kind == Kind::Init {
            waiting.extend(&new);
        } else {
            waiting.retain(|card| !reused.contains(card));
        }
        if let Some(group) = source.new {
            groups[group] = new;
        }
    }
    Some(groups)
}
