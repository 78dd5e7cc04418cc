//! How long is looked for cards: so many steps for a node, and for all nodes of a question.
//!
//! With several containers and linked cards the choices multiply. While one question is answered all others wait, so its
//! end must not depend on what is asked: it takes [`QUESTION`] steps at most. Nodes that are not reached are told
//! apart, what was found out about the others is remembered by class until they change, and the pod is tried again. What all
//! questions of a namespace may take together, and who might go for a pod, is in `spending`.

/// For one node: all choices of eight cards for one container, many times over; some milliseconds.
const NODE: u64 = 50_000;

/// For all nodes of one question: 0.1 s at most.
pub const QUESTION: u64 = 1_000_000;

/// For the sets of pods that might go from a node: kube-scheduler asks that of hundreds.
const VICTIMS: u64 = 5 * NODE;

/// For sparing such pods one by one, where there are too many sets.
const SPARING: u64 = 40 * NODE;

/// What a node without some of its pods takes to be thought of, in steps: what is left on its cards is added up anew.
const TRY: u64 = 100;

/// What a step counts: about as many times what it takes to add up a card's links.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A card more in a choice by links.
    Link = 1,
    /// All links of a choice.
    Links = 6,
    /// A card looked at for room.
    Card = 12,
}

/// Steps that were taken.
#[derive(Debug)]
pub struct Effort {
    taken: u64,
    /// Where the looking at the present node ends.
    until: u64,
    most: u64,
}

impl Effort {
    /// For all nodes of a question: so many, and what the last node takes beyond them.
    pub fn within(most: u64) -> Self {
        Self { taken: 0, until: 0, most }
    }

    /// For one node.
    pub fn for_node() -> Self {
        Self::within(NODE)
    }

    /// For a question at a desk, where nobody else waits, and nothing is asked a second time: every node is looked at.
    pub fn for_desk() -> Self {
        Self::within(u64::MAX)
    }

    /// For all sets of pods that might go from a node.
    pub fn for_victims() -> Self {
        Self::within(VICTIMS)
    }

    /// And then for sparing such pods one by one.
    pub fn go_on_sparing(&mut self) {
        self.most = self.taken + SPARING;
    }

    /// Counts so many sets of pods that were tried.
    pub fn count_tries(&mut self, tries: u32) {
        self.taken += u64::from(tries) * TRY;
    }

    /// How many were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The same without what the last node took beyond what was left.
    pub fn counted(&self) -> u64 {
        self.taken.min(self.most)
    }

    /// Another node, or the same one otherwise, is looked at.
    pub fn begin_node(&mut self) {
        self.until = self.taken + NODE;
    }

    /// One step more; whether it may be taken.
    pub fn step(&mut self, step: Step) -> bool {
        self.taken += step as u64;
        !self.is_over()
    }

    /// Whether the present node has had its part.
    pub fn is_over(&self) -> bool {
        self.taken >= self.until
    }

    /// Whether the question has had its part.
    pub fn is_spent(&self) -> bool {
        self.taken >= self.most
    }

    /// Whether the question has less than a question may have, because its namespace has no more.
    pub fn is_last(&self) -> bool {
        self.most < QUESTION
    }

    /// As if so many had been taken, or all where there are fewer.
    #[cfg(test)]
    pub fn after(self, steps: u64) -> Self {
        Self { taken: steps.min(self.most), ..self }
    }
}
