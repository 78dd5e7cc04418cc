//! The usual request on the usual nodes: one container, and nothing between the cards that matters.
//!
//! Then each card is judged by itself and the first so many in order are taken. The rules for a card are those of
//! the search ([`crate::rules::fit`], [`crate::search::order`]), and so is the score; what is saved is the search. A test
//! compares the answers.

use crate::rules::card::{Facts, Room, Use};
use crate::rules::card_reason::CardReason;
use crate::rules::class::Class;
use crate::rules::demand::Need;
use crate::rules::fit::{self, Asked};
use crate::rules::fullness::Scale;
use crate::search::order;
use crate::search::score::{self, Score};
use crate::speed::table::NodeCards;
use crate::wire::check::MOST;
use crate::wire::{Mode, Placement};

/// For one class, on many nodes.
pub struct FastPath<'a> {
    class: &'a Class,
    /// For cards.
    scale: Scale,
    /// For nodes.
    nodes: Scale,
    /// Of the last node: mostly they are the same for the next.
    setup: Setup,
    /// Cards with room, what comes first first: a number to order by, and the card in its last eight bits.
    candidates: [i64; MOST + 1],
}

/// What follows from the class and a node's mode and placement.
struct Setup {
    mode: Mode,
    placement: Option<Placement>,
    applies: bool,
    fullest_first: bool,
    need: Need,
    only_room_matters: bool,
}

/// What does not depend on what is left of a card: it is the same for cards that are alike.
#[derive(Clone, Copy)]
struct Terms {
    usable: bool,
    asked: Asked,
    filled: i64,
}

/// Why a node does not do.
pub struct Unfit {
    /// The kind of reason of the card that is nearest to doing; none where no card is refused.
    pub nearest: Option<usize>,
    /// Whether there are too few cards even where no pod is on the node.
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
    /// Of this class.
    pub fn of(class: &'a Class) -> Self {
        Self {
            class,
            scale: class.scale(),
            nodes: class.scale(),
            setup: Setup::of(class, Mode::default(), None),
            candidates: [0; MOST + 1],
        }
    }

    /// The score of a node with the pod, or why it does not fit; `None` where the search has to look.
    pub fn judge(&mut self, node: &NodeCards<'_>) -> Option<Result<u16, Unfit>> {
        if (self.setup.mode, self.setup.placement) != (node.mode, node.placement) {
            self.setup = Setup::of(self.class, node.mode, node.placement);
        }
        if !self.setup.applies || node.facts.is_empty() {
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
            let Asked { memory: memory_mib, cores, .. } = Asked::of(&self.setup.need, facts);
            let load = Use { memory_mib, cores, slots: 1, plain_slots: 1, mig: 0 };
            totals.give(load.given());
            wasted += score::waste(node.mode, facts, room, &load);
        }
        let score = Score::of(self.class, &mut self.nodes, &totals, wasted / count as f64);
        Some(Ok(score.rounded()))
    }

    /// How many there are, and the one that comes first.
    fn find_candidates(&mut self, node: &NodeCards<'_>) -> (usize, i64) {
        let Self { class, scale, setup, candidates, .. } = self;
        let Setup { need, mode, fullest_first, only_room_matters, .. } = setup;
        let sign = if *fullest_first { -1 } else { 1 };
        let (mut found, mut first) = (0, i64::MAX);
        let mut consider = |at: usize, facts: &Facts, room: &Room, terms: Terms, full: i64| {
            let Terms { usable, asked, filled } = terms;
            // Without a branch: which cards have room cannot be foretold.
            let candidate = ((full + filled) * sign) << 8 | at as i64;
            candidates[found] = candidate;
            let fits = usable
                & asked.is_left(room)
                & (*only_room_matters || fit::may_join(class, need, facts, room, 0).is_ok());
            found += usize::from(fits);
            first = if fits { first.min(candidate) } else { first };
        };
        let terms = |scale: &mut Scale, facts: &Facts| Terms {
            usable: fit::usable(class, facts).is_ok(),
            asked: Asked::of(need, facts),
            filled: order::filled(scale, need, *mode, facts),
        };
        match node.facts {
            [like, ..] if node.alike && class.wish.weights.is_none() => {
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
        let check = |facts: &Facts, room: &Room| {
            fit::usable(class, facts).and_then(|()| fit::room_for_one(class, need, facts, room))
        };
        let cards = || node.facts.iter().zip(node.rooms);
        let nearest = cards().filter_map(|(facts, room)| check(facts, room).err());
        let fits_empty = |facts: &&Facts| check(facts, &Room::empty(facts)).is_ok();
        let empty = match node.facts {
            [first, ..] if node.alike => usize::from(fits_empty(&first)) * node.facts.len(),
            all => all.iter().filter(fits_empty).count(),
        };
        let when_empty = empty < class.shape.groups[0].count;
        Unfit { nearest: nearest.map(CardReason::kind).min(), when_empty }
    }
}

#[cfg(test)]
mod tests;
