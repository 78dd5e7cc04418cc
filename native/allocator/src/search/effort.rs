//! Limits of the search: the number of steps for one node and for one question.
//!
//! With several containers and linked cards the number of choices multiplies. A question is
//! answered under a lock, so its duration must not depend on the request: it takes at most
//! [`QUESTION`] steps. The remaining nodes are reported as not searched; the results of the others
//! are cached by class, and the pod is tried again. `state::spending` limits what all questions of
//! a namespace may take together.

/// Steps for one node. That is enough for all choices of eight cards for one container, and takes a
/// few milliseconds.
const NODE: u64 = 50_000;

/// Steps for all nodes of one question; at most 0.1 s.
pub const QUESTION: u64 = 1_000_000;

/// Steps for all sets of victims on one node. kube-scheduler sends hundreds of nodes.
const VICTIMS: u64 = 5 * NODE;

/// Steps for sparing victims one by one, if there are too many sets.
const SPARING: u64 = 40 * NODE;

/// Steps that one set of victims counts, because the node is summed up without them.
const TRY: u64 = 100;

/// The cost of a step, relative to adding up the links of one card.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A card is added to a choice by links.
    Link = 1,
    /// The links of a choice are added up.
    Links = 6,
    /// A card is checked for room.
    Card = 12,
}

/// Counts the steps of a question.
#[derive(Debug)]
pub struct Effort {
    taken: u64,
    /// The count at which the search of the current node ends.
    until: u64,
    most: u64,
}

impl Effort {
    /// For a question of at most `most` steps. The last node may take more.
    pub fn within(most: u64) -> Self {
        Self { taken: 0, until: 0, most }
    }

    /// For one node.
    pub fn for_node() -> Self {
        Self::within(NODE)
    }

    /// For a question on a copy of the state (`hami what-if`), which delays no other question.
    pub fn for_desk() -> Self {
        Self::within(u64::MAX)
    }

    /// For all sets of victims on one node.
    pub fn for_victims() -> Self {
        Self::within(VICTIMS)
    }

    /// Allows more steps for sparing victims one by one.
    pub fn go_on_sparing(&mut self) {
        self.most = self.taken + SPARING;
    }

    /// Counts tried sets of victims.
    pub fn count_tries(&mut self, tries: u32) {
        self.taken += u64::from(tries) * TRY;
    }

    /// The steps so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The steps so far, without those of the last node beyond the limit.
    pub fn counted(&self) -> u64 {
        self.taken.min(self.most)
    }

    /// Starts the search of another node.
    pub fn begin_node(&mut self) {
        self.until = self.taken + NODE;
    }

    /// Counts a step and returns whether the search may continue.
    pub fn step(&mut self, step: Step) -> bool {
        self.taken += step as u64;
        !self.is_over()
    }

    /// Whether the current node has used its steps.
    pub fn is_over(&self) -> bool {
        self.taken >= self.until
    }

    /// Whether the question has used its steps.
    pub fn is_spent(&self) -> bool {
        self.taken >= self.most
    }

    /// Whether the question has fewer steps than usual because of its namespace.
    pub fn is_last(&self) -> bool {
        self.most < QUESTION
    }

    /// The same effort after so many steps.
    #[cfg(test)]
    pub fn after(self, steps: u64) -> Self {
        Self { taken: steps.min(self.most), ..self }
    }
}
