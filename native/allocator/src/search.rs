//! Cards for all groups of a request on one node.
//!
//! Nearly every pod has one container with one card: then the first card in order that has room is the
//! answer. With several groups the first choice of one may leave another without room, so choices are
//! taken back and all others tried, in order, so many and no more: who asks for something hopeless shall not keep the
//! cluster waiting.

use crate::allowance::Allowance;
use crate::candidates::{best_links, candidates_of, suits};
use crate::card::Use;
use crate::class::Class;
use crate::effort::{Effort, Step};
use crate::fit::{self, View};
use crate::mig::{self, Place};
use crate::order;
use crate::plan;
use crate::quota::Spent;
use crate::reason::NodeReason;
use crate::shape::members;
use crate::topology::{self, Choice};
use crate::wire::{Mode, Topology};

/// One device ID: of which group, on which card, and as which instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index into the shape's groups.
    pub group: u8,
    /// Index into the node's cards.
    pub card: u8,
    /// Where the card is cut.
    pub place: Option<Place>,
}

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
    suits(class, view)?;
    let topology = class.topology(view.mode);
    let mut candidates: Vec<Vec<u8>> = Vec::with_capacity(class.shape.groups.len());
    for group in 0..class.shape.groups.len() {
        let mut cards = candidates_of(class, view, group)?;
        order::sort(class, view, group, &mut cards);
        candidates.push(cards);
    }
    let best =
        if topology == Topology::Strict { best_links(class, view, effort)? } else { Vec::new() };
    let mut search = Search { class, view, quota, candidates, topology, best, entries, effort };
    if search.group(0) {
        return Ok(());
    }
    Err(search.failure())
}

struct Search<'a> {
    class: &'a Class,
    view: &'a View<'a>,
    quota: Option<&'a Allowance<'a>>,
    candidates: Vec<Vec<u8>>,
    topology: Topology,
    best: Vec<u64>,
    entries: &'a mut Vec<Entry>,
    effort: &'a mut Effort,
}

impl Search<'_> {
    /// Finds cards for this group and all that follow.
    fn group(&mut self, group: usize) -> bool {
        let Some(shape) = self.class.shape.groups.get(group) else { return self.holds() };
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
            if self.group(group + 1) {
                return true;
            }
            self.entries.truncate(before);
            // There is no better one where nothing else has to be placed.
            if self.class.shape.groups.len() == 1 && self.quota.is_none() {
                return false;
            }
        }
        self.entry(group, shape.count, 0)
    }

    /// Finds so many more cards for this group, from this candidate on.
    fn entry(&mut self, group: usize, left: usize, from: usize) -> bool {
        if left == 0 {
            return self.group(group + 1);
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
                if self.entry(group, left - 1, next) {
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
        if used.slots >= view.facts[at].slots.into() {
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
        let numa = |card: u8| self.view.facts[usize::from(card)].numa;
        let with = self.cards_of(shape.apart | 1 << group);
        numa(card).is_some() && with.first().is_none_or(|first| numa(*first) == numa(card))
    }

    fn cards_of(&self, groups: u64) -> Vec<u8> {
        let of = |entry: &&Entry| groups >> entry.group & 1 == 1;
        self.entries.iter().filter(of).map(|entry| entry.card).collect()
    }

    /// Whether the whole choice keeps what concerns all of it.
    fn holds(&mut self) -> bool {
        if self.topology == Topology::Strict
            && self.view.mode != Mode::Mig
            && !self.is_well_linked()
        {
            return false;
        }
        let Some(quota) = self.quota else { return true };
        let grants = plan::grants(self.class, self.view, self.entries);
        quota.allows(&Spent::of(&self.class.asks, |ask| grants[ask].as_slice(), false))
    }

    /// Whether each container has the best links, whichever cards the kubelet picks for it.
    fn is_well_linked(&mut self) -> bool {
        let (class, view) = (self.class, self.view);
        let all = class.shape.sources.iter().enumerate();
        let linked = all.filter(|(at, _)| self.best[*at] > 0).map(|(at, source)| {
            let new = source.new.map_or(Vec::new(), |group| self.cards_of(1 << group));
            let pool: Vec<u8> =
                members(source.pool).flat_map(|group| self.cards_of(1 << group)).collect();
            (self.best[at], source.reused, new, pool)
        });
        let linked: Vec<_> = linked.collect();
        let effort = &mut *self.effort;
        linked.into_iter().all(|(best, reused, new, pool)| {
            every(&pool, reused, &new, &mut |cards| {
                effort.step(Step::Links) && topology::pairs(view, cards) >= best
            })
        })
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
            let numa = |card: &u8| self.view.facts[usize::from(*card)].numa;
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

/// Whether `good` is true of `hand` with any so many of `pool`.
fn every(pool: &[u8], count: usize, hand: &[u8], good: &mut impl FnMut(&[u8]) -> bool) -> bool {
    if count == 0 {
        return good(hand);
    }
    (0..pool.len())
        .filter(|at| pool.len() - at >= count)
        .all(|at| every(&pool[at + 1..], count - 1, &[hand, &pool[at..=at]].concat(), good))
}

/// Whether there would be no cards either if no pod were on the node.
///
/// Where the looking ends before that is known, there may be.
pub fn never(
    class: &Class,
    view: &View<'_>,
    effort: &mut Effort,
    entries: &mut Vec<Entry>,
) -> bool {
    let unused = vec![Use::default(); view.used.len()];
    let found = find(class, &View { used: &unused, ..*view }, None, effort, entries);
    found.is_err_and(|reason| reason != NodeReason::TooMany)
}
