//! Who would have to go so that a pod fits on a node.
//!
//! Those whom kube-scheduler has chosen go in any case, and often they are enough. Beyond them we look for a set
//! of pods with lower priority that makes room. The best set violates the fewest disruption budgets; of those it
//! is the one whose most important pod has the lowest priority; of those the smallest. More gone is never less room,
//! so the first two are found by widening step by step. The smallest set is tried for by size; where that is too
//! much, pods are spared one by one, the most important first, as kube-scheduler does it, and the better of the two
//! sets goes. Sparing has an effort of its own; where that is not enough either, those go who are not spared by then.

use crate::engine::Allocator;
use crate::questions::judge;
use crate::rules::class::Class;
use crate::search::effort::Effort;
use crate::wire::check;
use crate::wire::{Candidate, Request};
use hami_limits::InvalidValue;
use std::cell::{Cell, RefCell};

/// Sets tried before the exact search is given up: kube-scheduler asks for a hundred nodes or more at
/// once, and a try takes some 10 us.
const TRIES: u32 = 1_000;

struct Search<'a> {
    allocator: &'a Allocator,
    class: &'a Class,
    request: &'a Request,
    node: u32,
    /// Who goes in any case.
    chosen: Vec<&'a Candidate>,
    tries: Cell<u32>,
    effort: RefCell<&'a mut Effort>,
}

impl Allocator {
    /// The pods that have to go, by UID, or `None`: it would not help, or the pod's namespace has taken too much.
    /// Candidates that are not on the node, or that are not of lower priority by what they say *and* by what was placed,
    /// never have to. What is asked for one pod at one time is one question, however many nodes it is about.
    pub fn victims(
        &mut self,
        request: &Request,
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

    /// The same, and how many sets were tried.
    fn find_victims(
        &self,
        request: &Request,
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

    /// Whether what was asked for that pod at that time has taken all that it may: no victims are looked for on a
    /// further node.
    pub fn preemption_is_over(&self, uid: &str, now_ns: u64) -> bool {
        self.spending.preemption_is_over(uid, now_ns)
    }
}

impl<'a> Search<'_> {
    fn may_go(&self, candidate: &Candidate) -> bool {
        let below = self.request.priority;
        let placed = self.allocator.book.find(&candidate.uid);
        let here =
            placed.is_some_and(|holding| holding.node == self.node && holding.priority < below);
        here && candidate.priority < below && candidate.uid != self.request.pod.uid
    }

    fn fits_without(&self, gone: &[&Candidate]) -> bool {
        self.tries.set(self.tries.get() + 1);
        let effort = &mut **self.effort.borrow_mut();
        if effort.is_spent() {
            return false;
        }
        let gone: Vec<&str> = self.chosen.iter().chain(gone).map(|one| one.uid.as_str()).collect();
        let room = self.allocator.room(self.request, &gone);
        self.allocator.with_view(self.request, self.node, &gone, |view| {
            let entries = &mut Vec::new();
            judge::try_fit(self.class, view, room.as_ref(), effort, entries).is_ok()
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

    /// The cheapest set, unless the search is given up: then one that will do.
    fn smallest(&self, lower: &[&'a Candidate]) -> Vec<&'a Candidate> {
        let (protected, free): (Vec<&Candidate>, Vec<&Candidate>) =
            lower.iter().partition(|one| one.pdb_violating);
        let fits =
            |gone: &[&Candidate], with: &[&Candidate]| self.fits_without(&[with, gone].concat());
        // As few violations as can be; of several such choices the one that leads to the best whole.
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

    /// The rest, given what is violated: up to the lowest priority that will do, and as few as can be.
    fn with_free(&self, free: &[&'a Candidate], violated: &[&'a Candidate]) -> Vec<&'a Candidate> {
        let with = |gone: &[&'a Candidate]| [violated, gone].concat();
        let floor = violated.iter().map(|one| one.priority).max();
        // Sorted by priority: the shortest run from the bottom that will do.
        let enough = (0..=free.len()).find(|count| self.fits_without(&with(&free[..*count])));
        let run = &free[..enough.unwrap_or(free.len())];
        let limit = floor.max(run.last().map(|one| one.priority));
        let within: Vec<&Candidate> =
            free.iter().copied().filter(|one| Some(one.priority) <= limit).collect();
        for count in 0..=within.len() {
            let mut found = None;
            let (_, whole) = self.each_choice(&within, count, &mut |gone| {
                let fits = self.fits_without(&with(gone));
                if fits {
                    found = Some(with(gone));
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

    /// Tries all choices of so many until one is taken. Says whether one was, and whether all were tried.
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

    /// All of them, less whom it works without: violations and high priorities are spared first.
    fn spare(&self, from: &[&'a Candidate]) -> Vec<&'a Candidate> {
        let mut gone = from.to_vec();
        let mut order = gone.clone();
        order.sort_by_key(|one| (!one.pdb_violating, -i64::from(one.priority)));
        for one in order {
            let without: Vec<&Candidate> =
                gone.iter().copied().filter(|other| other.uid != one.uid).collect();
            if self.fits_without(&without) {
                gone = without;
            }
        }
        gone
    }
}

fn cost(victims: &[&Candidate]) -> (usize, Option<i32>, usize) {
    let violations = victims.iter().filter(|one| one.pdb_violating).count();
    (violations, victims.iter().map(|one| one.priority).max(), victims.len())
}

#[cfg(test)]
mod tests;
