//! How long is looked for cards for all pods of a namespace: what it owes, and when it owes nothing any more.
//!
//! Whoever may make a pod may ask for hard choices, as often as there are pods, and who asks for much shall wait
//! longer than the others do. So what a namespace's questions have taken beyond [`FREE`] each is a debt, which comes back to
//! it with time, a step in [`BACK_NS`]. As long as [`NAMESPACE`] steps are not back, its questions have no more
//! than those that are free, and nodes that are not reached so do not do: that is a refusal. Pods of several containers
//! that do not mind how cards are linked are done with less than is free, on thousands of nodes.
//!
//! Who might go for a pod is one question for all nodes too, and takes what the namespace has left. But nobody shall go who
//! might be spared, so a node is looked at to its end or not at all: the last one may take more.
//!
//! kube-scheduler tries who is refused again when something happens, and that steps are back is nothing that it sees. So we
//! say when it is worth while ([`Spending::returned`]): as soon as the debt is paid, and with it what the refused questions
//! took for nothing. Then trying all of a namespace's pods again takes some twentieth of the time too, however many they are. As
//! all others are tried again with them, all namespaces together may have that once in [`BETWEEN_NS`].

use crate::search::effort::{Effort, QUESTION};
use crate::wire::Pod;
use rustc_hash::FxHashMap;

/// Of a question's steps, the first cost the namespace nothing: 60 for each of 5,000 nodes; 0.03 s at most.
const FREE: u64 = 300_000;

/// For all questions of a namespace at once.
const NAMESPACE: u64 = 10 * QUESTION;

/// When one of those may be taken again: it takes 0.1 us at most, so that is a twentieth of the time of all.
const BACK_NS: u64 = 2_000;

/// From one time that refused pods are to be tried again to the next.
const BETWEEN_NS: u64 = 30_000_000_000;

/// Later than that kube-scheduler tries a refused pod again of its own.
const LONGEST_NS: u64 = 300_000_000_000;

/// What namespaces' questions have taken and not got back.
#[derive(Default)]
pub struct Spending {
    namespaces: FxHashMap<Box<str>, Account>,
    preemption: Preemption,
    returned: u64,
    /// Not before then again.
    quiet_until_ns: u64,
}

/// A namespace's.
#[derive(Default)]
struct Account {
    /// So many steps, at that time.
    taken: u64,
    at_ns: u64,
    /// When those may be tried again who were refused for want of steps; `None`: nobody was.
    again_ns: Option<u64>,
}

/// The last question who might go: all nodes that are asked about for one pod at one time.
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
    /// For all nodes of a question.
    pub fn question(&self, namespace: &str, now_ns: u64) -> Effort {
        Effort::within(self.left(namespace, now_ns).min(QUESTION))
    }

    /// Counts what a question has taken.
    pub fn count(&mut self, namespace: &str, effort: &Effort, now_ns: u64) {
        self.add(namespace, effort.counted().saturating_sub(FREE), now_ns);
        if effort.is_last() && effort.is_spent() {
            self.refuse(namespace, effort.taken(), now_ns);
        }
    }

    /// Whether one more node may be looked at for pods that might go.
    pub fn may_preempt(&mut self, pod: &Pod, now_ns: u64) -> bool {
        let last = &self.preemption;
        if (&*last.pod, last.at_ns) != (&*pod.uid, now_ns) {
            let most = self.left(&pod.namespace, now_ns);
            let pod = pod.uid.as_str().into();
            self.preemption = Preemption { pod, at_ns: now_ns, taken: 0, most };
        }
        let may = !self.preemption_is_over(&pod.uid, now_ns);
        if !may {
            self.refuse(&pod.namespace, 0, now_ns);
        }
        may
    }

    /// Counts what that has taken.
    pub fn count_preemption(&mut self, pod: &Pod, effort: &Effort, now_ns: u64) {
        let question = &mut self.preemption;
        let before = question.taken.saturating_sub(FREE);
        question.taken += effort.taken();
        let beyond = question.taken.saturating_sub(FREE) - before;
        self.add(&pod.namespace, beyond, now_ns);
    }

    /// Whether that has taken all that it may: no further node is looked at.
    pub fn preemption_is_over(&self, uid: &str, now_ns: u64) -> bool {
        let last = &self.preemption;
        (&*last.pod, last.at_ns) == (uid, now_ns) && last.taken >= last.most
    }

    /// How often so far pods that were refused for want of steps might as well be tried again.
    pub fn returned(&mut self, now_ns: u64) -> u64 {
        let is_due = |account: &Account| account.again_ns.is_some_and(|again| again <= now_ns);
        if now_ns >= self.quiet_until_ns && self.namespaces.values().any(is_due) {
            for account in self.namespaces.values_mut().filter(|account| is_due(account)) {
                account.again_ns = None;
            }
            self.quiet_until_ns = now_ns + BETWEEN_NS;
            self.returned += 1;
        }
        self.returned
    }

    /// So many may be taken at once.
    fn left(&self, namespace: &str, now_ns: u64) -> u64 {
        NAMESPACE.saturating_sub(self.of(namespace, now_ns)).max(FREE)
    }

    fn add(&mut self, namespace: &str, steps: u64, now_ns: u64) {
        if steps > 0 {
            let taken = self.of(namespace, now_ns) + steps;
            let is_open =
                |account: &Account| account.owed(now_ns) > 0 || account.again_ns.is_some();
            self.namespaces.retain(|_, account| is_open(account));
            let account = self.namespaces.entry(namespace.into()).or_default();
            (account.taken, account.at_ns) = (taken, now_ns);
        }
    }

    /// Somebody was refused for want of steps, after so many.
    fn refuse(&mut self, namespace: &str, taken: u64, now_ns: u64) {
        let account = self.namespaces.entry(namespace.into()).or_default();
        let paid_ns = now_ns + account.owed(now_ns) * BACK_NS;
        let again_ns = account.again_ns.unwrap_or(paid_ns) + taken * BACK_NS;
        account.again_ns = Some(again_ns.min(now_ns + LONGEST_NS));
    }

    fn of(&self, namespace: &str, now_ns: u64) -> u64 {
        self.namespaces.get(namespace).map_or(0, |account| account.owed(now_ns))
    }
}

#[cfg(test)]
mod tests;
