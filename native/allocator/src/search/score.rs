//! How good a node would be *with* the pod, from 0 to 10,000. The state without the pod would rate
//! a node that the pod fills no better than one that it hardly uses.
//!
//! `explain` shows hundredths of the score, 0 to 100. The extender answers 0 to 10, by the position
//! of the node between the lowest and the highest score of the question (`questions::prioritize`).
//!
//! The score is a weighted mean of:
//!
//! * 6 parts: how full the node is (binpack), or how empty (spread);
//! * 3 parts, if links matter and a container has several cards: how well they are linked. A pair
//!   with score 100, which is one `NVLink`, counts half. The scale is the same on all nodes;
//! * 3 parts, if the order has `numa`: the containers whose cards are on one NUMA node;
//! * 1 part: how little the pod wastes. If the pod's cards were filled with more pods like it,
//!   waste is the part of their memory and cores that would remain. It needs no guess about other
//!   pods, and it makes 24 GiB go to a card with 24 or 48 GiB of room rather than to one with 40.

use crate::rules::card::{Allocated, Facts, Room};
use crate::rules::class::Class;
use crate::rules::fullness::{Scale, Totals, real};
use crate::rules::view::View;
use crate::search::chosen::ChosenCard;
use crate::search::topology;
use crate::wire::{Mode, Order, Placement, Topology};

const PARTS: f64 = 6.0;
const LINKS: f64 = 3.0;
const NUMA: f64 = 3.0;
const WASTE: f64 = 1.0;
/// The link score of a pair that counts half.
const HALF: f64 = 100.0;

/// The best score. Its scale is fine because a pod is often only a thousandth of a node.
pub const BEST: u16 = 10_000;

/// A weighted mean that is summed up part by part.
pub struct Score {
    sum: f64,
    parts: f64,
}

impl Score {
    /// The parts of every pod: the fullness of the node with the pod, and the waste.
    #[inline]
    pub fn of(class: &Class, scale: &mut Scale, with_pod: &Totals, waste: f64) -> Self {
        let full = (with_pod.fullness(scale) as f64 * 1e-6).clamp(0.0, 1.0);
        let policy = match class.card_request.node_order {
            Some(Placement::Spread) => 1.0 - full,
            Some(Placement::Binpack) | None => full,
        };
        Self { sum: PARTS * policy + WASTE * (1.0 - waste), parts: PARTS + WASTE }
    }

    fn add(&mut self, parts: f64, value: f64) {
        self.sum += parts * value;
        self.parts += parts;
    }

    /// The score from 0 to [`BEST`].
    pub fn rounded(&self) -> u16 {
        (self.sum * (f64::from(BEST) / self.parts) + 0.5) as u16
    }
}

/// The score of a node with these chosen cards and their [`loads`](crate::search::chosen::loads).
/// `scale` is a scale for nodes.
pub fn score(
    class: &Class,
    scale: &mut Scale,
    view: &View<'_>,
    chosen: &[ChosenCard],
    loads: &[(u8, Allocated)],
) -> u16 {
    let (mut totals, mut wasted) = (view.totals, 0.0);
    for (card, load) in loads {
        let at = usize::from(*card);
        totals.allocate(load.amounts());
        wasted += waste(view.mode, &view.facts[at], &view.rooms[at], load);
    }
    let mut score = Score::of(class, scale, &totals, wasted / loads.len().max(1) as f64);
    let several = class.containers.iter().any(|container| container.cards > 1);
    if several && class.topology(view.mode) != Topology::None {
        score.add(LINKS, linked(class, view, chosen));
    }
    if several && class.card_request.order.contains(&Order::Numa) {
        score.add(NUMA, together(class, view, chosen));
    }
    score.rounded()
}

/// The part of a card that would remain if it were filled with such loads.
pub fn waste(mode: Mode, facts: &Facts, room: &Room, load: &Allocated) -> f64 {
    let memory = room.mib().saturating_sub(load.memory_mib);
    let cores = u64::from(room.cores().saturating_sub(load.cores));
    let slots = u64::from(facts.slots().saturating_sub(room.allocated_slots() + load.slots));
    let core_load = if mode == Mode::Memory { 0 } else { u64::from(load.cores) };
    let by_slots = slots / u64::from(load.slots.max(1));
    let by_measure = [memory.checked_div(load.memory_mib), cores.checked_div(core_load)];
    let times = by_measure.into_iter().flatten().fold(by_slots, u64::min);
    let unused_memory = real(memory - times * load.memory_mib) / real(facts.memory_mib().max(1));
    if core_load == 0 {
        return unused_memory;
    }
    let unused_cores = real(cores - times * core_load) / f64::from(facts.cores().max(1));
    f64::midpoint(unused_memory, unused_cores)
}

/// The cards of each container that has several, as planned.
fn hands(class: &Class, chosen: &[ChosenCard]) -> impl Iterator<Item = Vec<u8>> {
    let of = |group: usize| chosen.iter().filter(move |entry| usize::from(entry.group) == group);
    let groups: Vec<Vec<u8>> = (0..class.shape.groups.len())
        .map(|group| of(group).map(|entry| entry.card).collect())
        .collect();
    class.shape.deal(&class.containers, &groups).into_iter().filter(|hand| hand.len() > 1)
}

fn linked(class: &Class, view: &View<'_>, chosen: &[ChosenCard]) -> f64 {
    let mean = |hand: &Vec<u8>| {
        let pairs = (hand.len() * (hand.len() - 1) / 2) as f64;
        topology::pairs(view, hand) as f64 / pairs
    };
    // The container with the worst links decides.
    let worst = hands(class, chosen).map(|hand| mean(&hand)).fold(f64::INFINITY, f64::min);
    if worst.is_finite() { worst / (worst + HALF) } else { 1.0 }
}

fn together(class: &Class, view: &View<'_>, chosen: &[ChosenCard]) -> f64 {
    let numa = |card: &u8| view.numa(*card);
    let one = |hand: &Vec<u8>| {
        numa(&hand[0]).is_some() && hand.iter().all(|card| numa(card) == numa(&hand[0]))
    };
    let hands: Vec<Vec<u8>> = hands(class, chosen).collect();
    hands.iter().filter(|hand| one(hand)).count() as f64 / hands.len().max(1) as f64
}
