//! What is asked: by a pod that wants cards, and of pods that may have to go for it.

use super::cluster::Placement;
use serde::{Deserialize, Serialize};

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

/// How a card is shared, as far as a pod may wish for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// By our library: any mode but NVIDIA's two.
    HamiCore,
    /// By the node's mode of that name.
    Mig,
    /// By the node's mode of that name.
    Mps,
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
    /// Only nodes that share their cards in this way.
    pub mode: Option<Sharing>,
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

fn one() -> u32 {
    1
}
