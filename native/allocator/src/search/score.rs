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

use crate::rules::card::{Facts, Room, Use};
use crate::rules::class::Class;
use crate::rules::fullness::{Scale, Totals, real};
use crate::rules::view::View;
use crate::search::chosen::Entry;
use crate::search::topology;
use crate::wire::{Mode, Order, Placement, Topology};

const PARTS: f64 = 6.0;
const LINKS: f64 = 3.0;
const NUMA: f64 = 3.0;
const WASTE: f64 = 1.0;
/// The pair score that counts half.
const HALF: f64 = 100.0;

/// The best score. A pod is often a thousandth of a node, and yet it shall make a difference.
pub const BEST: u16 = 10_000;

/// A weighted mean, part by part.
pub struct Score {
    sum: f64,
    parts: f64,
}

impl Score {
    /// Of what concerns every pod: how full the node is with it, and what it wastes of its cards.
    #[inline]
    pub fn of(class: &Class, scale: &mut Scale, with_pod: &Totals, waste: f64) -> Self {
        let full = (with_pod.fullness(scale) as f64 * 1e-6).clamp(0.0, 1.0);
        let policy = match class.wish.node_order {
            Some(Placement::Spread) => 1.0 - full,
            Some(Placement::Binpack) | None => full,
        };
        Self { sum: PARTS * policy + WASTE * (1.0 - waste), parts: PARTS + WASTE }
    }

    fn add(&mut self, parts: f64, value: f64) {
        self.sum += parts * value;
        self.parts += parts;
    }

    /// 0 to [`BEST`].
    pub fn rounded(&self) -> u16 {
        (self.sum * (f64::from(BEST) / self.parts) + 0.5) as u16
    }
}

/// 0 to [`BEST`] for a node with these entries and the [`loads`](crate::search::chosen::loads) that come of them.
/// `scale` is for nodes.
pub fn score(
    class: &Class,
    scale: &mut Scale,
    view: &View<'_>,
    entries: &[Entry],
    loads: &[(u8, Use)],
) -> u16 {
    let (mut totals, mut wasted) = (view.totals, 0.0);
    for (card, load) in loads {
        let at = usize::from(*card);
        totals.give(load.given());
        wasted += waste(view.mode, &view.facts[at], &view.rooms[at], load);
    }
    let mut score = Score::of(class, scale, &totals, wasted / loads.len().max(1) as f64);
    let several = class.asks.iter().any(|ask| ask.cards > 1);
    if several && class.topology(view.mode) != Topology::None {
        score.add(LINKS, linked(class, view, entries));
    }
    if several && class.wish.order.contains(&Order::Numa) {
        score.add(NUMA, together(class, view, entries));
    }
    score.rounded()
}

/// The part of a card that no further pod with such a load could use.
pub fn waste(mode: Mode, facts: &Facts, room: &Room, load: &Use) -> f64 {
    let memory = room.mib().saturating_sub(load.memory_mib);
    let cores = u64::from(room.cores().saturating_sub(load.cores));
    let slots = u64::from(facts.slots().saturating_sub(room.used_slots() + load.slots));
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
    let numa = |card: &u8| view.numa(*card);
    let one = |hand: &Vec<u8>| {
        numa(&hand[0]).is_some() && hand.iter().all(|card| numa(card) == numa(&hand[0]))
    };
    let hands: Vec<Vec<u8>> = hands(class, entries).collect();
    hands.iter().filter(|hand| one(hand)).count() as f64 / hands.len().max(1) as f64
}
