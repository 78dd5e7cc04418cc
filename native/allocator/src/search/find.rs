//! Finds cards for all groups of a request on one node.
//!
//! Nearly every pod has one container with one card. Then the first card in order that has room is
//! the answer. With several groups, the first choice for one group may leave no room for another.
//! So the search goes back and tries other choices, in order, until its steps are used up
//! ([`crate::search::effort`]): a hopeless request must not block others.

use crate::rules::card::Facts;
use crate::rules::class::Class;
use crate::rules::fit;
use crate::rules::mig::{self, InstancePlacement};
use crate::rules::node_reason::NodeReason;
use crate::rules::quota::{QuotaCheck, QuotaUse};
use crate::rules::shape::{every, members};
use crate::rules::view::View;
use crate::search::candidates::{best_links, candidates_of};
use crate::search::chosen::{self, ChosenCard};
use crate::search::effort::{Effort, Step};
use crate::search::order;
use crate::search::topology::{self, Choice};
use crate::wire::{Card, Mig, Topology};
use std::borrow::Cow;
use std::cmp::Reverse;

/// Fills `chosen`, or returns why the node does not fit. `quota` is given if only the chosen cards
/// decide what counts against it.
pub fn find(
    class: &Class,
    view: &View<'_>,
    quota: Option<&QuotaCheck<'_>>,
    effort: &mut Effort,
    chosen: &mut Vec<ChosenCard>,
) -> Result<(), NodeReason> {
    chosen.clear();
    effort.begin_node();
    if view.cards.is_empty() {
        return Err(NodeReason::NoCards);
    }
    class.suits(view.mode)?;
    has_enough_cards(class, view)?;
    let topology = class.topology(view.mode);
    let mut candidates: Vec<Vec<u8>> = Vec::with_capacity(class.shape.groups.len());
    for group in 0..class.shape.groups.len() {
        let mut cards = candidates_of(class, view, group)
            .map_err(|reason| lasting_of_groups(class, view, reason, group + 1))?;
        order::sort(class, view, group, &mut cards);
        candidates.push(cards);
    }
    let best =
        if topology == Topology::Strict { best_links(class, view, effort)? } else { Vec::new() };
    let order = in_turn(class, topology);
    let mut search =
        Search { class, view, quota, candidates, topology, order, best, chosen, effort };
    if search.group(0) {
        return Ok(());
    }
    Err(search.failure())
}

/// A card in MIG mode may have several instances.
fn has_enough_cards(class: &Class, view: &View<'_>) -> Result<(), NodeReason> {
    let cards = view.published();
    let requested = class.containers.iter().map(|one| one.cards as usize).max().unwrap_or(0);
    let has_mig = || (0..view.cards.len()).any(|card| view.has_mig(card as u8));
    if requested <= cards || has_mig() {
        return Ok(());
    }
    Err(NodeReason::FewCards { requested: requested as u8, cards: cards as u8 })
}

/// The reason of a later group that lasts, if there is one: waiting for this one does not help then.
fn lasting_of_groups(
    class: &Class,
    view: &View<'_>,
    reason: NodeReason,
    from: usize,
) -> NodeReason {
    if reason.is_lasting() {
        return reason;
    }
    let mut later = (from..class.shape.groups.len())
        .filter_map(|group| candidates_of(class, view, group).err());
    later.find(NodeReason::is_lasting).unwrap_or(reason)
}

/// The order in which groups get their cards. If all must have the best links, large groups have
/// the fewest choices and come first. But groups that may meet in one container follow each other.
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
    quota: Option<&'a QuotaCheck<'a>>,
    candidates: Vec<Vec<u8>>,
    topology: Topology,
    order: Vec<usize>,
    best: Vec<u64>,
    chosen: &'a mut Vec<ChosenCard>,
    effort: &'a mut Effort,
}

impl Search<'_> {
    /// Finds cards for the group at this turn and all groups after it.
    fn group(&mut self, turn: usize) -> bool {
        let Some(&group) = self.order.get(turn) else { return self.holds() };
        let shape = &self.class.shape.groups[group];
        if self.topology != Topology::None && (shape.count > 1 || shape.apart != 0) {
            let with = self.cards_of(shape.apart);
            let (has_mig, all) = (|card: &u8| self.view.has_mig(*card), &self.candidates[group]);
            let roomy =
                |card: &u8| !has_mig(card) && self.has_room(group, *card) && !with.contains(card);
            let from: Vec<u8> = all.iter().copied().filter(roomy).collect();
            let choice = Choice {
                from: &from,
                with: &with,
                count: shape.count,
                one_numa: self.class.card_request.numa,
            };
            let Some((_, cards)) = topology::best(self.view, choice, self.effort) else {
                // MIG instances have no links. They are tried if there are too few other cards.
                return all.iter().any(has_mig) && self.entry(turn, shape.count, 0);
            };
            let before = self.chosen.len();
            let entry = |card| ChosenCard { group: group as u8, card, instance: None };
            self.chosen.extend(cards.into_iter().map(entry));
            if self.is_well_linked(group) && self.group(turn + 1) {
                return true;
            }
            self.chosen.truncate(before);
            // With a single group there is no better choice.
            if self.class.shape.groups.len() == 1 && self.quota.is_none() {
                return false;
            }
        }
        self.entry(turn, shape.count, 0)
    }

    /// Finds `left` more cards for the group, starting at this candidate.
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
            if !self.is_apart(group, card) || !self.is_near(group, card) {
                continue;
            }
            // A container may have several instances of a card.
            let (placements, next) = match &self.view.cards[usize::from(card)].mig {
                Some(mig) => (self.free_placements(group, card, mig), at),
                None if self.has_room(group, card) => (vec![None], at + 1),
                None => continue,
            };
            for placement in placements {
                self.chosen.push(ChosenCard { group: group as u8, card, instance: placement });
                if self.entry(turn, left - 1, next) {
                    return true;
                }
                self.chosen.pop();
            }
        }
        false
    }

    /// Whether a card without MIG has room for an ID of the group.
    fn has_room(&self, group: usize, card: u8) -> bool {
        let here = self.chosen.iter().filter(|entry| entry.card == card);
        let on: Vec<usize> = here.map(|entry| entry.group.into()).collect();
        fit::room(self.class, self.view, card.into(), &on, group).is_ok()
    }

    /// The placements of a card in MIG mode that are free for an ID of the group.
    fn free_placements(&self, group: usize, card: u8, mig: &Mig) -> Vec<Option<InstancePlacement>> {
        let (view, at) = (self.view, usize::from(card));
        let mut allocated = view.allocated[at];
        for placement in
            self.chosen.iter().filter(|entry| entry.card == card).filter_map(|entry| entry.instance)
        {
            let profile = &mig.profiles[placement.profile];
            allocated.slots += 1;
            allocated.mig |= mig::mask(placement.start, profile.size);
        }
        let found = mig::free_placements(self.class, mig, &view.facts[at], &allocated, group);
        found.unwrap_or_default().into_iter().map(Some).collect()
    }

    /// Whether no container could get this card twice.
    fn is_apart(&self, group: usize, card: u8) -> bool {
        let apart = self.class.shape.groups[group].apart | 1 << group;
        let mut same = self.chosen.iter().filter(|entry| entry.card == card);
        self.view.has_mig(card) || !same.any(|entry| apart >> entry.group & 1 == 1)
    }

    /// Whether the card is on the NUMA node of the cards that may be in the same container.
    fn is_near(&self, group: usize, card: u8) -> bool {
        let shape = &self.class.shape.groups[group];
        if !self.class.card_request.numa || (shape.count == 1 && shape.apart == 0) {
            return true;
        }
        let numa = |card: u8| self.view.numa(card);
        let with = self.cards_of(shape.apart | 1 << group);
        numa(card).is_some() && with.first().is_none_or(|first| numa(*first) == numa(card))
    }

    fn cards_of(&self, groups: u64) -> Vec<u8> {
        let of = |entry: &&ChosenCard| groups >> entry.group & 1 == 1;
        self.chosen.iter().filter(of).map(|entry| entry.card).collect()
    }

    /// Whether the whole choice is within the quotas.
    fn holds(&self) -> bool {
        let Some(quota) = self.quota else { return true };
        let container_cards = chosen::container_cards(self.class, self.view, self.chosen);
        quota.allows(&QuotaUse::of(
            &self.class.containers,
            |container| container_cards[container].as_slice(),
            false,
        ))
    }

    fn is_strict(&self) -> bool {
        self.topology == Topology::Strict
    }

    /// Whether each container that is complete with this group has the best links, whichever IDs
    /// the kubelet picks for it. It is checked as early as possible, so that fewer choices are
    /// tried.
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

    /// Whether the cards of this group can still get the best links with `left` more cards.
    fn may_be_well_linked(&self, group: usize, left: usize) -> bool {
        let (shape, view) = (&self.class.shape, self.view);
        let source = &shape.sources[shape.groups[group].container];
        let best = self.best.get(shape.groups[group].container).copied().unwrap_or(0);
        // The cards that earlier containers leave are not known.
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
        // An otherwise possible choice was over a quota.
        if let Some(over) = self.quota.and_then(QuotaCheck::over) {
            return NodeReason::Quota(Box::new(over));
        }
        if self.effort.is_over() {
            return NodeReason::TooMany;
        }
        let wanted = self.class.shape.groups[0].count;
        let has_mig = self.candidates[0].iter().any(|card| self.view.has_mig(*card));
        if single && self.class.card_request.numa && !has_mig {
            let numa = |card: &u8| self.view.numa(*card);
            let cards = &self.candidates[0];
            let count = |card: &u8| cards.iter().filter(|other| numa(other) == numa(card)).count();
            let most =
                cards.iter().filter(|card| numa(card).is_some()).map(count).max().unwrap_or(0);
            if most < wanted {
                return NodeReason::Numa { requested: wanted as u8, most: most as u8 };
            }
        }
        if single && self.topology == Topology::Strict {
            return NodeReason::Links { requested: wanted as u8, best: self.best[0] };
        }
        NodeReason::Together
    }
}

/// The reason to report, and whether no eviction would help.
///
/// If the pod would not fit the node without other pods, and with all of its cards in order, the
/// reason is what is lacking then. If the search ends before that is known, it counts as a fit.
pub fn lasting(
    class: &Class,
    view: &View<'_>,
    reason: NodeReason,
    effort: &mut Effort,
    chosen: &mut Vec<ChosenCard>,
) -> (NodeReason, bool) {
    if reason.is_lasting() {
        return (reason, true);
    }
    let facts: Vec<Facts> = view.facts.iter().map(Facts::in_order).collect();
    let cards = without_others(view.cards);
    let in_order = View { facts: &facts, cards: &cards, ..*view };
    match find_when_empty(class, &in_order, effort, chosen) {
        Err(NodeReason::Links { best: 0, requested }) => {
            return (NodeReason::Links { best: 0, requested }, true);
        }
        Err(NodeReason::TooMany) | Ok(()) => {}
        Err(NodeReason::Cards { .. }) => return (reason, true),
        Err(never) => return (NodeReason::Never(Box::new(never)), true),
    }
    let differs = facts != view.facts || matches!(cards, Cow::Owned(_));
    let found = if differs { find_when_empty(class, view, effort, chosen) } else { Ok(()) };
    let unfit = found.is_err_and(|reason| reason != NodeReason::TooMany);
    (reason, unfit)
}

/// The cards without the MIG instances of others.
fn without_others(cards: &[Card]) -> Cow<'_, [Card]> {
    let has_others = |card: &Card| card.mig.as_ref().is_some_and(|mig| !mig.taken.is_empty());
    if !cards.iter().any(has_others) {
        return Cow::Borrowed(cards);
    }
    let mut cards = cards.to_vec();
    cards.iter_mut().filter_map(|card| card.mig.as_mut()).for_each(|mig| mig.taken.clear());
    Cow::Owned(cards)
}

/// Finds cards as if there were no pods on the node.
fn find_when_empty(
    class: &Class,
    view: &View<'_>,
    effort: &mut Effort,
    chosen: &mut Vec<ChosenCard>,
) -> Result<(), NodeReason> {
    let (rooms, allocated) = view.emptied();
    let empty = View { rooms: &rooms, allocated: &allocated, ..*view };
    find(class, &empty, None, effort, chosen)
}
