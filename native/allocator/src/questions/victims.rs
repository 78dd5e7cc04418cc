//! Victims: which pods to evict so that a pod fits on a node.
//!
//! The pods that kube-scheduler has chosen are evicted in any case, and often they are enough.
//! Beyond them the allocator searches for a set of pods with lower priority that makes room. The
//! best set violates the fewest disruption budgets; then it has the lowest highest priority; then
//! it is the smallest. Evicting more pods never makes less room, so the first two are found by
//! widening the set step by step. The smallest set is searched by size. If there are too many sets,
//! pods are spared one by one, the most important first, as kube-scheduler does, and the better of
//! the two sets is taken. Sparing has its own limit of steps; pods that are not spared by then are
//! evicted.

use crate::engine::Allocator;
use crate::questions::judge;
use crate::rules::class::Class;
use crate::search::effort::Effort;
use crate::wire::check;
use crate::wire::{Candidate, PodRequest};
use hami_limits::InvalidValue;
use std::cell::{Cell, RefCell};

/// The number of sets after which the exact search ends. kube-scheduler asks for a hundred nodes or
/// more at once, and a set takes about 10 us.
const TRIES: u32 = 1_000;

struct Search<'a> {
    allocator: &'a Allocator,
    class: &'a Class,
    request: &'a PodRequest,
    node: u32,
    /// The pods that are evicted in any case.
    chosen: Vec<&'a Candidate>,
    tries: Cell<u32>,
    effort: RefCell<&'a mut Effort>,
}

impl Allocator {
    /// The UIDs of the pods to evict, or `None` if evictions would not help or the namespace has
    /// used its steps. Candidates on other nodes are ignored, and candidates whose priority is not
    /// lower, by the request *and* by the allocation. All nodes that are asked about for one pod at
    /// one time are one question.
    pub fn victims(
        &mut self,
        request: &PodRequest,
        name: &str,
        candidates: &[Candidate],
        now_ns: u64,
    ) -> Result<Option<Vec<String>>, InvalidValue> {
        check::request(request)?;
        if !self.spending.may_preempt(&request.pod, now_ns) {
            return Ok(None);
        }
        let mut effort = Effort::for_victims();
        let (victims, tries) = self.find_victims(request, name, candidates, &mut effort);
        effort.count_tries(tries);
        self.spending.count_preemption(&request.pod, &effort, now_ns);
        Ok(victims)
    }

    /// The same, with the number of tried sets.
    fn find_victims(
        &self,
        request: &PodRequest,
        name: &str,
        candidates: &[Candidate],
        effort: &mut Effort,
    ) -> (Option<Vec<String>>, u32) {
        let Some(node) = self.number(name) else { return (None, 0) };
        let mut class = Class::of(request);
        class.meet_models(&self.models);
        let (chosen, tries) = (Vec::new(), Cell::new(0));
        let (class, effort) = (&class, RefCell::new(effort));
        let mut search = Search { allocator: self, class, request, node, chosen, tries, effort };
        let mut lower: Vec<&Candidate> =
            candidates.iter().filter(|one| search.may_go(one)).collect();
        lower.sort_unstable_by(|one, other| {
            (one.priority, &one.uid, !one.chosen).cmp(&(other.priority, &other.uid, !other.chosen))
        });
        lower.dedup_by(|one, other| one.uid == other.uid);
        let (chosen, others) = lower.into_iter().partition(|one| one.chosen);
        search.chosen = chosen;
        let found = search.cheapest(&others);
        let uids = found.map(|found| {
            let going = search.chosen.iter().chain(&found);
            let mut uids: Vec<String> = going.map(|one| one.uid.clone()).collect();
            uids.sort_unstable();
            uids
        });
        (uids, search.tries.get())
    }

    /// Whether the search for victims of this pod at this time has used its steps, so that no
    /// further node is searched.
    pub fn preemption_is_over(&self, uid: &str, now_ns: u64) -> bool {
        self.spending.preemption_is_over(uid, now_ns)
    }
}

impl<'a> Search<'_> {
    fn may_go(&self, candidate: &Candidate) -> bool {
        let below = self.request.priority;
        let placed = self.allocator.allocations.find(&candidate.uid);
        let here = placed
            .is_some_and(|allocation| allocation.node == self.node && allocation.priority < below);
        here && candidate.priority < below && candidate.uid != self.request.pod.uid
    }

    fn fits_without(&self, removed: &[&Candidate]) -> bool {
        self.tries.set(self.tries.get() + 1);
        let effort = &mut **self.effort.borrow_mut();
        if effort.is_spent() {
            return false;
        }
        let removed: Vec<&str> =
            self.chosen.iter().chain(removed).map(|one| one.uid.as_str()).collect();
        let room = self.allocator.room(self.request, &removed);
        self.allocator.with_view(self.request, self.node, &removed, |view| {
            let chosen = &mut Vec::new();
            judge::try_fit(self.class, view, room.as_ref(), effort, chosen).is_ok()
        })
    }

    fn cheapest(&self, lower: &[&'a Candidate]) -> Option<Vec<&'a Candidate>> {
        if !self.fits_without(lower) {
            return None;
        }
        let found = self.smallest(lower);
        if !self.is_given_up() {
            return Some(found);
        }
        self.effort.borrow_mut().go_on_sparing();
        let mut spared = self.spare(&found);
        if found.len() < lower.len() {
            let others = self.spare(lower);
            spared = if cost(&others) < cost(&spared) { others } else { spared };
        }
        Some(spared)
    }

    fn is_given_up(&self) -> bool {
        self.tries.get() > TRIES || self.effort.borrow().is_spent()
    }

    /// The best set, or one that makes room if the search ends early.
    fn smallest(&self, lower: &[&'a Candidate]) -> Vec<&'a Candidate> {
        let (protected, free): (Vec<&Candidate>, Vec<&Candidate>) =
            lower.iter().partition(|one| one.pdb_violating);
        let fits = |removed: &[&Candidate], with: &[&Candidate]| {
            self.fits_without(&[with, removed].concat())
        };
        // The fewest violations; of several such choices the one that leads to the best set.
        for count in 0..=protected.len() {
            let mut best: Option<Vec<&Candidate>> = None;
            let whole = self.each_choice(&protected, count, &mut |violated| {
                if fits(&free, violated) {
                    let found = self.with_free(&free, violated);
                    if best.as_ref().is_none_or(|best| cost(&found) < cost(best)) {
                        best = Some(found);
                    }
                }
                false
            });
            if let Some(best) = best {
                return best;
            }
            if !whole.1 {
                break;
            }
        }
        lower.to_vec()
    }

    /// The rest of a set with these violations: up to the lowest priority that makes room, and as
    /// few pods as possible.
    fn with_free(&self, free: &[&'a Candidate], violated: &[&'a Candidate]) -> Vec<&'a Candidate> {
        let with = |removed: &[&'a Candidate]| [violated, removed].concat();
        let floor = violated.iter().map(|one| one.priority).max();
        // The pods are sorted by priority: find the shortest prefix that makes room.
        let enough = (0..=free.len()).find(|count| self.fits_without(&with(&free[..*count])));
        let run = &free[..enough.unwrap_or(free.len())];
        let limit = floor.max(run.last().map(|one| one.priority));
        let within: Vec<&Candidate> =
            free.iter().copied().filter(|one| Some(one.priority) <= limit).collect();
        for count in 0..=within.len() {
            let mut found = None;
            let (_, whole) = self.each_choice(&within, count, &mut |removed| {
                let fits = self.fits_without(&with(removed));
                if fits {
                    found = Some(with(removed));
                }
                fits
            });
            if let Some(found) = found {
                return found;
            }
            if !whole {
                break;
            }
        }
        with(&within)
    }

    /// Tries all choices of `count` pods until one is taken. Returns whether one was taken, and
    /// whether all were tried.
    fn each_choice(
        &self,
        from: &[&'a Candidate],
        count: usize,
        take: &mut dyn FnMut(&[&'a Candidate]) -> bool,
    ) -> (bool, bool) {
        let mut chosen: Vec<usize> = (0..count).collect();
        if count > from.len() {
            return (false, true);
        }
        loop {
            if self.is_given_up() {
                return (false, false);
            }
            let hand: Vec<&Candidate> = chosen.iter().map(|at| from[*at]).collect();
            if take(&hand) {
                return (true, true);
            }
            // The next choice in lexicographic order.
            let movable = (0..count).rev().find(|at| chosen[*at] < from.len() - count + at);
            let Some(at) = movable else { return (false, true) };
            chosen[at] += 1;
            for later in at + 1..count {
                chosen[later] = chosen[later - 1] + 1;
            }
        }
    }

    /// The set without the pods that need not be evicted. Violations and high priorities are spared
    /// first.
    fn spare(&self, from: &[&'a Candidate]) -> Vec<&'a Candidate> {
        let mut removed = from.to_vec();
        let mut order = removed.clone();
        order.sort_by_key(|one| (!one.pdb_violating, -i64::from(one.priority)));
        for one in order {
            let without: Vec<&Candidate> =
                removed.iter().copied().filter(|other| other.uid != one.uid).collect();
            if self.fits_without(&without) {
                removed = without;
            }
        }
        removed
    }
}

fn cost(victims: &[&Candidate]) -> (usize, Option<i32>, usize) {
    let violations = victims.iter().filter(|one| one.pdb_violating).count();
    (violations, victims.iter().map(|one| one.priority).max(), victims.len())
}

#[cfg(test)]
mod tests;
