//! Judges the common request on common nodes: one container, and no relation between the cards that
//! matters.
//!
//! Then each card can be judged by itself, and the first cards in order are chosen. The rules
//! ([`crate::rules::fit`]), the order ([`crate::search::order`]) and the score
//! ([`crate::search::score`]) are those of the search; only the search is left out. A test compares
//! the results.

use crate::rules::card::{self, Allocated, Facts, Room};
use crate::rules::card_reason::{CardReason, KINDS};
use crate::rules::class::Class;
use crate::rules::demand::Need;
use crate::rules::fit::{self, Required};
use crate::rules::fullness::Scale;
use crate::search::order;
use crate::search::score::{self, Score};
use crate::speed::table::NodeCards;
use crate::wire::check::MOST;
use crate::wire::{Mode, Placement};

/// The fast path of one class.
pub struct FastPath<'a> {
    class: &'a Class,
    /// The scale for cards.
    scale: Scale,
    /// The scale for nodes.
    nodes: Scale,
    /// The setup of the last node. It mostly is the same for the next one.
    setup: Setup,
    /// The cards with room: a number to order by, and the index of the card in the last eight bits.
    candidates: [i64; MOST + 1],
}

/// The values that follow from the class, and the mode and placement of a node.
struct Setup {
    mode: Mode,
    placement: Option<Placement>,
    applies: bool,
    fullest_first: bool,
    need: Need,
    only_room_matters: bool,
}

/// The values that follow from the class and the facts of a card, without its room.
#[derive(Clone, Copy)]
struct Terms {
    usable: bool,
    required: Required,
    filled: i64,
}

/// Why a node does not fit.
pub struct Unfit {
    /// The kind of the card that is closest to fitting; `None` if the node has too few cards.
    pub nearest: Option<usize>,
    /// Whether too few cards fit even without any pod on the node.
    pub when_empty: bool,
}

impl Setup {
    fn of(class: &Class, mode: Mode, placement: Option<Placement>) -> Self {
        let need = class.peaks[0].on(mode);
        Self {
            mode,
            placement,
            applies: class.cards_are_independent(mode) && class.suits(mode).is_ok(),
            fullest_first: order::fullest_first(class, placement),
            only_room_matters: fit::only_room_matters(class, &need),
            need,
        }
    }
}

impl<'a> FastPath<'a> {
    /// The fast path of a class.
    pub fn of(class: &'a Class) -> Self {
        Self {
            class,
            scale: class.scale(),
            nodes: class.scale(),
            setup: Setup::of(class, Mode::default(), None),
            candidates: [0; MOST + 1],
        }
    }

    /// The score of a node, or why the pod does not fit; `None` if the node needs a search.
    pub fn judge(&mut self, node: &NodeCards<'_>) -> Option<Result<u16, Unfit>> {
        if (self.setup.mode, self.setup.placement) != (node.mode, node.placement) {
            self.setup = Setup::of(self.class, node.mode, node.placement);
        }
        if !self.setup.applies || node.has_mig || node.facts.is_empty() {
            return None;
        }
        let count = self.class.shape.groups[0].count;
        let (found, first) = self.find_candidates(node);
        if found < count {
            return Some(Err(self.unfit(node)));
        }
        let candidates = &mut self.candidates[..found];
        if count == 1 {
            candidates[0] = first;
        } else {
            candidates.select_nth_unstable(count - 1);
        }
        let (mut totals, mut wasted) = (node.totals, 0.0);
        for candidate in &candidates[..count] {
            let at = usize::from(*candidate as u8);
            let (facts, room) = (&node.facts[if node.alike { 0 } else { at }], &node.rooms[at]);
            let Required { memory: memory_mib, cores, .. } = Required::of(&self.setup.need, facts);
            let load = Allocated { memory_mib, cores, slots: 1, plain_slots: 1, mig: 0 };
            totals.allocate(load.amounts());
            wasted += score::waste(node.mode, facts, room, &load);
        }
        let score = Score::of(self.class, &mut self.nodes, &totals, wasted / count as f64);
        Some(Ok(score.rounded()))
    }

    /// The number of candidates, and the first one in order.
    fn find_candidates(&mut self, node: &NodeCards<'_>) -> (usize, i64) {
        let Self { class, scale, setup, candidates, .. } = self;
        let Setup { need, fullest_first, only_room_matters, .. } = setup;
        let sign = if *fullest_first { -1 } else { 1 };
        let (mut found, mut first) = (0, i64::MAX);
        let mut consider = |at: usize, facts: &Facts, room: &Room, terms: Terms, full: i64| {
            let Terms { usable, required, filled } = terms;
            // There is no branch, because it could not be predicted which cards fit.
            let candidate = ((full + filled) * sign) << 8 | at as i64;
            candidates[found] = candidate;
            let fits = usable
                & required.fits(room)
                & (*only_room_matters || fit::may_join(class, need, facts, room, 0).is_ok());
            found += usize::from(fits);
            first = if fits { first.min(candidate) } else { first };
        };
        let terms = |scale: &mut Scale, facts: &Facts| Terms {
            usable: fit::usable(class, facts),
            required: Required::of(need, facts),
            filled: order::filled(scale, facts, [1, need.cores.into(), need.memory(facts)]),
        };
        match node.facts {
            [like, ..] if node.alike && class.card_request.weights.is_none() => {
                let terms = terms(scale, like);
                for (at, room) in node.rooms.iter().enumerate() {
                    consider(at, like, room, terms, room.full());
                }
            }
            all => {
                for (at, (facts, room)) in all.iter().zip(node.rooms).enumerate() {
                    let terms = terms(scale, facts);
                    consider(at, facts, room, terms, order::fullness(class, scale, facts, room));
                }
            }
        }
        (found, first)
    }

    fn unfit(&self, node: &NodeCards<'_>) -> Unfit {
        let (class, need) = (self.class, &self.setup.need);
        let count = class.shape.groups[0].count;
        if card::published(node.facts) < count {
            return Unfit { nearest: None, when_empty: true };
        }
        let (mut possible, mut never) = (0, KINDS);
        for facts in node.facts {
            match fit::may_ever_fit(class, need, facts) {
                Ok(()) => possible += 1,
                Err(reason) => never = never.min(reason.kind()),
            }
        }
        if possible < count {
            return Unfit { nearest: Some(never), when_empty: true };
        }
        let check = |facts: &Facts, room: &Room| fit::fits_now(class, need, facts, room);
        let cards = || node.facts.iter().zip(node.rooms);
        let nearest = cards().filter_map(|(facts, room)| check(facts, room).err());
        let fits_empty = |facts: &&Facts| check(facts, &Room::empty(facts)).is_ok();
        let empty = match node.facts {
            [first, ..] if node.alike => usize::from(fits_empty(&first)) * node.facts.len(),
            all => all.iter().filter(fits_empty).count(),
        };
        let when_empty = empty < count;
        Unfit { nearest: nearest.map(CardReason::kind).min(), when_empty }
    }
}

#[cfg(test)]
mod tests;
