//! Caches verdicts that depend on a quota, for pods that request memory as a share of a card.
//!
//! Such a verdict does not follow from the node and the class alone, because the quota counts what
//! the chosen card comes to. But it does not depend on every MiB that the quota leaves either. A
//! choice that was allowed stays allowed while there is enough memory for it, and stays the first
//! choice until an earlier one becomes affordable. A rejection stands until the smallest choice
//! becomes affordable. So an answer is kept with the [`Span`] of remaining memory that it holds
//! for, and changes of other pods in the namespace seldom invalidate it.

use crate::rules::node_reason::NodeReason;
use crate::rules::quota::{QuotaCheck, QuotaRoom, QuotaUse};
use crate::speed::verdict::Verdict;
use std::ops::Range;

/// The number of answers that are kept for a node: namespaces that share a class may have different
/// quotas.
const ANSWERS: usize = 4;

/// The remaining memory for which an answer holds, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: u64,
    /// If no choice was rejected this is `u64::MAX`, which is inside the span.
    below: u64,
}

impl Span {
    fn has(self, left_mib: u64) -> bool {
        self.from <= left_mib && (left_mib < self.below || self.below == u64::MAX)
    }
}

/// An answer and the remaining memory that it holds for.
pub struct Answer {
    span: Span,
    what: What,
}

enum What {
    /// A verdict that has no amounts of a quota in it.
    Verdict(Verdict),
    /// No quota allows this use. Which quota it is, and its amounts, are looked up each time.
    TooMuch(QuotaUse),
}

impl Answer {
    /// The answer for a verdict that was found with this check.
    pub fn of(allowance: &QuotaCheck<'_>, verdict: &Verdict) -> Self {
        let Range { start: from, end: below } = allowance.span();
        let span = Span { from, below };
        match allowance.refused().filter(|_| !matches!(verdict, Verdict::Fits(_))) {
            Some(choice) => Self { span, what: What::TooMuch(choice) },
            None => Self { span, what: What::Verdict(verdict.clone()) },
        }
    }

    /// The verdict for what this quota leaves. `say` turns a reason into a verdict.
    pub fn verdict(
        &self,
        room: &QuotaRoom<'_>,
        say: impl FnOnce(NodeReason) -> Verdict,
    ) -> Verdict {
        match &self.what {
            What::Verdict(verdict) => verdict.clone(),
            What::TooMuch(choice) => {
                let over = room.over(choice).expect("it is more than what is left");
                say(NodeReason::Quota(Box::new(over)))
            }
        }
    }
}

/// The answers for one node.
#[derive(Default)]
pub struct Answers {
    generation: u32,
    each: Vec<Answer>,
}

impl Answers {
    /// The answer for this generation of the node and this remaining memory.
    pub fn find(&self, generation: u32, left_mib: u64) -> Option<&Answer> {
        let each = if self.generation == generation { &self.each[..] } else { &[] };
        each.iter().find(|answer| answer.span.has(left_mib))
    }

    /// Adds an answer. Answers for an earlier generation are removed, and the oldest one if there
    /// are too many.
    pub fn add(&mut self, generation: u32, answer: Answer) {
        if self.generation != generation {
            self.generation = generation;
            self.each.clear();
        }
        if self.each.len() == ANSWERS {
            self.each.remove(0);
        }
        // Mostly this is the only one.
        self.each.reserve_exact(1);
        self.each.push(answer);
    }
}
