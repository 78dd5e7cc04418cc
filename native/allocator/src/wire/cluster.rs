//! What there is: nodes with their cards, and what namespaces may have of them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A node and its cards, as its node agent published them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Kubernetes' name of the node.
    pub name: String,
    /// What the node enforces.
    #[serde(default)]
    pub mode: Mode,
    /// The order of its cards where the pod wishes none.
    #[serde(default)]
    pub placement: Option<Placement>,
    /// All of them; a card that is left out is gone.
    pub cards: Vec<Card>,
}

/// What a node does with what is asked of its cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Memory and cores are counted and enforced.
    #[default]
    Full,
    /// Memory is; cores are not enforced and so not counted, but 100 still is a card for the container alone.
    Memory,
    /// Whole cards only.
    Exclusive,
    /// Counted as in `full`; nothing is enforced.
    Share,
    /// As `full`; several cards of a container are chosen by their links.
    Topology,
    /// MIG instances.
    Mig,
    /// As `full`, enforced by the driver's MPS.
    Mps,
}

impl fmt::Display for Mode {
    /// Its name on the wire.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Whether the fullest or the emptiest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The fullest first: others stay whole.
    Binpack,
    /// The emptiest first: least company.
    Spread,
}

/// One physical card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// `GPU-…`: its name everywhere.
    pub uuid: String,
    /// Its place on the node; ties between equal cards are broken by it.
    pub index: u32,
    /// As NVML names it, like `NVIDIA A100-SXM4-80GB`.
    pub model: String,
    /// All of its memory.
    pub memory_mib: u64,
    /// 100, or what the operator scaled it to.
    #[serde(default = "hundred")]
    pub cores: u32,
    /// How many containers it takes at a time: the device IDs that the kubelet was offered.
    #[serde(default = "slots")]
    pub slots: u32,
    /// Its NUMA node, if known.
    #[serde(default)]
    pub numa: Option<u32>,
    /// False: nothing new goes there.
    #[serde(default = "yes")]
    pub healthy: bool,
    /// True: nothing new goes there.
    #[serde(default)]
    pub cordoned: bool,
    /// Memory seen in use by programs that are not ours.
    #[serde(default)]
    pub foreign_mib: u64,
    /// What the driver takes for each container beyond the container's limit.
    #[serde(default)]
    pub overhead_mib: u64,
    /// How well it is linked to the node's other cards, by UUID; more is better.
    #[serde(default)]
    pub links: BTreeMap<String, u32>,
    /// What it can be cut into, if it can.
    #[serde(default)]
    pub mig: Option<Mig>,
}

/// What a card can be cut into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mig {
    /// As NVML lists them.
    pub profiles: Vec<MigProfile>,
}

/// A MIG profile and the places where an instance of it may stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigProfile {
    /// Like `1g.10gb`.
    pub name: String,
    /// What an instance has.
    pub memory_mib: u64,
    /// Compute slices of an instance.
    pub slices: u32,
    /// First memory slices that are allowed.
    pub placements: Vec<u32>,
    /// Memory slices of an instance.
    pub size: u32,
}

/// One `ResourceQuota` with HAMi's `limits.` names. All of a namespace's hold together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Where it counts.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Cards, over all containers.
    #[serde(default)]
    pub gpu: Option<u64>,
    /// MiB times cards.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// Percent times cards.
    #[serde(default)]
    pub cores: Option<u64>,
}

fn hundred() -> u32 {
    100
}

fn slots() -> u32 {
    32
}

fn yes() -> bool {
    true
}
