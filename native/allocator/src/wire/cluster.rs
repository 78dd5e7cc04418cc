//! The cluster: nodes with their cards, and the quotas of namespaces.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A node and its cards, as its node agent publishes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The name of the Kubernetes node.
    pub name: String,
    /// How the node shares its cards.
    #[serde(default)]
    pub mode: Mode,
    /// The order in which its cards are tried, if the pod requests none.
    #[serde(default)]
    pub placement: Option<Placement>,
    /// All cards of the node. A card that is left out no longer exists.
    pub cards: Vec<Card>,
}

/// How a node shares its cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Memory and cores are counted and enforced.
    #[default]
    Full,
    /// Memory is counted and enforced. Cores are not, but 100 still means a card that the container
    /// does not share.
    Memory,
    /// Only whole cards are allocated.
    Exclusive,
    /// Memory and cores are counted as in `full`, and not enforced.
    Share,
    /// As `full`, and several cards of a container are chosen by their links.
    Topology,
    /// As `full`. On cards in MIG mode ([`Card::mig`]) the node agent makes instances.
    Mig,
    /// As `full`, enforced by NVIDIA's MPS server.
    Mps,
}

impl fmt::Display for Mode {
    /// The name of the mode in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The part that enforces a limit on memory, from the weakest level to the strongest.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing does.
    #[default]
    None,
    /// The preloaded library.
    Preload,
    /// The driver, by control group.
    Kernel,
    /// A MIG instance.
    Mig,
}

/// Whether the fullest or the emptiest card (or node) comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The fullest first, so that other cards stay empty.
    Binpack,
    /// The emptiest first, so that pods share as little as possible.
    Spread,
}

/// A card: a GPU, or a MIG instance that an administrator made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// The UUID that the driver reports, `GPU-…`.
    pub uuid: String,
    /// The index of the card on its node. It breaks ties between equal cards.
    pub index: u32,
    /// The model as NVML reports it, for example `NVIDIA A100-SXM4-80GB`.
    pub model: String,
    /// The total memory.
    pub memory_mib: u64,
    /// The cores that can be allocated: 100, or more if the operator overcommits them.
    #[serde(default = "hundred")]
    pub cores: u32,
    /// How many containers can share the card: the number of device IDs that the device plugin
    /// offers.
    #[serde(default = "slots")]
    pub slots: u32,
    /// The NUMA node of the card, if known.
    #[serde(default)]
    pub numa: Option<u32>,
    /// Whether the card works. No new pod is placed on a card that does not.
    #[serde(default = "yes")]
    pub healthy: bool,
    /// Whether the operator keeps new pods off the card.
    #[serde(default)]
    pub cordoned: bool,
    /// Memory that programs outside of our slices use.
    #[serde(default)]
    pub foreign_mib: u64,
    /// How well the card is linked to other cards of the node, by UUID. A higher score is better.
    #[serde(default)]
    pub links: BTreeMap<String, u32>,
    /// Set on a GPU in MIG mode on which the node agent makes instances. Such a card has the level
    /// `mig`.
    #[serde(default)]
    pub mig: Option<Mig>,
    /// The strongest level that the card offers.
    #[serde(default)]
    pub level: Level,
}

/// The MIG instances that a card can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mig {
    /// The profiles that NVML lists.
    pub profiles: Vec<MigProfile>,
    /// The memory slices of instances that others made, or that could not be removed. No instance is
    /// placed on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<u32>,
}

/// A MIG profile and its possible placements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigProfile {
    /// The name of the profile, for example `1g.10gb`.
    pub name: String,
    /// The memory of an instance.
    pub memory_mib: u64,
    /// The compute slices of an instance.
    pub slices: u32,
    /// The memory slices at which an instance may start.
    pub placements: Vec<u32>,
    /// The memory slices of an instance.
    pub size: u32,
}

/// One `ResourceQuota` with HAMi's `limits.` names. A pod must fit in all quotas of its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// The namespace of the quota.
    pub namespace: String,
    /// The name of the quota.
    pub name: String,
    /// The limit of cards, summed over all containers.
    #[serde(default)]
    pub gpu: Option<u64>,
    /// The limit of memory: MiB, summed over all cards of all containers.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// The limit of cores: percent, summed over all cards of all containers.
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
