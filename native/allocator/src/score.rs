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

use crate::card::{Facts, Use};
use crate::class::Class;
use crate::divisor::{Divisor, Reciprocal};
use crate::fit::View;
use crate::mig;
use crate::search::Entry;
use crate::slim::Slim;
use crate::topology;
use crate::wire::{Mode, Order, Placement, Topology, Weights, Wish};

const PARTS: f64 = 6.0;
const LINKS: f64 = 3.0;
const NUMA: f64 = 3.0;
const WASTE: f64 = 1.0;
/// The pair score that counts half.
const HALF: f64 = 100.0;

/// What cards have and what of it is given: slots, cores, memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    has: [u64; 3],
    given: [u64; 3],
}

impl Totals {
    /// One more card.
    pub fn add(&mut self, facts: &Facts, used: &Use) {
        self.has.iter_mut().zip(facts.has()).for_each(|(all, one)| *all += one);
        self.give(used);
    }

    /// More is given.
    pub fn give(&mut self, used: &Use) {
        self.given.iter_mut().zip(used.given()).for_each(|(all, one)| *all += one);
    }

    /// How full they are by these weights, in millionths.
    pub fn fullness(&self, scale: &mut Scale) -> i64 {
        whole(scale.made_for(self.has).part(self.given))
    }
}

/// How full something is, by what of it is given and how much each measure counts.
///
/// Dividing is slow, and cards are mostly alike, as nodes are: what one slot, percent or MiB makes is
/// worked out once for many of them.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// In millionths of all.
    weights: [f64; 3],
    has: [u64; 3],
    each: [f64; 3],
}

impl Scale {
    /// By these weights; made for nothing yet.
    pub fn by(weights: Weights) -> Self {
        let weights = [weights.slot, weights.core, weights.memory].map(f64::from);
        let sum: f64 = weights.iter().sum();
        let weights = weights.map(|weight| weight / sum * 1e6);
        Self { weights, has: [0; 3], each: weights }
    }

    /// Made for something that has so many slots, cores and MiB.
    #[inline]
    pub fn made_for(&mut self, has: [u64; 3]) -> &Self {
        // Bit by bit: as arrays they would be put into memory first.
        if (self.has[0] ^ has[0]) | (self.has[1] ^ has[1]) | (self.has[2] ^ has[2]) != 0 {
            let each = |at: usize| self.weights[at] / real(has[at].max(1));
            (self.has, self.each) = (has, [each(0), each(1), each(2)]);
        }
        self
    }

    /// What so much makes of it, in millionths.
    #[inline]
    pub fn part(&self, given: [u64; 3]) -> f64 {
        let part = |at: usize| self.each[at] * real(given[at]);
        part(0) + part(1) + part(2)
    }
}

/// Millionths as a whole number, so that what is the same by other figures is the same here.
#[inline]
pub fn whole(millionths: f64) -> i64 {
    (millionths + 0.5) as i64
}

/// Nothing here comes near 63 bits, and signed numbers are what processors turn into others.
#[inline]
fn real(value: u64) -> f64 {
    value as i64 as f64
}

/// What a card would have left, and of how much.
pub struct Left {
    memory: u64,
    cores: u64,
    slots: u64,
    all_memory: u64,
    all_cores: u32,
}

/// What loads and cards were divided by last: mostly it is the same for the next card.
#[derive(Debug, Default)]
pub struct Divisors {
    memory_load: Divisor,
    core_load: Divisor,
    slots: Divisor,
    memory: Reciprocal,
    cores: Reciprocal,
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
                let demands =
                    || here().map(|entry| &class.demands[usize::from(entry.group)][phase]);
                let memory_mib = demands().map(|demand| demand.memory(facts)).sum();
                load.memory_mib = load.memory_mib.max(memory_mib);
                load.cores = load.cores.max(demands().map(|demand| demand.cores(view.mode)).sum());
            }
            load.plain_slots = load.slots;
        }
        loads.push((entry.card, load));
    }
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
    let mut known = Divisors::default();
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
        left.waste(load, view.mode, &mut known)
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
    pub fn waste(&self, load: &Use, mode: Mode, known: &mut Divisors) -> f64 {
        let core_load = if mode == Mode::Memory { 0 } else { u64::from(load.cores) };
        let by_memory = known.memory_load.divide(self.memory, load.memory_mib);
        let by_cores = known.core_load.divide(self.cores, core_load);
        let by_slots = known.slots.divide(self.slots, load.slots.max(1).into());
        let times = [by_memory, by_cores, by_slots].into_iter().flatten().min();
        let times = times.unwrap_or(self.slots);
        let unused_mib = self.memory - times * load.memory_mib;
        let memory = real(unused_mib) * known.memory.one_of(self.all_memory.max(1));
        if core_load == 0 {
            return memory;
        }
        let unused_cores = self.cores - times * core_load;
        let cores = real(unused_cores) * known.cores.one_of(self.all_cores.max(1).into());
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
