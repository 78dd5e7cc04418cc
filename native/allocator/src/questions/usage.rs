//! What is given, card by card, and to whom.

use crate::engine::Allocator;
use crate::rules::card::{Facts, Standing, Use};
use crate::state::book::{Holding, State};
use crate::state::node::Node;
use crate::wire::Mode;
use serde::Serialize;

/// Nodes of a part: a filter waits for one part at most, and that is about as long as a filter takes.
const PART: usize = 256;

/// One node.
#[derive(Debug, Serialize)]
pub struct NodeUsage {
    /// Its name.
    pub name: String,
    /// False: it is gone, but pods are still placed there.
    pub present: bool,
    /// What it enforces.
    pub mode: Mode,
    /// Its cards.
    pub cards: Vec<CardUsage>,
}

/// One card.
#[derive(Debug, Serialize)]
pub struct CardUsage {
    /// Its UUID.
    pub uuid: String,
    /// Its place on the node, if it is there.
    pub index: Option<u32>,
    /// All of its memory.
    pub memory_mib: u64,
    /// Percent to give.
    pub cores: u32,
    /// Device IDs to give.
    pub slots: u32,
    /// MiB given, with overheads.
    pub memory_given_mib: u64,
    /// Percent given.
    pub cores_given: u32,
    /// Device IDs given.
    pub slots_given: u32,
    /// MiB seen in use by programs that are not ours.
    pub foreign_mib: u64,
    /// `open`, `cordoned`, `unhealthy` or `gone`.
    pub standing: &'static str,
    /// Whether more is given than there is.
    pub over: bool,
    /// To whom, by UID.
    pub pods: Vec<PodUsage>,
}

/// One pod on one card.
#[derive(Debug, Serialize)]
pub struct PodUsage {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `held`, `reserved` or `placed`.
    pub state: &'static str,
    /// MiB, with overheads, at the peak of what is still to come.
    pub memory_mib: u64,
    /// Percent, likewise.
    pub cores: u32,
    /// Device IDs.
    pub slots: u32,
}

impl Allocator {
    /// All nodes by name, gone ones too that pods are placed on.
    pub fn usage(&self) -> Vec<NodeUsage> {
        let mut nodes: Vec<&Node> = self.nodes.iter().flatten().collect();
        nodes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        nodes.into_iter().map(|node| node_usage(node, &self.pods_on(node))).collect()
    }

    /// The same part by part, in no order and without the pods, for who must not keep others waiting; `None`
    /// behind the last one.
    pub fn usage_part(&self, part: usize) -> Option<Vec<NodeUsage>> {
        let nodes = self.nodes.chunks(PART).nth(part)?;
        Some(nodes.iter().flatten().map(|node| node_usage(node, &[])).collect())
    }

    fn pods_on(&self, node: &Node) -> Vec<&Holding> {
        let mut pods: Vec<&Holding> =
            node.pods.iter().map(|number| self.book.get(*number)).collect();
        pods.sort_unstable_by(|one, other| one.pod.uid.cmp(&other.pod.uid));
        pods
    }
}

fn node_usage(node: &Node, pods: &[&Holding]) -> NodeUsage {
    let cards = (0..node.cards.len()).map(|card| card_usage(node, card, pods)).collect();
    let (name, mode) = (node.name.to_string(), node.mode);
    NodeUsage { name, present: node.present, mode, cards }
}

fn card_usage(node: &Node, at: usize, pods: &[&Holding]) -> CardUsage {
    let (card, facts, used) = (&node.cards[at], &node.facts[at], &node.used[at]);
    let standing = match facts.standing {
        Standing::Gone => "gone",
        Standing::Unhealthy => "unhealthy",
        Standing::Cordoned => "cordoned",
        Standing::Open => "open",
    };
    let on = pods.iter().flat_map(|pod| pod.charges.iter().map(move |charge| (pod, charge)));
    let on = on.filter(|(_, charge)| usize::from(charge.card) == at);
    CardUsage {
        uuid: card.uuid.clone(),
        index: (at < node.published).then_some(card.index),
        memory_mib: facts.memory_mib(),
        cores: facts.cores(),
        slots: facts.slots(),
        memory_given_mib: used.memory_mib,
        cores_given: used.cores,
        slots_given: used.slots,
        foreign_mib: facts.foreign_mib(),
        standing,
        over: is_over(facts, used),
        pods: on.map(|(pod, charge)| pod_usage(pod, &charge.used)).collect(),
    }
}

fn is_over(facts: &Facts, used: &Use) -> bool {
    used.memory_mib + facts.foreign_mib() > facts.memory_mib()
        || used.cores > facts.cores()
        || used.slots > facts.slots()
}

fn pod_usage(holding: &Holding, used: &Use) -> PodUsage {
    PodUsage {
        uid: holding.pod.uid.clone(),
        namespace: holding.pod.namespace.clone(),
        name: holding.pod.name.clone(),
        state: match holding.state {
            State::Held { .. } => "held",
            State::Reserved => "reserved",
            State::Placed => "placed",
        },
        memory_mib: used.memory_mib,
        cores: used.cores,
        slots: used.slots,
    }
}
