//! Where the allocations of a graph are in its footprint, so that they can share bytes.
//!
//! Two allocations may have the same bytes only if one of them is freed before the other one is
//! made, in every order in which the graph can run: its free node is an ancestor of the other's
//! allocation node. Steps are taken in their order, and each allocation gets the first range that
//! fits.

use super::PAGE;
use crate::arena::ALIGNMENT;
use std::collections::BTreeMap;

/// A step of a graph, as far as ancestors matter.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The steps that it directly depends on, which come before it.
    pub after: Vec<usize>,
    /// Its branch. The steps of a branch depend on each other, one by one.
    pub branch: usize,
}

/// The ancestors of all steps of a graph.
#[derive(Debug)]
pub struct Ancestors {
    branches: Vec<usize>,
    /// For each step, the last step of each branch that is the step itself or an ancestor.
    reached: Vec<BTreeMap<usize, usize>>,
}

impl Ancestors {
    /// The ancestors of these steps.
    pub fn new(places: &[Place]) -> Self {
        let mut reached: Vec<BTreeMap<usize, usize>> = Vec::with_capacity(places.len());
        for (index, place) in places.iter().enumerate() {
            let mut own: BTreeMap<usize, usize> = BTreeMap::new();
            for before in &place.after {
                for (branch, step) in &reached[*before] {
                    let last = own.entry(*branch).or_insert(*step);
                    *last = (*last).max(*step);
                }
            }
            own.insert(place.branch, index);
            reached.push(own);
        }
        Self { branches: places.iter().map(|place| place.branch).collect(), reached }
    }

    /// Whether a step is an ancestor of another one.
    pub fn precedes(&self, before: usize, step: usize) -> bool {
        let last = self.reached[step].get(&self.branches[before]);
        before != step && last.is_some_and(|last| *last >= before)
    }

    fn has_one_branch(&self) -> bool {
        self.branches.iter().all(|branch| *branch == 0)
    }
}

/// An allocation of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The step that allocates.
    pub step: usize,
    /// The step that frees, if the graph has it.
    pub free: Option<usize>,
    /// The requested bytes.
    pub bytes: u64,
}

/// The offsets of allocations, which are in the order of their steps, and the footprint; `None` if
/// they are larger than any card.
pub fn place(requests: &[Request], ancestors: &Ancestors) -> Option<(Vec<u64>, u64)> {
    let mut offsets = Vec::with_capacity(requests.len());
    let mut end = 0;
    // Start, end, and the step that frees.
    let mut placed: Vec<(u64, u64, Option<usize>)> = Vec::new();
    let has_one_branch = ancestors.has_one_branch();
    for request in requests {
        let size = request.bytes.checked_next_multiple_of(ALIGNMENT)?;
        let is_free = |(_, _, free): &(u64, u64, Option<usize>)| {
            free.is_some_and(|free| ancestors.precedes(free, request.step))
        };
        if has_one_branch {
            // What is free for this step is free for all later ones.
            placed.retain(|range| !is_free(range));
        }
        let mut taken: Vec<_> = placed.iter().filter(|range| !is_free(range)).collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, end, _) in taken {
            if offset + size <= *start {
                break;
            }
            offset = offset.max(*end);
        }
        let behind = offset.checked_add(size)?;
        offsets.push(offset);
        placed.push((offset, behind, request.free));
        end = end.max(behind);
    }
    Some((offsets, end.checked_next_multiple_of(PAGE)?))
}
