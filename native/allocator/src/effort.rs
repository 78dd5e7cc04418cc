//! How long is looked for cards: so many steps for a node, for all nodes of a question, and for all questions of
//! a namespace.
//!
//! With several containers and linked cards the choices multiply, and whoever may make a pod may ask
//! for that, as often as there are pods. While one question is answered all others wait, so its end must not
//! depend on what is asked, and who asks for much waits longer than the others do.
//!
//! The rule: a question takes [`QUESTION`] steps at most. Nodes that are not reached are told apart, what was found out
//! about the others is remembered by class until they change, and the pod is tried again. What a namespace's questions
//! have taken beyond [`FREE`] each comes back to it with time, a step in [`BACK_NS`]. As long as [`NAMESPACE`] steps are
//! not back, its questions have no more than those that are free, and nodes that are not reached so do not do: that is
//! a refusal, which lasts until kube-scheduler tries the pod again of its own. Pods of several containers
//! that do not mind how cards are linked are done with less than is free, on thousands of nodes.
//!
//! Who might go for a pod is one question for all nodes too, and counts as any other. But nobody shall go who might
//! be spared, so a node is looked at to its end or not at all, and there is no end to the first such question of a
//! namespace: it pays with its next ones.

use crate::hash::Map;
use crate::wire::Pod;

/// For one node: all choices of eight cards for one container, many times over; some milliseconds.
const NODE: u64 = 50_000;

/// For all nodes of one question: 0.1 s at most.
const QUESTION: u64 = 1_000_000;

/// Of those, the first cost the namespace nothing: 60 for each of 5,000 nodes; 0.03 s at most.
const FREE: u64 = 300_000;

/// For all questions of a namespace at once.
const NAMESPACE: u64 = 10 * QUESTION;

/// When one of those may be taken again: it takes 0.1 us at most, so that is a twentieth of the time of all.
const BACK_NS: u64 = 2_000;

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
    fn within(most: u64) -> Self {
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
}

/// What namespaces' questions have taken and not got back.
#[derive(Default)]
pub struct Spending {
    namespaces: Map<Box<str>, Taken>,
    preemption: Preemption,
}

/// The last question who might go: all nodes that are asked about for one pod at one time.
#[derive(Default)]
struct Preemption {
    pod: Box<str>,
    at_ns: u64,
    taken: u64,
    most: u64,
}

/// So many steps, at that time.
struct Taken(u64, u64);

impl Taken {
    fn now(&self, now_ns: u64) -> u64 {
        self.0.saturating_sub(now_ns.saturating_sub(self.1) / BACK_NS)
    }
}

impl Spending {
    /// For all nodes of a question.
    pub fn question(&self, namespace: &str, now_ns: u64) -> Effort {
        let left = NAMESPACE.saturating_sub(self.of(namespace, now_ns));
        Effort::within(left.clamp(FREE, QUESTION))
    }

    /// Counts what a question has taken.
    pub fn count(&mut self, namespace: &str, effort: &Effort, now_ns: u64) {
        // The last node may have taken more than was left.
        self.add(namespace, effort.taken.min(effort.most).saturating_sub(FREE), now_ns);
    }

    /// Whether one more node may be looked at for pods that might go.
    pub fn may_preempt(&mut self, pod: &Pod, now_ns: u64) -> bool {
        let last = &self.preemption;
        if (&*last.pod, last.at_ns) != (&*pod.uid, now_ns) {
            let most = if self.of(&pod.namespace, now_ns) < NAMESPACE { u64::MAX } else { FREE };
            let pod = pod.uid.as_str().into();
            self.preemption = Preemption { pod, at_ns: now_ns, taken: 0, most };
        }
        self.preemption.taken < self.preemption.most
    }

    /// Counts what that has taken.
    pub fn count_preemption(&mut self, pod: &Pod, effort: &Effort, now_ns: u64) {
        let question = &mut self.preemption;
        let before = question.taken.saturating_sub(FREE);
        question.taken += effort.taken;
        let beyond = question.taken.saturating_sub(FREE) - before;
        self.add(&pod.namespace, beyond, now_ns);
    }

    fn add(&mut self, namespace: &str, steps: u64, now_ns: u64) {
        if steps > 0 {
            let taken = self.of(namespace, now_ns) + steps;
            self.namespaces.retain(|_, taken| taken.now(now_ns) > 0);
            self.namespaces.insert(namespace.into(), Taken(taken, now_ns));
        }
    }

    fn of(&self, namespace: &str, now_ns: u64) -> u64 {
        self.namespaces.get(namespace).map_or(0, |taken| taken.now(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::{BACK_NS, Effort, FREE, NAMESPACE, QUESTION, SPARING, Spending, VICTIMS};
    use crate::wire::Pod;

    fn ask(spending: &mut Spending, steps: u64, now_ns: u64) -> u64 {
        let mut effort = spending.question("team", now_ns);
        effort.taken = steps.min(effort.most);
        spending.count("team", &effort, now_ns);
        effort.most
    }

    #[test]
    fn plain_questions_cost_a_namespace_nothing() {
        let mut spending = Spending::default();
        for _ in 0..10_000 {
            assert_eq!(ask(&mut spending, FREE, 0), QUESTION);
        }
    }

    #[test]
    fn hard_questions_leave_what_is_free_and_time_brings_the_rest_back() {
        let mut spending = Spending::default();
        let whole = (0..1000).take_while(|_| ask(&mut spending, QUESTION, 0) == QUESTION).count();
        let enough = NAMESPACE / (QUESTION - FREE);
        assert!((whole as u64).abs_diff(enough) <= 1, "{whole}");
        for _ in 0..100 {
            assert!(ask(&mut spending, QUESTION, 0) >= FREE);
        }
        assert_eq!(spending.question("team", 0).most, FREE);
        assert!(spending.question("team", 0).is_last());
        assert_eq!(spending.question("other", 0).most, QUESTION);
        assert_eq!(spending.question("team", NAMESPACE * BACK_NS).most, QUESTION);
    }

    /// How many nodes of so many are looked at.
    fn preempt(spending: &mut Spending, uid: &str, nodes: usize, steps: u64, now_ns: u64) -> usize {
        let pod = Pod { uid: uid.into(), namespace: "team".into(), name: uid.into() };
        let looked = (0..nodes).filter(|_| {
            let may = spending.may_preempt(&pod, now_ns);
            if may {
                let taken = Effort { taken: steps, ..Effort::for_victims() };
                spending.count_preemption(&pod, &taken, now_ns);
            }
            may
        });
        looked.count()
    }

    #[test]
    fn a_first_preemption_is_whole_and_is_paid_for() {
        const HARD: u64 = VICTIMS + SPARING;
        let mut spending = Spending::default();
        assert_eq!(preempt(&mut spending, "a", 500, HARD, 0), 500);
        assert_eq!(preempt(&mut spending, "b", 500, HARD, 0), 1);
        assert_eq!(preempt(&mut spending, "c", 500, FREE / 100, 0), 100);
        assert!(spending.question("team", 0).is_last());
        let back = 500 * HARD * BACK_NS;
        assert_eq!(preempt(&mut spending, "d", 500, HARD, back), 500);
    }

    #[test]
    fn plain_preemptions_cost_a_namespace_nothing() {
        let mut spending = Spending::default();
        for at in 0..1_000 {
            assert_eq!(preempt(&mut spending, &at.to_string(), 100, FREE / 100, 0), 100);
        }
        assert_eq!(spending.question("team", 0).most, QUESTION);
    }
}
