//! Requests: what a pod requests, and the candidates for preemption.

use super::cluster::{Level, Placement};
use serde::{Deserialize, Serialize};

/// When a container runs in the life of its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An ordinary init container. They run one after another, and end before the app containers
    /// start.
    Init,
    /// A sidecar: an init container with `restartPolicy: Always`. It runs from its start to the end
    /// of the pod.
    Sidecar,
    /// An app container. They run at the same time.
    App,
}

/// The memory that a container requests on each of its cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// A number of MiB.
    Mib(u64),
    /// Percent of the memory of the card, rounded down to MiB.
    Percent(u32),
    /// All memory of the card.
    Whole,
}

/// The cards that one container requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerRequest {
    /// The name of the container.
    #[serde(rename = "container")]
    pub name: String,
    /// When the container runs.
    pub kind: Kind,
    /// How many different cards. MIG instances may be on one card.
    pub cards: u32,
    /// The memory on each card.
    pub memory: Memory,
    /// Percent of each card; 0 means no limit, 100 a card that the container does not share.
    #[serde(default)]
    pub cores: u32,
}

/// A key of the order in which cards are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The fullest card first.
    Binpack,
    /// The emptiest card first.
    Spread,
    /// Cards of one NUMA node together, if possible.
    Numa,
    /// The same as [`Topology::BestEffort`].
    Topology,
    /// Only cards that no other pod uses.
    Mutex,
}

/// Whether the links between the cards of a container matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// They do not matter.
    #[default]
    None,
    /// The best linked of the cards that have room.
    BestEffort,
    /// Cards that are linked as well as the best of the node; otherwise the node does not fit.
    Strict,
}

/// How a pod requests its cards to be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// By our library: on cards below the level `mig`, on nodes of any mode except `mps`.
    HamiCore,
    /// By MIG: on cards of the level `mig`.
    Mig,
    /// By MPS: on nodes of mode `mps`.
    Mps,
}

/// The weights of slots, cores and memory in the fullness of a card or node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// The weight of allocated slots.
    #[serde(default = "one")]
    pub slot: u32,
    /// The weight of allocated cores.
    #[serde(default = "one")]
    pub core: u32,
    /// The weight of allocated memory.
    #[serde(default = "one")]
    pub memory: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { slot: 1, core: 1, memory: 1 }
    }
}

/// Which cards a pod requests, from its annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CardRequest {
    /// Only cards with these UUIDs; empty: any card.
    #[serde(rename = "use")]
    pub uuids: Vec<String>,
    /// No card with one of these UUIDs.
    pub avoid: Vec<String>,
    /// Only models whose name contains one of these words, in any case; empty: any model.
    pub types: Vec<String>,
    /// No model whose name contains one of these words.
    pub avoid_types: Vec<String>,
    /// Whether all cards of a container must be on one NUMA node.
    pub numa: bool,
    /// The keys of the order in which cards are tried. The first key decides; the next one breaks
    /// its ties.
    pub order: Vec<Order>,
    /// Whether the links between the cards of a container matter.
    pub topology: Topology,
    /// Only cards that no other pod uses.
    pub mutex: bool,
    /// The weights of fullness; the default counts slots, cores and memory equally.
    pub weights: Option<Weights>,
    /// Whether full or empty nodes score best; binpack by default.
    pub node_order: Option<Placement>,
    /// Only cards that are shared in this way.
    pub mode: Option<Sharing>,
    /// Only cards that offer at least this level.
    pub isolation: Level,
}

/// The pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// The UID, which identifies the pod.
    pub uid: String,
    /// The namespace, whose quotas apply.
    pub namespace: String,
    /// The name, for messages.
    pub name: String,
}

/// The request of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodRequest {
    /// The pod.
    pub pod: Pod,
    /// The priority of the pod in Kubernetes.
    #[serde(default)]
    pub priority: i32,
    /// The containers that request cards, in the order of the pod: init containers first.
    pub containers: Vec<ContainerRequest>,
    /// Which cards.
    #[serde(default)]
    pub card_request: CardRequest,
}

/// A pod that could be evicted for another pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// The UID of the pod.
    pub uid: String,
    /// The priority of the pod in Kubernetes.
    pub priority: i32,
    /// Whether its eviction violates a `PodDisruptionBudget`.
    #[serde(default)]
    pub pdb_violating: bool,
    /// Whether kube-scheduler has chosen it already: it is evicted in any case.
    #[serde(default)]
    pub chosen: bool,
}

fn one() -> u32 {
    1
}
