//! Usage: what is allocated on each card, and to which pods.

use crate::engine::Allocator;
use crate::rules::card::{Allocated, CardState, Facts};
use crate::state::allocations::{PodAllocation, State};
use crate::state::node::Node;
use crate::wire::{Level, Mode, Quota};
use serde::Serialize;

/// The number of nodes in a part. Reading a part takes about as long as a filter, which is how long
/// a filter may wait.
const PART: usize = 256;

/// The usage of a node.
#[derive(Debug, Serialize)]
pub struct NodeUsage {
    /// The name.
    pub name: String,
    /// Whether the node is published. If not, pods are still bound to it.
    pub present: bool,
    /// How the node shares its cards.
    pub mode: Mode,
    /// Its cards.
    pub cards: Vec<CardUsage>,
}

/// The usage of a card.
#[derive(Debug, Serialize)]
pub struct CardUsage {
    /// The UUID.
    pub uuid: String,
    /// The index of the card on the node, if it is published.
    pub index: Option<u32>,
    /// The total memory.
    pub memory_mib: u64,
    /// Percent that can be allocated.
    pub cores: u32,
    /// Device IDs that can be allocated.
    pub slots: u32,
    /// Allocated MiB.
    pub memory_allocated_mib: u64,
    /// Allocated percent.
    pub cores_allocated: u32,
    /// Allocated device IDs.
    pub slots_allocated: u32,
    /// MiB that programs outside of our slices use.
    pub foreign_mib: u64,
    /// `schedulable`, `cordoned`, `unhealthy` or `missing`.
    pub state: &'static str,
    /// The strongest level that it offers.
    pub level: Level,
    /// Whether more is allocated than the card has.
    pub over: bool,
    /// Its pods by UID.
    pub pods: Vec<PodUsage>,
}

/// The usage of a card by one pod.
#[derive(Debug, Serialize)]
pub struct PodUsage {
    /// The UID of the pod.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `held`, `reserved` or `placed`.
    pub state: &'static str,
    /// Allocated MiB, at the peak of what is still to come.
    pub memory_mib: u64,
    /// Allocated percent, likewise.
    pub cores: u32,
    /// Allocated device IDs.
    pub slots: u32,
}

/// The usage of a namespace, as its quotas count it.
#[derive(Debug, Serialize)]
pub struct NamespaceUsage {
    /// The name.
    pub namespace: String,
    /// Cards, summed over containers.
    pub cards: u64,
    /// MiB, summed over the cards of all containers.
    pub memory_mib: u64,
    /// Percent, likewise.
    pub cores: u64,
    /// Its quotas by name.
    pub quotas: Vec<Quota>,
}

impl Allocator {
    /// The usage of all namespaces that have pods or quotas, by name.
    pub fn namespaces(&self) -> Vec<NamespaceUsage> {
        let each = self.quotas.namespaces().map(|(namespace, quotas, used)| NamespaceUsage {
            namespace: namespace.to_owned(),
            cards: used.cards,
            memory_mib: used.memory_mib,
            cores: used.cores,
            quotas: quotas.into_iter().cloned().collect(),
        });
        each.collect()
    }

    /// The usage of all nodes by name, and of removed nodes that still have pods.
    pub fn usage(&self) -> Vec<NodeUsage> {
        let mut nodes: Vec<&Node> = self.nodes.iter().flatten().collect();
        nodes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        nodes.into_iter().map(|node| node_usage(node, &self.pods_on(node))).collect()
    }

    /// The usage part by part, unordered, so that other questions need not wait; `None` after the
    /// last part.
    pub fn usage_part(&self, part: usize, with_pods: bool) -> Option<Vec<NodeUsage>> {
        let nodes = self.nodes.chunks(PART).nth(part)?.iter().flatten();
        let pods = |node| if with_pods { self.pods_on(node) } else { Vec::new() };
        Some(nodes.map(|node| node_usage(node, &pods(node))).collect())
    }

    fn pods_on(&self, node: &Node) -> Vec<&PodAllocation> {
        let mut pods: Vec<&PodAllocation> =
            node.pods.iter().map(|number| self.allocations.get(*number)).collect();
        pods.sort_unstable_by(|one, other| one.pod.uid.cmp(&other.pod.uid));
        pods
    }
}

fn node_usage(node: &Node, pods: &[&PodAllocation]) -> NodeUsage {
    let cards = (0..node.cards.len()).map(|card| card_usage(node, card, pods)).collect();
    let (name, mode) = (node.name.to_string(), node.mode);
    NodeUsage { name, present: node.present, mode, cards }
}

fn card_usage(node: &Node, at: usize, pods: &[&PodAllocation]) -> CardUsage {
    let (card, facts, allocated) = (&node.cards[at], &node.facts[at], &node.allocated[at]);
    let state = match facts.state {
        CardState::Missing => "missing",
        CardState::Unhealthy => "unhealthy",
        CardState::Cordoned => "cordoned",
        CardState::Schedulable => "schedulable",
    };
    let on = pods.iter().flat_map(|pod| pod.charges.iter().map(move |charge| (pod, charge)));
    let on = on.filter(|(_, charge)| usize::from(charge.card) == at);
    CardUsage {
        uuid: card.uuid.clone(),
        index: (at < node.published).then_some(card.index),
        memory_mib: facts.memory_mib(),
        cores: facts.cores(),
        slots: facts.slots(),
        memory_allocated_mib: allocated.memory_mib,
        cores_allocated: allocated.cores,
        slots_allocated: allocated.slots,
        foreign_mib: facts.foreign_mib(),
        state,
        level: facts.level,
        over: is_over(facts, allocated),
        pods: on.map(|(pod, charge)| pod_usage(pod, &charge.allocated)).collect(),
    }
}

fn is_over(facts: &Facts, allocated: &Allocated) -> bool {
    allocated.memory_mib + facts.foreign_mib() > facts.memory_mib()
        || allocated.cores > facts.cores()
        || allocated.slots > facts.slots()
}

fn pod_usage(allocation: &PodAllocation, allocated: &Allocated) -> PodUsage {
    PodUsage {
        uid: allocation.pod.uid.clone(),
        namespace: allocation.pod.namespace.clone(),
        name: allocation.pod.name.clone(),
        state: match allocation.state {
            State::Held { .. } => "held",
            State::Reserved => "reserved",
            State::Placed => "placed",
        },
        memory_mib: allocated.memory_mib,
        cores: allocated.cores,
        slots: allocated.slots,
    }
}
