//! How long is looked for cards: so many steps for a node, and so many for all nodes of a question.
//!
//! With several containers and linked cards the choices multiply, and whoever may make a pod may ask
//! for that. While one question is answered all others wait, so its end must not depend on what is asked.

/// For one node: all choices of eight cards for one container, many times over; some milliseconds.
const NODE: u64 = 50_000;
/// For all nodes of one question: some tenths of a second. Those that are not reached are told apart,
/// and what was found out about the others is remembered for the next time.
const QUESTION: u64 = 10_000_000;

/// For one node when it is asked who has to go there: kube-scheduler asks that of hundreds.
const VICTIMS: u64 = 10 * NODE;

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

impl Default for Effort {
    fn default() -> Self {
        Self { taken: 0, until: 0, most: QUESTION }
    }
}

impl Effort {
    /// For all sets of pods that might go from a node.
    pub fn for_victims() -> Self {
        Self { most: VICTIMS, ..Self::default() }
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
}
