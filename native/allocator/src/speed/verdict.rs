//! The verdicts of one class on all nodes, and the generation of the node that each verdict is for.

use std::sync::Arc;

/// The result of a filter and a score for a class of pods on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits, with this score.
    Fits(u16),
    /// It does not fit, and evicting pods may help.
    Full(Arc<str>),
    /// It does not fit, and no pod must be evicted for it (kube-scheduler's
    /// `FailedAndUnresolvableNodes`).
    Unresolvable(Arc<str>),
}

/// The verdicts by the number of the node.
#[derive(Default)]
pub struct Verdicts {
    each: Vec<(u32, Verdict)>,
}

/// A generation that no node has.
const NEVER: u32 = 0;

impl Verdicts {
    /// Removes all verdicts, and keeps the memory.
    pub fn clear(&mut self) {
        self.each.clear();
    }

    /// Makes room for this number of nodes.
    pub fn resize(&mut self, nodes: usize) {
        self.each.resize(nodes, (NEVER, Verdict::Fits(0)));
    }

    /// The number of nodes that there is room for.
    pub fn len(&self) -> usize {
        self.each.len()
    }

    /// The verdict on a node, if there is one for this generation.
    #[inline]
    pub fn get(&self, number: u32, generation: u32) -> Option<&Verdict> {
        let (known, verdict) = &self.each[number as usize];
        (*known == generation).then_some(verdict)
    }

    /// Records a verdict.
    pub fn set(&mut self, number: u32, generation: u32, verdict: Verdict) {
        self.each[number as usize] = (generation, verdict);
    }
}
