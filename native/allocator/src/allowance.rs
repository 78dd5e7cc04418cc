//! What a quota leaves a pod of which only the chosen cards decide how much it counts, and what was answered for it.
//!
//! Such an answer is not of the node and the class alone. But it is not of every MiB that is left either: a choice
//! that was taken is taken for as long as there is enough for it and none before it comes within reach, and a
//! refusal stands until the smallest choice comes within reach. So an answer is remembered with its [`Span`], and
//! other pods' coming and going in the namespace seldom makes anybody look again.

use crate::quota::{Room, Spent};
use crate::reason::{NodeReason, QuotaReason};
use crate::verdict::Verdict;
use std::cell::Cell;

/// Answers that are remembered of a node: namespaces that share a class may have different quotas.
const ANSWERS: usize = 4;

/// What a namespace's quotas leave, and how often that was in the way of a choice of cards.
pub struct Allowance<'a> {
    room: &'a Room<'a>,
    /// MiB of the choice that was allowed.
    allowed: Cell<u64>,
    /// The fewest MiB of those that were not.
    too_much: Cell<u64>,
    /// The last one that was not.
    refused: Cell<Option<Spent>>,
}

impl<'a> Allowance<'a> {
    /// Before any choice.
    pub fn of(room: &'a Room<'a>) -> Self {
        let (allowed, too_much) = (Cell::new(0), Cell::new(u64::MAX));
        Self { room, allowed, too_much, refused: Cell::new(None) }
    }

    /// Whether this choice may be.
    pub fn allows(&self, choice: &Spent) -> bool {
        let is_over = self.room.over(choice).is_some();
        if is_over {
            self.too_much.set(self.too_much.get().min(choice.memory_mib));
            self.refused.set(Some(*choice));
        } else {
            self.allowed.set(choice.memory_mib);
        }
        !is_over
    }

    /// What was in the way of the last choice that was not allowed.
    pub fn over(&self) -> Option<QuotaReason> {
        self.refused.get().and_then(|choice| self.room.over(&choice))
    }

    /// What is to be remembered of a verdict that was found with this.
    pub fn answer(&self, verdict: &Verdict) -> Answer {
        let span = Span { from: self.allowed.get(), below: self.too_much.get() };
        match self.refused.get().filter(|_| !matches!(verdict, Verdict::Fits(_))) {
            Some(choice) => Answer { span, what: What::TooMuch(choice) },
            None => Answer { span, what: What::Verdict(verdict.clone()) },
        }
    }
}

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
