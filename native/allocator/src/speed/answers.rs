//! What was answered for a pod of which only the chosen cards decide how much it counts against a quota.
//!
//! Such an answer is not of the node and the class alone. But it is not of every MiB that is left either: a choice
//! that was taken is taken for as long as there is enough for it and none before it comes within reach, and a
//! refusal stands until the smallest choice comes within reach. So an answer is remembered with its [`Span`], and
//! other pods' coming and going in the namespace seldom makes anybody look again.

use crate::rules::node_reason::NodeReason;
use crate::rules::quota::{Allowance, Room, Spent};
use crate::speed::verdict::Verdict;
use std::ops::Range;

/// Answers that are remembered of a node: namespaces that share a class may have different quotas.
const ANSWERS: usize = 4;

/// How many MiB may be left for an answer to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: u64,
    /// Where nothing was too much this is the greatest number, and it is within.
    below: u64,
}

impl Span {
    fn has(self, left_mib: u64) -> bool {
        self.from <= left_mib && (left_mib < self.below || self.below == u64::MAX)
    }
}

/// What was found out about a node, and for what is left.
pub struct Answer {
    span: Span,
    what: What,
}

enum What {
    /// It has nothing to do with figures of a quota.
    Verdict(Verdict),
    /// A quota does not allow this much; by which, and its figures, is told anew each time.
    TooMuch(Spent),
}

impl Answer {
    /// What is to be remembered of a verdict that was found with this.
    pub fn of(allowance: &Allowance<'_>, verdict: &Verdict) -> Self {
        let Range { start: from, end: below } = allowance.span();
        let span = Span { from, below };
        match allowance.refused().filter(|_| !matches!(verdict, Verdict::Fits(_))) {
            Some(choice) => Self { span, what: What::TooMuch(choice) },
            None => Self { span, what: What::Verdict(verdict.clone()) },
        }
    }

    /// The verdict where so much is left as in this room; `say` puts a reason into words.
    pub fn verdict(&self, room: &Room<'_>, say: impl FnOnce(NodeReason) -> Verdict) -> Verdict {
        match &self.what {
            What::Verdict(verdict) => verdict.clone(),
            What::TooMuch(choice) => {
                let over = room.over(choice).expect("it is more than what is left");
                say(NodeReason::Quota(Box::new(over)))
            }
        }
    }
}

/// All that is remembered so of one node.
#[derive(Default)]
pub struct Answers {
    generation: u32,
    each: Vec<Answer>,
}

impl Answers {
    /// What is known of the node as it is, where so much is left.
    pub fn find(&self, generation: u32, left_mib: u64) -> Option<&Answer> {
        let each = if self.generation == generation { &self.each[..] } else { &[] };
        each.iter().find(|answer| answer.span.has(left_mib))
    }

    /// One more; what was found out about the node as it was before goes, and the oldest where there are too many.
    pub fn add(&mut self, generation: u32, answer: Answer) {
        if self.generation != generation {
            self.generation = generation;
            self.each.clear();
        }
        if self.each.len() == ANSWERS {
            self.each.remove(0);
        }
        // There is seldom another one.
        self.each.reserve_exact(1);
        self.each.push(answer);
    }
}
