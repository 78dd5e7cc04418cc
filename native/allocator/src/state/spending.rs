//! Limits how much search the pods of a namespace can cause, so that they cannot delay the pods of
//! others.
//!
//! Anyone who can create pods can create requests that are hard to search. So the steps of a
//! question beyond [`FREE`] are a debt of its namespace. The debt is paid back with time, one step
//! in [`BACK_NS`]. While a namespace owes [`NAMESPACE`] steps, its questions only get the free
//! steps, and nodes that they do not reach are refused. Pods of several containers without
//! constraints on links need fewer steps than are free, even on thousands of nodes.
//!
//! The search for victims of one pod is one question over all nodes, and takes what the namespace
//! has left. A node is searched completely or not at all, so that no pod is evicted that could be
//! spared; the last node may take more steps.
//!
//! kube-scheduler retries a refused pod when something happens in the cluster, and after five minutes
//! in any case. By then the debt is paid: a debt takes about 20 s.

use crate::search::effort::{Effort, QUESTION};
use crate::wire::Pod;
use rustc_hash::FxHashMap;

/// The steps of a question that are free: 60 for each of 5,000 nodes; at most 0.03 s.
const FREE: u64 = 300_000;

/// The debt from which on a namespace only gets the free steps.
const NAMESPACE: u64 = 10 * QUESTION;

/// The time after which a step is paid back. A step takes at most 0.1 us, so this is a twentieth of
/// all time.
const BACK_NS: u64 = 2_000;

/// The debts of all namespaces.
#[derive(Default)]
pub struct Spending {
    namespaces: FxHashMap<Box<str>, Account>,
    preemption: Preemption,
}

/// The debt of a namespace.
struct Account {
    /// The steps owed, at a time.
    taken: u64,
    at_ns: u64,
}

/// The last search for victims: all nodes that are asked about for one pod at one time.
#[derive(Default)]
struct Preemption {
    pod: Box<str>,
    at_ns: u64,
    taken: u64,
    most: u64,
}

impl Account {
    fn owed(&self, now_ns: u64) -> u64 {
        self.taken.saturating_sub(now_ns.saturating_sub(self.at_ns) / BACK_NS)
    }
}

impl Spending {
    /// The effort of a question of this namespace.
    pub fn question(&self, namespace: &str, now_ns: u64) -> Effort {
        Effort::within(self.left(namespace, now_ns).min(QUESTION))
    }

    /// Adds the steps of a question.
    pub fn count(&mut self, namespace: &str, effort: &Effort, now_ns: u64) {
        self.add(namespace, effort.counted().saturating_sub(FREE), now_ns);
    }

    /// Whether victims may be searched on one more node.
    pub fn may_preempt(&mut self, pod: &Pod, now_ns: u64) -> bool {
        let last = &self.preemption;
        if (&*last.pod, last.at_ns) != (&*pod.uid, now_ns) {
            let most = self.left(&pod.namespace, now_ns);
            let pod = pod.uid.as_str().into();
            self.preemption = Preemption { pod, at_ns: now_ns, taken: 0, most };
        }
        !self.preemption_is_over(&pod.uid, now_ns)
    }

    /// Adds the steps of a search for victims.
    pub fn count_preemption(&mut self, pod: &Pod, effort: &Effort, now_ns: u64) {
        let question = &mut self.preemption;
        let before = question.taken.saturating_sub(FREE);
        question.taken += effort.taken();
        let beyond = question.taken.saturating_sub(FREE) - before;
        self.add(&pod.namespace, beyond, now_ns);
    }

    /// Whether the search for victims has used its steps.
    pub fn preemption_is_over(&self, uid: &str, now_ns: u64) -> bool {
        let last = &self.preemption;
        (&*last.pod, last.at_ns) == (uid, now_ns) && last.taken >= last.most
    }

    /// The steps that a question may take.
    fn left(&self, namespace: &str, now_ns: u64) -> u64 {
        NAMESPACE.saturating_sub(self.of(namespace, now_ns)).max(FREE)
    }

    fn add(&mut self, namespace: &str, steps: u64, now_ns: u64) {
        if steps > 0 {
            let taken = self.of(namespace, now_ns) + steps;
            self.namespaces.retain(|_, account| account.owed(now_ns) > 0);
            self.namespaces.insert(namespace.into(), Account { taken, at_ns: now_ns });
        }
    }

    fn of(&self, namespace: &str, now_ns: u64) -> u64 {
        self.namespaces.get(namespace).map_or(0, |account| account.owed(now_ns))
    }
}

#[cfg(test)]
mod tests;
