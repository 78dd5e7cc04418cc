//! What a pod with these grants takes of each card, now and at the peak of what is still to come.
//!
//! Before its init containers are done (`started`) a pod weighs as much as in its heaviest phase, and where
//! the kubelet may still choose, as much as in its worst choice ([`crate::rules::shape`]). Afterwards sidecars and
//! apps count, as granted. Device IDs are different: the kubelet keeps an init container's until the
//! pod is gone, so slots do not come back before.

use crate::rules::card::{Charge, Facts, Use};
use crate::rules::demand::Demand;
use crate::rules::mig;
use crate::rules::shape::{Shape, members};
use crate::wire::{Ask, Grant, Kind, Mode};

/// One card, while containers are counted.
#[derive(Default)]
struct Count {
    card: u8,
    /// Of sidecars and apps so far.
    steady: Use,
    peak: Use,
    /// Device IDs that wait for the next container.
    waiting: u32,
}

/// Charges by card, in the order of the node's cards. `place` says which card a UUID is.
pub fn charges(
    asks: &[Ask],
    grants: &[Box<[Grant]>],
    started: bool,
    place: impl Fn(&str) -> Option<u8>,
    facts: &[Facts],
    mode: Mode,
) -> Box<[Charge]> {
    let mut counts: Vec<Count> = Vec::new();
    for (ask, grants) in asks.iter().zip(grants) {
        container(&mut counts, ask.kind, grants, &place, facts);
    }
    let init = asks.iter().any(|ask| ask.kind == Kind::Init);
    if init && !started && mode != Mode::Mig {
        worst_choice(&mut counts, asks, grants, &place, facts, mode);
    }
    let mut charges: Vec<Charge> = counts.iter().map(|count| count.charge(started)).collect();
    charges.sort_unstable_by_key(|charge| charge.card);
    charges.into()
}

impl Count {
    fn charge(&self, started: bool) -> Charge {
        let Use { slots, plain_slots, .. } = self.peak;
        let now = if started { self.steady } else { self.peak };
        Charge { card: self.card, used: Use { slots, plain_slots, ..now } }
    }
}

fn count_of(counts: &mut Vec<Count>, card: u8) -> &mut Count {
    let at = counts.iter().position(|count| count.card == card).unwrap_or_else(|| {
        counts.push(Count { card, ..Count::default() });
        counts.len() - 1
    });
    &mut counts[at]
}

fn container(
    counts: &mut Vec<Count>,
    kind: Kind,
    grants: &[Grant],
    place: &impl Fn(&str) -> Option<u8>,
    facts: &[Facts],
) {
    for (at, grant) in grants.iter().enumerate() {
        let Some(card) = place(&grant.card) else { continue };
        // All of this container's on that card at once, with the first of them.
        if grants[..at].iter().any(|earlier| earlier.card == grant.card) {
            continue;
        }
        let count = count_of(counts, card);
        let mut more = Use::default();
        for grant in grants.iter().filter(|other| other.card == grant.card) {
            more.add(&weight(grant, &facts[usize::from(card)]));
        }
        let reused = more.slots.min(count.waiting);
        if kind == Kind::Init {
            count.waiting += more.slots - reused;
        } else {
            count.waiting -= reused;
        }
        // IDs are for the pod's whole life.
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

fn weight(grant: &Grant, facts: &Facts) -> Use {
    let plain =
        Use { memory_mib: grant.memory_mib, cores: grant.cores, slots: 1, ..Use::default() };
    match &grant.mig {
        Some(instance) => Use { mig: mig::mask(instance.start, instance.size), ..plain },
        None => {
            Use { memory_mib: grant.memory_mib + facts.overhead_mib(), plain_slots: 1, ..plain }
        }
    }
}

/// Raises the peaks to the worst that the kubelet may choose, where it has a choice and the grants are
/// a way in which it could hand cards out. Where they are not, they are what is known.
fn worst_choice(
    counts: &mut Vec<Count>,
    asks: &[Ask],
    grants: &[Box<[Grant]>],
    place: &impl Fn(&str) -> Option<u8>,
    facts: &[Facts],
    mode: Mode,
) {
    let shape = Shape::of(asks);
    let Some(groups) =
        Some(&shape).filter(|shape| shape.open).and_then(|_| groups(&shape, asks, grants, place))
    else {
        return;
    };
    for count in counts {
        let facts = &facts[usize::from(count.card)];
        let here = || {
            members(
                (0..groups.len())
                    .filter(|at| groups[*at].contains(&count.card))
                    .fold(0, |all, at| all | 1 << at),
            )
        };
        for phase in 0..shape.phases {
            let needs = || {
                here().map(|group| Demand::of(asks, shape.groups[group].holders[phase]).on(mode))
            };
            let memory: u64 = needs().map(|need| need.memory(facts)).sum();
            let cores: u32 = needs().map(|need| need.cores).sum();
            count.peak.memory_mib = count.peak.memory_mib.max(memory);
            count.peak.cores = count.peak.cores.max(cores);
        }
    }
}

/// The cards of each group, if the grants are what the shape allows.
fn groups(
    shape: &Shape,
    asks: &[Ask],
    grants: &[Box<[Grant]>],
    place: &impl Fn(&str) -> Option<u8>,
) -> Option<Vec<Vec<u8>>> {
    let mut groups = vec![Vec::new(); shape.groups.len()];
    let mut waiting: Vec<u8> = Vec::new();
    for ((ask, source), grants) in asks.iter().zip(&shape.sources).zip(grants) {
        let hand: Vec<u8> = grants.iter().filter_map(|grant| place(&grant.card)).collect();
        let (reused, new): (Vec<u8>, Vec<u8>) =
            hand.iter().partition(|card| waiting.contains(card));
        if hand.len() != ask.cards as usize || reused.len() != source.reused {
            return None;
        }
        if ask.kind == Kind::Init {
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
