//! How good a node would be *with* the pod, 0 to 10,000. Figures from before it was placed
//! would rate a node that the pod fills up no better than one that it scratches.
//!
//! `explain` shows hundredths of it, 0 to 100. The extender answers 0 to 10, by where it lies between the lowest and
//! the highest of the nodes that are asked about.
//!
//! A weighted mean of what is asked for:
//!
//! * 6 parts: how full the node is (binpack), or how empty (spread);
//! * 3 parts, where links matter and a container has several cards: how well they are linked. A pair
//!   of score 100, one `NVLink`, counts half; the scale is the same on all nodes;
//! * 3 parts, where the order has `numa`: containers whose cards are on one NUMA node;
//! * 1 part: waste. Filled up with more pods like this one, what would be left over on the pod's cards
//!   that no such pod can use, of memory and of cores? It needs no guess about future pods, and it is
//!   what makes 24 GiB go to the card with 24 or 48 GiB left and not to the one with 40.

use crate::rules::card::Use;
use crate::rules::class::Class;
use crate::rules::fullness::{Scale, Totals, real};
use crate::rules::view::View;
use crate::search::chosen::Entry;
use crate::search::topology;
use crate::speed::slim::Slim;
use crate::wire::{Mode, Order, Placement, Topology, Wish};

const PARTS: f64 = 6.0;
const LINKS: f64 = 3.0;
const NUMA: f64 = 3.0;
const WASTE: f64 = 1.0;
/// The pair score that counts half.
const HALF: f64 = 100.0;

/// What a card would have left, and of how much.
pub struct Left {
    memory: u64,
    cores: u64,
    slots: u64,
    all_memory: u64,
    all_cores: u32,
}

/// The best score. A pod is often a thousandth of a node, and yet it shall make a difference.
pub const BEST: u16 = 10_000;

/// 0 to [`BEST`] for a node with these entries and the [`loads`] that come of them.
pub fn score(class: &Class, view: &View<'_>, entries: &[Entry], loads: &[(u8, Use)]) -> u16 {
    let mut scale = Scale::by(class.wish.weights.unwrap_or_default());
    let mut totals = view.totals;
    for (_, load) in loads {
        totals.give(load);
    }
    let (mut sum, mut parts) = usual_parts(&class.wish, &mut scale, &totals, waste(view, loads));
    let several = class.asks.iter().any(|ask| ask.cards > 1);
    if several && class.topology(view.mode) != Topology::None {
        sum += LINKS * linked(class, view, entries);
        parts += LINKS;
    }
    if several && class.wish.order.contains(&Order::Numa) {
        sum += NUMA * together(class, view, entries);
        parts += NUMA;
    }
    of_best(sum, parts)
}

/// The same where neither links nor NUMA nodes matter; `totals` are with the pod.
pub fn usual(wish: &Wish, scale: &mut Scale, totals: &Totals, waste: f64) -> u16 {
    let (sum, parts) = usual_parts(wish, scale, totals, waste);
    of_best(sum, parts)
}

fn usual_parts(wish: &Wish, scale: &mut Scale, totals: &Totals, waste: f64) -> (f64, f64) {
    let full = (totals.fullness(scale) as f64 * 1e-6).clamp(0.0, 1.0);
    let policy = match wish.node_order {
        Some(Placement::Spread) => 1.0 - full,
        Some(Placement::Binpack) | None => full,
    };
    (PARTS * policy + WASTE * (1.0 - waste), PARTS + WASTE)
}

fn of_best(sum: f64, parts: f64) -> u16 {
    (sum * (f64::from(BEST) / parts) + 0.5) as u16
}

/// The part of the touched cards that no further pod like this one could use.
fn waste(view: &View<'_>, loads: &[(u8, Use)]) -> f64 {
    let one = |(card, load): &(u8, Use)| {
        let (facts, mut used) = (&view.facts[usize::from(*card)], view.used[usize::from(*card)]);
        used.add(load);
        let left = Left {
            memory: facts.free_memory(&used),
            cores: facts.cores.saturating_sub(used.cores).into(),
            slots: u32::from(facts.slots).saturating_sub(used.slots).into(),
            all_memory: facts.memory_mib(),
            all_cores: facts.cores,
        };
        left.waste(load, view.mode)
    };
    loads.iter().map(one).sum::<f64>() / loads.len().max(1) as f64
}

impl Left {
    /// Of a card that has room for the load.
    pub fn of(card: &Slim<'_>, load: &Use) -> Self {
        let Slim { has, rest } = card;
        Self {
            memory: u64::from(rest.room_mib) - load.memory_mib,
            cores: u64::from(rest.free_cores) - u64::from(load.cores),
            slots: u64::from(has.slots - rest.used_slots) - u64::from(load.slots),
            all_memory: has.memory_mib.into(),
            all_cores: has.cores.into(),
        }
    }

    /// The part of the card that no further pod with such a load could use.
    pub fn waste(&self, load: &Use, mode: Mode) -> f64 {
        let core_load = if mode == Mode::Memory { 0 } else { u64::from(load.cores) };
        let by_memory = self.memory.checked_div(load.memory_mib);
        let by_cores = self.cores.checked_div(core_load);
        let by_slots = self.slots / u64::from(load.slots.max(1));
        let times = [by_memory, by_cores].into_iter().flatten().fold(by_slots, u64::min);
        let memory = real(self.memory - times * load.memory_mib) / real(self.all_memory.max(1));
        if core_load == 0 {
            return memory;
        }
        let cores = real(self.cores - times * core_load) / f64::from(self.all_cores.max(1));
        f64::midpoint(memory, cores)
    }
}

/// The cards of each container with several, as planned.
fn hands(class: &Class, entries: &[Entry]) -> impl Iterator<Item = Vec<u8>> {
    let of = |group: usize| entries.iter().filter(move |entry| usize::from(entry.group) == group);
    let groups: Vec<Vec<u8>> = (0..class.shape.groups.len())
        .map(|group| of(group).map(|entry| entry.card).collect())
        .collect();
    class.shape.deal(&class.asks, &groups).into_iter().filter(|hand| hand.len() > 1)
}

fn linked(class: &Class, view: &View<'_>, entries: &[Entry]) -> f64 {
    let mean = |hand: &Vec<u8>| {
        let pairs = (hand.len() * (hand.len() - 1) / 2) as f64;
        topology::pairs(view, hand) as f64 / pairs
    };
    // The worst container is the one that waits.
    let worst = hands(class, entries).map(|hand| mean(&hand)).fold(f64::INFINITY, f64::min);
    if worst.is_finite() { worst / (worst + HALF) } else { 1.0 }
}

fn together(class: &Class, view: &View<'_>, entries: &[Entry]) -> f64 {
    let numa = |card: &u8| view.facts[usize::from(*card)].numa;
    let one = |hand: &Vec<u8>| {
        numa(&hand[0]).is_some() && hand.iter().all(|card| numa(card) == numa(&hand[0]))
    };
    let hands: Vec<Vec<u8>> = hands(class, entries).collect();
    hands.iter().filter(|hand| one(hand)).count() as f64 / hands.len().max(1) as f64
}
