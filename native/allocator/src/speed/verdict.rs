//! What nodes are to a class, and for which state of the node that is known.

use std::sync::Arc;

/// What a node is to a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does, with this score.
    Fits(u16),
    /// It does not; other pods' going may help.
    Full(Arc<str>),
    /// It does not, and nobody is to be evicted for it (`FailedAndUnresolvableNodes`).
    Unresolvable(Arc<str>),
}

/// Verdicts of one class, by the number of the node, with the generation of the node that each is of.
#[derive(Default)]
pub struct Verdicts {
    each: Vec<(u32, Verdict)>,
}

/// No node has this generation.
const NEVER: u32 = 0;

impl Verdicts {
    /// Forgets all of them, and keeps the memory.
    pub fn clear(&mut self) {
        self.each.clear();
    }

    /// Makes room for so many nodes.
    pub fn resize(&mut self, nodes: usize) {
        self.each.resize(nodes, (NEVER, Verdict::Fits(0)));
    }

    /// For how many there is room.
    pub fn len(&self) -> usize {
        self.each.len()
    }

    /// What is known of a node as it is in that generation.
    #[inline]
    pub fn get(&self, number: u32, generation: u32) -> Option<&Verdict> {
        let (known, verdict) = &self.each[number as usize];
        (*known == generation).then_some(verdict)
    }

    /// What was found out about it.
    pub fn set(&mut self, number: u32, generation: u32, verdict: Verdict) {
        self.each[number as usize] = (generation, verdict);
    }
}
