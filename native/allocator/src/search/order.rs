//! The order in which the cards of a node are tried.
//!
//! The pod's annotation has HAMi's list of keys: the first key decides, the next one breaks ties,
//! and the index of the card breaks the remaining ties. Fullness is the fullness with the pod. If
//! one card is requested and links matter, the card with the worst links comes first, so that well
//! linked cards stay together.
//!
//! A new MIG instance takes placements from later ones ([`mig::Loss`]). Unless the pod or the node
//! asks for `spread`, the card with the smallest loss comes first, so that large profiles stay
//! possible. A card without new instances loses nothing, so it comes before them.

use crate::rules::card::{Facts, Room};
use crate::rules::class::Class;
use crate::rules::fullness::{self, Scale};
use crate::rules::mig::{self, InstancePlacement};
use crate::rules::view::View;
use crate::wire::{Mig, Order, Placement, Topology};

type Sorting = [i64; 4];

/// Sorts cards that have room for the group.
pub fn sort(class: &Class, view: &View<'_>, group: usize, cards: &mut [u8]) {
    if cards.len() < 2 {
        return;
    }
    let keys = keys(class, view.placement);
    let alone = class.shape.groups[group].count == 1 && class.topology(view.mode) != Topology::None;
    let spread = class.card_request.order.contains(&Order::Spread)
        || view.placement == Some(Placement::Spread);
    let (mut scale, need) = (class.scale(), class.peaks[group].on(view.mode));
    // The loss and the fullness.
    let mut weigh = |card: u8| {
        let at = usize::from(card);
        let (facts, room) = (&view.facts[at], &view.rooms[at]);
        let (loss, load) = match &view.cards[at].mig {
            Some(mig) => instance(class, view, at, mig, group),
            None => (0, [1, need.cores.into(), need.memory(facts)]),
        };
        let full = fullness(class, &mut scale, facts, room) + filled(&mut scale, facts, load);
        (loss, full)
    };
    let all: Vec<u8> = cards.to_vec();
    let mut sorted: [(Sorting, u8); 64] = [([0; 4], 0); 64];
    for (to, card) in sorted.iter_mut().zip(&all) {
        let mut sorting = [0; 4];
        let mut next = sorting.iter_mut();
        if alone {
            let links = all.iter().map(|other| view.link((*card).into(), (*other).into()));
            *next.next().expect("four keys") = links.sum::<u64>() as i64;
        }
        for (key, place) in keys.iter().flatten().zip(next) {
            *place = match key {
                Order::Numa => company(class, view, group, &all, *card),
                key => match weigh(*card) {
                    (loss, full) if *key == Order::Spread && (spread || loss == 0) => full,
                    (loss, full) => loss - full,
                },
            };
        }
        *to = (sorting, *card);
    }
    let sorted = &mut sorted[..all.len()];
    sorted.sort_unstable();
    for (to, (_, card)) in cards.iter_mut().zip(sorted) {
        *to = *card;
    }
}

/// The keys, each once; the order of the node, or spread, if the pod requests none.
fn keys(class: &Class, placement: Option<Placement>) -> [Option<Order>; 3] {
    let mut keys = [None; 3];
    let mut next = 0;
    for key in &class.card_request.order {
        let orders = matches!(key, Order::Binpack | Order::Spread | Order::Numa);
        if orders && !keys.contains(&Some(*key)) {
            keys[next] = Some(*key);
            next += 1;
        }
    }
    if next == 0 {
        keys[0] = Some(match placement {
            Some(Placement::Binpack) => Order::Binpack,
            Some(Placement::Spread) | None => Order::Spread,
        });
    }
    keys
}

/// The fullness of a card without the pod.
#[inline]
pub fn fullness(class: &Class, scale: &mut Scale, facts: &Facts, room: &Room) -> i64 {
    if class.card_request.weights.is_none() {
        return room.full();
    }
    fullness::whole(scale.for_capacity(facts.capacity()).part(room.allocated(facts)))
}

/// The loss by the first instance on a card, above every fullness, and its load.
fn instance(class: &Class, view: &View<'_>, at: usize, mig: &Mig, group: usize) -> (i64, [u64; 3]) {
    let (facts, allocated) = (&view.facts[at], &view.allocated[at]);
    let found = mig::free_placements(class, mig, facts, allocated, group).unwrap_or_default();
    let Some(InstancePlacement { profile, loss, .. }) = found.first() else { return (0, [0; 3]) };
    let profile = &mig.profiles[*profile];
    let sum = loss.sum.min(u16::MAX.into());
    let loss = i64::from(loss.largest) << 48 | i64::from(sum) << 32;
    (loss, [1, mig::cores(mig, profile).into(), profile.memory_mib])
}

/// The fullness that slots, cores and memory add to a card.
#[inline]
pub fn filled(scale: &mut Scale, facts: &Facts, load: [u64; 3]) -> i64 {
    fullness::whole(scale.for_capacity(facts.capacity()).part(load))
}

/// Whether the fullest card comes first, if only fullness orders the cards.
pub fn fullest_first(class: &Class, placement: Option<Placement>) -> bool {
    keys(class, placement)[0] != Some(Order::Spread)
}

/// Cards of NUMA nodes that can serve the whole group come first, and of these the NUMA nodes with
/// the fewest cards to spare. The number of the NUMA node breaks ties, so that a group that fits on
/// none is on few.
fn company(class: &Class, view: &View<'_>, group: usize, all: &[u8], card: u8) -> i64 {
    let numa = |card: u8| view.numa(card);
    let Some(node) = numa(card) else { return i64::MAX };
    let there = all.iter().filter(|other| numa(**other) == Some(node)).count() as i64;
    let wanted = class.shape.groups[group].count as i64;
    let rank = if there >= wanted { there } else { 1000 - there };
    rank << 32 | i64::from(node)
}
