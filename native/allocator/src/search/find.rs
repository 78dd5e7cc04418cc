//! Cards for all groups of a request on one node.
//!
//! Nearly every pod has one container with one card: then the first card in order that has room is the
//! answer. With several groups the first choice of one may leave another without room, so choices are
//! taken back and all others tried, in order, so many and no more: who asks for something hopeless shall not keep the
//! cluster waiting.

use crate::rules::class::Class;
use crate::rules::fit;
use crate::rules::mig::{self, Place};
use crate::rules::node_reason::NodeReason;
use crate::rules::quota::{Allowance, Spent};
use crate::rules::shape::{every, members};
use crate::rules::view::View;
use crate::search::candidates::{best_links, candidates_of};
use crate::search::chosen::{self, Entry};
use crate::search::effort::{Effort, Step};
use crate::search::order;
use crate::search::topology::{self, Choice};
use crate::wire::{Mode, Topology};
use std::cmp::Reverse;

/// Fills `entries`, or says why that cannot be. `quota` is given where only the cards decide
/// what counts against it.
pub fn find(
    class: &Class,
    view: &View<'_>,
    quota: Option<&Allowance<'_>>,
    effort: &mut Effort,
    entries: &mut Vec<Entry>,
) -> Result<(), NodeReason> {
    entries.clear();
    effort.begin_node();
    if view.cards.is_empty() {
        return Err(NodeReason::NoCards);
    }
    class.suits(view.mode)?;
    let topology = class.topology(view.mode);
    let mut candidates: Vec<Vec<u8>> = Vec::with_capacity(class.shape.groups.len());
    for group in 0..class.shape.groups.len() {
        let mut cards = candidates_of(class, view, group)?;
        order::sort(class, view, group, &mut cards);
        candidates.push(cards);
    }
    let best =
        if topology == Topology::Strict { best_links(class, view, effort)? } else { Vec::new() };
    let order = in_turn(class, topology);
    let mut search =
        Search { class, view, quota, candidates, topology, order, best, entries, effort };
    if search.group(0) {
        return Ok(());
    }
    Err(search.failure())
}

/// In which order groups get their cards. Where all must have the best links the large ones have the least choice, and the
/// others take what they leave; but cards that may come together in one container come one after the other.
fn in_turn(class: &Class, topology: Topology) -> Vec<usize> {
    let groups = &class.shape.groups;
    let mut order: Vec<usize> = (0..groups.len()).collect();
    if topology == Topology::Strict && groups.iter().all(|group| group.apart == 0) {
        order.sort_by_key(|group| Reverse(groups[*group].count));
    }
    order
}

struct Search<'a> {
    class: &'a Class,
    view: &'a View<'a>,
    quota: Option<&'a Allowance<'a>>,
    candidates: Vec<Vec<u8>>,
    topology: Topology,
    order: Vec<usize>,
    best: Vec<u64>,
    entries: &'a mut Vec<Entry>,
    effort: &'a mut Effort,
}

impl Search<'_> {
    /// Finds cards for the group whose turn it is and all that follow.
    fn group(&mut self, turn: usize) -> bool {
        let Some(&group) = self.order.get(turn) else { return self.holds() };
        let shape = &self.class.shape.groups[group];
        let matters = self.topology != Topology::None && self.view.mode != Mode::Mig;
        if matters && (shape.count > 1 || shape.apart != 0) {
            let with = self.cards_of(shape.apart);
            let roomy = |card: &u8| self.has_room(group, *card) && !with.contains(card);
            let from: Vec<u8> = self.candidates[group].iter().copied().filter(roomy).collect();
            let choice = Choice {
                from: &from,
                with: &with,
                count: shape.count,
                one_numa: self.class.wish.numa,
            };
            let Some((_, cards)) = topology::best(self.view, choice, self.effort) else {
                return false;
            };
            let before = self.entries.len();
            let entry = |card| Entry { group: group as u8, card, place: None };
            self.entries.extend(cards.into_iter().map(entry));
            if self.is_well_linked(group) && self.group(turn + 1) {
                return true;
            }
            self.entries.truncate(before);
            // There is no better one where nothing else has to be placed.
            if self.class.shape.groups.len() == 1 && self.quota.is_none() {
                return false;
            }
        }
        self.entry(turn, shape.count, 0)
    }

    /// Finds so many more cards for that group, from this candidate on.
    fn entry(&mut self, turn: usize, left: usize, from: usize) -> bool {
        let group = self.order[turn];
        if left == 0 {
            return self.is_well_linked(group) && self.group(turn + 1);
        }
        if !self.may_be_well_linked(group, left) {
            return false;
        }
        for at in from..self.candidates[group].len() {
            if !self.effort.step(Step::Card) {
                return false;
            }
            let card = self.candidates[group][at];
            if !self.has_room(group, card)
                || !self.is_apart(group, card)
                || !self.is_near(group, card)
            {
                continue;
            }
            let (places, next) = if self.view.mode == Mode::Mig {
                (self.places(group, card).into_iter().map(Some).collect(), at)
            } else {
                (vec![None], at + 1)
            };
            for place in places {
                self.entries.push(Entry { group: group as u8, card, place });
                if self.entry(turn, left - 1, next) {
                    return true;
                }
                self.entries.pop();
            }
        }
        false
    }

    fn has_room(&self, group: usize, card: u8) -> bool {
        if self.view.mode == Mode::Mig {
            return !self.places(group, card).is_empty();
        }
        let here = self.entries.iter().filter(|entry| entry.card == card);
        let on: Vec<usize> = here.map(|entry| entry.group.into()).collect();
        fit::room(self.class, self.view, card.into(), &on, group).is_ok()
    }

    fn places(&self, group: usize, card: u8) -> Vec<Place> {
        let (view, at) = (self.view, usize::from(card));
        let Some(mig) = &view.cards[at].mig else { return Vec::new() };
        let mut used = view.used[at];
        for place in
            self.entries.iter().filter(|entry| entry.card == card).filter_map(|entry| entry.place)
        {
            let profile = &mig.profiles[place.profile];
            used.slots += 1;
            used.memory_mib += profile.memory_mib;
            used.mig |= mig::mask(place.start, profile.size);
        }
        if used.slots >= view.facts[at].slots() {
            return Vec::new();
        }
        mig::places(self.class, view, at, &used, group).unwrap_or_default()
    }

    /// Whether no container might get this card twice.
    fn is_apart(&self, group: usize, card: u8) -> bool {
        let apart = self.class.shape.groups[group].apart | 1 << group;
        let mut same = self.entries.iter().filter(|entry| entry.card == card);
        self.view.mode == Mode::Mig || !same.any(|entry| apart >> entry.group & 1 == 1)
    }

    /// Whether it is on the NUMA node of what it may be in one container with.
    fn is_near(&self, group: usize, card: u8) -> bool {
        let shape = &self.class.shape.groups[group];
        if !self.class.wish.numa || (shape.count == 1 && shape.apart == 0) {
            return true;
        }
        let numa = |card: u8| self.view.numa(card);
        let with = self.cards_of(shape.apart | 1 << group);
        numa(card).is_some() && with.first().is_none_or(|first| numa(*first) == numa(card))
    }

    fn cards_of(&self, groups: u64) -> Vec<u8> {
        let of = |entry: &&Entry| groups >> entry.group & 1 == 1;
        self.entries.iter().filter(of).map(|entry| entry.card).collect()
    }

    /// Whether the whole choice keeps what concerns all of it.
    fn holds(&self) -> bool {
        let Some(quota) = self.quota else { return true };
        let grants = chosen::grants(self.class, self.view, self.entries);
        quota.allows(&Spent::of(&self.class.asks, |ask| grants[ask].as_slice(), false))
    }

    fn is_strict(&self) -> bool {
        self.topology == Topology::Strict && self.view.mode != Mode::Mig
    }

    /// Whether each container that has all its cards with this group has the best links, whichever of them the kubelet
    /// picks for it. Known as soon as that is so, a choice need not be tried with all choices of the groups that follow.
    fn is_well_linked(&mut self, group: usize) -> bool {
        if !self.is_strict() {
            return true;
        }
        let (class, view) = (self.class, self.view);
        (0..class.shape.sources.len()).all(|at| {
            let (source, best) = (&class.shape.sources[at], self.best[at]);
            let groups = source.pool | source.new.map_or(0, |new| 1 << new);
            if best == 0 || members(groups).last() != Some(group) {
                return true;
            }
            let new = source.new.map_or(Vec::new(), |new| self.cards_of(1 << new));
            let pool = self.cards_of(source.pool);
            let effort = &mut *self.effort;
            every(&pool, source.reused, &new, &mut |cards| {
                effort.step(Step::Links) && topology::pairs(view, cards) >= best
            })
        })
    }

    /// Whether the cards that this group has so far can become the best linked ones with so many more.
    fn may_be_well_linked(&self, group: usize, left: usize) -> bool {
        let (shape, view) = (&self.class.shape, self.view);
        let source = &shape.sources[shape.groups[group].ask];
        let best = self.best.get(shape.groups[group].ask).copied().unwrap_or(0);
        // What comes to them from earlier containers is not known.
        if !self.is_strict() || source.reused > 0 || best == 0 {
            return true;
        }
        let cards = self.cards_of(1 << group);
        let pairs = |cards: usize| (cards * cards.saturating_sub(1) / 2) as u64;
        let more = pairs(cards.len() + left) - pairs(cards.len());
        topology::pairs(view, &cards) + more * topology::best_pair(view) >= best
    }

    fn failure(self) -> NodeReason {
        let single = self.class.shape.groups.len() == 1;
        // One that was in the way of an otherwise good choice.
        if let Some(over) = self.quota.and_then(Allowance::over) {
            return NodeReason::Quota(Box::new(over));
        }
        if self.effort.is_over() {
            return NodeReason::TooMany;
        }
        let wanted = self.class.shape.groups[0].count;
        if single && self.class.wish.numa {
            let numa = |card: &u8| self.view.numa(*card);
            let cards = &self.candidates[0];
            let count = |card: &u8| cards.iter().filter(|other| numa(other) == numa(card)).count();
            let most =
                cards.iter().filter(|card| numa(card).is_some()).map(count).max().unwrap_or(0);
            if most < wanted {
                return NodeReason::Numa { wanted: wanted as u8, most: most as u8 };
            }
        }
        if single && self.topology == Topology::Strict {
            return NodeReason::Links { wanted: wanted as u8, best: self.best[0] };
        }
        NodeReason::Together
    }
}

/// Whether there would be no cards either if no pod were on the node.
///
/// Where the looking ends before that is known, there may be.
pub fn unfit_when_empty(
    class: &Class,
    view: &View<'_>,
    effort: &mut Effort,
    entries: &mut Vec<Entry>,
) -> bool {
    let (rooms, used) = view.emptied();
    let empty = View { rooms: &rooms, used: &used, ..*view };
    let found = find(class, &empty, None, effort, entries);
    found.is_err_and(|reason| reason != NodeReason::TooMany)
}
