//! What goes in and out as JSON: cards, requests, assignments, quotas.
//!
//! Python describes the same values (`hami_py/model/pods`); these types are the schema. Keys are
//! `snake_case`, an unknown one is an error, an absent one has its default. Memory is in MiB, cores
//! are percent of a card.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

/// The part of a container in its pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An ordinary init container: one after another, over before the apps start.
    Init,
    /// An init container with `restartPolicy: Always`: from its start to the pod's end.
    Sidecar,
    /// All of them at a time.
    App,
}

/// Memory on each card of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// So many MiB.
    Mib(u64),
    /// So many hundredths of the card's memory, rounded down to MiB; the overhead is within.
    Percent(u32),
    /// All of the card's memory; the overhead is within.
    Whole,
}

/// What one container asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Its name in the pod.
    pub container: String,
    /// When it runs.
    pub kind: Kind,
    /// So many different cards; MIG instances may be of one card.
    pub cards: u32,
    /// On each of them.
    pub memory: Memory,
    /// Percent of each; 0 is no limit, 100 a card of its own.
    #[serde(default)]
    pub cores: u32,
}

/// One key of the order in which cards are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The fullest card first.
    Binpack,
    /// The emptiest card first.
    Spread,
    /// Cards of one NUMA node together, as far as that can be.
    Numa,
    /// As [`Topology::BestEffort`].
    Topology,
    /// Idle cards only.
    Mutex,
}

/// Whether the links between a container's cards matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// They do not.
    #[default]
    None,
    /// The best linked of the free cards.
    BestEffort,
    /// As well linked as any so many cards of the node, or not at all.
    Strict,
}

/// How much each measure counts where cards or nodes are said to be full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// Containers on it.
    #[serde(default = "one")]
    pub slot: u32,
    /// Cores given.
    #[serde(default = "one")]
    pub core: u32,
    /// Memory given.
    #[serde(default = "one")]
    pub memory: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { slot: 1, core: 1, memory: 1 }
    }
}

/// What a pod wishes of its cards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wish {
    /// Only these UUIDs, if any.
    #[serde(rename = "use")]
    pub uuids: Vec<String>,
    /// None of these.
    pub avoid: Vec<String>,
    /// Only models with one of these in their names, whatever the case.
    pub types: Vec<String>,
    /// No model with one of these.
    pub avoid_types: Vec<String>,
    /// All cards of a container on one NUMA node.
    pub numa: bool,
    /// Keys by which cards are tried, the first one first.
    pub order: Vec<Order>,
    /// Links between the cards of a container.
    pub topology: Topology,
    /// Idle cards only.
    pub mutex: bool,
    /// What full means.
    pub weights: Option<Weights>,
    /// Which nodes score best; binpack where nothing is said.
    pub node_order: Option<Placement>,
    /// A node's mode, or `hami-core` for any but `mig` and `mps`.
    pub mode: Option<String>,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// Its only name here.
    pub uid: String,
    /// Whose quotas count.
    pub namespace: String,
    /// For people.
    pub name: String,
}

/// All that a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Who asks.
    pub pod: Pod,
    /// Kubernetes' priority of the pod.
    #[serde(default)]
    pub priority: i32,
    /// In the pod's order, init containers first; containers that ask for no GPU are left out.
    pub asks: Vec<Ask>,
    /// Of all containers.
    #[serde(default)]
    pub wish: Wish,
}

/// One card of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The card's UUID.
    pub card: String,
    /// The limit inside the container; the card's overhead comes on top.
    pub memory_mib: u64,
    /// Percent that count against the card; 0 is no limit.
    pub cores: u32,
    /// The instance, where the card is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Instance>,
}

/// A MIG instance's exact place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// The profile's name.
    pub profile: String,
    /// Its first memory slice.
    pub start: u32,
    /// Its memory slices.
    pub size: u32,
}

/// A pod's cards: the annotation `hami.io/assignment`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// [`Assignment::VERSION`].
    pub version: u32,
    /// The pod's UID.
    pub pod: String,
    /// The node's name.
    pub node: String,
    /// By container name.
    pub containers: BTreeMap<String, Vec<Grant>>,
}

impl Assignment {
    /// The one that is spoken here.
    pub const VERSION: u32 = 1;
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

/// A pod that may have to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Its UID.
    pub uid: String,
    /// Kubernetes' priority of it.
    pub priority: i32,
    /// Whether its going violates a `PodDisruptionBudget`.
    #[serde(default)]
    pub pdb_violating: bool,
    /// It goes in any case.
    #[serde(default)]
    pub chosen: bool,
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

fn one() -> u32 {
    1
}
