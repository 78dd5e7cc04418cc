//! The cards of each pod: one entry per pod UID.

use crate::rules::card::Charge;
use crate::rules::quota::QuotaUse;
use crate::wire::{Assignment, CardAllocation, ContainerRequest, Pod};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How firm an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Held for a pod that was just scored, until a time.
    Held {
        /// Nanoseconds of the caller's clock.
        until_ns: u64,
    },
    /// Reserved when the pod is bound. The result of the API call is not known yet.
    Reserved,
    /// Bound, as the API server reports.
    Placed,
}

/// A pod and its cards.
#[derive(Clone, Debug)]
pub struct PodAllocation {
    /// The pod.
    pub pod: Pod,
    /// Its priority in Kubernetes.
    pub priority: i32,
    /// Its requests.
    pub containers: Box<[ContainerRequest]>,
    /// The allocated cards by container.
    pub container_cards: Box<[Box<[CardAllocation]>]>,
    /// The number of its node.
    pub node: u32,
    /// How firm the allocation is.
    pub state: State,
    /// Whether its ordinary init containers are done.
    pub started: bool,
    /// Its charge on each card of the node.
    pub charges: Box<[Charge]>,
    /// Its use of the quotas.
    pub quota_use: QuotaUse,
}

impl PodAllocation {
    /// The assignment for the pod's annotation.
    pub fn assignment(&self, node: &str) -> Assignment {
        let with_cards = self
            .containers
            .iter()
            .zip(&self.container_cards)
            .filter(|(_, container_cards)| !container_cards.is_empty());
        let containers = with_cards
            .map(|(container, container_cards)| (container.name.clone(), container_cards.to_vec()))
            .collect();
        let pod = self.pod.uid.clone();
        Assignment { version: Assignment::VERSION, pod, node: node.to_owned(), containers }
    }
}

/// All allocations, by number and by UID.
#[derive(Debug, Default)]
pub struct Allocations {
    entries: Vec<Option<PodAllocation>>,
    free: Vec<u32>,
    numbers: FxHashMap<Arc<str>, u32>,
    /// The ends of holds.
    ends: BTreeSet<(u64, u32)>,
    /// The allocations that are held or reserved.
    unbound: BTreeSet<u32>,
}

impl Allocations {
    /// The number of a pod's allocation.
    pub fn number(&self, uid: &str) -> Option<u32> {
        self.numbers.get(uid).copied()
    }

    /// The allocation of a number.
    pub fn get(&self, number: u32) -> &PodAllocation {
        self.entries[number as usize].as_ref().expect("numbers in use have entries")
    }

    /// The allocation of a number, to update its charges.
    pub fn get_mut(&mut self, number: u32) -> &mut PodAllocation {
        self.entries[number as usize].as_mut().expect("numbers in use have entries")
    }

    /// The allocation of a pod.
    pub fn find(&self, uid: &str) -> Option<&PodAllocation> {
        self.number(uid).map(|number| self.get(number))
    }

    /// Adds an allocation for a pod that has none.
    pub fn insert(&mut self, allocation: PodAllocation) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        if let State::Held { until_ns } = allocation.state {
            self.ends.insert((until_ns, number));
        }
        if allocation.state != State::Placed {
            self.unbound.insert(number);
        }
        self.numbers.insert(allocation.pod.uid.as_str().into(), number);
        self.entries[number as usize] = Some(allocation);
        number
    }

    /// Removes an allocation.
    pub fn remove(&mut self, number: u32) -> PodAllocation {
        let allocation = self.entries[number as usize].take().expect("numbers in use have entries");
        self.numbers.remove(allocation.pod.uid.as_str());
        if let State::Held { until_ns } = allocation.state {
            self.ends.remove(&(until_ns, number));
        }
        self.unbound.remove(&number);
        self.free.push(number);
        allocation
    }

    /// A hold that has expired.
    pub fn ended(&self, now_ns: u64) -> Option<u32> {
        self.ends.first().filter(|(until_ns, _)| *until_ns <= now_ns).map(|(_, number)| *number)
    }

    /// The allocations that will soon be bound or released: the reserved ones, and those held until
    /// `soon_ns` at most.
    pub fn unbound(&self, soon_ns: u64) -> impl Iterator<Item = &PodAllocation> {
        let is_soon = move |allocation: &&PodAllocation| match allocation.state {
            State::Held { until_ns } => until_ns <= soon_ns,
            State::Reserved | State::Placed => true,
        };
        self.unbound.iter().map(|number| self.get(*number)).filter(is_soon)
    }

    /// All allocations, by UID.
    pub fn sorted(&self) -> Vec<&PodAllocation> {
        let mut all: Vec<&PodAllocation> = self.entries.iter().flatten().collect();
        all.sort_unstable_by(|one, other| one.pod.uid.cmp(&other.pod.uid));
        all
    }
}
