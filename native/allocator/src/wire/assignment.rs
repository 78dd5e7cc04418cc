//! Assignments: the cards that are allocated to the containers of a pod.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One card that is allocated to one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardAllocation {
    /// The card's UUID.
    pub card: String,
    /// The memory limit inside the container.
    pub memory_mib: u64,
    /// Percent of the card that count as allocated; 0 means no limit.
    pub cores: u32,
    /// The MIG instance, on a card in MIG mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Instance>,
}

/// A MIG instance and its placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// The name of the profile.
    pub profile: String,
    /// Its first memory slice.
    pub start: u32,
    /// Its memory slices.
    pub size: u32,
}

/// The cards of a pod: the annotation `hami.io/assignment`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The version of the format, [`Assignment::VERSION`].
    pub version: u32,
    /// The UID of the pod.
    pub pod: String,
    /// The name of the node.
    pub node: String,
    /// The cards by the name of the container.
    pub containers: BTreeMap<String, Vec<CardAllocation>>,
}

impl Assignment {
    /// The version that this allocator reads and writes.
    pub const VERSION: u32 = 1;
}
